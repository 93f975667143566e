//! Why one waiting job does not start: what has to end before it, and when it would start if it asked for something else.

use crate::back_test::quantile;
use crate::forecast::{ForecastJob, RunTimes, drawn_jobs, known_ratios};
use crate::input::{SimulatedCluster, SimulatedJob};
use crate::node::covers;
use crate::scheduler::{Outcome, replay_until};
use std::collections::BTreeMap;
use takt_jobs::Amounts;
use takt_model::UnixTime;

/// Replays of a study. The median of 15 moves little with more.
const MOST_REPLAYS: u32 = 15;

/// A running job that has to end before another one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedJob {
    /// Index of the job.
    pub job: usize,
    /// Its end in the replay.
    pub end: UnixTime,
}

/// What a waiting job waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartStudy {
    /// Median start of the job as it is. `None` if no replay starts it, or none ended in time.
    pub start: Option<UnixTime>,
    /// Median start of each changed job. `None` as above.
    pub changed: Vec<Option<UnixTime>>,
    /// Running jobs that end before it on its nodes, without which it would not fit, the first to end first.
    pub awaited: Vec<AwaitedJob>,
    /// Waiting jobs that start on its nodes before it.
    pub ahead: Vec<usize>,
    /// Replays of the job as it is.
    pub replays: u32,
}

/// Studies the start of the waiting job `subject`, and that of each of `changes`, which stand in its place in the queue. All
/// are replayed with the same run times of the other jobs, as long as `goes_on`.
pub fn study_start(
    cluster: &SimulatedCluster,
    jobs: &[ForecastJob],
    times: &RunTimes,
    now: UnixTime,
    subject: usize,
    changes: &[SimulatedJob],
    mut goes_on: impl FnMut() -> bool,
) -> StartStudy {
    let known = known_ratios(jobs, times, now);
    let mut replayed: Vec<(UnixTime, Outcome)> = Vec::new();
    let mut changed: Vec<Vec<UnixTime>> = vec![Vec::new(); changes.len()];

    for draw in 0..MOST_REPLAYS {
        let mut drawn = drawn_jobs(jobs, &known, draw, now);
        let Some(outcome) = replay_until(cluster, &drawn, subject as u32, &mut goes_on) else {
            break;
        };
        replayed.push((start_of(&outcome, subject), outcome));

        // Changes are compared on whole rounds alone: a change is not better for having met the easier draws.
        let Some(round) =
            starts_of_changes(cluster, &mut drawn, subject, changes, now, &mut goes_on)
        else {
            // Without a whole round, the start alone is worth knowing.
            if replayed.len() > 1 {
                replayed.pop();
            }
            break;
        };
        for (starts, start) in changed.iter_mut().zip(round) {
            starts.push(start);
        }
    }

    replayed.sort_by_key(|(start, _)| *start);
    let middle = replayed.len().saturating_sub(1) / 2;
    let Some((start, outcome)) = replayed.get(middle) else {
        return StartStudy {
            changed: vec![None; changes.len()],
            ..StartStudy::default()
        };
    };
    let (awaited, ahead) = awaited_jobs(cluster, jobs, outcome, subject);
    StartStudy {
        start: finite(*start),
        changed: changed.into_iter().map(median).collect(),
        awaited,
        ahead,
        replays: replayed.len() as u32,
    }
}

