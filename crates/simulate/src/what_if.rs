//! The difference between a past period and the same period with changes, from pairs of replays.

use crate::back_test::quantile;
use crate::past::{PastPeriod, PastReplay, PeriodUse, size_of};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Change of a mean wait below which nobody wins or loses, in seconds: the scheduler's own cycles take as long.
const EQUAL_SECONDS: f64 = 60.0;

/// Fewest pairs of replays from which somebody wins or loses.
const LEAST_PAIRS: usize = 5;

/// What the jobs of a row have in common.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the field of a job of this name")]
pub enum WaitGroup {
    #[default]
    All,
    Partition,
    Size,
    Account,
    User,
}

impl WaitGroup {
    const EACH: [Self; 4] = [Self::Partition, Self::Size, Self::Account, Self::User];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Partition => "partition",
            Self::Size => "size",
            Self::Account => "account",
            Self::User => "user",
        }
    }
}

/// Waits of some jobs, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitFigures {
    /// Median.
    pub median_seconds: f64,
    /// 90th percentile.
    pub p90_seconds: f64,
    /// Mean.
    pub mean_seconds: f64,
}

/// A difference: the median of the pairs of replays, and between which values it is in four fifths of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeInterval {
    /// 10th percentile.
    pub low: f64,
    /// Median.
    pub middle: f64,
    /// 90th percentile.
    pub high: f64,
}

impl ChangeInterval {
    /// The interval of some values.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            low: quantile(&values, 0.1),
            middle: quantile(&values, 0.5),
            high: quantile(&values, 0.9),
        }
    }
}

/// Whether a change is good for some jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitTrend {
    /// They wait less.
    Wins,
    /// They wait longer.
    Loses,
    /// The interval contains no change, or is of too few pairs.
    #[default]
    Same,
}

/// Waits of some jobs before and after a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitDifference {
    /// What the jobs have in common.
    pub by: WaitGroup,
    /// Name of the partition, size, account or user; empty for all jobs.
    pub name: String,
    /// Jobs that waited, or could have, before the change.
    pub jobs: usize,
    /// Before.
    pub before: WaitFigures,
    /// After.
    pub after: WaitFigures,
    /// Jobs that never start after the change, but do before. The waits are those of the others.
    #[serde(default)]
    pub lost_jobs: usize,
    /// Change of the mean wait, in seconds.
    pub mean_change_seconds: ChangeInterval,
    /// Who wins.
    pub trend: WaitTrend,
}

/// Differences between pairs of replays.
#[derive(Debug, Clone, Default)]
pub struct PeriodDifference {
    /// Pairs of replays.
    pub pairs: u32,
    /// All jobs, then each partition, size, account and user.
    pub rows: Vec<WaitDifference>,
    /// What the jobs held before, in the period as it was.
    pub before: PeriodUse,
    /// What the jobs held after, without random changes.
    pub after: PeriodUse,
    /// Change of the utilization of all GPUs, or CPUs, from 0 to 1.
    pub use_change: ChangeInterval,
    /// Jobs that never start after the change, but do before.
    pub lost_jobs: usize,
}

