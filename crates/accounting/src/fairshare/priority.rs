//! Priority of a pending job: the sum of weights times factors, among them fair share.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::UnixTime;

/// `PriorityWeight*` of slurm.conf.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityWeights {
    /// `PriorityWeightAge`.
    pub age: u32,
    /// `PriorityWeightAssoc`.
    pub assoc: u32,
    /// `PriorityWeightFairshare`.
    pub fair_share: u32,
    /// `PriorityWeightJobSize`.
    pub job_size: u32,
    /// `PriorityWeightPartition`.
    pub partition: u32,
    /// `PriorityWeightQOS`.
    pub qos: u32,
    /// `PriorityWeightTRES`, by TRES.
    pub tres: BTreeMap<String, f64>,
}

/// Factors of the weights, from 0 to 1, except `site` and `nice`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityFactors {
    /// Waiting time over `PriorityMaxAge`.
    pub age: f64,
    /// Priority of the association over the highest one.
    pub assoc: f64,
    /// Fair-share factor.
    pub fair_share: f64,
    /// Job size over cluster size; inverted if small jobs are favoured.
    pub job_size: f64,
    /// `PriorityJobFactor` of the partition over the highest one.
    pub partition: f64,
    /// Priority of the QOS over the highest one.
    pub qos: f64,
    /// Requested amount over the partition's amount, by TRES.
    pub tres: BTreeMap<String, f64>,
    /// Site factor, added unchanged.
    pub site: i64,
    /// `--nice`, subtracted unchanged.
    pub nice: i64,
}

/// A priority and its parts, as in `sprio -l`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each is the weighted factor of the same name")]
pub struct Priority {
    pub age: f64,
    pub assoc: f64,
    pub fair_share: f64,
    pub job_size: f64,
    pub partition: f64,
    pub qos: f64,
    pub tres: f64,
    pub site: i64,
    pub nice: i64,
    /// The sum, truncated to a whole number from 1 to 2³² − 1. 0 is reserved for held jobs.
    pub priority: u32,
}

impl Priority {
    /// Multiplies weights and factors.
    pub fn new(weights: &PriorityWeights, factors: &PriorityFactors) -> Self {
        let age = f64::from(weights.age) * factors.age;
        let assoc = f64::from(weights.assoc) * factors.assoc;
        let fair_share = f64::from(weights.fair_share) * factors.fair_share;
        let job_size = f64::from(weights.job_size) * factors.job_size;
        let partition = f64::from(weights.partition) * factors.partition;
        let qos = f64::from(weights.qos) * factors.qos;
        let tres: f64 = factors
            .tres
            .iter()
            .map(|(name, part)| weights.tres.get(name).unwrap_or(&0.0) * part)
            .sum();

        let sum = age + assoc + fair_share + job_size + partition + qos + tres;
        let priority = (sum + factors.site as f64 - factors.nice as f64)
            .clamp(1.0, f64::from(u32::MAX)) as u32;
        let site = factors.site;
        let nice = factors.nice;

        Self {
            age,
            assoc,
            fair_share,
            job_size,
            partition,
            qos,
            tres,
            site,
            nice,
            priority,
        }
    }
}

/// Returns the waiting time over `PriorityMaxAge`. 0 before the job accrues age (`AccrueTime`).
pub fn age_factor(now: UnixTime, accrue: Option<UnixTime>, max_age_seconds: u32) -> f64 {
    let waited = accrue.map_or(0, |accrue| (now - accrue).max(0)) as f64;
    if waited < f64::from(max_age_seconds) {
        waited / f64::from(max_age_seconds)
    } else {
        // A job that waits longer than the maximum has the full age.
        f64::from(u8::from(waited > 0.0))
    }
}

/// Size of a job and of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobSize {
    /// Minimum number of nodes of the job.
    pub min_nodes: u32,
    /// CPUs that the job holds or requests.
    pub cpus: u32,
    /// Nodes of the cluster.
    pub cluster_nodes: u32,
    /// CPUs of the cluster.
    pub cluster_cpus: u32,
}

/// Returns the mean of the fractions of nodes and CPUs, or 1 minus the mean with
/// `PriorityFavorSmall`. (`SMALL_RELATIVE_TO_TIME` uses another formula.)
pub fn job_size_factor(size: JobSize, favor_small: bool) -> f64 {
    if size.cluster_nodes == 0 || size.cluster_cpus == 0 {
        return 0.0;
    }
    let part = |of: u32, all: u32| {
        let part = f64::from(of) / f64::from(all);
        if favor_small { 1.0 - part } else { part }
    };
    let nodes = part(size.min_nodes, size.cluster_nodes);
    // A job without a number of CPUs is compared by its nodes.
    let mean = if size.cpus == 0 {
        nodes
    } else {
        (nodes + part(size.cpus, size.cluster_cpus)) / 2.0
    };
    mean.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights() -> PriorityWeights {
        let tres = [("cpu".to_owned(), 100.0)].into();
        PriorityWeights {
            age: 1000,
            fair_share: 100_000,
            job_size: 100,
            partition: 1000,
            qos: 10_000,
            assoc: 7,
            tres,
        }
    }

    #[test]
    fn parts_add_up() {
        let factors = PriorityFactors {
            age: 0.25,
            fair_share: 0.5,
            job_size: 0.1,
            tres: [("cpu".to_owned(), 0.5), ("mem".to_owned(), 1.0)].into(),
            site: 20,
            nice: -10,
            ..PriorityFactors::default()
        };
        let priority = Priority::new(&weights(), &factors);
        assert_eq!(priority.age, 250.0);
        assert_eq!(priority.fair_share, 50_000.0);
        assert_eq!(priority.tres, 50.0);
        // `mem` has no weight, and a negative nice raises the priority.
        assert_eq!(priority.priority, 250 + 50_000 + 10 + 50 + 20 + 10);
    }

    #[test]
    fn a_priority_is_never_that_of_a_held_job_nor_too_large() {
        let of = |nice| {
            Priority::new(
                &weights(),
                &PriorityFactors {
                    nice,
                    ..PriorityFactors::default()
                },
            )
            .priority
        };
        assert_eq!(of(5), 1);
        assert_eq!(of(-(1 << 40)), u32::MAX);
    }

    #[test]
    fn age_and_size() {
        assert_eq!(age_factor(UnixTime(150), Some(UnixTime(100)), 200), 0.25);
        assert_eq!(age_factor(UnixTime(900), Some(UnixTime(100)), 200), 1.0);
        assert_eq!(age_factor(UnixTime(50), Some(UnixTime(100)), 200), 0.0);
        assert_eq!(age_factor(UnixTime(50), None, 200), 0.0);
        let size = JobSize {
            min_nodes: 1,
            cpus: 6,
            cluster_nodes: 4,
            cluster_cpus: 24,
        };
        assert_eq!(job_size_factor(size, false), 0.25);
        assert_eq!(job_size_factor(size, true), 0.75);
        assert_eq!(
            job_size_factor(
                JobSize {
                    cpus: 0,
                    min_nodes: 8,
                    ..size
                },
                false
            ),
            1.0
        );
        assert_eq!(
            job_size_factor(
                JobSize {
                    cluster_nodes: 0,
                    ..size
                },
                false
            ),
            0.0
        );
    }
}
