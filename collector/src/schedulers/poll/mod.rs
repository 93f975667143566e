//! A live Slurm, asked through `sacct` or slurmrestd; without slurmdbd, its file of ended jobs and slurmctld.
//!
//! Every answer is imported like a file, so asking twice does no harm, and each question goes back to the last success
//! that is at least a look-back old. That covers records which reach slurmdbd late, and an outage closes by itself:
//! for a look-back after it, questions still go back to before it, while slurmctld hands in what it kept.
//!
//! sacct does not tell of jobs that were never eligible (held, waiting for another job) unless they are asked for by
//! id, so those are not seen until they are eligible. They hold nothing meanwhile.

mod completion;
mod import;
mod queue;

use super::command::completion_file;
use super::config::JobsConfig;
use super::follow::Follow;
use super::scheduler::{self, Scheduler};
use super::status::{Pending, PollError, PollState, PollStatus};
use jiff::Timestamp;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use takt_model::error_chain;
use takt_slurm::{Node, jobcomp};
use takt_store::{Database, ImportSummary, OpenRun};
use tokio::sync::watch;

/// Asks a Slurm for its jobs, again and again.
#[derive(Debug)]
pub struct Poller {
    config: JobsConfig,
    database: Arc<Database>,
    /// The time zone to remember for the cluster if none is remembered yet.
    timezone: String,
    cluster: Option<String>,
    /// Set up at the first poll.
    scheduler: Option<Box<dyn Scheduler>>,
    /// The file of ended jobs, where Slurm runs without slurmdbd.
    jobcomp: Option<Follow>,
    forgotten: HashSet<OpenRun>,
    /// When shares and prices were last asked for.
    shares_asked: Option<i64>,
    /// When slurmdbd was last asked when nodes were down.
    events_asked: Option<i64>,
    /// Whether GPUs are among the TRES that Slurm keeps of each job (`AccountingStorageTRES`).
    gpus_are_counted: bool,
    /// By how many seconds slurmctld's clock was last ahead of this machine's.
    clock_ahead_seconds: i64,
    /// What slurmctld said of the queue with this question.
    pending: Option<Vec<Pending>>,
    nodes: Option<Vec<Node>>,
    /// What the completion file's lines so far say of resized jobs.
    resized: jobcomp::Resized,
}

/// Job ids in one question.
const IDS_PER_QUESTION: usize = 500;

/// Source name under which Slurm's own shares and prices are recorded.
const SHARES_SOURCE: &str = "slurm";

/// Seconds between two questions for shares and prices.
const SHARES_SECONDS: i64 = 900;

/// Clocks that differ by less agree: an answer takes its time.
const CLOCKS_AGREE_SECONDS: i64 = 60;

/// Longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(900);

impl Poller {
    /// Polls into `database`. `cluster` overrides Slurm's own name; `timezone` is remembered for the cluster unless
    /// one is already.
    pub fn new(
        config: JobsConfig,
        database: Arc<Database>,
        cluster: Option<String>,
        timezone: String,
    ) -> Self {
        Self {
            scheduler: None,
            jobcomp: config.jobcomp_file.clone().map(Follow::new),
            config,
            database,
            timezone,
            cluster,
            forgotten: HashSet::new(),
            shares_asked: None,
            events_asked: None,
            gpus_are_counted: true,
            clock_ahead_seconds: 0,
            pending: None,
            nodes: None,
            resized: jobcomp::Resized::default(),
        }
    }

    /// Polls for ever, telling `status` how it goes. Dropping the future stops it between two questions, or kills the
    /// sacct that was asked; what was imported stays.
    pub async fn run(mut self, status: watch::Sender<PollStatus>) {
        loop {
            let asked = self.poll(Timestamp::now().as_second()).await;
            status.send_modify(|status| self.note(status, &asked));
            let failures = status.borrow().failures;
            tokio::time::sleep(pause(&self.config, failures)).await;
        }
    }

