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

/// Mean absolute error up to which waits count as equal, in seconds: the scheduler's own cycles take as long.
const EQUAL_SECONDS: f64 = 60.0;

impl BackTest {
    /// Whether the replay is close enough to the records to answer from it.
    pub fn is_within(&self, largest_ratio: f64) -> bool {
        let mean_error = self.all.error_ratio.unwrap_or(0.0) * self.all.mean_wait_seconds;
        let is_alike = match self.all.error_ratio {
            Some(ratio) => ratio <= largest_ratio || mean_error <= EQUAL_SECONDS,
            None => self.all.mean_replayed_seconds <= EQUAL_SECONDS,
        };
        self.all.jobs > 0 && is_alike
    }
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

    #[test]
    fn an_answer_needs_jobs_and_a_small_error() {
        assert!(!waits(&[]).is_within(0.2));
        assert!(waits(&[(1000, 1100)]).is_within(0.2));
        assert!(!waits(&[(1000, 1300)]).is_within(0.2));
        // A minute is what a cycle of the scheduler takes.
        assert!(waits(&[(2, 40)]).is_within(0.2));
        assert!(waits(&[(0, 30)]).is_within(0.2));
        assert!(!waits(&[(0, 3000)]).is_within(0.2));
    }
}
