//! A query returns the same result wherever its samples are: in the head, in segments, in blocks or
//! in merged days. Down-sampled rows return approximately the same.

use super::bench_store::{BEGIN, DAY, HOUR, SECOND, claim, config};
use prometheus_client::registry::Registry;
use proptest::collection;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::{Memory, Options, Source, Value};
use takt_store::{Clock, Group, STALE, Store, StoreConfig};
use tempfile::tempdir;

const MINUTE: i64 = 60 * SECOND;

/// A counter that restarts, a changing decimal, a series that comes and goes, a series of the first
/// hour only.
const SERIES: [&str; 4] = ["restarting_total", "moving", "coming", "first_hour"];

fn value(series: usize, at: i64) -> Option<f64> {
    let minutes = (at - BEGIN) as f64 / MINUTE as f64;
    match series {
        0 => Some((minutes % 47.0 * 10.0).floor()),
        1 => Some(((minutes / 9.0).sin() * 1000.0).round() / 10.0),
        2 => (minutes % 7.0 < 5.0).then_some(minutes.floor()),
        _ => (minutes < 60.0).then_some(7.0),
    }
}

fn labels(series: usize) -> Labels {
    [(METRIC_NAME, SERIES[series]), ("node", "g01")]
        .into_iter()
        .collect()
}

/// A store, and the same samples in plain memory.
struct Twin {
    root: PathBuf,
    config: StoreConfig,
    now: Arc<AtomicI64>,
    open: Option<(Store, Group)>,
    plain: Memory,
    /// Series in the group's last row.
    was_there: [bool; 4],
}

impl Twin {
    fn new(root: &Path, config: StoreConfig) -> Self {
        let now = Arc::new(AtomicI64::new(BEGIN));
        let mut twin = Self {
            root: root.to_owned(),
            config,
            now,
            open: None,
            plain: Memory::new(),
            was_there: [false; 4],
        };
        twin.reopen();
        twin
    }

    fn reopen(&mut self) {
        self.open = None;
        let shown = Arc::clone(&self.now);
        let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
        let directory = claim(&self.root);
        let store =
            Store::open_at(directory, &self.config, &mut Registry::default(), clock).unwrap();
        let group = store.group();
        self.open = Some((store, group));
        self.was_there = [false; 4];
    }

    fn store(&self) -> &Store {
        &self.open.as_ref().unwrap().0
    }

    fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Writes rows, from the current time on.
    fn scrape(&mut self, rows: usize, step: i64) {
        let mut plain: [Vec<(i64, Option<f64>)>; 4] = Default::default();
        for _ in 0..rows {
            let at = self.now.fetch_add(step, Ordering::SeqCst) + step;
            let (_, group) = self.open.as_ref().unwrap();
            let mut row = vec![STALE; group.width() + SERIES.len()];
            for (series, was_there) in self.was_there.iter_mut().enumerate() {
                let found = value(series, at);
                if let Some(found) = found {
                    row[group.column(&labels(series)).unwrap().index()] = found;
                }
                if found.is_some() || *was_there {
                    plain[series].push((at, found));
                }
                *was_there = found.is_some();
            }
            group
                .commit(group.ticket(Timestamp(at)).unwrap(), &row, &[])
                .unwrap();
        }
        for (series, samples) in plain.into_iter().enumerate() {
            let samples = samples
                .into_iter()
                .map(|(at, value)| (Timestamp(at), value));
            self.plain.add(labels(series), samples);
        }
        self.store().flush();
    }

    fn answer(source: &dyn Source, query: &str, at: Asked) -> Value {
        let options = Options::default();
        let answer = match at {
            Asked::At(at) => takt_promql::instant(source, query, Timestamp(at), &options),
            Asked::Between(from, to, step) => takt_promql::range(
                source,
                query,
                Timestamp(from),
                Timestamp(to),
                step,
                &options,
            ),
        };
        let mut value = answer
            .unwrap_or_else(|error| panic!("{query}: {error}"))
            .value;
        if let Value::Vector(samples) = &mut value {
            // PromQL keeps the order of the source.
            samples.sort_by(|one, other| one.labels.cmp(&other.labels));
        }
        value
    }

    fn compare(&self, query: &str, at: Asked) {
        let found = Self::answer(self.store(), query, at);
        let expected = Self::answer(&self.plain, query, at);
        // The text distinguishes NaN from no value.
        assert_eq!(
            format!("{found:?}"),
            format!("{expected:?}"),
            "{query} at {at:?}, now {}",
            self.now()
        );
    }
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    At(i64),
    Between(i64, i64, i64),
}

