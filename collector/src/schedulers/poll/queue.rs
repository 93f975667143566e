//! The live queue: the GPUs of running jobs and the reasons of pending jobs.

use super::Poller;
use crate::schedulers::scheduler::{Scheduler, SchedulerAnswer};
use crate::schedulers::status::{Pending, PollError};
use std::collections::{BTreeMap, HashSet};
use std::slice;
use takt_jobs::Entry;
use takt_model::UnixTime;
use takt_slurm::openapi::LiveJob;
use takt_store::{HeldGpu, LIVE_QUEUE, OpenRun, WaitingRun};

impl Poller {
    /// Reads from slurmctld what slurmdbd does not have: the GPUs of running jobs and the reasons
    /// of pending jobs. A failure is logged, because job records are useful without the queue.
    pub(super) async fn ask_controller(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> Result<HashSet<OpenRun>, PollError> {
        let answer = scheduler.live_jobs(cluster).await;
        self.saw("queue", now, answer.as_ref().map(Vec::len));
        self.queued.clear();
        match answer {
            Ok(mut live) => {
                self.note_live(cluster, &live, now).await?;

                self.queued = live.iter().flat_map(running).collect();
                let listed: HashSet<OpenRun> = live.iter().flat_map(runs_of).collect();
                let known = {
                    let cluster = cluster.to_owned();
                    self.blocking(move |records| Ok(records.open_runs(&cluster)?))
                        .await?
                };

                let known: HashSet<OpenRun> = known.into_iter().collect();
                let lacks_reservations = scheduler.records_lack_reservations();
                live.retain(|job| self.is_only_here(job, &known, lacks_reservations));

                if !live.is_empty() {
                    self.import(cluster, LIVE_QUEUE, SchedulerAnswer::Live(live), None, None)
                        .await?;
                }
                Ok(listed)
            }
            Err(_) => Ok(HashSet::new()),
        }
    }

    /// Returns whether the live queue has facts about a job that slurmdbd lacks: a job that the store does
    /// not have yet (it may never have been eligible, or slurmdbd may be down), the number of GPUs if
    /// slurmdbd keeps none, or the reservation, which slurmrestd omits in Slurm 22.05.
    fn is_only_here(
        &self,
        job: &LiveJob,
        known: &HashSet<OpenRun>,
        lacks_reservations: bool,
    ) -> bool {
        let reservation = match &job.entry {
            Entry::Run(run) => run.reservation.is_some(),
            _ => false,
        };
        !self.gpus_are_counted
            || reservation && lacks_reservations
            || is_unfinished(job) && runs_of(job).iter().any(|run| !known.contains(run))
    }

    pub(super) async fn note_live(
        &mut self,
        cluster: &str,
        live: &[LiveJob],
        now: UnixTime,
    ) -> Result<(), PollError> {
        self.pending = Some(pending(live));

        let cut = live.iter().filter(|job| job.is_cut).count();
        if cut > 0 && self.cut_arrays == 0 {
            tracing::warn!(
                arrays = cut,
                "Slurm lists only some pending tasks of arrays; set SLURM_BITSTR_LEN=0 in the \
                 environment of slurmrestd"
            );
        }

        self.cut_arrays = cut;

        let waiting: Vec<WaitingRun> = live.iter().flat_map(waiting).collect();
        let held: Vec<HeldGpu> = live
            .iter()
            .filter_map(|job| match &job.entry {
                Entry::Run(run) => Some((run, &job.gpus)),
                _ => None,
            })
            .flat_map(|(run, gpus)| {
                gpus.iter().map(|(node, index)| HeldGpu {
                    job_id: run.job_id.clone(),
                    submit: run.submit,
                    node: node.clone(),
                    index: *index,
                })
            })
            .collect();

        let cluster = cluster.to_owned();
        let interval = i64::try_from(self.config.interval_seconds).unwrap_or(0);
        self.blocking(move |records| {
            records.note_waiting(&cluster, &waiting, now)?;
            Ok(records.note_held_gpus(&cluster, &held, now, interval)?)
        })
        .await
    }
}

fn is_unfinished(job: &LiveJob) -> bool {
    match &job.entry {
        Entry::Run(run) | Entry::Tasks { run, .. } => run.end.is_none(),
        Entry::Step | Entry::Rejected(_) => false,
    }
}

/// Returns the runs of one live job that run, with their start.
fn running(job: &LiveJob) -> Vec<(OpenRun, UnixTime)> {
    let start = match &job.entry {
        Entry::Run(run) if run.end.is_none() => run.start,
        _ => None,
    };
    let started = start.map(|start| runs_of(job).into_iter().map(move |run| (run, start)));
    started.into_iter().flatten().collect()
}

/// Returns the runs of one live job: a pending array has many tasks.
pub(super) fn runs_of(job: &LiveJob) -> Vec<OpenRun> {
    let (run, job_ids) = match &job.entry {
        Entry::Run(run) => (run, slice::from_ref(&run.job_id)),
        Entry::Tasks { run, job_ids } => (run, job_ids.as_slice()),
        Entry::Step | Entry::Rejected(_) => return Vec::new(),
    };

    job_ids
        .iter()
        .map(|job_id| OpenRun {
            job_id: job_id.clone(),
            submit: run.submit,
        })
        .collect()
}

/// Counts the pending jobs by partition and reason. A job that asks for several partitions waits in each.
pub(super) fn pending(live: &[LiveJob]) -> Vec<Pending> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for job in live {
        if let Entry::Run(run) | Entry::Tasks { run, .. } = &job.entry
            && run.state == "PENDING"
        {
            let reason = job.reason.as_deref().unwrap_or("None");
            for partition in run.partition.split(',') {
                *counts.entry((partition, reason)).or_default() += runs_of(job).len() as u64;
            }
        }
    }

    counts
        .into_iter()
        .map(|((partition, reason), jobs)| Pending {
            partition: partition.to_owned(),
            reason: reason.to_owned(),
            jobs,
        })
        .collect()
}

/// Returns the reasons of a pending job, or of each pending task of its array.
fn waiting(job: &LiveJob) -> Vec<WaitingRun> {
    let Some(reason) = &job.reason else {
        return Vec::new();
    };

    runs_of(job)
        .into_iter()
        .map(|run| WaitingRun {
            run,
            reason: reason.clone(),
            expected_start: job.expected_start,
            priority: job.priority,
            demands: job.demands.iter().map(|one| (*one).to_owned()).collect(),
        })
        .collect()
}
