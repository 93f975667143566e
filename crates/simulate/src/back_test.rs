//! The distance of a replay from the records.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Waits of one job, recorded and replayed, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited<'a> {
    /// Partition.
    pub partition: &'a str,
    /// Class of its size.
    pub size: &'a str,
    /// Recorded wait.
    pub recorded: i64,
    /// Wait in the replay.
    pub replayed: i64,
}

/// Errors of the waits of some jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackTestRow {
    /// Partition; empty for all.
    pub partition: String,
    /// Class of the size; empty for all.
    pub size: String,
    /// Number of jobs.
    pub jobs: usize,
    /// Mean recorded wait, in seconds.
    pub mean_wait_seconds: f64,
    /// Mean wait in the replay, in seconds.
    pub mean_replayed_seconds: f64,
    /// Median of the recorded waits, in seconds.
    pub median_wait_seconds: i64,
    /// Median of the waits in the replay, in seconds.
    pub median_replayed_seconds: i64,
    /// 90th percentile of the recorded waits, in seconds.
    pub p90_wait_seconds: i64,
    /// 90th percentile of the waits in the replay, in seconds.
    pub p90_replayed_seconds: i64,
    /// Median of the absolute error, in seconds.
    pub median_error_seconds: i64,
    /// 90th percentile of the absolute error, in seconds.
    pub p90_error_seconds: i64,
    /// Sum of the absolute errors over the sum of the recorded waits. `None` if nothing waited.
    pub error_ratio: Option<f64>,
}

/// A back-test: all jobs, then each partition and size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackTest {
    /// All jobs.
    pub all: BackTestRow,
    /// By partition and size.
    pub rows: Vec<BackTestRow>,
}

/// Least jobs of a row whose waits are compared: the 90th percentile of fewer is that of two jobs.
const LEAST_JOBS: usize = 20;

/// Distance of two waits up to which they count as alike, in seconds.
const ALIKE_SECONDS: i64 = 600;

/// Factor between two waits up to which they count as alike.
const ALIKE_FACTOR: i64 = 2;

/// Least share of the compared jobs that are in rows whose waits are alike.
const LEAST_ALIKE_RATIO: f64 = 0.75;

impl BackTestRow {
    /// Whether the waits of the replay are distributed as the recorded ones are: median and 90th percentile each within ten
    /// minutes or a factor of two.
    pub fn is_alike(&self) -> bool {
        are_alike(self.median_wait_seconds, self.median_replayed_seconds)
            && are_alike(self.p90_wait_seconds, self.p90_replayed_seconds)
    }
}

fn are_alike(one: i64, other: i64) -> bool {
    let (low, high) = (one.min(other), one.max(other));
    high - low <= ALIKE_SECONDS || high <= low.saturating_mul(ALIKE_FACTOR)
}

impl BackTest {
    /// Share of the jobs that are in rows whose waits are alike. Rows of few jobs do not count. `None` if none counts.
    pub fn alike_ratio(&self) -> Option<f64> {
        let counted = self.rows.iter().filter(|row| row.jobs >= LEAST_JOBS);
        let (mut all, mut alike) = (0, 0);
        for row in counted {
            all += row.jobs;
            alike += if row.is_alike() { row.jobs } else { 0 };
        }
        (all > 0).then(|| alike as f64 / all as f64)
    }

    /// Whether the replay is close enough to the records to answer from it: its waits are distributed as those of the records.
    /// Single waits are not compared, as one job that starts elsewhere moves all behind it.
    pub fn is_within(&self) -> bool {
        match self.alike_ratio() {
            Some(ratio) => ratio >= LEAST_ALIKE_RATIO,
            None => self.all.jobs > 0 && self.all.is_alike(),
        }
    }

    /// Least share of jobs in rows whose waits are alike, for [`is_within`](Self::is_within).
    pub const LEAST_ALIKE_RATIO: f64 = LEAST_ALIKE_RATIO;
}

/// Returns the class of a job's size.
pub fn size_class(nodes: u32, gpus: u64, cpus: u64) -> &'static str {
    match (gpus, nodes, cpus) {
        (0, 0..=1, 0..=4) => "up to 4 CPUs",
        (0, 0..=1, _) => "more CPUs",
        (0, ..) => "several nodes",
        (1, ..) => "1 GPU",
        (2..=8, ..) => "2 to 8 GPUs",
        _ => "more GPUs",
    }
}

