//! When each waiting job starts: many replays of the queue as it is, with run times drawn from what users' jobs have run.
//!
//! Jobs that are submitted later are not foreseen. They can only start a job later than said, if their priority is higher.

use crate::input::{SimulatedCluster, SimulatedJob};
use crate::scheduler::replay_while;
use std::collections::HashMap;
use std::sync::Arc;
use takt_model::UnixTime;

/// Earlier runs that a level needs for its run times to count.
const LEAST_RUNS: usize = 5;

/// Earlier runs that a level keeps, the newest.
const MOST_RUNS: usize = 200;

/// Shares of the time limit that earlier runs have run, by whose they were.
#[derive(Debug, Clone, Default)]
pub struct RunTimes {
    of_name: HashMap<(Arc<str>, Arc<str>), Vec<f64>>,
    of_user: HashMap<Arc<str>, Vec<f64>>,
    of_all: Vec<f64>,
}

impl RunTimes {
    /// Adds an ended run: its user, job name, and the share of its time limit that it ran. The newest run comes first.
    pub fn add(&mut self, user: &Arc<str>, name: &Arc<str>, ratio: f64) {
        let key = (Arc::clone(user), Arc::clone(name));
        let levels = [
            self.of_name.entry(key).or_default(),
            self.of_user.entry(Arc::clone(user)).or_default(),
            &mut self.of_all,
        ];
        for ratios in levels {
            if ratios.len() < MOST_RUNS {
                ratios.push(ratio.clamp(0.0, 1.0));
            }
        }
    }

    /// The shares that runs like this one have run, of those that ran for more than `least`: of the same name, or else of
    /// the user, or of everybody.
    fn like(&self, user: &Arc<str>, name: &Arc<str>, least: f64) -> Vec<f64> {
        let key = (Arc::clone(user), Arc::clone(name));
        let levels = [
            self.of_name.get(&key),
            self.of_user.get(user),
            Some(&self.of_all),
        ];
        let longer = levels.into_iter().flatten().map(|ratios| {
            let longer = ratios.iter().copied().filter(|ratio| *ratio > least);
            longer.collect::<Vec<f64>>()
        });
        longer
            .into_iter()
            .find(|ratios| ratios.len() >= LEAST_RUNS)
            .unwrap_or_default()
    }
}

/// A job of the queue. `job.run_seconds` is not read: it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastJob {
    /// The job, waiting or running.
    pub job: SimulatedJob,
    /// Job name.
    pub name: Arc<str>,
}

/// When a waiting job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// Time before which it starts in a tenth of the replays.
    pub p10: UnixTime,
    /// Time before which it starts in half of them.
    pub p50: UnixTime,
    /// Time before which it starts in nine tenths of them.
    pub p90: UnixTime,
}

