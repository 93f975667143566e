//! Polls a Slurm without slurmdbd: its job completion file and the live queue.

use super::Poller;
use crate::schedulers::scheduler::{Scheduler, SchedulerAnswer};
use crate::schedulers::status::PollError;
use jiff::tz::TimeZone;
use std::collections::{HashMap, HashSet};
use takt_model::UnixTime;
use takt_slurm::sacct::Cluster;
use takt_slurm::{Entry, jobcomp};
use takt_store::{ImportSummary, LIVE_QUEUE};

impl Poller {
    /// Reads the new lines of the job completion file and the live queue. The file has no GPUs. It
    /// is read last, so that the store keeps the GPUs that the live queue showed.
    pub(super) async fn poll_without_database(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> Result<ImportSummary, PollError> {
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
                live.iter_mut()
                    .for_each(|job| charge(&mut job.entry, &accounts));
                self.note_live(cluster, &live, now).await?;
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
                let answer = SchedulerAnswer::Jobcomp(text, options.clone());
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