    fn note(&self, status: &mut PollStatus, asked: &Result<ImportSummary, PollError>) {
        status.cluster.clone_from(&self.cluster);
        status.forgotten_runs = self.forgotten.len();
        status.clock_ahead_seconds = self.clock_ahead_seconds;
        status.gpus_are_not_counted = !self.gpus_are_counted && self.jobcomp.is_none();
        status.pending.clone_from(&self.pending);
        status.nodes.clone_from(&self.nodes);
        match asked {
            Ok(summary) => {
                if status.failures > 0 {
                    tracing::info!(failures = status.failures, "sacct answers again");
                }
                tracing::debug!(
                    inserted = summary.runs_inserted,
                    updated = summary.runs_updated,
                    "polled sacct"
                );
                let last_success = Some(Timestamp::now().as_second());
                *status = PollStatus {
                    state: PollState::Ok,
                    last_success,
                    detail: None,
                    failures: 0,
                    ..status.clone()
                };
            }
            Err(error) => {
                let detail = error_chain(error);
                // A machine without Slurm is no failure, and a failure that lasts is told once.
                if error.state() != status.state && error.state() != PollState::NoSlurm {
                    tracing::warn!(error = detail, "cannot poll Slurm, will retry");
                }
                status.state = error.state();
                status.detail = Some(detail);
                status.failures = status.failures.saturating_add(1);
            }
        }
    }

    /// Asks for everything new. `now` is the present in UTC seconds.
    ///
    /// # Errors
    /// [`PollError`]; what was stored before it stays, and the next question begins where this one failed.
    pub async fn poll(&mut self, now: i64) -> Result<ImportSummary, PollError> {
        (self.pending, self.nodes) = (None, None);
        let mut scheduler = match self.scheduler.take() {
            Some(scheduler) => scheduler,
            None => scheduler::configured(&self.config)?,
        };
        let polled = self.poll_with(scheduler.as_mut(), now).await;
        self.scheduler = Some(scheduler);
        polled
    }

    async fn poll_with(
        &mut self,
        scheduler: &mut dyn Scheduler,
        now: i64,
    ) -> Result<ImportSummary, PollError> {
        let cluster = self.name_of_cluster(scheduler).await?;
        let now = now + self.ask_for_the_time(scheduler, now).await;
        // First: months of history may come now, and fair share with other shares would be wrong meanwhile.
        self.ask_for_shares(scheduler, &cluster, now).await?;
        // Before the jobs: whether Slurm counts GPUs decides what a run without one in its records held.
        self.ask_for_nodes(scheduler, &cluster, now).await?;
        let mut told = HashSet::new();
        if self.jobcomp.is_none() {
            told = self.ask_controller(scheduler, &cluster).await?;
        }
        let summary = match &self.jobcomp {
            Some(_) => self.poll_without_database(scheduler, &cluster).await,
            None => match self.poll_database(scheduler, &cluster, now, told).await {
                // This Slurm runs without slurmdbd; if it writes a file of ended jobs, that is read from now on.
                Err(error @ PollError::NoAccounting(_)) => {
                    match completion_file(&self.config).await {
                        Some(path) => {
                            tracing::info!(path = %path.display(), "Slurm runs without slurmdbd; its job completion file is read");
                            self.jobcomp = Some(Follow::new(path));
                            self.poll_without_database(scheduler, &cluster).await
                        }
                        None => Err(error),
                    }
                }
                answer => answer,
            },
        }?;
        Ok(summary)
    }

    /// By how many seconds slurmctld's clock is ahead of this machine's. Questions are asked by its clock, since its records
    /// are written by it: a clock that is wrong makes no hole. While nobody tells, it is what it was.
    async fn ask_for_the_time(&mut self, scheduler: &mut dyn Scheduler, now: i64) -> i64 {
        let theirs = scheduler.time().await;
        if let Some(ahead) = theirs.map(|theirs| theirs - now) {
            self.clock_ahead_seconds = if ahead.abs() < CLOCKS_AGREE_SECONDS {
                0
            } else {
                ahead
            };
        }
        self.clock_ahead_seconds
    }