/// Compares the waits of a replay with the recorded ones.
pub fn back_test(waits: &[Waited<'_>]) -> BackTest {
    let mut groups: BTreeMap<(&str, &str), Vec<Waited<'_>>> = BTreeMap::new();
    for one in waits {
        groups
            .entry((one.partition, one.size))
            .or_default()
            .push(*one);
    }

    BackTest {
        all: row("", "", waits),
        rows: groups
            .into_iter()
            .map(|((partition, size), of)| row(partition, size, &of))
            .collect(),
    }
}

fn row(partition: &str, size: &str, waits: &[Waited<'_>]) -> BackTestRow {
    let mut errors: Vec<i64> = waits
        .iter()
        .map(|one| (one.replayed - one.recorded).abs())
        .collect();
    errors.sort_unstable();
    let sorted = |wait: fn(&Waited<'_>) -> i64| {
        let mut sorted: Vec<i64> = waits.iter().map(wait).collect();
        sorted.sort_unstable();
        sorted
    };
    let of_records = sorted(|one| one.recorded);
    let of_replay = sorted(|one| one.replayed);

    let count = waits.len().max(1) as f64;
    let recorded = waits.iter().map(|one| one.recorded as f64).sum::<f64>();
    let replayed = waits.iter().map(|one| one.replayed as f64).sum::<f64>();
    let wrong = errors.iter().map(|error| *error as f64).sum::<f64>();
    BackTestRow {
        partition: partition.to_owned(),
        size: size.to_owned(),
        jobs: waits.len(),
        mean_wait_seconds: recorded / count,
        mean_replayed_seconds: replayed / count,
        median_wait_seconds: quantile(&of_records, 0.5),
        median_replayed_seconds: quantile(&of_replay, 0.5),
        p90_wait_seconds: quantile(&of_records, 0.9),
        p90_replayed_seconds: quantile(&of_replay, 0.9),
        median_error_seconds: quantile(&errors, 0.5),
        p90_error_seconds: quantile(&errors, 0.9),
        error_ratio: (recorded > 0.0).then(|| wrong / recorded),
    }
}

/// The smallest value that at least this fraction of the sorted values does not exceed. 0 of none.
pub(crate) fn quantile<T: Copy + Default>(sorted: &[T], fraction: f64) -> T {
    let rank = (sorted.len() as f64 * fraction).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(pairs: &[(i64, i64)]) -> BackTest {
        let waits: Vec<_> = pairs
            .iter()
            .map(|(recorded, replayed)| Waited {
                partition: "gpu",
                size: "1 GPU",
                recorded: *recorded,
                replayed: *replayed,
            })
            .collect();
        back_test(&waits)
    }

    #[test]
    fn errors_are_absolute_and_relative_to_what_was_waited() {
        let test = waits(&[(1000, 900), (2000, 2300), (0, 0)]);
        assert_eq!(test.all.median_error_seconds, 100);
        assert_eq!(test.all.p90_error_seconds, 300);
        assert_eq!(test.all.error_ratio, Some(400.0 / 3000.0));
        assert_eq!(test.rows.len(), 1);
    }

    /// The replay starts the jobs in another order: single waits are wrong, their distribution is not.
    #[test]
    fn an_answer_needs_jobs_and_waits_that_are_distributed_alike() {
        assert!(!waits(&[]).is_within());
        assert!(waits(&[(1000, 1100)]).is_within());
        // Ten minutes, or a factor of two.
        assert!(waits(&[(0, 600)]).is_within());
        assert!(!waits(&[(0, 601)]).is_within());
        assert!(waits(&[(9000, 18_000)]).is_within());
        assert!(!waits(&[(9000, 18_001)]).is_within());

        let swapped: Vec<(i64, i64)> = (0..100).map(|at| (at * 1000, (99 - at) * 1000)).collect();
        let test = waits(&swapped);
        assert_eq!(test.rows[0].median_replayed_seconds, 49_000);
        assert_eq!(test.alike_ratio(), Some(1.0));
    }

    #[test]
    fn three_quarters_of_the_jobs_must_be_in_classes_that_are_alike() {
        let class = |size: &'static str, jobs: usize, replayed: i64| {
            let one = Waited {
                partition: "gpu",
                size,
                recorded: 0,
                replayed,
            };
            vec![one; jobs]
        };
        let of = |right: usize, wrong: usize| {
            back_test(&[class("1 GPU", right, 0), class("more GPUs", wrong, 9000)].concat())
        };
        assert!(of(75, 25).is_within());
        assert!(!of(74, 26).is_within());
        // Of fewer than 20 jobs, nothing can be said.
        assert!(of(20, 19).is_within());
    }
}
