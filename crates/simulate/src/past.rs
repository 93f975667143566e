//! A past period: replayed as it was, with other nodes, limits or jobs, and with small random changes.

use crate::back_test::{Waited, size_class};
use crate::forecast::uniform;
use crate::input::{SimulatedCluster, SimulatedJob};
use crate::scheduler::{Outcome, replay_while};
use std::collections::HashMap;
use takt_jobs::Amounts;
use takt_model::UnixTime;

/// Largest random change of a run time, as a share of it.
const RUN_TIME_JITTER: f64 = 0.1;

/// Largest random change of the time from which a job can start, in seconds: it changes the order of jobs.
const ORDER_JITTER_SECONDS: f64 = 300.0;

/// Jobs of a shorter shift would be submitted together with those that they copy, in seconds.
const COPY_SHIFT_SECONDS: f64 = 86_400.0;

/// A job of a past period.
#[derive(Debug, Clone, PartialEq)]
pub struct PastJob {
    /// The job. Its `eligible` is within the period; `running` is set if it ran when the period began.
    pub job: SimulatedJob,
    /// Time from which only the scheduler delayed it; of a job that waited when the period began, earlier than `job.eligible`.
    pub waits_from: UnixTime,
    /// Recorded start and end. `None` for a job that only a what-if adds.
    pub recorded: Option<(UnixTime, UnixTime)>,
    /// Number that decides the job's random changes, and stays when other jobs are added or left out.
    pub number: u32,
}

/// A past period of a cluster.
#[derive(Debug, Clone, Default)]
pub struct PastPeriod {
    /// Start.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Nodes and rules.
    pub cluster: SimulatedCluster,
    /// Jobs that ran, or waited and then ran.
    pub jobs: Vec<PastJob>,
    /// Whether each job's limit is the time that it runs.
    pub are_limits_exact: bool,
}

/// A change of a past period.
#[derive(Debug, Clone, PartialEq)]
pub enum PeriodChange {
    /// More nodes with these names, like the node with this index.
    AddNodes(Vec<String>, usize),
    /// Without the nodes of these indexes.
    RemoveNodes(Vec<usize>),
    /// No time limit of the partition above these seconds.
    LimitTime(String, i64),
    /// Every job had asked for the time that it ran.
    RunTimeUsed,
    /// The node of this index had never failed.
    NodeOk(usize),
    /// This many times as many jobs.
    Requests(f64),
}

/// What a change has done to the period itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ChangeEffect {
    /// Jobs that were changed, added or left out; nodes for changes of nodes.
    pub changed: usize,
    /// Jobs that ran longer than the new limit, which ends them.
    pub cut_jobs: usize,
    /// GPU-seconds that these jobs ran after it.
    pub cut_gpu_seconds: f64,
}

impl PeriodChange {
    /// Applies the change.
    pub fn apply(&self, period: &mut PastPeriod) -> ChangeEffect {
        match self {
            Self::AddNodes(names, like) => {
                let mut node = period.cluster.nodes[*like].clone();
                node.closed.clear();
                for name in names {
                    node.name.clone_from(name);
                    period.cluster.nodes.push(node.clone());
                }
                changed(names.len())
            }
            Self::RemoveNodes(nodes) => {
                for at in nodes {
                    // Jobs that run there when the period begins end there.
                    period.cluster.nodes[*at].partitions.clear();
                }
                changed(nodes.len())
            }
            Self::LimitTime(partition, seconds) => limit_time(period, partition, *seconds),
            Self::RunTimeUsed => {
                period.are_limits_exact = true;
                for one in &mut period.jobs {
                    one.job.limit_seconds = Some(one.job.run_seconds.max(1));
                }
                changed(period.jobs.len())
            }
            Self::NodeOk(node) => {
                let closed = &mut period.cluster.nodes[*node].closed;
                let before = closed.len();
                closed.retain(|one| one.reservation.is_some());
                changed(before - closed.len())
            }
            Self::Requests(factor) => request_more(period, *factor),
        }
    }
}

fn changed(changed: usize) -> ChangeEffect {
    ChangeEffect {
        changed,
        ..ChangeEffect::default()
    }
}

fn limit_time(period: &mut PastPeriod, partition: &str, seconds: i64) -> ChangeEffect {
    let mut effect = ChangeEffect::default();
    for one in &mut period.jobs {
        let job = &mut one.job;
        let is_below = job.limit_seconds.is_some_and(|limit| limit <= seconds);
        if &*job.partition != partition || is_below || job.running.is_some() {
            continue;
        }
        effect.changed += 1;
        job.limit_seconds = Some(seconds);
        if job.run_seconds > seconds {
            let gpus = job.per_node.gpus * u64::from(job.nodes);
            effect.cut_jobs += 1;
            effect.cut_gpu_seconds += gpus as f64 * (job.run_seconds - seconds) as f64;
            job.run_seconds = seconds;
        }
    }
    effect
}

