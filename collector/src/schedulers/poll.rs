//! A live Slurm, asked through `sacct` or slurmrestd; without slurmdbd, its file of ended jobs and slurmctld.
//!
//! Every answer is imported like a file, so asking twice does no harm, and each question goes back to the last success
//! that is at least a look-back old. That covers records which reach slurmdbd late, and an outage closes by itself:
//! for a look-back after it, questions still go back to before it, while slurmctld hands in what it kept.
//!
//! sacct does not tell of jobs that were never eligible (held, waiting for another job) unless they are asked for by
//! id, so those are not seen until they are eligible. They hold nothing meanwhile.

use super::command::{completion_file, detect, time};
use super::config::JobsConfig;
use super::follow::Follow;
use super::slurmrestd::Slurmrestd;
use super::source::{Answer, Source, live};
use super::status::{Pending, PollError, PollState, PollStatus};
use super::{nodes, reservations, shares};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use takt_model::error_chain;
use takt_slurm::openapi::LiveJob;
use takt_slurm::sacct::Cluster;
use takt_slurm::{Entry, Node, Reject, jobcomp, openapi};
use takt_store::{
    Database, HeldGpu, ImportError, ImportSummary, OpenRun, Origin, Records, Shifted, WaitingRun,
};
use tokio::sync::watch;

