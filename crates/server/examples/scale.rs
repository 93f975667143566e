//! A store with millions of series, for `bench/scale.sh`: CPU, memory, disk, queries, rules, start.
//!
//! ```text
//! scale DIRECTORY fill NODES SERIES ROWS   NODES nodes with SERIES series each, ROWS rows 15 s apart
//! scale DIRECTORY open                     start, queries, sealing, merging
//! ```
//!
//! The nodes replay a captured page. The clock runs as fast as the store accepts rows, so the figures
//! are per sample: only the time between two rows is thinned. `HEAD_MINUTES` sets
//! `store.head_minutes`, `CRASH` ends `fill` like kill -9.

#![expect(
    clippy::print_stdout,
    reason = "a measurement, run by hand, that prints its result"
)]

#[path = "../../store/examples/nodes/mod.rs"]
mod nodes;

use nodes::{Captured, Failure, Nodes};
use prometheus_client::registry::Registry;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use takt_alerts::Engine;
use takt_alerts::engine::Server;
use takt_alerts::events::xid::XidTable;
use takt_alerts::group::Defaults;
use takt_alerts::ports::{ExporterState, Query, QueryError, Sample, SampleSink, StoreError};
use takt_alerts::routing::Settings;
use takt_model::{Labels, Timestamp};
use takt_promql::{Limits, Options, Value};
use takt_server::alerting::{self, Writer};
use takt_server::config::Config;
use takt_store::{Clock, CompactionSummary, DataDir, Store, StoreConfig};

const STEP_SECONDS: i64 = 15;

/// Rows before the measurement: the first stores the series.
const WARM_UP: usize = 2;

/// Questions of pages and dashboards, with the minutes of a range; 0 is an instant.
const QUERIES: [(i64, &str); 9] = [
    (0, "takt_gpu_temperature_celsius{node=\"n07\"}"),
    (0, "{node=\"n07\"}"),
    (15, "takt_gpu_utilization_ratio{node=\"n07\"}"),
    (0, "avg(takt_gpu_utilization_ratio)"),
    (15, "avg(takt_gpu_utilization_ratio)"),
    (0, "topk(10, takt_gpu_temperature_celsius)"),
    (
        0,
        "sum by (mode) (rate(node_cpu_seconds_total{node=\"n07\"}[5m]))",
    ),
    (
        0,
        "sum by (node) (rate(node_cpu_seconds_total{mode!=\"idle\"}[5m]))",
    ),
    (0, "count by (node) ({__name__=~\".+\"})"),
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [directory, "fill", nodes, series, rows] => fill(
            Path::new(directory),
            (nodes.parse()?, series.parse()?, rows.parse()?),
        ),
        [directory, "open"] => open(Path::new(directory)),
        _ => Err("usage: scale DIRECTORY fill NODES SERIES ROWS, or scale DIRECTORY open".into()),
    }
}

fn fill(directory: &Path, (count, series, rows): (usize, usize, usize)) -> Result<(), Failure> {
    let step_ms = 1000 * STEP_SECONDS;
    let begin = Timestamp::from(SystemTime::now()).minus_ms(rows as i64 * step_ms);
    let now = Arc::new(AtomicI64::new(begin.0));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
    let store = open_at(directory, clock)?;
    let all = count * series;
    println!("{count} nodes with {series} series, {rows} rows {STEP_SECONDS} s apart");

    let page = page()?;
    let used = Cpu::now();
    let before = resident();
    let mut nodes = Nodes::new(&store, &page, count, series)?;
    println!(
        "new series: {:.2} µs each, {:.0} bytes",
        used.since(&[]) * 1e6 / all as f64,
        (resident() - before) / all as f64
    );
    let mut used = Cpu::now();
    for row in 0..rows {
        if row == WARM_UP {
            store.flush();
            println!(
                "first {WARM_UP} rows: {:.2} µs a series",
                used.since(&[]) * 1e6 / all as f64
            );
            used = Cpu::now();
        }
        let at = begin.plus_ms(row as i64 * step_ms);
        now.store(at.0 + step_ms - 1, Ordering::SeqCst);
        let spread = |node: usize| at.plus_ms((node * 14_000 / count) as i64);
        nodes.write(row * STEP_SECONDS as usize, spread)?;
        store.flush();
        if row % 8 == 7 {
            println!("row {}: {}", row + 1, memory(before, all));
        }
    }
    let samples = (rows.saturating_sub(WARM_UP).max(1) * all) as f64;
    let [main, writer, sealing] = [
        used.since(&["scale"]),
        used.since(&["takt-samples"]),
        used.since(&["takt-compactor"]),
    ]
    .map(|seconds| seconds * 1e6 / samples);
    println!(
        "samples: {main:.3} µs in the head (and to make them), {writer:.3} to write, {sealing:.3} to seal meanwhile"
    );
    let bytes = bytes(&directory.join("unsealed"));
    println!("unsealed: {:.0} MB", bytes as f64 / 1e6);

    // A segment that is being sealed would take time from the queries.
    store.keep()?;
    let newest = begin.plus_ms(rows as i64 * step_ms - 1);
    ask(&store, newest);
    evaluate(&store, newest)?;
    println!("after queries and rules: {}", memory(before, all));
    if env::var_os("CRASH").is_some() {
        process::abort();
    }
    let used = Cpu::now();
    let clock = Instant::now();
    drop(nodes);
    drop(store);
    println!(
        "stop: {:.1} s of CPU, {:.1} s",
        used.since(&[]),
        clock.elapsed().as_secs_f64()
    );
    Ok(())
}