/// Returns when each job starts, in the order of the jobs. `None` for a running job, and for one that can never start.
/// Waiting jobs of the same priority start in the order of the jobs.
///
/// Replays as often as `goes_on` says, which is asked with the number of whole replays: before each replay, and within it. A
/// replay that does not go on does not count.
pub fn forecast(
    cluster: &SimulatedCluster,
    jobs: &[ForecastJob],
    times: &RunTimes,
    now: UnixTime,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Vec<Option<Forecast>> {
    let known = known_ratios(jobs, times, now);

    let mut starts: Vec<Vec<i64>> = vec![Vec::new(); jobs.len()];
    let mut draw = 0;
    while goes_on(draw) {
        let drawn = drawn_jobs(jobs, &known, draw, now);
        let Some(outcome) = replay_while(cluster, &drawn, &mut || goes_on(draw)) else {
            break;
        };
        for (starts, placed) in starts.iter_mut().zip(outcome.placed) {
            starts.extend(placed.map(|placed| placed.start.0));
        }
        draw += 1;
    }

    jobs.iter()
        .zip(starts)
        .map(|(one, starts)| of_starts(starts).filter(|_| one.job.running.is_none()))
        .collect()
}

/// The shares of their limits that runs like each job have run.
pub(crate) fn known_ratios(jobs: &[ForecastJob], times: &RunTimes, now: UnixTime) -> Vec<Vec<f64>> {
    jobs.iter()
        .map(|one| times.like(&one.job.user, &one.name, ran_ratio(&one.job, now)))
        .collect()
}

/// The jobs with the run times of one replay, which its number decides.
pub(crate) fn drawn_jobs(
    jobs: &[ForecastJob],
    known: &[Vec<f64>],
    draw: u32,
    now: UnixTime,
) -> Vec<SimulatedJob> {
    jobs.iter()
        .zip(known)
        .enumerate()
        .map(|(at, (one, ratios))| {
            let chance = uniform(at as u64, u64::from(draw));
            SimulatedJob {
                // What has kept a job from starting until now is not to be replayed.
                eligible: one.job.eligible.max(now),
                run_seconds: drawn_seconds(&one.job, ratios, chance, now),
                ..one.job.clone()
            }
        })
        .collect()
}

fn of_starts(mut starts: Vec<i64>) -> Option<Forecast> {
    starts.sort_unstable();
    let quantile = |fraction: f64| {
        let rank = (starts.len() as f64 * fraction).ceil() as usize;
        starts.get(rank.max(1) - 1).copied().map(UnixTime)
    };
    Some(Forecast {
        p10: quantile(0.1)?,
        p50: quantile(0.5)?,
        p90: quantile(0.9)?,
    })
}

/// The share of its time limit that a job has run.
fn ran_ratio(job: &SimulatedJob, now: UnixTime) -> f64 {
    let Some(running) = &job.running else {
        return 0.0;
    };
    let ran = (now - running.start).max(0) as f64;
    job.limit_seconds
        .map_or(0.0, |limit| ran / limit.max(1) as f64)
}

/// The time that a job runs, in seconds: a share of its limit that a job like it has run. Without any it runs to its limit.
fn drawn_seconds(job: &SimulatedJob, ratios: &[f64], chance: f64, now: UnixTime) -> i64 {
    let least = job
        .running
        .as_ref()
        .map_or(1, |running| (now - running.start).max(0) + 1);
    // A job without a limit that runs has about as much before it as behind it.
    let limit = job.limit_seconds.unwrap_or(2 * least);
    let at = (chance * ratios.len() as f64) as usize;
    let ratio = ratios.get(at).copied().unwrap_or(1.0);
    ((limit as f64 * ratio) as i64).max(least)
}

/// A number from 0 to 1, which is the same for the same job and replay (SplitMix64).
pub(crate) fn uniform(job: u64, replay: u64) -> f64 {
    let mut z = job
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(replay.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(0x94d0_49bb_1331_11eb);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Running, SimulatedNode};
    use takt_jobs::Amounts;

    fn job(user: &str, limit: i64) -> ForecastJob {
        ForecastJob {
            job: SimulatedJob {
                eligible: UnixTime(0),
                run_seconds: 0,
                limit_seconds: Some(limit),
                nodes: 1,
                per_node: Amounts {
                    cpus: 8,
                    ..Amounts::default()
                },
                gpu_model: None,
                partition: "a".into(),
                user: user.into(),
                account: "x".into(),
                qos: None,
                reservation: None,
                association: None,
                billing_per_second: 0.0,
                priority: None,
                running: None,
            },
            name: "train".into(),
        }
    }

    fn running(user: &str, limit: i64, start: i64) -> ForecastJob {
        let mut one = job(user, limit);
        one.job.running = Some(Running {
            start: UnixTime(start),
            nodes: vec![0],
        });
        one
    }

    fn cluster() -> SimulatedCluster {
        SimulatedCluster {
            nodes: vec![SimulatedNode {
                has: Amounts {
                    cpus: 8,
                    ..Amounts::default()
                },
                partitions: vec!["a".into()],
                ..SimulatedNode::default()
            }],
            ..SimulatedCluster::default()
        }
    }

    /// Ann's jobs run for a tenth to a fifth of their limits; Slurm would say that the next job starts after the limit.
    #[test]
    fn a_job_starts_when_jobs_like_the_running_one_end() {
        let mut times = RunTimes::default();
        for tenth in 10..20 {
            times.add(&"ann".into(), &"train".into(), f64::from(tenth) / 100.0);
        }
        let jobs = [running("ann", 100_000, 0), job("bob", 1000)];
        let found = forecast(&cluster(), &jobs, &times, UnixTime(1000), |replays| {
            replays < 50
        });
        assert_eq!(found[0], None);
        let next = found[1].unwrap();
        assert!((10_000..12_500).contains(&next.p10.0), "{next:?}");
        assert!((13_000..17_000).contains(&next.p50.0), "{next:?}");
        assert!((17_000..20_100).contains(&next.p90.0), "{next:?}");

        // It has already run for longer than most: it ends as the longest did.
        let found = forecast(&cluster(), &jobs, &times, UnixTime(14_500), |replays| {
            replays < 50
        });
        assert!(found[1].unwrap().p10.0 >= 15_000, "{found:?}");
    }

    #[test]
    fn nothing_known_means_the_limit_and_what_cannot_run_never_starts() {
        let mut too_large = job("bob", 10);
        too_large.job.per_node.cpus = 9;
        let jobs = [running("ann", 5000, 0), job("bob", 1000), too_large];
        let found = forecast(
            &cluster(),
            &jobs,
            &RunTimes::default(),
            UnixTime(10),
            |replays| replays < 5,
        );
        assert_eq!(found[1].unwrap().p50, UnixTime(5000));
        assert_eq!((found[0], found[2]), (None, None));
    }

    #[test]
    fn the_same_queue_has_the_same_forecast() {
        let mut times = RunTimes::default();
        for n in 0..50 {
            times.add(&"ann".into(), &"train".into(), f64::from(n) / 50.0);
        }
        let jobs = [running("ann", 9000, 0), job("ann", 900), job("ann", 900)];
        let ask = || {
            forecast(&cluster(), &jobs, &times, UnixTime(100), |replays| {
                replays < 20
            })
        };
        assert_eq!(ask(), ask());
    }
}
