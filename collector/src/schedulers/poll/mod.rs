//! Polls a live Slurm through `sacct` or slurmrestd; without slurmdbd, through its job completion
//! file and slurmctld.
//!
//! Every answer is imported like a file, so reading a record twice changes nothing. Each poll reads
//! again from one look-back before the last success, and from the last success that is at least one
//! look-back old. This covers records that reach slurmdbd late, also if Takt was stopped meanwhile.
//! It also covers an outage: for one look-back after it, polls still start before it, while slurmctld
//! delivers the records that it kept.
//!
//! Since Slurm 25.11, administrators can change the resources of finished jobs: each hour, a poll reads
//! one of the last 31 days again.
//!
//! sacct lists jobs that were never eligible (held, waiting for another job) only if they are
//! requested by id. So Takt sees such a job once it is eligible. Until then, the job holds no
//! resources.

mod completion;
mod import;
mod queue;

use super::command::completion_file;
use super::config::JobsConfig;
use super::follow::FileFollower;
use super::scheduler::{self, CLOCKS_AGREE_SECONDS, Scheduler};
use super::status::{JOBS_HIDDEN, Pending, PollError, PollState, PollStatus, SourceStatus};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use takt_jobs::Node;
use takt_model::{UnixTime, error_chain};
use takt_slurm::jobcomp;
use takt_slurm::releases::Release;
use takt_store::{Database, ImportSummary, OpenRun};
use tokio::sync::watch;
use tokio::time;

/// Polls one Slurm periodically.
#[derive(Debug)]
pub struct Poller {
    config: JobsConfig,
    database: Arc<Database>,
    /// Time zone to store for the cluster if the store has none yet.
    timezone: String,
    cluster: Option<String>,
    /// The name of the cluster that Slurm says, once it did.
    slurm_cluster: Option<String>,
    /// The scheduler, set up at the first poll.
    scheduler: Option<Box<dyn Scheduler>>,
    /// The job completion file of a Slurm without slurmdbd.
    jobcomp: Option<FileFollower>,
    forgotten: HashSet<OpenRun>,
    /// Time of the last request for shares and prices.
    shares_read_at: Option<UnixTime>,
    /// Time of the last request to slurmdbd for node events.
    events_read_at: Option<UnixTime>,
    /// Whether Slurm records GPUs with each job (`AccountingStorageTRES`).
    gpus_are_counted: bool,
    /// Seconds by which slurmctld's clock was ahead of this machine's at the last poll.
    clock_ahead_seconds: i64,
    /// Whether jobs can open only their own GPUs; `None` if unknown.
    constrains_devices: Option<bool>,
    /// Version of slurmctld, if known.
    version: Option<String>,
    /// Time at which a past day was last read again, and how many days back it was.
    read_again: Option<(UnixTime, i64)>,
    /// Pending jobs at this poll; `None` if slurmctld did not answer.
    pending: Option<Vec<Pending>>,
    nodes: Option<Vec<Node>>,
    /// Arrays in the last queue of which Slurm listed only some pending tasks.
    cut_arrays: usize,
    /// Resized jobs in the completion file's lines so far.
    resized: jobcomp::Resized,
    /// State of each source.
    sources: BTreeMap<String, SourceStatus>,
    /// Requests that failed when they were last made.
    failing: HashSet<&'static str>,
    /// Running runs of the last live queue, with their starts.
    queued: HashMap<OpenRun, UnixTime>,
    /// Number of runs of the last live queue that the records lack.
    unaccounted: usize,
    /// Unfinished runs of the last live queues, and the last time at which a queue listed them.
    unfinished: Arc<HashMap<OpenRun, UnixTime>>,
}

/// Maximum number of job ids in one request.
const IDS_PER_QUESTION: usize = 500;

/// Source name of Slurm's own shares and prices in the store.
const SHARES_SOURCE: &str = "slurm";

/// Seconds between two requests for shares and prices.
const SHARES_SECONDS: i64 = 900;

/// Release since which records of finished jobs can change.
const RECORDS_CHANGE_SINCE: Release = Release {
    year: 25,
    month: 11,
};

/// Seconds between two past days that are read again.
const READ_AGAIN_SECONDS: i64 = 3600;