fn open(directory: &Path) -> Result<(), Failure> {
    let ahead = Arc::new(AtomicI64::new(0));
    let shown = Arc::clone(&ahead);
    let clock = move || Timestamp::from(SystemTime::now()).plus_ms(shown.load(Ordering::SeqCst));
    let used = Cpu::now();
    let began = Instant::now();
    let store = open_at(directory, Clock::new(clock))?;
    let all = store.count(&[]);
    println!(
        "start with {all} series: {:.1} s of CPU, {:.1} s; {}",
        used.since(&[]),
        began.elapsed().as_secs_f64(),
        memory(0.0, all)
    );
    let newest = store.watermark();
    ask(&store, newest);
    compact("sealing", &store, Store::seal)?;
    ask(&store, newest);
    // The day is finished.
    ahead.store(26 * 3_600_000, Ordering::SeqCst);
    compact("merging the day", &store, Store::keep)?;
    println!("{}", memory(0.0, all));
    Ok(())
}

/// Prints the CPU time of a step of the compactor, and the size of the samples after it.
fn compact(
    name: &str,
    store: &Store,
    step: impl Fn(&Store) -> Result<CompactionSummary, takt_store::StoreError>,
) -> Result<(), Failure> {
    let used = Cpu::now();
    let done = step(store)?;
    let spent = used.since(&[]);
    let blocks = store.database().stat()?.blocks;
    let raw = || blocks.iter().filter(|block| block.resolution == "raw");
    let rows: u64 = raw().map(|block| block.rows).sum();
    let bytes: u64 = raw().map(|block| block.bytes).sum();
    println!(
        "{name}: {spent:.1} s of CPU for {} rows; now {rows} samples in {} blocks, {:.2} bytes each",
        done.rows,
        raw().count(),
        bytes as f64 / rows.max(1) as f64
    );
    Ok(())
}

fn open_at(directory: &Path, clock: Clock) -> Result<Store, Failure> {
    let mut config = StoreConfig {
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    if let Ok(minutes) = env::var("HEAD_MINUTES") {
        config.head_minutes = minutes.parse()?;
    }
    let directory = DataDir::claim(directory)?;
    let mut registry = Registry::default();
    Ok(Store::open_at(directory, &config, &mut registry, clock)?)
}

/// The captured page, with the series that the server adds.
fn page() -> Result<Vec<Captured>, Failure> {
    let mut page = nodes::read(Path::new(nodes::PAGE))?;
    page.push(Captured {
        name: "up".to_owned(),
        labels: BTreeMap::new(),
        is_counter: false,
        values: vec![1.0],
    });
    Ok(page)
}

/// Prints the time of each query, the quicker of two.
fn ask(store: &Store, at: Timestamp) {
    println!("queries:");
    for (minutes, query) in QUERIES {
        let took = [(); 2].map(|()| {
            let used = Cpu::now();
            let clock = Instant::now();
            let answer = answer(store, query, minutes, at);
            (clock.elapsed(), used.since(&[]), answer)
        });
        let [first, second] = took;
        let (clock, used, answer) = if second.0 < first.0 { second } else { first };
        let answer = answer.map_or_else(|error| error, |count| format!("{count} series"));
        println!(
            "{:9.1} ms, {:9.1} of CPU: {query}, {minutes} min: {answer}",
            clock.as_secs_f64() * 1e3,
            used * 1e3
        );
    }
}

/// Returns the number of series in the answer.
fn answer(store: &Store, query: &str, minutes: i64, at: Timestamp) -> Result<usize, String> {
    let options = Options {
        limits: Limits {
            max_series: 5_000_000,
            ..Limits::default()
        },
        ..Options::default()
    };
    let answer = if minutes == 0 {
        takt_promql::instant(store, query, at, &options)
    } else {
        let start = at.minus_ms(minutes * 60_000);
        takt_promql::range(store, query, start, at, 1000 * STEP_SECONDS, &options)
    };
    let answer = answer.map_err(|error| takt_model::error_chain(&error))?;
    Ok(match answer.value {
        Value::Vector(samples) => samples.len(),
        Value::Matrix(series) => series.len(),
        _ => 1,
    })
}

/// The store as the alert engine uses it.
struct OverStore<'s> {
    store: &'s Store,
    written: RefCell<Writer>,
}

