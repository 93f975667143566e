//! Changes of a waiting job's request that may start it sooner.

use std::collections::BTreeSet;
use std::sync::Arc;
use takt_jobs::{JobRun, Node};
use takt_model::words::duration;
use takt_simulate::SimulatedJob;

/// Ended runs of a name without which nobody knows how long the next one takes.
const LEAST_RUNS: usize = 5;

/// A proposed limit is a multiple of these seconds.
const LIMIT_STEP_SECONDS: i64 = 900;

/// Partitions and GPU types that are tried.
const MOST_PLACES: usize = 4;

/// A request in place of a job's own.
#[derive(Debug, Clone)]
pub(super) struct RequestChange {
    /// Kind: `time`, `gpu type`, `partition`, `gpus`, `nodes`. Of each kind one change is proposed.
    pub kind: &'static str,
    /// The option of `sbatch`.
    pub option: String,
    /// The change in words: `2 h instead of 24 h`.
    pub words: String,
    /// The job.
    pub job: SimulatedJob,
}

/// What is known for changes of one job.
pub(super) struct ChangeFacts<'f> {
    /// Earlier runs of the same user and name that have ended, in seconds.
    pub ran_seconds: Vec<i64>,
    /// Partitions in which jobs of the user have run.
    pub partitions: BTreeSet<String>,
    /// Nodes of the cluster.
    pub nodes: &'f [Node],
}

/// Lists the changes, of each kind the smallest first.
pub(super) fn request_changes(
    job: &SimulatedJob,
    run: &JobRun,
    facts: &ChangeFacts<'_>,
) -> Vec<RequestChange> {
    let mut changes = shorter_limits(job, &facts.ran_seconds);
    changes.extend(other_gpu_types(job, run, facts));
    changes.extend(other_partitions(job, run, facts));
    changes.extend(smaller(job));
    changes
}

/// Halves of the limit, down to what nine of ten earlier runs needed.
fn shorter_limits(job: &SimulatedJob, ran_seconds: &[i64]) -> Vec<RequestChange> {
    let Some(limit) = job
        .limit_seconds
        .filter(|_| ran_seconds.len() >= LEAST_RUNS)
    else {
        return Vec::new();
    };
    let mut ran = ran_seconds.to_vec();
    ran.sort_unstable();
    let rank = (ran.len() as f64 * 0.9).ceil() as usize;
    let used = ran[rank.max(1) - 1];
    let steps = (used + 1)
        .max(1)
        .unsigned_abs()
        .div_ceil(LIMIT_STEP_SECONDS as u64) as i64;
    let least = steps * LIMIT_STEP_SECONDS;

    let mut limits = Vec::new();
    let mut half = limit / 2;
    while half > least {
        limits.push(half);
        half /= 2;
    }
    if least < limit {
        limits.push(least);
    }
    limits
        .into_iter()
        .map(|seconds| RequestChange {
            kind: "time",
            option: format!("--time={}", slurm_time(seconds)),
            words: format!(
                "a time limit of {} instead of {}",
                duration(seconds as f64),
                duration(limit as f64)
            ),
            job: SimulatedJob {
                limit_seconds: Some(seconds),
                ..job.clone()
            },
        })
        .collect()
}

/// A time as `sbatch --time` has it: `1-02:30:00`.
fn slurm_time(seconds: i64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        days => format!("{days}-{clock}"),
    }
}

/// Any GPU type, and each other one of the job's partitions.
fn other_gpu_types(
    job: &SimulatedJob,
    run: &JobRun,
    facts: &ChangeFacts<'_>,
) -> Vec<RequestChange> {
    let (Some(model), gpus @ 1..) = (&job.gpu_model, job.per_node.gpus) else {
        return Vec::new();
    };
    let is_in = |node: &&Node| {
        node.partitions.is_empty()
            || run
                .partition
                .split(',')
                .any(|name| node.partitions.iter().any(|one| one == name))
    };
    let others: BTreeSet<&str> = facts
        .nodes
        .iter()
        .filter(is_in)
        .filter_map(|node| node.gpu_model.as_deref())
        .filter(|other| *other != &**model && !other.contains('+'))
        .collect();
    if others.is_empty() {
        return Vec::new();
    }

    let mut changes: Vec<RequestChange> = others
        .into_iter()
        .take(MOST_PLACES)
        .map(|other| RequestChange {
            kind: "gpu type",
            option: format!("--gres=gpu:{other}:{gpus}"),
            words: format!("GPUs of type {other} instead of {model}"),
            job: SimulatedJob {
                gpu_model: Some(other.into()),
                ..job.clone()
            },
        })
        .collect();
    changes.push(RequestChange {
        kind: "gpu type",
        option: format!("--gres=gpu:{gpus}"),
        words: format!("GPUs of any type instead of {model}"),
        job: SimulatedJob {
            gpu_model: None,
            ..job.clone()
        },
    });
    changes
}

