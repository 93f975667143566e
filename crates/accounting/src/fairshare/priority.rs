//! Priority of a pending job: weights times factors, with fair share being one of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `PriorityWeight*` of slurm.conf.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityWeights {
    /// `PriorityWeightAge`
    pub age: u32,
    /// `PriorityWeightAssoc`
    pub assoc: u32,
    /// `PriorityWeightFairshare`
    pub fair_share: u32,
    /// `PriorityWeightJobSize`
    pub job_size: u32,
    /// `PriorityWeightPartition`
    pub partition: u32,
    /// `PriorityWeightQOS`
    pub qos: u32,
    /// `PriorityWeightTRES`, by TRES.
    pub tres: BTreeMap<String, f64>,
}

/// What the weights are multiplied with: each from 0 to 1, except the last two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityFactors {
    /// How long it waited, of `PriorityMaxAge`.
    pub age: f64,
    /// The association's own priority, of the highest.
    pub assoc: f64,
    /// Fair share.
    pub fair_share: f64,
    /// How large it is, or how small where small jobs are favoured.
    pub job_size: f64,
    /// The partition's `PriorityJobFactor`, of the highest.
    pub partition: f64,
    /// The QOS' priority, of the highest.
    pub qos: f64,
    /// What it asks for, of what its partition has, by TRES.
    pub tres: BTreeMap<String, f64>,
    /// The site's own factor, added as it is.
    pub site: i64,
    /// `--nice`, subtracted as it is.
    pub nice: i64,
}

/// A priority and what it is made of, as `sprio -l` shows it.
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
    /// The sum, cut to a whole number from 1 to 2³² − 1: 0 is kept for held jobs.
    pub priority: u32,
}

impl Priority {
    /// Weights times factors.
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
        let (site, nice) = (factors.site, factors.nice);
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

/// How long a job has been gathering age, of `PriorityMaxAge`. 0 before it began to (`AccrueTime`).
pub fn age_factor(now: i64, accrue: Option<i64>, max_age_seconds: u32) -> f64 {
    let waited = accrue.map_or(0, |accrue| (now - accrue).max(0)) as f64;
    if waited < f64::from(max_age_seconds) {
        waited / f64::from(max_age_seconds)
    } else {
        f64::from(u8::from(waited > 0.0))
    }
}

/// A job's size and that of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobSize {
    /// Nodes it needs at least.
    pub min_nodes: u32,
    /// CPUs it has or asks for.
    pub cpus: u32,
    /// Nodes of the cluster.
    pub cluster_nodes: u32,
    /// CPUs of the cluster.
    pub cluster_cpus: u32,
}

/// The mean of its part of the nodes and its part of the CPUs, or what is missing to 1 with `PriorityFavorSmall`.
/// (`SMALL_RELATIVE_TO_TIME` is another formula.)
pub fn job_size_factor(size: JobSize, favor_small: bool) -> f64 {
    if size.cluster_nodes == 0 || size.cluster_cpus == 0 {
        return 0.0;
    }
    let part = |of: u32, all: u32| {
        let part = f64::from(of) / f64::from(all);
        if favor_small { 1.0 - part } else { part }
    };
    let nodes = part(size.min_nodes, size.cluster_nodes);
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
        assert_eq!(
            (priority.age, priority.fair_share, priority.tres),
            (250.0, 50_000.0, 50.0)
        );
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
        assert_eq!((of(5), of(-(1 << 40))), (1, u32::MAX));
    }

    #[test]
    fn age_and_size() {
        assert_eq!(age_factor(150, Some(100), 200), 0.25);
        assert_eq!(age_factor(900, Some(100), 200), 1.0);
        assert_eq!(age_factor(50, Some(100), 200), 0.0);
        assert_eq!(age_factor(50, None, 200), 0.0);
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