/// Leaves out jobs, or adds copies of jobs at other times, drawn at random.
fn request_more(period: &mut PastPeriod, factor: f64) -> ChangeEffect {
    let before = period.jobs.len();
    if factor < 1.0 {
        period.jobs.retain(|one| {
            one.job.running.is_some() || uniform(u64::from(one.number), COPY_DRAW) < factor
        });
        return changed(before - period.jobs.len());
    }

    let mut next = period.jobs.iter().map(|one| one.number).max().unwrap_or(0);
    let (from, to) = (period.from, period.to);
    for at in 0..before {
        if period.jobs[at].job.running.is_some() {
            continue;
        }
        let more = factor - 1.0;
        let chance = uniform(u64::from(period.jobs[at].number), COPY_DRAW);
        let copies = more.trunc() as u32 + u32::from(chance < more.fract());
        for _ in 0..copies {
            next += 1;
            let shift = (uniform(u64::from(next), COPY_DRAW) * 2.0 - 1.0) * COPY_SHIFT_SECONDS;
            let mut copy = period.jobs[at].clone();
            // Beyond one end it comes in at the other, so that no crowd waits at either.
            let eligible = from + (copy.job.eligible - from + shift as i64).rem_euclid(to - from);
            copy.job.eligible = eligible;
            copy.waits_from = eligible;
            copy.recorded = None;
            copy.number = next;
            period.jobs.push(copy);
        }
    }
    changed(period.jobs.len() - before)
}

/// Draw of [`uniform`] for copies, which no replay has.
const COPY_DRAW: u64 = u64::MAX;

impl PastPeriod {
    /// Replays the period. Draw 0 is the period as it is; each other one changes run times and the order of jobs at random,
    /// for the same job in the same way. `None` if it does not go on to its end.
    pub fn replay(&self, draw: u32, goes_on: &mut dyn FnMut() -> bool) -> Option<PastReplay> {
        let jobs: Vec<SimulatedJob> = self.jobs.iter().map(|one| self.drawn(one, draw)).collect();
        let outcome = replay_while(&self.cluster, &jobs, goes_on)?;

        let mut use_ = PeriodUse::default();
        let mut waits = Vec::with_capacity(jobs.len());
        for ((one, drawn), placed) in self.jobs.iter().zip(&jobs).zip(&outcome.placed) {
            let Some(placed) = placed else {
                waits.push(None);
                continue;
            };
            use_.add(&one.job, self.within(placed.start, placed.end));
            // A job that waited already when the period began has waited since then.
            let earlier = one.job.eligible - one.waits_from;
            let waited = (placed.start - drawn.eligible).max(0) + earlier;
            waits.push(one.job.running.is_none().then_some(waited));
        }
        Some(PastReplay {
            waits,
            used: use_,
            without_start: not_started(&outcome),
        })
    }

    fn drawn(&self, one: &PastJob, draw: u32) -> SimulatedJob {
        let mut job = one.job.clone();
        if draw == 0 {
            return job;
        }

        let number = u64::from(one.number);
        let factor = 1.0 + (uniform(number, u64::from(draw)) * 2.0 - 1.0) * RUN_TIME_JITTER;
        job.run_seconds = (job.run_seconds as f64 * factor).round() as i64;
        if self.are_limits_exact {
            job.limit_seconds = Some(job.run_seconds.max(1));
        } else if let Some(limit) = job.limit_seconds {
            // A job of the records may have run past its limit by Slurm's grace.
            job.run_seconds = job.run_seconds.min(limit.max(one.job.run_seconds));
        }

        // Another half of the draws, so that a late job is not a long one.
        let later = uniform(number, (1 << 32) | u64::from(draw)) * ORDER_JITTER_SECONDS;
        job.eligible += later as i64;
        job
    }

    fn within(&self, start: UnixTime, end: UnixTime) -> f64 {
        (end.min(self.to) - start.max(self.from)).max(0) as f64
    }

    /// What the jobs held by the records.
    pub fn recorded_use(&self) -> PeriodUse {
        let mut use_ = PeriodUse::default();
        for one in &self.jobs {
            if let Some((start, end)) = one.recorded {
                use_.add(&one.job, self.within(start, end));
            }
        }
        use_
    }