/// Compares a period with a changed one: pairs of replays with the same random changes, while `goes_on` says so, which is
/// asked with the number of whole pairs. `None` if there is no pair.
pub fn compare_periods(
    before: &PastPeriod,
    after: &PastPeriod,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Option<PeriodDifference> {
    let mut tables = [GroupTable::of(before), GroupTable::of(after)];
    let capacities = [before.capacity(), after.capacity()];
    let mut pairs = 0;
    let mut uses = Vec::new();
    let mut lost_jobs = 0;
    let mut first: Option<(PeriodUse, PeriodUse)> = None;

    while goes_on(pairs) {
        let Some(as_it_was) = before.replay(pairs, &mut || goes_on(pairs)) else {
            break;
        };
        let Some(changed) = after.replay(pairs, &mut || goes_on(pairs)) else {
            break;
        };
        tables[0].add(&as_it_was);
        tables[1].add(&changed);

        let ratio = |use_: &PeriodUse, of: &PeriodUse| use_.ratio(of, "").unwrap_or(0.0);
        uses.push(ratio(&changed.used, &capacities[1]) - ratio(&as_it_was.used, &capacities[0]));
        if first.is_none() {
            lost_jobs = changed
                .without_start
                .saturating_sub(as_it_was.without_start);
            first = Some((as_it_was.used, changed.used));
        }
        pairs += 1;
    }

    let (used_before, used_after) = first?;
    let [before, after] = tables;
    Some(PeriodDifference {
        pairs,
        rows: differences(&before, &after),
        before: used_before,
        after: used_after,
        use_change: ChangeInterval::of(uses),
        lost_jobs,
    })
}

/// The groups of a period's jobs, with their figures in each replay.
struct GroupTable {
    names: Vec<(WaitGroup, Arc<str>)>,
    /// Groups of each job.
    of_job: Vec<[u32; 4]>,
    jobs: Vec<usize>,
    /// Whether each job ran already when the period began.
    ran: Vec<bool>,
    /// Jobs of each group that never started, in the first replay.
    lost: Vec<usize>,
    /// Figures of each group in each replay. `None` where none of its jobs started.
    figures: Vec<Vec<Option<WaitFigures>>>,
}

impl GroupTable {
    fn of(period: &PastPeriod) -> Self {
        let mut known: HashMap<(WaitGroup, Arc<str>), u32> = HashMap::new();
        let mut names: Vec<(WaitGroup, Arc<str>)> = vec![(WaitGroup::All, "".into())];
        let sizes: HashMap<&str, Arc<str>> = period
            .jobs
            .iter()
            .map(|one| (size_of(&one.job), Arc::from(size_of(&one.job))))
            .collect();

        let mut of_job = Vec::with_capacity(period.jobs.len());
        for one in &period.jobs {
            let job = &one.job;
            let group_of = |by: WaitGroup| match by {
                WaitGroup::Partition | WaitGroup::All => Arc::clone(&job.partition),
                WaitGroup::Size => Arc::clone(&sizes[size_of(job)]),
                WaitGroup::Account => Arc::clone(&job.account),
                WaitGroup::User => Arc::clone(&job.user),
            };
            of_job.push(WaitGroup::EACH.map(|by| {
                let key = (by, group_of(by));
                *known.entry(key).or_insert_with_key(|key| {
                    names.push(key.clone());
                    names.len() as u32 - 1
                })
            }));
        }

        let count = names.len();
        let mut jobs = vec![0; count];
        for (one, groups) in period.jobs.iter().zip(&of_job) {
            if one.job.running.is_none() {
                jobs[0] += 1;
                groups.iter().for_each(|group| jobs[*group as usize] += 1);
            }
        }
        Self {
            names,
            of_job,
            jobs,
            ran: period
                .jobs
                .iter()
                .map(|one| one.job.running.is_some())
                .collect(),
            lost: vec![0; count],
            figures: vec![Vec::new(); count],
        }
    }

    fn add(&mut self, replay: &PastReplay) {
        let is_first = self.figures[0].is_empty();
        let mut waits: Vec<Vec<i64>> = vec![Vec::new(); self.names.len()];
        for ((wait, groups), ran) in replay.waits.iter().zip(&self.of_job).zip(&self.ran) {
            let Some(wait) = wait else {
                if is_first && !ran {
                    self.lost[0] += 1;
                    groups
                        .iter()
                        .for_each(|group| self.lost[*group as usize] += 1);
                }
                continue;
            };
            waits[0].push(*wait);
            for group in groups {
                waits[*group as usize].push(*wait);
            }
        }
        for (figures, waits) in self.figures.iter_mut().zip(waits) {
            figures.push(figures_of(waits));
        }
    }
}

fn figures_of(mut waits: Vec<i64>) -> Option<WaitFigures> {
    if waits.is_empty() {
        return None;
    }
    waits.sort_unstable();
    let sum: f64 = waits.iter().map(|wait| *wait as f64).sum();
    Some(WaitFigures {
        median_seconds: quantile(&waits, 0.5) as f64,
        p90_seconds: quantile(&waits, 0.9) as f64,
        mean_seconds: sum / waits.len() as f64,
    })
}

fn differences(before: &GroupTable, after: &GroupTable) -> Vec<WaitDifference> {
    let places: BTreeMap<(WaitGroup, &str), usize> = after
        .names
        .iter()
        .enumerate()
        .map(|(at, (by, name))| ((*by, &**name), at))
        .collect();

    let mut rows = Vec::new();
    for (at, (by, name)) in before.names.iter().enumerate() {
        let Some(then) = places.get(&(*by, &**name)) else {
            continue;
        };
        let pairs: Vec<(WaitFigures, WaitFigures)> = before.figures[at]
            .iter()
            .zip(&after.figures[*then])
            .filter_map(|(before, after)| Some(((*before)?, (*after)?)))
            .collect();
        let lost_jobs = after.lost[*then].saturating_sub(before.lost[at]);
        if pairs.is_empty() && lost_jobs == 0 {
            continue;
        }

        let change = pairs
            .iter()
            .map(|(before, after)| after.mean_seconds - before.mean_seconds);
        let change = ChangeInterval::of(change.collect());
        rows.push(WaitDifference {
            by: *by,
            name: name.to_string(),
            jobs: before.jobs[at],
            before: middle(pairs.iter().map(|(before, _)| *before)),
            after: middle(pairs.iter().map(|(_, after)| *after)),
            mean_change_seconds: change,
            lost_jobs,
            // Who can no longer run has not won, however short the others' waits are.
            trend: match lost_jobs {
                0 => trend(change, pairs.len()),
                _ => WaitTrend::Loses,
            },
        });
    }
    // Within a kind, the largest change first.
    rows.sort_by(|a, b| {
        let size = |row: &WaitDifference| row.mean_change_seconds.middle.abs() * row.jobs as f64;
        (a.by.cmp(&b.by))
            .then(size(b).total_cmp(&size(a)))
            .then(a.name.cmp(&b.name))
    });
    rows
}

/// The median of each figure.
fn middle(figures: impl Iterator<Item = WaitFigures> + Clone) -> WaitFigures {
    let of = |figure: fn(&WaitFigures) -> f64| {
        let mut values: Vec<f64> = figures.clone().map(|one| figure(&one)).collect();
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.5)
    };
    WaitFigures {
        median_seconds: of(|one| one.median_seconds),
        p90_seconds: of(|one| one.p90_seconds),
        mean_seconds: of(|one| one.mean_seconds),
    }
}

fn trend(change: ChangeInterval, pairs: usize) -> WaitTrend {
    match () {
        // The ends of an interval of a few pairs are its pairs.
        () if pairs < LEAST_PAIRS => WaitTrend::Same,
        () if change.high < -EQUAL_SECONDS => WaitTrend::Wins,
        () if change.low > EQUAL_SECONDS => WaitTrend::Loses,
        () => WaitTrend::Same,
    }
}
