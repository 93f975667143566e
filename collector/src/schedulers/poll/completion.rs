//! Polls a Slurm without slurmdbd: its job completion file and the live queue.

use super::Poller;
use super::queue::runs_of;
use crate::schedulers::scheduler::{Scheduler, SchedulerAnswer};
use crate::schedulers::status::PollError;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use takt_model::UnixTime;
use takt_slurm::openapi::LiveJob;
use takt_slurm::sacct::Cluster;
use takt_slurm::{Entry, jobcomp};
use takt_store::{ImportSummary, LIVE_QUEUE, OpenRun};

impl Poller {
    /// Reads the new lines of the job completion file and the live queue. The file has no GPUs. It
    /// is read last, so that the store keeps the GPUs that the live queue showed.
    pub(super) async fn poll_without_database(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> Result<ImportSummary, PollError> {
        let asked_at = Timestamp::now().into();
        let live = scheduler.live_jobs(cluster).await;
        let (timezone, accounts) = self
            .blocking({
                let cluster = cluster.to_owned();
                move |records| {
                    Ok((
                        records.timezone(&cluster)?,
                        records.accounts_of_users(&cluster)?,
                    ))
                }
            })
            .await?;

        let remember = timezone.is_none().then(|| self.timezone.clone());
        let zone = takt_slurm::time_zone(timezone.as_deref().unwrap_or(&self.timezone))
            .unwrap_or(TimeZone::UTC);

        let mut total = ImportSummary::default();
        let mut listed = HashSet::new();
        let live = match live {
            Ok(mut live) => {
                for job in &mut live {
                    charge(&mut job.entry, &accounts);
                }

                self.note_live(cluster, &live, now).await?;
                self.note_unfinished(cluster, &live, now, asked_at).await?;

                let answer = SchedulerAnswer::Live(live);
                let (summary, listed_open) = self
                    .import(cluster, LIVE_QUEUE, answer, remember.clone(), None)
                    .await?;
                total += summary;
                listed.extend(listed_open);
                Ok(())
            }
            Err(error) => Err(error),
        };

        let resized = jobcomp::Resized::clone(&self.resized);
        let options = jobcomp::Options {
            cluster: Cluster::Named(cluster.to_owned()),
            zone,
            accounts,
            resized,
        };

        total += self
            .read_completion_file(cluster, &options, remember)
            .await?;
        live?;

        // The file has been read: runs that the queue no longer lists have ended in it.
        Arc::make_mut(&mut self.unfinished).retain(|_, listed| *listed == now);

        let known = {
            let cluster = cluster.to_owned();
            self.blocking(move |records| Ok(records.open_runs(&cluster)?))
                .await?
        };

        self.forgotten = known
            .into_iter()
            .filter(|run| !listed.contains(run))
            .collect();
        Ok(total)
    }

    /// Notes the unfinished runs of the live queue, and sets aside records of their ends: a user's text
    /// can look like one.
    async fn note_unfinished(
        &mut self,
        cluster: &str,
        live: &[LiveJob],
        now: UnixTime,
        asked_at: UnixTime,
    ) -> Result<(), PollError> {
        let unfinished: Vec<OpenRun> = live
            .iter()
            .filter(|job| match &job.entry {
                Entry::Run(run) | Entry::Tasks { run, .. } => run.end.is_none(),
                Entry::Step | Entry::Rejected(_) => false,
            })
            .flat_map(runs_of)
            .collect();

        Arc::make_mut(&mut self.unfinished)
            .extend(unfinished.iter().cloned().map(|run| (run, now)));

        let cluster = cluster.to_owned();
        let set_aside = self
            .blocking(move |records| {
                Ok(records.set_aside_false_ends(&cluster, &unfinished, asked_at)?)
            })
            .await?;

        for run in set_aside {
            tracing::warn!(
                job_id = run.job_id,
                submit = run.submit.0,
                "set aside a record of the end of a run that Slurm lists as unfinished"
            );
            let mut resized = self.resized.lock().unwrap_or_else(PoisonError::into_inner);
            resized.remove(&(run.job_id, run.submit));
        }
        Ok(())
    }

    async fn read_completion_file(
        &mut self,
        cluster: &str,
        options: &jobcomp::Options,
        timezone: Option<String>,
    ) -> Result<ImportSummary, PollError> {
        let mut total = ImportSummary::default();
        let Some(mut follow) = self.jobcomp.take() else {
            return Ok(total);
        };

        let read = async {
            loop {
                let text = follow.read().map_err(|source| PollError::JobcompFile {
                    path: follow.path().to_owned(),
                    source,
                })?;
                if text.is_empty() {
                    return Ok(());
                }

                let answer =
                    SchedulerAnswer::Jobcomp(text, options.clone(), Arc::clone(&self.unfinished));
                let (summary, _) = self
                    .import(cluster, "jobcomp", answer, timezone.clone(), None)
                    .await?;
                total += summary;
            }
        }
        .await;

        if read.is_err() {
            follow.restart();
            self.resized = jobcomp::Resized::default();
        }

        self.jobcomp = Some(follow);
        read.map(|()| total)
    }
}

/// Charges a run without an account to the account of its user.
fn charge(entry: &mut Entry, accounts: &HashMap<String, String>) {
    if let Entry::Run(run) | Entry::Tasks { run, .. } = entry
        && run.account.is_empty()
        && let Some(account) = accounts.get(&run.user)
    {
        run.account.clone_from(account);
    }
}