#[derive(Debug, Clone)]
enum Step {
    Scrape {
        rows: usize,
        step: i64,
    },
    Seal,
    Reopen,
    /// Minutes without samples. The compactor runs.
    Pause(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_usize..40, prop::sample::select(vec![15 * SECOND, MINUTE])).prop_map(|(rows, step)| Step::Scrape { rows, step }),
        2 => Just(Step::Seal),
        1 => Just(Step::Reopen),
        1 => prop::sample::select(vec![3, 40, 1450]).prop_map(Step::Pause),
    ]
}

const QUERIES: [&str; 10] = [
    "{node=\"g01\"}",
    "timestamp(coming)",
    "increase(restarting_total[7m])",
    "rate(restarting_total[1h])",
    "irate(restarting_total[3m])",
    "sum_over_time(moving[11m]) / count_over_time(moving[11m])",
    "max_over_time(coming[20m]) - min_over_time(coming[20m])",
    "changes(coming[30m])",
    "last_over_time(first_hour[2h])",
    "avg_over_time(moving[26h])",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_query_answers_the_same_wherever_the_samples_are(
        steps in collection::vec(step(), 3..14),
        asked in collection::vec((0.0_f64..1.1, 0_usize..QUERIES.len(), any::<bool>()), 12),
    ) {
        let root = tempdir().unwrap();
        let mut twin = Twin::new(root.path(), config());
        for step in steps {
            match step {
                Step::Scrape { rows, step } => twin.scrape(rows, step),
                Step::Seal => drop(twin.store().seal().unwrap()),
                Step::Reopen => twin.reopen(),
                Step::Pause(minutes) => {
                    twin.now.fetch_add(minutes * MINUTE, Ordering::SeqCst);
                    twin.store().keep().unwrap();
                }
            }
            let end = twin.now();
            for &(part, query, is_range) in &asked {
                let at = BEGIN + ((end - BEGIN) as f64 * part) as i64;
                let asked = if is_range {
                    Asked::Between(at, at + 20 * MINUTE, 37 * SECOND)
                } else {
                    Asked::At(at)
                };
                twin.compare(QUERIES[query], asked);
            }
            for query in QUERIES {
                twin.compare(query, Asked::At(end));
            }
        }
    }
}

/// Six days with a sample per minute. Samples are kept for one day, five-minute rows for three,
/// hourly rows for all.
#[test]
fn rows_answer_like_their_samples() {
    let root = tempdir().unwrap();
    let config = StoreConfig {
        retention_days: 1,
        retention_5m_days: 3,
        retention_1h_days: 30,
        head_minutes: 15,
        ..config()
    };
    let mut twin = Twin::new(root.path(), config);
    for _ in 0..6 * 24 {
        twin.scrape(60, MINUTE);
        twin.store().seal().unwrap();
    }
    let stat = twin.store().database().stat().unwrap();
    let oldest = |resolution| {
        stat.blocks
            .iter()
            .filter(|b| b.resolution == resolution)
            .map(|b| b.from.0)
            .min()
    };
    let oldest = ["raw", "5m", "1h"].map(|resolution| oldest(resolution).unwrap());
    assert!(
        oldest[0] > oldest[1] + DAY && oldest[1] > oldest[2] + DAY,
        "{stat:?}"
    );

    let one =
        |source: &dyn Source, query: &str, at| match Twin::answer(source, query, Asked::At(at)) {
            Value::Vector(found) => found.first().map(|sample| sample.point.value),
            other => panic!("{other:?}"),
        };
    // The middle of the time with hourly rows only, of the time with five-minute rows, and both
    // transitions.
    let middle = |from: i64, to: i64| (from + (to - from) / 2) / HOUR * HOUR;
    let places = [
        middle(oldest[2], oldest[1]),
        middle(oldest[1], oldest[0]),
        oldest[1] / HOUR * HOUR + 2 * HOUR,
        oldest[0] / HOUR * HOUR + 2 * HOUR,
    ];
    for at in places {
        for function in ["min", "max", "sum", "count", "avg"] {
            let query = format!("{function}_over_time(moving[4h])");
            let found = one(twin.store(), &query, at).unwrap();
            let expected = one(&twin.plain, &query, at).unwrap();
            let is_near = (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
            // Where blocks share an interval, its mean counts twice. At the transition to hourly
            // rows, a part of an hour is missing.
            assert!(
                is_near || at >= oldest[1],
                "{query} at {at}: {found}, expected {expected}"
            );
            assert!(
                (found - expected).abs() <= 0.1 * expected.abs().max(1.0),
                "{query} at {at}: {found}, expected {expected}"
            );
        }
        // A counter that resets within rows, and across the ends of days.
        for query in [
            "increase(restarting_total[6h])",
            "increase(restarting_total[1d])",
            "rate(restarting_total[2h])",
        ] {
            let found = one(twin.store(), query, at).unwrap();
            let expected = one(&twin.plain, query, at).unwrap();
            assert!(
                (found - expected).abs() <= 0.02 * expected,
                "{query} at {at}: {found}, expected {expected}"
            );
        }
    }
}