/// Partitions in which the user's jobs have run: the records do not say who may use the others.
fn other_partitions(
    job: &SimulatedJob,
    run: &JobRun,
    facts: &ChangeFacts<'_>,
) -> Vec<RequestChange> {
    if run.reservation.is_some() {
        return Vec::new();
    }
    let own: Vec<&str> = run.partition.split(',').collect();
    let has_nodes = |name: &&String| {
        facts
            .nodes
            .iter()
            .any(|node| node.partitions.contains(name))
    };
    facts
        .partitions
        .iter()
        .filter(|name| !own.contains(&name.as_str()))
        .filter(has_nodes)
        .take(MOST_PLACES)
        .map(|name| RequestChange {
            kind: "partition",
            option: format!("--partition={name}"),
            words: format!("partition {name} instead of {}", run.partition),
            job: SimulatedJob {
                partition: Arc::from(name.as_str()),
                ..job.clone()
            },
        })
        .collect()
}

/// One size down: half of the nodes, or the power of two below the GPUs of a node.
fn smaller(job: &SimulatedJob) -> Vec<RequestChange> {
    let mut changes = Vec::new();
    let gpus = job.per_node.gpus;
    if gpus > 1 {
        let fewer = (gpus.next_power_of_two() / 2).max(1);
        let model = job.gpu_model.as_ref();
        let model = model.map_or_else(String::new, |model| format!("{model}:"));
        let mut smaller = job.clone();
        smaller.per_node.gpus = fewer;
        let of_node = if job.nodes > 1 { " on each node" } else { "" };
        changes.push(RequestChange {
            kind: "gpus",
            option: format!("--gres=gpu:{model}{fewer}"),
            words: format!("{fewer} GPU{}{of_node} instead of {gpus}", plural(fewer)),
            job: smaller,
        });
    }
    if job.nodes > 1 {
        let fewer = job.nodes / 2;
        changes.push(RequestChange {
            kind: "nodes",
            option: format!("--nodes={fewer}"),
            words: format!(
                "{fewer} node{} instead of {}",
                plural(fewer.into()),
                job.nodes
            ),
            job: SimulatedJob {
                nodes: fewer,
                ..job.clone()
            },
        });
    }
    changes
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_jobs::Amounts;
    use takt_model::UnixTime;

    fn job() -> SimulatedJob {
        SimulatedJob {
            eligible: UnixTime(0),
            run_seconds: 0,
            limit_seconds: Some(86_400),
            nodes: 4,
            per_node: Amounts {
                cpus: 8,
                gpus: 6,
                mem_bytes: 0,
            },
            gpu_model: Some("a100".into()),
            partition: "gpu".into(),
            user: "ann".into(),
            account: "x".into(),
            qos: None,
            reservation: None,
            association: None,
            billing_per_second: 0.0,
            priority: None,
            running: None,
        }
    }

    fn run() -> JobRun {
        JobRun {
            partition: "gpu".into(),
            ..JobRun::default()
        }
    }

    fn node(model: &str, partition: &str) -> Node {
        Node {
            partitions: vec![partition.into()],
            gpu_model: Some(model.into()),
            ..Node::default()
        }
    }

    fn options(ran_seconds: Vec<i64>, partitions: &[&str], nodes: &[Node]) -> Vec<String> {
        let facts = ChangeFacts {
            ran_seconds,
            partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
            nodes,
        };
        let changes = request_changes(&job(), &run(), &facts);
        changes.into_iter().map(|change| change.option).collect()
    }

    #[test]
    fn a_limit_is_halved_down_to_what_nine_of_ten_runs_needed() {
        // The longest of ten is ignored; the next took an hour and a minute.
        let mut ran = vec![600; 8];
        ran.extend([3660, 80_000]);
        assert_eq!(
            options(ran, &[], &[])[..5],
            [
                "--time=12:00:00",
                "--time=06:00:00",
                "--time=03:00:00",
                "--time=01:30:00",
                "--time=01:15:00"
            ]
        );
        // Four runs say nothing; what needs the whole limit has no shorter one.
        let sizes = ["--gres=gpu:a100:4", "--nodes=2"];
        assert_eq!(options(vec![600; 4], &[], &[]), sizes);
        assert_eq!(options(vec![86_000; 10], &[], &[]), sizes);
    }

    #[test]
    fn other_types_and_partitions_are_those_that_the_user_can_have() {
        let nodes = [
            node("a100", "gpu"),
            node("l40", "gpu"),
            node("a100+l40", "gpu"),
            node("v100", "old"),
            node("h100", "secret"),
        ];
        assert_eq!(
            options(Vec::new(), &["gpu", "old", "gone"], &nodes),
            [
                "--gres=gpu:l40:6",
                "--gres=gpu:6",
                "--partition=old",
                "--gres=gpu:a100:4",
                "--nodes=2"
            ]
        );
    }

    #[test]
    fn times_are_written_as_slurm_reads_them() {
        assert_eq!(slurm_time(900), "00:15:00");
        assert_eq!(slurm_time(86_400 + 7200 + 1800), "1-02:30:00");
    }
}