/// The start of each changed job in one draw. `None` if the time ends before all of them are known.
fn starts_of_changes(
    cluster: &SimulatedCluster,
    drawn: &mut [SimulatedJob],
    subject: usize,
    changes: &[SimulatedJob],
    now: UnixTime,
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<Vec<UnixTime>> {
    let run_seconds = drawn[subject].run_seconds;
    let mut starts = Vec::with_capacity(changes.len());
    for change in changes {
        drawn[subject] = SimulatedJob {
            eligible: change.eligible.max(now),
            run_seconds,
            ..change.clone()
        };
        let outcome = replay_until(cluster, drawn, subject as u32, goes_on)?;
        starts.push(start_of(&outcome, subject));
    }
    Some(starts)
}

/// The start of a job; the end of time if it never starts.
fn start_of(outcome: &Outcome, job: usize) -> UnixTime {
    let placed = outcome.placed[job].as_ref();
    placed.map_or(UnixTime::MAX, |placed| placed.start)
}

fn finite(start: UnixTime) -> Option<UnixTime> {
    (start != UnixTime::MAX).then_some(start)
}

fn median(mut starts: Vec<UnixTime>) -> Option<UnixTime> {
    starts.sort_unstable();
    if starts.is_empty() {
        return None;
    }
    finite(quantile(&starts, 0.5))
}

/// The running jobs that free the nodes of a job, and the waiting jobs that use these nodes before it.
fn awaited_jobs(
    cluster: &SimulatedCluster,
    jobs: &[ForecastJob],
    outcome: &Outcome,
    subject: usize,
) -> (Vec<AwaitedJob>, Vec<usize>) {
    let Some(placed) = &outcome.placed[subject] else {
        return (Vec::new(), Vec::new());
    };
    let needs = jobs[subject].job.per_node;
    let mut awaited: BTreeMap<usize, UnixTime> = BTreeMap::new();
    let mut ahead: Vec<usize> = Vec::new();

    for node in &placed.nodes {
        let on_it = |at: &usize| {
            let other = outcome.placed[*at].as_ref();
            other.is_some_and(|other| other.nodes.contains(node))
        };
        let here: Vec<usize> = (0..jobs.len()).filter(on_it).collect();
        let (mut running, waiting): (Vec<usize>, Vec<usize>) = here
            .into_iter()
            .filter(|at| *at != subject)
            .partition(|at| jobs[*at].job.running.is_some());
        ahead.extend(
            waiting
                .into_iter()
                .filter(|at| start_of(outcome, *at) < placed.start),
        );

        let mut free = cluster.nodes[*node as usize].has;
        for at in &running {
            free = less(free, jobs[*at].job.per_node);
        }

        // The first ends make the room, until there is enough of it.
        let end = |at: usize| {
            outcome.placed[at]
                .as_ref()
                .map_or(UnixTime::MAX, |one| one.end)
        };
        running.sort_by_key(|at| (end(*at), *at));
        for at in running {
            if covers(free, needs) || end(at) > placed.start {
                break;
            }
            awaited.insert(at, end(at));
            free = more(free, jobs[at].job.per_node);
        }
    }

    let mut awaited: Vec<AwaitedJob> = awaited
        .into_iter()
        .map(|(job, end)| AwaitedJob { job, end })
        .collect();
    awaited.sort_by_key(|one| (one.end, one.job));
    ahead.sort_unstable();
    ahead.dedup();
    (awaited, ahead)
}

/// What is left. A job of the records may hold more than there is.
fn less(has: Amounts, held: Amounts) -> Amounts {
    Amounts {
        cpus: has.cpus.saturating_sub(held.cpus),
        gpus: has.gpus.saturating_sub(held.gpus),
        mem_bytes: has.mem_bytes.saturating_sub(held.mem_bytes),
    }
}

fn more(has: Amounts, freed: Amounts) -> Amounts {
    Amounts {
        cpus: has.cpus + freed.cpus,
        gpus: has.gpus + freed.gpus,
        mem_bytes: has.mem_bytes + freed.mem_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Running, SimulatedNode};

    fn job(cpus: u64, limit: i64) -> ForecastJob {
        ForecastJob {
            job: SimulatedJob {
                eligible: UnixTime(0),
                run_seconds: 0,
                limit_seconds: Some(limit),
                nodes: 1,
                per_node: Amounts {
                    cpus,
                    ..Amounts::default()
                },
                gpu_model: None,
                partition: "a".into(),
                user: "ann".into(),
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

    fn runs(cpus: u64, limit: i64, node: u32) -> ForecastJob {
        let mut one = job(cpus, limit);
        one.job.running = Some(Running {
            start: UnixTime(0),
            nodes: vec![node],
        });
        one
    }

    fn cluster(nodes: usize) -> SimulatedCluster {
        let node = SimulatedNode {
            has: Amounts {
                cpus: 8,
                ..Amounts::default()
            },
            partitions: vec!["a".into()],
            ..SimulatedNode::default()
        };
        SimulatedCluster {
            nodes: vec![node; nodes],
            ..SimulatedCluster::default()
        }
    }

    fn study(jobs: &[ForecastJob], nodes: usize, changes: &[SimulatedJob]) -> StartStudy {
        let subject = jobs.len() - 1;
        let times = RunTimes::default();
        study_start(
            &cluster(nodes),
            jobs,
            &times,
            UnixTime(10),
            subject,
            changes,
            || true,
        )
    }

    /// Of three jobs on the node, the two that end first make enough room.
    #[test]
    fn the_jobs_that_must_end_are_those_that_make_the_room() {
        let jobs = [
            runs(2, 3000, 0),
            runs(2, 1000, 0),
            runs(4, 9000, 0),
            job(4, 600),
        ];
        let found = study(&jobs, 1, &[]);
        assert_eq!(found.start, Some(UnixTime(3000)));
        let ends: Vec<(usize, i64)> = found
            .awaited
            .iter()
            .map(|one| (one.job, one.end.0))
            .collect();
        assert_eq!(ends, [(1, 1000), (0, 3000)]);
        assert_eq!(found.ahead, [] as [usize; 0]);
    }

    #[test]
    fn a_waiting_job_that_goes_first_is_ahead() {
        let jobs = [runs(8, 1000, 0), job(8, 500), job(8, 600)];
        let found = study(&jobs, 1, &[]);
        assert_eq!(found.start, Some(UnixTime(1500)));
        assert_eq!(found.ahead, [1]);
        assert_eq!(found.awaited.len(), 1);
    }

    /// A job of 8 CPUs is next. A short job fits before it, a long one would delay it.
    #[test]
    fn a_shorter_limit_starts_in_the_gap_and_what_fits_nowhere_never() {
        let jobs = [runs(6, 5000, 0), job(8, 1000), job(2, 9000)];
        let change = |cpus: u64, limit: i64| job(cpus, limit).job;
        let found = study(&jobs, 1, &[change(2, 4500), change(2, 8000), change(9, 60)]);
        assert_eq!(found.start, Some(UnixTime(6000)));
        let [short, long, never] = found.changed.as_slice() else {
            panic!("{:?}", found.changed);
        };
        assert!(short.unwrap() < UnixTime(100), "{short:?}");
        assert_eq!(*long, found.start);
        assert_eq!(*never, None);
    }

    #[test]
    fn without_time_nothing_is_said() {
        let jobs = [runs(8, 1000, 0), job(8, 500)];
        let times = RunTimes::default();
        let change = [job(4, 500).job];
        let found = study_start(&cluster(1), &jobs, &times, UnixTime(10), 1, &change, || {
            false
        });
        assert_eq!((found.start, found.replays), (None, 0));
        assert_eq!(found.changed, [None]);
    }
}