    /// Asks for nodes and, where slurmdbd keeps it, their history. Records are worth having without them.
    async fn ask_for_nodes(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: i64,
    ) -> Result<(), PollError> {
        // Without slurmdbd there is no history to ask for.
        let has_history = self.jobcomp.is_none() && scheduler.keeps_history();
        let of_cluster = cluster.to_owned();
        match scheduler.nodes().await {
            Ok(nodes) => {
                self.gpus_are_counted = takt_slurm::node::gpus_are_counted(&nodes);
                self.nodes = Some(nodes.clone());
                self.blocking(move |records| {
                    Ok(records.note_nodes(&of_cluster, &nodes, now, !has_history)?)
                })
                .await?;
            }
            Err(error) => tracing::debug!(
                error = error_chain(&error),
                "slurmctld did not list its nodes"
            ),
        }
        self.ask_for_reservations(scheduler, cluster, now, has_history)
            .await?;
        let asked_lately = self
            .events_asked
            .is_some_and(|asked| now < asked + SHARES_SECONDS);
        if !has_history || asked_lately {
            return Ok(());
        }
        let since = now - i64::from(self.config.history_days) * 86_400;
        let of_cluster = cluster.to_owned();
        match scheduler.node_events(cluster, since).await {
            Ok(events) => {
                self.blocking(move |records| {
                    Ok(records.note_node_events(&of_cluster, &events, "slurmdbd")?)
                })
                .await?;
                self.events_asked = Some(now);
            }
            Err(error) => tracing::debug!(
                error = error_chain(&error),
                "slurmdbd did not list node events"
            ),
        }
        Ok(())
    }