/// Number of past days that are read again.
const READ_AGAIN_DAYS: i64 = 31;

/// Seconds after its start in which the record of a run reaches slurmdbd.
const RECORDED_WITHIN_SECONDS: i64 = 120;

/// Name of the source of job records.
pub const JOB_RECORDS: &str = "job_records";

/// Name of the source of the history of nodes.
const SLURMDBD: &str = "slurmdbd";

/// Maximum pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(900);

impl Poller {
    /// Creates a poller that writes into `database`. With another name than `cluster`, Slurm is not read.
    /// `timezone` is stored for the cluster if the store has none yet.
    pub fn new(
        config: JobsConfig,
        database: Arc<Database>,
        cluster: Option<String>,
        timezone: String,
    ) -> Self {
        Self {
            scheduler: None,
            jobcomp: config.jobcomp_file.clone().map(FileFollower::new),
            config,
            database,
            timezone,
            cluster,
            slurm_cluster: None,
            forgotten: HashSet::new(),
            shares_read_at: None,
            events_read_at: None,
            gpus_are_counted: true,
            clock_ahead_seconds: 0,
            constrains_devices: None,
            version: None,
            read_again: None,
            pending: None,
            nodes: None,
            cut_arrays: 0,
            resized: jobcomp::Resized::default(),
            sources: BTreeMap::new(),
            failing: HashSet::new(),
            queued: HashMap::new(),
            unaccounted: 0,
            unfinished: Arc::default(),
        }
    }