/// Asks a Slurm for its jobs, again and again.
#[derive(Debug)]
pub struct Poller {
    config: JobsConfig,
    database: Arc<Database>,
    /// The time zone to remember for the cluster if none is remembered yet.
    timezone: String,
    cluster: Option<String>,
    source: Source,
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
            source: Source::Sacct,
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
        if matches!(self.source, Source::Sacct) && !self.config.slurmrestd.url.is_empty() {
            let rest =
                Slurmrestd::new(self.config.slurmrestd.clone(), self.config.timeout_seconds)?;
            self.source = Source::Slurmrestd(rest);
        }
        let cluster = self.name_of_cluster().await?;
        let now = now + self.ask_for_the_time(now).await;
        // First: months of history may come now, and fair share with other shares would be wrong meanwhile.
        self.ask_for_shares(&cluster, now).await?;
        // Before the jobs: whether Slurm counts GPUs decides what a run without one in its records held.
        self.ask_for_nodes(&cluster, now).await?;
        let mut told = HashSet::new();
        if self.jobcomp.is_none() {
            told = self.ask_controller(&cluster).await?;
        }
        let summary = match &self.jobcomp {
            Some(_) => self.poll_without_database(&cluster).await,
            None => match self.poll_database(&cluster, now, told).await {
                // This Slurm runs without slurmdbd; if it writes a file of ended jobs, that is read from now on.
                Err(error @ PollError::NoAccounting(_)) => {
                    match completion_file(&self.config).await {
                        Some(path) => {
                            tracing::info!(path = %path.display(), "Slurm runs without slurmdbd; its job completion file is read");
                            self.jobcomp = Some(Follow::new(path));
                            self.poll_without_database(&cluster).await
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
    async fn ask_for_the_time(&mut self, now: i64) -> i64 {
        let theirs = match &mut self.source {
            Source::Slurmrestd(rest) => rest
                .controller("diag")
                .await
                .ok()
                .and_then(|answer| openapi::time(&answer)),
            Source::Sacct => time(&self.config).await,
        };
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
    async fn ask_for_nodes(&mut self, cluster: &str, now: i64) -> Result<(), PollError> {
        let rest = match &mut self.source {
            Source::Slurmrestd(rest) => Some(rest),
            Source::Sacct => None,
        };
        let with_database = self.jobcomp.is_none() && rest.is_none();
        let of_cluster = cluster.to_owned();
        match nodes::ask_now(&self.config, rest).await {
            Ok(nodes) => {
                self.gpus_are_counted = takt_slurm::node::gpus_are_counted(&nodes);
                self.nodes = Some(nodes.clone());
                self.blocking(move |records| {
                    Ok(records.note_nodes(&of_cluster, &nodes, now, !with_database)?)
                })
                .await?;
            }
            Err(error) => tracing::debug!(
                error = error_chain(&error),
                "slurmctld does not tell of its nodes"
            ),
        }
        self.ask_for_reservations(cluster, now, with_database)
            .await?;
        if !with_database
            || self
                .events_asked
                .is_some_and(|asked| now < asked + SHARES_SECONDS)
        {
            return Ok(());
        }
        let of_cluster = cluster.to_owned();
        match nodes::ask_events(
            &self.config,
            cluster,
            now - i64::from(self.config.history_days) * 86_400,
        )
        .await
        {
            Ok(events) => {
                self.blocking(move |records| {
                    Ok(records.note_node_events(&of_cluster, &events, "slurmdbd")?)
                })
                .await?;
                self.events_asked = Some(now);
            }
            Err(error) => tracing::debug!(
                error = error_chain(&error),
                "slurmdbd does not tell when nodes were down"
            ),
        }
        Ok(())
    }

    /// Asks for reservations: slurmdbd where it can be asked, as it keeps those that are over.
    async fn ask_for_reservations(
        &mut self,
        cluster: &str,
        now: i64,
        with_database: bool,
    ) -> Result<(), PollError> {
        let since = now - i64::from(self.config.history_days) * 86_400;
        let told = match (with_database, &mut self.source) {
            (true, _) => reservations::ask_database(&self.config, cluster, since).await,
            (false, Source::Slurmrestd(rest)) => {
                reservations::ask_now(&self.config, Some(rest)).await
            }
            (false, Source::Sacct) => reservations::ask_now(&self.config, None).await,
        };
        let of_cluster = cluster.to_owned();
        match told {
            Ok(told) if with_database => {
                self.blocking(move |records| {
                    Ok(records.note_reservations(&of_cluster, &told, since)?)
                })
                .await
            }
            Ok(told) => {
                self.blocking(move |records| {
                    Ok(records.note_live_reservations(&of_cluster, &told, now)?)
                })
                .await
            }
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "Slurm does not tell of its reservations"
                );
                Ok(())
            }
        }
    }

    async fn name_of_cluster(&mut self) -> Result<String, PollError> {
        let named = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => detect(&self.config).await?.cluster,
        };
        self.cluster = Some(named.clone());
        Ok(named)
    }

    /// Asks slurmdbd for everything since the last success that is a look-back old, and for the runs that are still
    /// open as far as we know, but for those of which slurmctld has `told`.
    async fn poll_database(
        &mut self,
        cluster: &str,
        now: i64,
        mut told: HashSet<OpenRun>,
    ) -> Result<ImportSummary, PollError> {
        let source = self.source.name();
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
        let longest = self.source.window_seconds();
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
            let answer = self
                .source
                .period(&self.config, from, Some(to).filter(|to| *to != now))
                .await?;
            // Told is what all windows told: one that fails after others leaves everything to the next question.
            let until = (to == now || (to == recent && told_until.is_none())).then_some(to);
            let (summary, told_open) = self
                .import(cluster, source, answer, timezone.clone(), until)
                .await?;
            total += summary;
            told.extend(told_open);
        }
        total += self.ask_for_open_runs(cluster, told).await?;
        Ok(total)
    }

    /// Reads what slurmctld appended to its file of ended jobs, and asks it for those that it knows now. The file says
    /// nothing of GPUs, so it is read last: what was seen of a run while it ran stays.
    async fn poll_without_database(&mut self, cluster: &str) -> Result<ImportSummary, PollError> {
        let rest = match &mut self.source {
            Source::Slurmrestd(rest) => Some(rest),
            Source::Sacct => None,
        };
        let live = live(&self.config, rest, cluster).await;
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
        let mut told = HashSet::new();
        let live = match live {
            Ok(mut live) => {
                live.iter_mut()
                    .for_each(|job| charge(&mut job.entry, &accounts));
                self.note_live(cluster, &live).await?;
                let answer = Answer::Live(live);
                let (summary, told_open) = self
                    .import(cluster, "slurmctld", answer, remember.clone(), None)
                    .await?;
                total += summary;
                told.extend(told_open);
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
            .filter(|run| !told.contains(run))
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
                let answer = Answer::Jobcomp(text, options.clone());
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

    /// Asks slurmctld what slurmdbd does not know: which GPUs running jobs hold, and why others wait. Records are worth
    /// having without it.
    async fn ask_controller(&mut self, cluster: &str) -> Result<HashSet<OpenRun>, PollError> {
        let rest = match &mut self.source {
            Source::Slurmrestd(rest) => Some(rest),
            Source::Sacct => None,
        };
        match live(&self.config, rest, cluster).await {
            Ok(mut live) => {
                self.note_live(cluster, &live).await?;
                let told: HashSet<OpenRun> = live.iter().flat_map(runs_of).collect();
                let known = {
                    let cluster = cluster.to_owned();
                    self.blocking(move |records| Ok(records.open_runs(&cluster)?))
                        .await?
                };
                let known: HashSet<OpenRun> = known.into_iter().collect();
                live.retain(|job| self.is_only_here(job, &known));
                if !live.is_empty() {
                    self.import(cluster, "slurmctld", Answer::Live(live), None, None)
                        .await?;
                }
                Ok(told)
            }
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "slurmctld does not tell of its jobs"
                );
                Ok(HashSet::new())
            }
        }
    }

    /// Whether slurmctld tells something of a job that slurmdbd will not: one that waits and is not known yet (it may never
    /// have been eligible), how many GPUs one holds where slurmdbd keeps none, and its reservation, of which slurmrestd is
    /// silent in Slurm 22.05.
    fn is_only_here(&self, job: &LiveJob, known: &HashSet<OpenRun>) -> bool {
        let reservation = match &job.entry {
            Entry::Run(run) => run.reservation.is_some(),
            _ => false,
        };
        !self.gpus_are_counted
            || reservation && matches!(self.source, Source::Slurmrestd(_))
            || job.reason.is_some() && runs_of(job).iter().any(|run| !known.contains(run))
    }

    async fn note_live(&mut self, cluster: &str, live: &[LiveJob]) -> Result<(), PollError> {
        self.pending = Some(pending(live));
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
        let (cluster, now) = (cluster.to_owned(), Timestamp::now().as_second());
        self.blocking(move |records| {
            records.note_waiting(&cluster, &waiting, now)?;
            Ok(records.note_held_gpus(&cluster, &held, now)?)
        })
        .await
    }

    /// Asks for shares and prices every so often. Records are worth having without them, so what Slurm will not tell is
    /// logged and asked for again with the next poll.
    async fn ask_for_shares(&mut self, cluster: &str, now: i64) -> Result<(), PollError> {
        if self
            .shares_asked
            .is_some_and(|asked| now < asked + SHARES_SECONDS)
        {
            return Ok(());
        }
        let settings = match &mut self.source {
            Source::Sacct => shares::ask_slurm(&self.config, cluster).await,
            Source::Slurmrestd(rest) => shares::ask_slurmrestd(rest, cluster).await,
        };
        match settings {
            Ok(settings) => {
                let cluster = cluster.to_owned();
                self.blocking(move |records| {
                    Ok(records.note_share_settings(&cluster, shares::SOURCE, &settings, now)?)
                })
                .await?;
                self.shares_asked = Some(now);
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "Slurm does not tell of shares")
            }
        }
        Ok(())
    }

    /// Asks by id for the runs that are open as far as we know and that no window showed: those that ended while
    /// nobody asked, those that sacct leaves out of a window (a dependency, an array's limit).
    async fn ask_for_open_runs(
        &mut self,
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
        let source = self.source.name();
        for ids in ids.chunks(self.source.ids_per_question()) {
            let answer = self.source.jobs(&self.config, ids).await?;
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

    /// Imports an answer; also the runs in it that have not ended.
    async fn import(
        &self,
        cluster: &str,
        source: &'static str,
        answer: Answer,
        timezone: Option<String>,
        told_until: Option<i64>,
    ) -> Result<(ImportSummary, Vec<OpenRun>), PollError> {
        let cluster = cluster.to_owned();
        let gpus_are_counted = self.gpus_are_counted || source == "slurmctld";
        self.blocking(move |records| {
            let name = format!("{source} of {cluster}");
            let mut open = Vec::new();
            let entries = answer.entries(&cluster, &name)?.map(|entry| {
                let mut entry = entry?;
                if !gpus_are_counted {
                    forget_uncounted_gpus(&mut entry);
                }
                let (run, job_ids) = match &entry {
                    Entry::Run(run) => (Some(run), std::slice::from_ref(&run.job_id)),
                    Entry::Tasks { run, job_ids } => (Some(run), job_ids.as_slice()),
                    Entry::Step | Entry::Rejected(_) => (None, &[][..]),
                };
                if let Some(run) = run.filter(|run| run.end.is_none()) {
                    open.extend(job_ids.iter().map(|job_id| OpenRun {
                        job_id: job_id.clone(),
                        submit: run.submit,
                    }));
                }
                Ok(match entry {
                    // Its line in an answer means nothing, and the same row comes with every answer.
                    Entry::Rejected(reject) => Entry::Rejected(Reject {
                        line: None,
                        ..reject
                    }),
                    entry => entry,
                })
            });
            let origin = Origin {
                source,
                name: &name,
                timezone: timezone.as_deref(),
                told_until: told_until.map(|instant| (cluster.as_str(), instant)),
                // What Slurm itself says now is never in the wrong zone.
                shifted: Shifted::Keep,
            };
            let summary = records
                .import(&origin, entries)
                .map_err(|error| match error {
                    ImportError::Source(error) => error,
                    ImportError::Store(error) => PollError::Store(error),
                    ImportError::Shifted { .. } => unreachable!("this origin keeps shifted runs"),
                })?;
            Ok((summary, open))
        })
        .await
    }

    /// Asks the store, which takes its time, on a thread of its own.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(Records<'_>) -> Result<T, PollError> + Send + 'static,
    ) -> Result<T, PollError> {
        let database = self.database.clone();
        match tokio::task::spawn_blocking(move || ask(Records::of(&database))).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(PollError::Run {
                    program: "the store",
                    source: io::Error::other(error),
                }),
            },
        }
    }
}

/// `[begin, end)` in parts of at most `longest` seconds, oldest first; at least one.
fn windows(begin: i64, end: i64, longest: i64) -> impl Iterator<Item = (i64, i64)> {
    let begin = begin.min(end);
    std::iter::successors(Some((begin, end.min(begin + longest))), move |&(_, to)| {
        (to < end).then(|| (to, end.min(to + longest)))
    })
}

/// A run that names no account is charged to its user's.
fn charge(entry: &mut Entry, accounts: &HashMap<String, String>) {
    if let Entry::Run(run) | Entry::Tasks { run, .. } = entry
        && run.account.is_empty()
        && let Some(account) = accounts.get(&run.user)
    {
        run.account.clone_from(account);
    }
}

/// A run of which Slurm keeps no GPU, though its nodes have some: whether it held any is unknown.
fn forget_uncounted_gpus(entry: &mut Entry) {
    if let Entry::Run(run) | Entry::Tasks { run, .. } = entry {
        run.gpus = run.gpus.filter(|gpus| *gpus > 0);
    }
}

/// The runs that slurmctld tells of in one job: an array's tasks that wait are many.
fn runs_of(job: &LiveJob) -> Vec<OpenRun> {
    let (run, job_ids) = match &job.entry {
        Entry::Run(run) => (run, std::slice::from_ref(&run.job_id)),
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

/// How many wait, by partition and by what they wait for.
fn pending(live: &[LiveJob]) -> Vec<Pending> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for job in live {
        if let Entry::Run(run) | Entry::Tasks { run, .. } = &job.entry
            && run.state == "PENDING"
        {
            let partition = run.partition.split(',').next().unwrap_or_default();
            let reason = job.reason.as_deref().unwrap_or("None");
            *counts.entry((partition, reason)).or_default() += runs_of(job).len() as u64;
        }
    }
    let pending = |((partition, reason), jobs): ((&str, &str), u64)| Pending {
        partition: partition.to_owned(),
        reason: reason.to_owned(),
        jobs,
    };
    counts.into_iter().map(pending).collect()
}

/// What a job that waits, or each task of its array, waits for.
fn waiting(job: &LiveJob) -> Vec<WaitingRun> {
    let Some(reason) = &job.reason else {
        return Vec::new();
    };
    let waits = |run| WaitingRun {
        run,
        reason: reason.clone(),
        expected_start: job.expected_start,
    };
    runs_of(job).into_iter().map(waits).collect()
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
mod tests {
    use super::*;
    use crate::schedulers::LocalSlurm;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;
    use takt_store::{DataDir, JobFilter, Settings};

    const HEADER: &str = "JobID|Submit|Eligible|Start|End|State|User|Account|Partition|QOS|AllocTRES|ReqTRES|NNodes|NCPUS|\
         NodeList|ElapsedRaw|Suspended|TimelimitRaw|ExitCode|JobName";

    /// 2026-10-10T00:00:00Z
    const NOW: i64 = 1_791_590_400;

    /// A poller whose Slurm is a folder of shell scripts.
    struct Stage {
        poller: Poller,
        folder: tempfile::TempDir,
        _dir: DataDir,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let dir = DataDir::claim(&folder.path().join("data")).unwrap();
            let database = Arc::new(Database::open(&dir, &Settings::default()).unwrap());
            let config = JobsConfig {
                slurm_bin: Some(folder.path().to_owned()),
                timeout_seconds: 5,
                history_days: 10,
                ..JobsConfig::default()
            };
            let poller = Poller::new(config, database, None, "Europe/Oslo".into());
            let stage = Self {
                poller,
                folder,
                _dir: dir,
            };
            stage.script(
                "scontrol",
                "echo 'Configuration data'; echo 'ClusterName             = lab'",
            );
            stage
        }

        fn script(&self, name: &str, body: &str) {
            let path = self.folder.path().join(name);
            fs::write(path.with_extension("body"), body).unwrap();
            if !path.exists() {
                symlink(
                    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh"),
                    path,
                )
                .unwrap();
            }
        }

        /// sacct tells these runs whatever it is asked, and keeps the question.
        fn answer(&self, runs: &[&str]) {
            fs::write(
                self.folder.path().join("answer"),
                format!("{HEADER}\n{}\n", runs.join("\n")),
            )
            .unwrap();
            let folder = self.folder.path().display();
            self.script(
                "sacct",
                &format!("shift 6; echo \"$@\" >> {folder}/asked; cat {folder}/answer"),
            );
        }

        /// The questions since the last call, without what is the same in all of them.
        fn asked(&self) -> Vec<String> {
            let path = self.folder.path().join("asked");
            let asked = fs::read_to_string(&path).unwrap_or_default();
            fs::write(path, "").unwrap();
            asked.lines().map(str::to_owned).collect()
        }

        fn states(&self) -> Vec<String> {
            let runs = Records::of(&self.poller.database)
                .jobs(&JobFilter::default())
                .unwrap();
            runs.iter()
                .map(|run| format!("{} {}", run.job_id, run.state))
                .collect()
        }
    }

    fn row(job_id: &str, submit: i64, end: Option<i64>, state: &str) -> String {
        let start = if state == "PENDING" {
            "Unknown".to_owned()
        } else {
            submit.to_string()
        };
        let end = end.map_or_else(|| "Unknown".to_owned(), |end| end.to_string());
        format!(
            "{job_id}|{submit}|{submit}|{start}|{end}|{state}|ann|lab|gpu|normal|cpu=1,node=1||1|1|g1|5|00:00:00|60|0:0|a|b"
        )
    }

    #[tokio::test]
    async fn the_first_question_goes_through_history_by_the_week_and_the_next_goes_on() {
        let mut stage = Stage::new();
        stage.answer(&[&row("7", NOW - 50, None, "RUNNING")]);
        let summary = stage.poller.poll(NOW).await.unwrap();
        assert_eq!(
            (summary.runs_inserted, summary.unchanged, summary.rejected),
            (1, 2, 0)
        );
        assert_eq!(
            stage.asked(),
            [
                "-S 2026-09-30T00:00:00 -E 2026-10-07T00:00:00",
                "-S 2026-10-07T00:00:00 -E 2026-10-09T23:00:00",
                "-S 2026-10-09T23:00:00"
            ],
            "what the last window showed to be open is not asked for again"
        );
        assert_eq!(stage.poller.cluster.as_deref(), Some("lab"));
        assert_eq!(
            Records::of(&stage.poller.database)
                .timezone("lab")
                .unwrap()
                .as_deref(),
            Some("Europe/Oslo")
        );
        stage.poller.poll(NOW + 60).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-09T23:00:00"]);
        stage.poller.poll(NOW + 3660).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:01:00"]);
    }

    #[tokio::test]
    async fn a_clock_that_differs_makes_no_hole_and_is_told_of() {
        let mut stage = Stage::new();
        stage.answer(&[]);
        let slurm_says = |stage: &Stage, at: i64| {
            stage.script(
                "scontrol",
                &format!("echo 'Configuration data as of {at}'; echo 'ClusterName = lab'"),
            );
        };
        // Two hours behind this machine: what Slurm writes now is asked for.
        slurm_says(&stage, NOW - 7200);
        stage.poller.poll(NOW).await.unwrap();
        stage.asked();
        slurm_says(&stage, NOW - 7200 + 3700);
        stage.poller.poll(NOW + 3700).await.unwrap();
        assert_eq!(
            stage.asked(),
            ["-S 2026-10-09T22:00:00"],
            "a look-back before the last question by Slurm's clock"
        );
        let mut status = PollStatus::default();
        stage
            .poller
            .note(&mut status, &Ok(ImportSummary::default()));
        assert_eq!(status.clock_ahead_seconds, -7200);
        // Seconds are no difference.
        slurm_says(&stage, NOW + 7195);
        stage.poller.poll(NOW + 7200).await.unwrap();
        assert_eq!(stage.poller.clock_ahead_seconds, 0);
    }

    #[tokio::test]
    async fn an_outage_leaves_no_hole_even_if_records_come_after_it() {
        let mut stage = Stage::new();
        stage.answer(&[]);
        for seconds in (0..=7200).step_by(600) {
            stage.poller.poll(NOW + seconds).await.unwrap();
        }
        stage.asked();
        stage.script(
            "sacct",
            "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1",
        );
        for seconds in (7800..=20_400).step_by(600) {
            let error = stage.poller.poll(NOW + seconds).await.unwrap_err();
            assert_eq!(error.state(), PollState::DatabaseDown);
        }
        stage.answer(&[]);
        // For a look-back after it, questions go back to before it.
        for (seconds, since) in [
            (21_000, "02:00:00"),
            (24_000, "02:00:00"),
            (24_600, "05:50:00"),
            (28_200, "06:50:00"),
        ] {
            stage.poller.poll(NOW + seconds).await.unwrap();
            assert_eq!(
                stage.asked(),
                [format!("-S 2026-10-10T{since}")],
                "{seconds}"
            );
        }
    }

    #[tokio::test]
    async fn runs_that_no_window_shows_are_asked_for_by_id() {
        let mut stage = Stage::new();
        stage.answer(&[
            &row("7", NOW - 50, None, "RUNNING"),
            &row("8_[1-3%1]", NOW - 50, None, "PENDING"),
            &row("9", NOW - 50, None, "RUNNING"),
        ]);
        stage.poller.poll(NOW).await.unwrap();
        stage.asked();
        // The window is empty; asked by id, sacct knows what became of 7 and 8, and nothing of 9.
        let folder = stage.folder.path().display().to_string();
        stage.answer(&[
            &row("7", NOW - 50, Some(NOW), "FAILED"),
            &row("8_[1-3%1]", NOW - 50, Some(NOW), "CANCELLED by 0"),
        ]);
        stage.script(
            "sacct",
            &format!("shift 6; echo \"$@\" >> {folder}/asked; case $1 in -j) cat {folder}/answer;; *) head -1 {folder}/answer;; esac"),
        );
        let summary = stage.poller.poll(NOW + 3600).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:00:00", "-j 7,8,9"]);
        assert_eq!((summary.runs_updated, summary.runs_inserted), (4, 0));
        assert_eq!(
            stage.states(),
            [
                "9 RUNNING",
                "8_3 CANCELLED",
                "8_2 CANCELLED",
                "8_1 CANCELLED",
                "7 FAILED"
            ]
        );
        // What sacct has forgotten is not asked for for ever.
        stage.poller.poll(NOW + 3660).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:00:00"]);
        assert_eq!(stage.poller.forgotten.len(), 1);
    }

    #[tokio::test]
    async fn a_bad_row_is_set_aside_once() {
        let mut stage = Stage::new();
        stage.answer(&[
            "the rest of a job's name",
            &row("7", NOW - 50, Some(NOW), "COMPLETED"),
        ]);
        for inserted in [1, 0] {
            assert_eq!(
                stage.poller.poll(NOW).await.unwrap().runs_inserted,
                inserted
            );
        }
        let db = stage.poller.database.connect().unwrap();
        let rejects: (i64, String) = db
            .query_row(
                "SELECT count(*), any_value(source) FROM records.rejects",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!(rejects, (1, "sacct of lab".into()));
    }

    #[tokio::test]
    async fn each_failure_has_its_state_and_keeps_what_was_said() {
        let mut stage = Stage::new();
        stage.poller.config.timeout_seconds = 1;
        for (script, state, detail) in [
            (
                "echo 'Slurm accounting storage is disabled' >&2; exit 1",
                PollState::NoAccounting,
                "storage is disabled",
            ),
            (
                "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to \
                 host:127.0.0.1:6819: Connection refused' >&2; exit 1",
                PollState::DatabaseDown,
                "host:127.0.0.1:6819: Connection refused",
            ),
            (
                "echo 'sacct: error: Invalid field requested: \"QOS\"' >&2; exit 1",
                PollState::Failed,
                "sacct failed: sacct: error: Invalid field requested: \"QOS\"",
            ),
            ("exit 3", PollState::Failed, "exit status: 3"),
            (
                "sleep 60",
                PollState::Timeout,
                "sacct did not answer within 1 s",
            ),
            ("echo '<html>'", PollState::Failed, "found '<html>'"),
            ("true", PollState::Failed, "found an empty line or nothing"),
        ] {
            stage.script("sacct", script);
            let began = Instant::now();
            let error = stage.poller.poll(NOW).await.unwrap_err();
            assert_eq!(error.state(), state, "{script}: {error}");
            assert!(
                error_chain(&error).contains(detail),
                "{}",
                error_chain(&error)
            );
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(
            Records::of(&stage.poller.database)
                .told_until("lab", "sacct", i64::MAX / 2_000_000)
                .unwrap(),
            None
        );
    }

    #[tokio::test]
    async fn slurm_is_found_by_its_name() {
        let stage = Stage::new();
        let config = &stage.poller.config;
        assert_eq!(
            detect(config).await.unwrap(),
            LocalSlurm {
                cluster: "lab".into()
            }
        );
        // slurmctld is down.
        stage.script(
            "scontrol",
            "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1",
        );
        stage.script("sacctmgr", "echo lab2");
        assert_eq!(
            detect(config).await.unwrap(),
            LocalSlurm {
                cluster: "lab2".into()
            }
        );
        stage.script("sacctmgr", "echo lab2; echo other");
        assert_eq!(detect(config).await.unwrap_err().state(), PollState::Failed);
        // Slurm's commands without a Slurm, and no commands at all.
        stage.script(
            "scontrol",
            "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1",
        );
        assert_eq!(
            detect(config).await.unwrap_err().state(),
            PollState::NoSlurm
        );
        fs::remove_file(stage.folder.path().join("scontrol")).unwrap();
        assert_eq!(
            detect(config).await.unwrap_err().state(),
            PollState::NoSlurm
        );
    }

    #[tokio::test]
    async fn the_status_says_how_it_goes() {
        let stage = Stage::new();
        stage.script("sacct", "exit 1");
        let folder = stage.folder.path().to_owned();
        let Stage {
            mut poller,
            folder: _folder,
            _dir,
        } = stage;
        poller.config.interval_seconds = 1;
        let (sender, mut status) = watch::channel(PollStatus::default());
        let running = tokio::spawn(poller.run(sender));
        let failed = status
            .wait_for(|status| status.failures > 0)
            .await
            .unwrap()
            .clone();
        assert_eq!(
            (failed.state, failed.cluster.as_deref(), failed.last_success),
            (PollState::Failed, Some("lab"), None)
        );
        assert_eq!(
            failed.detail.as_deref(),
            Some("sacct failed: exit status: 1")
        );
        fs::write(folder.join("sacct.body"), format!("echo '{HEADER}'")).unwrap();
        let well = status
            .wait_for(|status| status.state == PollState::Ok)
            .await
            .unwrap()
            .clone();
        assert_eq!(
            (well.failures, well.detail, well.last_success.is_some()),
            (0, None, true)
        );
        running.abort();
    }

    #[test]
    fn jobs_are_counted_by_what_they_wait_for() {
        let job = |id: u64, state: &str, partition: &str, reason: &str| {
            json!({"job_id": id, "job_state": state, "partition": partition, "state_reason": reason, "user_name": "ann",
                   "submit_time": NOW, "array_job_id": 0, "array_task_id": null, "array_task_string": ""})
        };
        let mut tasks = job(4, "PENDING", "gpu", "Resources");
        (tasks["array_job_id"], tasks["array_task_string"]) = (4.into(), "1-3".into());
        let jobs = [
            job(1, "PENDING", "gpu", "Resources"),
            job(2, "PENDING", "gpu,long", "Priority"),
            job(3, "RUNNING", "gpu", "None"),
            tasks,
            job(5, "PENDING", "long", "None"),
        ];
        let zone = TimeZone::UTC;
        let options = takt_slurm::sacct::Options {
            cluster: Cluster::Named("lab".into()),
            zone,
            columns: None,
        };
        let found = pending(&openapi::live_jobs(&json!({ "jobs": jobs }), &options));
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.partition.as_str(), one.reason.as_str(), one.jobs))
            .collect();
        assert_eq!(
            found,
            [
                ("gpu", "Priority", 1),
                ("gpu", "Resources", 4),
                ("long", "None", 1)
            ]
        );
    }

    #[test]
    fn pauses_grow_up_to_a_quarter_of_an_hour() {
        let config = JobsConfig::default();
        let pauses: Vec<u64> = [0, 1, 2, 3, 5, 6, 4_000_000_000]
            .map(|n| pause(&config, n).as_secs())
            .into();
        assert_eq!(pauses, [60, 60, 120, 240, 900, 900, 900]);
    }

    #[test]
    fn windows_are_whole_and_at_most_a_week() {
        let parts = |begin, now| windows(begin, now, 7 * 86_400).collect::<Vec<_>>();
        assert_eq!(
            parts(0, 1_300_000),
            [(0, 604_800), (604_800, 1_209_600), (1_209_600, 1_300_000)]
        );
        assert_eq!(parts(0, 604_800), [(0, 604_800)]);
        assert_eq!(parts(50, 50), [(50, 50)]);
        assert_eq!(parts(60, 50), [(50, 50)], "a clock that was set back");
    }
}