impl Query for OverStore<'_> {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        alerting::instant(self.store, expr, at)
    }

    fn check(&self, _: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

impl SampleSink for OverStore<'_> {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        self.written.borrow_mut().write(samples)
    }
}

/// Evaluates the shipped rules three times, and prints the time of each group.
fn evaluate(store: &Store, newest: Timestamp) -> Result<(), Failure> {
    let loaded = alerting::load(&Config::parse("", Path::new("takt.toml"))?)?;
    let server = Server {
        external_labels: Labels::new(),
        defaults: Defaults {
            interval: Duration::from_secs(15),
            query_offset: Duration::ZERO,
        },
        settings: Settings {
            external_url: String::new(),
            timezone: None,
            pages: None,
        },
        posted_max: 10_000,
    };
    let xids = XidTable::shipped().clone();
    let mut engine = Engine::new(server, &loaded.rules.files, &[], xids, loaded.routing);
    let over = OverStore {
        store,
        written: RefCell::new(Writer::new(store)),
    };
    for round in 0..3 {
        let at = newest.plus_ms(1000 * STEP_SECONDS * round);
        let used = Cpu::now();
        let clock = Instant::now();
        let (_, report) = engine.evaluate(
            &over,
            &over,
            &|_, _| Box::new(|_| ExporterState::Answers),
            at,
        );
        println!(
            "{} groups of rules: {:.2} s of CPU, {:.2} s; {} rules failed",
            report.groups,
            used.since(&[]),
            clock.elapsed().as_secs_f64(),
            report.failures.len()
        );
        for (rule, error) in &report.failures {
            println!("  {rule:?}: {error}");
        }
    }
    let mut cores = 0.0;
    let mut rules = Vec::new();
    for group in engine.groups() {
        let took = group.last().took.as_secs_f64();
        cores += took / group.interval().as_secs_f64();
        println!(
            "{took:8.3} s each {:?}: {}",
            group.interval(),
            group.group().name
        );
        rules.extend(group.views().map(|view| (view.last.took, view.rule)));
    }
    println!("rules take {cores:.3} cores; the slowest:");
    rules.sort_by_key(|(took, _)| Reverse(*took));
    for (took, rule) in rules.iter().take(8) {
        println!("{:8.3} s: {}", took.as_secs_f64(), rule.expr());
    }
    Ok(())
}

/// CPU time of each thread of this process, in nanoseconds, by the thread's name.
struct Cpu(BTreeMap<String, u64>);

impl Cpu {
    fn now() -> Self {
        let mut all = BTreeMap::new();
        for task in fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten()
        {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
            let Some((name, time)) = read("comm").zip(read("schedstat")) else {
                continue;
            };
            let time = time
                .split(' ')
                .next()
                .and_then(|time| time.parse::<u64>().ok());
            *all.entry(name.trim().to_owned()).or_default() += time.unwrap_or_default();
        }
        Self(all)
    }

    /// Seconds of CPU that the threads with these names, or all, used since.
    fn since(&self, names: &[&str]) -> f64 {
        let used = Self::now()
            .0
            .into_iter()
            .filter(|(name, _)| names.is_empty() || names.contains(&name.as_str()))
            .map(|(name, now)| {
                let before = self.0.get(&name).copied().unwrap_or_default();
                now.saturating_sub(before)
            });
        used.sum::<u64>() as f64 / 1e9
    }
}

/// Resident memory of this process, in all and for each series.
fn memory(before: f64, series: usize) -> String {
    let bytes = resident();
    format!(
        "{:.0} MiB resident, {:.0} bytes a series",
        bytes / f64::from(1 << 20),
        (bytes - before) / series.max(1) as f64
    )
}

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|text| text.parse::<f64>().ok())
        .unwrap_or_default()
        * 4096.0
}

/// Size of a folder's files, in bytes.
fn bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}