    /// Polls this scheduler instead of the configured one.
    #[must_use]
    pub fn with_scheduler(self, scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            scheduler: Some(scheduler),
            ..self
        }
    }

    /// Polls until the future is dropped, and sends the state to `status`. Dropping the future
    /// cancels a running request; imported records stay.
    pub async fn run(mut self, status: watch::Sender<PollStatus>) {
        loop {
            let result = self.poll(Timestamp::now().into()).await;
            status.send_modify(|status| self.note(status, &result));
            let failures = self.failures_in_a_row(&status.borrow());
            time::sleep(pause(&self.config, failures)).await;
        }
    }

    /// Returns the failures that the next poll waits for. While slurmctld answers, its queue is worth asking for,
    /// whatever is wrong with the records: a problem of the queue would stay for as long as the pause.
    fn failures_in_a_row(&self, status: &PollStatus) -> u32 {
        match &self.pending {
            Some(_) => status.failures.min(1),
            None => status.failures,
        }
    }

    fn note(&self, status: &mut PollStatus, result: &Result<ImportSummary, PollError>) {
        status.cluster.clone_from(&self.cluster);
        status.slurm_cluster.clone_from(&self.slurm_cluster);
        status.forgotten_runs = self.forgotten.len();
        status.clock_ahead_seconds = self.clock_ahead_seconds;
        status.constrains_devices = self.constrains_devices;
        status.version.clone_from(&self.version);
        status.gpus_are_not_counted = !self.gpus_are_counted && self.jobcomp.is_none();
        status.pending.clone_from(&self.pending);
        status.nodes.clone_from(&self.nodes);

        status.sources.clone_from(&self.sources);
        match result {
            Ok(summary) => {
                if status.failures > 0 {
                    tracing::info!(failures = status.failures, "sacct answers again");
                }
                tracing::debug!(
                    inserted = summary.runs_inserted,
                    updated = summary.runs_updated,
                    "polled sacct"
                );

                let is_new = |state: &&String| !status.unknown_states.contains_key(*state);
                for state in summary.unknown_states.keys().filter(is_new) {
                    tracing::warn!(
                        state,
                        "Slurm reports a state of jobs that Takt does not know"
                    );
                }

                let last_success = Some(Timestamp::now().into());
                *status = PollStatus {
                    records_set_aside: status.records_set_aside + summary.rejected_first,
                    unknown_states: summary.unknown_states.clone(),
                    state: PollState::Ok,
                    last_success,
                    detail: None,
                    failures: 0,
                    ..status.clone()
                };
            }
            Err(error) => {
                let detail = error_chain(error);

                // A machine without Slurm is not a failure. A lasting failure is logged once.
                let is_new = error.state() != status.state;
                if is_new && error.state() == PollState::OtherCluster {
                    tracing::error!(error = detail, "Slurm is not read");
                } else if is_new && error.state() != PollState::NoSlurm {
                    tracing::warn!(error = detail, "cannot poll Slurm, will retry");
                }
                status.state = error.state();
                status.detail = Some(detail);
                status.failures = status.failures.saturating_add(1);
            }
        }
    }

    /// Reads and imports everything new. `now` is the current time.
    ///
    /// # Errors
    /// [`PollError`]. Records stored before the error stay, and the next poll starts from the same
    /// point.
    pub async fn poll(&mut self, now: UnixTime) -> Result<ImportSummary, PollError> {
        (self.pending, self.nodes) = (None, None);

        let mut scheduler = match self.scheduler.take() {
            Some(scheduler) => scheduler,
            None => scheduler::configured(&self.config)?,
        };

        let polled = self.poll_with(scheduler.as_mut(), now).await;
        let answer = polled.as_ref().map(|summary| summary.runs as usize);
        self.saw(JOB_RECORDS, now, answer);
        if polled.is_ok() && self.unaccounted > 0 {
            let problem = format!(
                "{} running jobs are in Slurm's queue and not in its records",
                self.unaccounted
            );
            self.lacks(JOB_RECORDS, problem);
        }
        self.saw_slurmdbd(now, polled.as_ref().err());
        // slurmctld hides jobs by slurm.conf, slurmdbd by slurmdbd.conf: its records then lack jobs of the queue.
        if scheduler.hides_jobs() {
            self.lacks("queue", JOBS_HIDDEN.to_owned());
        }
        self.scheduler = Some(scheduler);
        polled
    }

    /// Notes whether slurmdbd answered this poll: its history of nodes is asked for less often.
    fn saw_slurmdbd(&mut self, now: UnixTime, error: Option<&PollError>) {
        let Some(known) = self.sources.get_mut(SLURMDBD) else {
            return;
        };
        match error {
            None if self.jobcomp.is_none() => known.last_success = Some(now),
            Some(error) if error.state() == PollState::DatabaseDown => {
                known.problem = error.state().problem().map(str::to_owned);
                known.detail = Some(error_chain(error));
                // It is asked for as soon as slurmdbd answers, and the problem ends.
                self.events_read_at = None;
            }
            _ => {}
        }
    }

    /// Notes that a source answered and is not complete.
    fn lacks(&mut self, source: &str, problem: String) {
        if let Some(source) = self.sources.get_mut(source) {
            source.problem.get_or_insert(problem);
        }
    }

    /// Logs a failed request once, until it succeeds again.
    fn log_failure(&mut self, asked: &'static str, error: Option<&PollError>) {
        match error {
            None => {
                self.failing.remove(asked);
            }
            // Without slurmdbd, nothing fails.
            Some(PollError::NoAccounting(_)) => {}
            Some(error) if self.failing.insert(asked) => tracing::warn!(
                asked,
                error = error_chain(error),
                "Slurm did not answer a request, will retry"
            ),
            Some(_) => {}
        }
    }

    /// Notes what a source answered.
    fn saw(&mut self, source: &'static str, now: UnixTime, answer: Result<usize, &PollError>) {
        // The state of the poll has the job records.
        if source != JOB_RECORDS {
            self.log_failure(source, answer.err());
        }
        let known = self.sources.entry(source.to_owned()).or_default();
        match answer {
            Ok(items) => {
                *known = SourceStatus {
                    last_success: Some(now),
                    items: items as u64,
                    ..SourceStatus::default()
                };
            }
            Err(error) => {
                known.problem = error.state().problem().map(str::to_owned);
                known.detail = Some(error_chain(error));
            }
        }
    }

    async fn poll_with(
        &mut self,
        scheduler: &mut dyn Scheduler,
        now: UnixTime,
    ) -> Result<ImportSummary, PollError> {
        let cluster = self.name_of_cluster(scheduler).await?;
        let now = now + self.ask_for_the_time(scheduler, now).await;

        // Shares come first: this poll may import months of history, and other shares would make
        // fair share wrong meanwhile.
        self.ask_for_shares(scheduler, &cluster, now).await?;

        // Nodes come before jobs: they show whether Slurm counts GPUs, which decides the GPUs of a
        // run without GPUs in its records.
        self.ask_for_nodes(scheduler, &cluster, now).await?;

        let mut listed = HashSet::new();
        if self.jobcomp.is_none() {
            listed = self.ask_controller(scheduler, &cluster, now).await?;
        }

        let summary = match &self.jobcomp {
            Some(_) => self.poll_without_database(scheduler, &cluster, now).await,
            None => match self.poll_database(scheduler, &cluster, now, listed).await {
                // This Slurm runs without slurmdbd. If it writes a job completion file, read that
                // from now on.
                Err(error @ PollError::NoAccounting(_)) => {
                    match completion_file(&self.config).await {
                        Some(path) => {
                            tracing::info!(path = %path.display(), "Slurm runs without slurmdbd; reading its job completion file");
                            self.jobcomp = Some(FileFollower::new(path));
                            self.poll_without_database(scheduler, &cluster, now).await
                        }
                        None => Err(error),
                    }
                }
                answer => answer,
            },
        }?;

        Ok(summary)
    }

    /// Returns the seconds by which slurmctld's clock is ahead of this machine's. Requests use
    /// slurmctld's clock, because slurmctld timestamps the records: a wrong clock then loses no
    /// record. If slurmctld does not answer, returns the previous value.
    async fn ask_for_the_time(&mut self, scheduler: &mut dyn Scheduler, now: UnixTime) -> i64 {
        let theirs = scheduler.time().await;

        self.constrains_devices = scheduler.constrains_devices();
        self.version = scheduler.version();

        if let Some(ahead) = theirs.map(|theirs| theirs - now) {
            self.clock_ahead_seconds = if ahead.abs() < CLOCKS_AGREE_SECONDS {
                0
            } else {
                ahead
            };
        }

        self.clock_ahead_seconds
    }

    /// Reads the nodes and, if slurmdbd keeps it, their history. A failure is logged, because job
    /// records are useful without nodes.
    async fn ask_for_nodes(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> Result<(), PollError> {
        // Without slurmdbd, the scheduler has no history.
        let has_history = self.jobcomp.is_none() && scheduler.keeps_history();
        let of_cluster = cluster.to_owned();

        let answer = scheduler.nodes().await;
        self.saw("nodes", now, answer.as_ref().map(Vec::len));
        if let Ok(nodes) = answer {
            self.gpus_are_counted = takt_jobs::gpus_are_counted(&nodes);
            self.nodes = Some(nodes.clone());
            self.blocking(move |records| {
                Ok(records.note_nodes(&of_cluster, &nodes, now, !has_history)?)
            })
            .await?;
        }

        self.ask_for_reservations(scheduler, cluster, now, has_history)
            .await?;

        if !has_history || !is_due(self.events_read_at, SHARES_SECONDS, now) {
            return Ok(());
        }

        let since = now - i64::from(self.config.history_days) * 86_400;
        let of_cluster = cluster.to_owned();

        let answer = scheduler.node_events(cluster, since).await;
        self.saw(SLURMDBD, now, answer.as_ref().map(Vec::len));
        if let Ok(events) = answer {
            self.blocking(move |records| {
                Ok(records.note_node_events(&of_cluster, &events, "slurmdbd")?)
            })
            .await?;
            self.events_read_at = Some(now);
        }
        Ok(())
    }

    /// Reads the reservations: from slurmdbd if possible, because it also keeps past ones.
    async fn ask_for_reservations(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
        has_history: bool,
    ) -> Result<(), PollError> {
        let since = now - i64::from(self.config.history_days) * 86_400;
        let listed = if has_history {
            scheduler.past_reservations(cluster, since).await
        } else {
            scheduler.reservations().await
        };

        self.log_failure("reservations", listed.as_ref().err());
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
            Err(_) => Ok(()),
        }
    }

    async fn name_of_cluster(
        &mut self,
        scheduler: &mut dyn Scheduler,
    ) -> Result<String, PollError> {
        if self.slurm_cluster.is_none() || self.slurm_cluster != self.cluster {
            match scheduler.cluster().await {
                Ok(named) => self.slurm_cluster = Some(named),
                Err(error) if self.cluster.is_none() => return Err(error),
                // The names are compared as soon as Slurm says one.
                Err(_) => {}
            }
        }

        match (&self.cluster, &self.slurm_cluster) {
            (Some(configured), Some(slurm)) if configured != slurm => {
                Err(PollError::OtherCluster {
                    configured: configured.clone(),
                    slurm: slurm.clone(),
                })
            }
            (Some(named), _) => Ok(named.clone()),
            (None, named) => {
                let named = named.clone().unwrap_or_default();
                self.cluster = Some(named.clone());
                Ok(named)
            }
        }
    }

    /// Reads from slurmdbd all records since the last success that is one look-back old. Also reads
    /// the runs that are open in the store, except those that the live queue already listed.
    async fn poll_database(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
        mut listed: HashSet<OpenRun>,
    ) -> Result<ImportSummary, PollError> {
        let source = scheduler.name();

        let look_back = self.config.look_back_seconds.cast_signed();
        let recent = now - look_back;

        let (complete_until, timezone) = self
            .blocking({
                let cluster = cluster.to_owned();
                move |records| {
                    // A clock that was ahead has noted them. When their time comes, a poll would
                    // begin there, and miss what an outage before it had kept back.
                    let forgotten = records.forget_polls_after(&cluster, source, now)?;
                    if forgotten > 0 {
                        tracing::warn!(
                            polls = forgotten,
                            "the clock was set back; reading job records again from before it was ahead"
                        );
                    }
                    // Records may have been on their way at the last success, however old it is.
                    let latest = records.complete_until(&cluster, source, now)?;
                    let settled = records.complete_until(&cluster, source, recent)?;
                    let begin = settled.min(latest.map(|latest| latest - look_back));
                    Ok((begin, records.timezone(&cluster)?))
                }
            })
            .await?;

        let timezone = timezone.is_none().then(|| self.timezone.clone());
        let longest = scheduler.window_seconds();
        let windows: Vec<_> = match complete_until {
            Some(begin) => windows(begin, now, longest).collect(),
            // Records older than one look-back no longer change, so the next poll need not read
            // them again.
            None => {
                let first = now - i64::from(self.config.history_days) * 86_400;
                windows(first, recent, longest)
                    .chain([(recent, now)])
                    .collect()
            }
        };

        let mut total = ImportSummary::default();
        let mut accounted = HashSet::new();
        for (from, to) in windows {
            // Runs that begin after this request belong to the next poll.
            let to_instant = Some(to).filter(|to| *to != now);
            let answer = scheduler.jobs_in(from, to_instant).await?;
            // The listed runs are those of all windows. If a later window fails, the next poll
            // reads all of them again.
            let until = (to == now || (to == recent && complete_until.is_none())).then_some(to);
            let (summary, listed_open) = self
                .import(cluster, source, answer, timezone.clone(), until)
                .await?;
            total += summary;
            accounted.extend(listed_open.iter().cloned());
            listed.extend(listed_open);
        }

        let is_unaccounted = |(run, start): &(&OpenRun, &UnixTime)| {
            **start + RECORDED_WITHIN_SECONDS < now && !accounted.contains(run)
        };
        self.unaccounted = self.queued.iter().filter(is_unaccounted).count();
        total += self.ask_for_open_runs(scheduler, cluster, listed).await?;

        if complete_until.is_some() {
            total += self.read_a_past_day_again(scheduler, cluster, now).await;
        }
        Ok(total)
    }

    /// Reads the records of one past day again, each hour another one: administrators can change the
    /// resources of finished jobs since Slurm 25.11 (flag `JOB_ALTERED`). A failure is logged, because the
    /// records were complete before.
    async fn read_a_past_day_again(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> ImportSummary {
        let release = self.version.as_deref().map(str::parse::<Release>);
        let changes_records =
            matches!(release, Some(Ok(release)) if release >= RECORDS_CHANGE_SINCE);
        let last = self.read_again.map(|(at, _)| at);
        if !changes_records || !is_due(last, READ_AGAIN_SECONDS, now) {
            return ImportSummary::default();
        }

        let back = self.read_again.map_or(0, |(_, back)| back) % READ_AGAIN_DAYS + 1;
        self.read_again = Some((now, back));
        let settled = now - self.config.look_back_seconds.cast_signed();
        let from = settled - back * 86_400;
        let again = async {
            let answer = scheduler.jobs_in(from, Some(from + 86_400)).await?;
            let source = scheduler.name();
            self.import(cluster, source, answer, None, None).await
        };

        match again.await {
            Ok((summary, _)) => summary,
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    days_back = back,
                    "a past day was not read again"
                );
                ImportSummary::default()
            }
        }
    }

    /// Reads shares and prices every [`SHARES_SECONDS`]. A failure is logged and the next poll
    /// tries again, because job records are useful without shares.
    async fn ask_for_shares(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        now: UnixTime,
    ) -> Result<(), PollError> {
        if !is_due(self.shares_read_at, SHARES_SECONDS, now) {
            return Ok(());
        }

        let answer = scheduler.shares(cluster).await;
        self.log_failure("shares", answer.as_ref().err());
        if let Ok(settings) = answer {
            let cluster = cluster.to_owned();
            self.blocking(move |records| {
                Ok(records.note_share_settings(&cluster, SHARES_SOURCE, &settings, now)?)
            })
            .await?;
            self.shares_read_at = Some(now);
        }
        Ok(())
    }

    /// Reads by id the open runs that no window listed: runs that ended while Takt did not poll,
    /// and runs that sacct omits from a window (a dependency, an array's limit).
    async fn ask_for_open_runs(
        &mut self,
        scheduler: &mut dyn Scheduler,
        cluster: &str,
        listed: HashSet<OpenRun>,
    ) -> Result<ImportSummary, PollError> {
        let known = {
            let cluster = cluster.to_owned();
            self.blocking(move |records| Ok(records.open_runs(&cluster)?))
                .await?
        };

        self.forgotten.retain(|run| known.contains(run));
        let missing: Vec<OpenRun> = known
            .into_iter()
            .filter(|run| !listed.contains(run) && !self.forgotten.contains(run))
            .collect();

        let mut total = ImportSummary::default();
        let mut listed = HashSet::new();

        let ids: BTreeSet<&str> = missing.iter().map(|run| base_id(&run.job_id)).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let source = scheduler.name();

        for ids in ids.chunks(IDS_PER_QUESTION) {
            let answer = scheduler.jobs_by_id(ids).await?;
            let (summary, listed_open) = self.import(cluster, source, answer, None, None).await?;
            total += summary;
            listed.extend(listed_open);
        }

        if !missing.is_empty() {
            let cluster = cluster.to_owned();
            let still_open: HashSet<OpenRun> = self
                .blocking(move |records| Ok(records.open_runs(&cluster)?))
                .await?
                .into_iter()
                .collect();

            let forgotten = missing
                .into_iter()
                .filter(|run| still_open.contains(run) && !listed.contains(run));

            for run in forgotten {
                tracing::warn!(
                    job_id = run.job_id,
                    submit = run.submit.0,
                    "sacct no longer knows an open run"
                );
                self.forgotten.insert(run);
            }
        }
        Ok(total)
    }
}

/// Returns whether something that was last done at `last` is due again. It is after the clock was set
/// back, or it would wait until the clock has come as far again.
fn is_due(last: Option<UnixTime>, every_seconds: i64, now: UnixTime) -> bool {
    last.is_none_or(|last| now < last || now >= last + every_seconds)
}

/// Splits `[begin, end)` into parts of at most `longest` seconds, oldest first. Returns at least
/// one part.
fn windows(
    begin: UnixTime,
    end: UnixTime,
    longest: i64,
) -> impl Iterator<Item = (UnixTime, UnixTime)> {
    let begin = begin.min(end);
    iter::successors(Some((begin, end.min(begin + longest))), move |&(_, to)| {
        (to < end).then(|| (to, end.min(to + longest)))
    })
}

/// Returns the job id without the array task or component.
fn base_id(job_id: &str) -> &str {
    job_id.split(['_', '+']).next().unwrap_or(job_id)
}

/// Returns the pause after a number of successive failures: it doubles each time.
fn pause(config: &JobsConfig, failures: u32) -> Duration {
    let interval = Duration::from_secs(config.interval_seconds);
    let longest = MAX_PAUSE.max(interval);
    interval
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(longest)
}

#[cfg(test)]
mod tests;