    /// Asks for reservations: slurmdbd where it can be asked, as it keeps those that are over.
    async fn ask_for_reservations(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: i64,
        has_history: bool,
    ) -> Result<(), PollError> {
        let since = now - i64::from(self.config.history_days) * 86_400;
        let listed = if has_history {
            scheduler.past_reservations(cluster, since).await
        } else {
            scheduler.reservations().await
        };
        let of_cluster = cluster.to_owned();
        match listed {
            Ok(listed) if has_history => {
                self.blocking(move |records| {
                    Ok(records.note_reservations(&of_cluster, &listed, since)?)
                })
                .await
            }
            Ok(listed) => {
                self.blocking(move |records| {
                    Ok(records.note_live_reservations(&of_cluster, &listed, now)?)
                })
                .await
            }
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "Slurm did not list its reservations"
                );
                Ok(())
            }
        }
    }

    async fn name_of_cluster(
        &mut self,
        scheduler: &mut dyn Scheduler,
    ) -> Result<String, PollError> {
        let named = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => scheduler.cluster().await?,
        };
        self.cluster = Some(named.clone());
        Ok(named)
    }

    /// Asks slurmdbd for everything since the last success that is a look-back old, and for the runs that are still
    /// open as far as we know, but for those of which slurmctld has `told`.
    async fn poll_database(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: i64,
        mut told: HashSet<OpenRun>,
    ) -> Result<ImportSummary, PollError> {
        let source = scheduler.name();
        let recent = now - self.config.look_back_seconds.cast_signed();
        let known = self.blocking({
            let cluster = cluster.to_owned();
            move |records| {
                Ok((
                    records.told_until(&cluster, source, recent)?,
                    records.timezone(&cluster)?,
                ))
            }
        });
        let (told_until, timezone) = known.await?;
        let timezone = timezone.is_none().then(|| self.timezone.clone());
        let longest = scheduler.window_seconds();
        let windows: Vec<_> = match told_until {
            Some(begin) => windows(begin, now, longest).collect(),
            // What is a look-back old now will not change any more, so the next question need not go back to it.
            None => {
                let first = now - i64::from(self.config.history_days) * 86_400;
                windows(first, recent, longest)
                    .chain([(recent, now)])
                    .collect()
            }
        };

        let mut total = ImportSummary::default();
        for (from, to) in windows {
            // What began after this question is the next one's.
            let to_instant = Some(to).filter(|to| *to != now);
            let answer = scheduler.jobs_in(from, to_instant).await?;
            // Told is what all windows told: one that fails after others leaves everything to the next question.
            let until = (to == now || (to == recent && told_until.is_none())).then_some(to);
            let (summary, told_open) = self
                .import(cluster, source, answer, timezone.clone(), until)
                .await?;
            total += summary;
            told.extend(told_open);
        }
        total += self.ask_for_open_runs(scheduler, cluster, told).await?;
        Ok(total)
    }

    /// Asks for shares and prices every so often. Records are worth having without them, so what Slurm will not tell is
    /// logged and asked for again with the next poll.
    async fn ask_for_shares(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: i64,
    ) -> Result<(), PollError> {
        if self
            .shares_asked
            .is_some_and(|asked| now < asked + SHARES_SECONDS)
        {
            return Ok(());
        }
        match scheduler.shares(cluster).await {
            Ok(settings) => {
                let cluster = cluster.to_owned();
                self.blocking(move |records| {
                    Ok(records.note_share_settings(&cluster, SHARES_SOURCE, &settings, now)?)
                })
                .await?;
                self.shares_asked = Some(now);
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "Slurm did not list its shares")
            }
        }
        Ok(())
    }

    /// Asks by id for the runs that are open as far as we know and that no window showed: those that ended while
    /// nobody asked, those that sacct leaves out of a window (a dependency, an array's limit).
    async fn ask_for_open_runs(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        told: HashSet<OpenRun>,
    ) -> Result<ImportSummary, PollError> {
        let known = {
            let cluster = cluster.to_owned();
            self.blocking(move |records| Ok(records.open_runs(&cluster)?))
                .await?
        };
        self.forgotten.retain(|run| known.contains(run));
        let missing: Vec<OpenRun> = known
            .into_iter()
            .filter(|run| !told.contains(run) && !self.forgotten.contains(run))
            .collect();
        let mut total = ImportSummary::default();
        let mut told = HashSet::new();
        let ids: BTreeSet<&str> = missing.iter().map(|run| base_id(&run.job_id)).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let source = scheduler.name();
        for ids in ids.chunks(IDS_PER_QUESTION) {
            let answer = scheduler.jobs_by_id(ids).await?;
            let (summary, told_open) = self.import(cluster, source, answer, None, None).await?;
            total += summary;
            told.extend(told_open);
        }
        if !missing.is_empty() {
            let cluster = cluster.to_owned();
            let still_open = self
                .blocking(move |records| Ok(records.open_runs(&cluster)?))
                .await?;
            let still_open: HashSet<OpenRun> = still_open.into_iter().collect();
            let forgotten = missing
                .into_iter()
                .filter(|run| still_open.contains(run) && !told.contains(run));
            for run in forgotten {
                tracing::warn!(
                    job_id = run.job_id,
                    submit = run.submit,
                    "sacct no longer knows a run that has not ended"
                );
                self.forgotten.insert(run);
            }
        }
        Ok(total)
    }
}

/// `[begin, end)` in parts of at most `longest` seconds, oldest first; at least one.
fn windows(begin: i64, end: i64, longest: i64) -> impl Iterator<Item = (i64, i64)> {
    let begin = begin.min(end);
    std::iter::successors(Some((begin, end.min(begin + longest))), move |&(_, to)| {
        (to < end).then(|| (to, end.min(to + longest)))
    })
}

/// The job's id without its array task or component.
fn base_id(job_id: &str) -> &str {
    job_id.split(['_', '+']).next().unwrap_or(job_id)
}

/// How long to wait after so many failures: twice as long each time.
fn pause(config: &JobsConfig, failures: u32) -> Duration {
    let interval = Duration::from_secs(config.interval_seconds);
    let longest = MAX_PAUSE.max(interval);
    interval
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(longest)
}

#[cfg(test)]
mod tests;