    /// What the open nodes had, of each partition and of all together (the empty name).
    pub fn capacity(&self) -> PeriodUse {
        let mut use_ = PeriodUse::default();
        for node in &self.cluster.nodes {
            if node.partitions.is_empty() {
                continue;
            }
            let mut shut: Vec<(UnixTime, UnixTime)> = node
                .closed
                .iter()
                .filter(|one| one.reservation.is_none())
                .map(|one| (one.from.max(self.from), one.to.min(self.to)))
                .collect();
            let seconds = (self.to - self.from) as f64 - union_seconds(&mut shut);
            use_.add_to("", node.has, seconds);
            for partition in &node.partitions {
                use_.add_to(partition, node.has, seconds);
            }
        }
        use_
    }

    /// Waits of the jobs whose start is recorded, in the records and in a replay.
    pub fn waited<'p>(&'p self, replay: &PastReplay) -> Vec<Waited<'p>> {
        let pairs = self.jobs.iter().zip(&replay.waits);
        pairs
            .filter_map(|(one, replayed)| {
                let (start, _) = one.recorded?;
                if one.job.running.is_some() {
                    return None;
                }
                Some(Waited {
                    partition: &one.job.partition,
                    size: size_of(&one.job),
                    recorded: (start - one.waits_from).max(0),
                    // One that never starts has waited to the end at least.
                    replayed: replayed.unwrap_or(self.to - one.waits_from),
                })
            })
            .collect()
    }
}

/// Class of a job's size.
pub(crate) fn size_of(job: &SimulatedJob) -> &'static str {
    let nodes = u64::from(job.nodes);
    size_class(
        job.nodes,
        job.per_node.gpus * nodes,
        job.per_node.cpus * nodes,
    )
}

fn not_started(outcome: &Outcome) -> usize {
    outcome.placed.iter().filter(|one| one.is_none()).count()
}

/// Length of the union of intervals, in seconds.
fn union_seconds(spans: &mut [(UnixTime, UnixTime)]) -> f64 {
    spans.sort_unstable();
    let mut seconds = 0;
    let mut covered = UnixTime::MIN;
    for (from, to) in spans {
        let from = (*from).max(covered);
        if *to > from {
            seconds += *to - from;
            covered = *to;
        }
    }
    seconds as f64
}

/// A replay of a past period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PastReplay {
    /// Wait of each job, in seconds. `None` if it ran when the period began, or never started.
    pub waits: Vec<Option<i64>>,
    /// What the jobs held.
    pub used: PeriodUse,
    /// Jobs that never started.
    pub without_start: usize,
}

/// Amounts × seconds by partition; the empty name is all together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeriodUse(HashMap<String, (f64, f64)>);

impl PeriodUse {
    fn add(&mut self, job: &SimulatedJob, seconds: f64) {
        let nodes = u64::from(job.nodes);
        let held = Amounts {
            cpus: job.per_node.cpus * nodes,
            gpus: job.per_node.gpus * nodes,
            mem_bytes: 0,
        };
        self.add_to("", held, seconds);
        self.add_to(&job.partition, held, seconds);
    }

    fn add_to(&mut self, partition: &str, held: Amounts, seconds: f64) {
        let amounts = match self.0.get_mut(partition) {
            Some(amounts) => amounts,
            None => self.0.entry(partition.to_owned()).or_default(),
        };
        amounts.0 += held.cpus as f64 * seconds;
        amounts.1 += held.gpus as f64 * seconds;
    }

    /// CPU-seconds of a partition; of all with the empty name.
    pub fn cpu_seconds(&self, partition: &str) -> f64 {
        self.0.get(partition).map_or(0.0, |amounts| amounts.0)
    }

    /// GPU-seconds of a partition; of all with the empty name.
    pub fn gpu_seconds(&self, partition: &str) -> f64 {
        self.0.get(partition).map_or(0.0, |amounts| amounts.1)
    }

    /// Partitions.
    pub fn partitions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names
    }

    /// Share of a capacity that is used: of the GPUs, or of the CPUs where there are none. `None` without any.
    pub fn ratio(&self, capacity: &Self, partition: &str) -> Option<f64> {
        let gpus = capacity.gpu_seconds(partition);
        if gpus > 0.0 {
            return Some(self.gpu_seconds(partition) / gpus);
        }
        let cpus = capacity.cpu_seconds(partition);
        (cpus > 0.0).then(|| self.cpu_seconds(partition) / cpus)
    }
}

#[cfg(test)]
mod tests;
