//! The running engine: one thread owns the engine, and other tasks send it work.
//!
//! A turn takes all waiting work, begins the evaluations that are due, flushes the groups that are
//! due, marks messages as being sent, and commits everything in one transaction. Then it answers
//! callers and hands the messages to their channels. Queries of rules run on the threads of a
//! [`pool`], and their answers are work as all other, so an event never waits for a rule. So whatever a caller or a channel has seen
//! survives the loss of the process, and an event is in the outbox one commit after it was read.
//!
//! If the commit fails, messages are sent nevertheless, and `takt_notifications_uncommitted_total`
//! counts them: a message that comes twice after a crash is better than none. The state stays in
//! memory and is offered to the store again every second; [`watch`] raises `TaktCannotStoreAlerts`.

mod clock;
mod commit;
mod deliver;
mod handle;
mod metrics;
mod pool;
mod recorded;
mod uncommitted;
mod watch;

pub use clock::SteadyClock;
pub use commit::{Commits, Committed};
pub use handle::{ChangeError, EngineError, Handle};
pub use metrics::{AlertMetrics, StreamGauge};
pub use uncommitted::DroppedRecords;
pub use watch::{Heartbeat, WatchConfig, store_failure};

use crate::engine::Report;
use crate::events::{EndAnswers, with_jobs};
use crate::message::Status;
use crate::notify::channels::Channels;
use crate::outbox::{Outcome, Row, RowState};
use crate::ports::{AlertStore, RuleQueries, SampleSink, StoreError};
use crate::routing::maintenance::Maintenance;
use crate::state::{EvalError, RuleKey};
use crate::{Batch, Engine};
use deliver::Delivery;
use handle::{CommitReport, QueuedWork, Work};
use pool::{Pool, Task};
use recorded::Recorded;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use takt_model::{Event, Labels, Timestamp, error_chain};
use watch::{HeartbeatDue, Watch};

/// Interval of looking for evaluations that are due; groups have intervals of their own.
const TICK: Duration = Duration::from_secs(1);

/// Interval of looking up the scheduler's reservations. Each has its own start time, so a new one
/// is at most this late.
const MAINTENANCE_EVERY: Duration = Duration::from_secs(15);

/// Time that channels get to answer when the engine stops. A message without an answer is sent
/// again after the next start.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Pieces of work taken in one turn.
const TURN_MAX: usize = 4096;

/// Services that the engine needs from the rest of Takt.
pub trait Outside: AlertStore + SampleSink + Send {
    /// The current time. It does not follow a clock that was set by mistake: `for` would have passed
    /// at once, silences would end, and reminders be due.
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    /// Answers queries, also on other threads.
    fn queries(&self) -> Arc<dyn RuleQueries>;

    /// Current and future maintenance of nodes; `None` if it cannot be read now.
    fn maintenance(&self, now: Timestamp) -> Option<Vec<Maintenance>>;

    /// The jobs at the place where the event happened, at that time.
    fn jobs_at(&self, event: &Event) -> JobsAt;

    /// Address of the page that acknowledges the alerts of a message, with a secret. `place` says where the
    /// message is sent. `None` if messages have no such links.
    fn acknowledge_url(&self, _row: &Row, _place: String) -> Option<String> {
        None
    }

    /// The reason why samples are not written to the disk at present, if they are not.
    fn storage_problem(&self) -> Option<String>;
}

/// The jobs at the place of an event, each with the labels `jobid`, `user` and `job_name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobsAt {
    /// Jobs that were there. They may share a GPU.
    Certain(Vec<Labels>),
    /// Any of these jobs, or none, may be meant.
    Possible(Vec<Labels>, Doubt),
}

/// Why it is not certain to which job an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// One job ended and another began at that time.
    JobsChanged,
    /// The process that the event names belongs to no job, as a process of a container daemon or of
    /// someone who signed in to the node.
    ProcessWithoutJob,
}

impl Doubt {
    fn words(self) -> &'static str {
        match self {
            Self::JobsChanged => "jobs changed at that time",
            Self::ProcessWithoutJob => "the process belongs to no job",
        }
    }
}

impl JobsAt {
    /// The jobs that the event counts for, and the event; a text says which jobs are possible where that
    /// is not certain. Nobody is blamed then.
    fn attributed(self, mut event: Event) -> (Vec<Labels>, Event) {
        match self {
            Self::Certain(jobs) => (jobs, event),
            Self::Possible(jobs, doubt) => {
                // It names the jobs without counting the fault for any of them.
                let numbers = jobs.iter().filter_map(|job| job.get("jobid"));
                let numbers: Vec<_> = numbers.map(|number| format!("job {number}")).collect();
                let possible = numbers.join(" or ");
                event.message += &format!(" (possibly {possible}: {})", doubt.words());
                (Vec::new(), event)
            }
        }
    }
}

/// The engine's thread. Dropping this stops the thread after its turn.
pub struct Alerting {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Alerting {
    /// Restores `engine` from the store and starts the thread. Messages are sent on the caller's
    /// tokio runtime.
    ///
    /// # Errors
    /// If the stored state cannot be read, or the thread cannot be started.
    pub fn start(
        mut engine: Engine,
        outside: impl Outside + 'static,
        channels: Channels,
        watch: WatchConfig,
        metrics: AlertMetrics,
    ) -> Result<Self, StoreError> {
        let now = outside.now();
        let restored = engine.restore(outside.load()?, now);

        let (handle, waiting) = Handle::new(metrics.clone());
        let runtime = tokio::runtime::Handle::current();
        let delivery = Delivery::new(channels, runtime, handle.clone(), metrics.clone())?;

        let queries = outside.queries();
        let pool = Pool::start(Arc::clone(&queries), handle.clone())?;

        let runner = Runner {
            engine,
            outside,
            queries,
            pool,
            report: Report::default(),
            is_asking_ends: false,
            waiting,
            delivery,
            commits: Commits::new(restored, now),
            watch: Watch::new(watch),
            metrics,
            recorded: Recorded::default(),
            clock: SteadyClock::new(now),
            tick_at: now,
            maintenance_at: now,
            stop_by: None,
        };

        let thread = thread::Builder::new()
            .name("takt-alerts".to_owned())
            .spawn(move || runner.run());
        let thread =
            thread.map_err(|error| StoreError(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }

    /// A handle to the engine.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the thread has ended by itself.
    pub fn is_stopped(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Alerting {
    fn drop(&mut self) {
        let _ = self.handle.put_always(Work::Stop);

        // The thread waits for the channels' answers before it ends, so that they are stored.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the alert engine panicked");
        }
    }
}

struct Runner<O> {
    engine: Engine,
    outside: O,
    queries: Arc<dyn RuleQueries>,
    pool: Pool,
    /// Failures and counts since the last tick.
    report: Report,
    /// Whether end conditions of events' alerts are being asked.
    is_asking_ends: bool,
    waiting: mpsc::Receiver<QueuedWork>,
    delivery: Delivery,
    commits: Commits,
    watch: Watch,
    metrics: AlertMetrics,
    clock: SteadyClock,
    tick_at: Timestamp,
    maintenance_at: Timestamp,
    /// Events that were logged within the hour.
    recorded: Recorded,
    /// When stopping: time at which the thread ends even if channels have not answered, whatever the machine's clock says.
    stop_by: Option<Instant>,
}

impl<O> Runner<O>
where
    O: Outside,
{
    fn run(mut self) {
        loop {
            let wait = self.until_due(self.outside.now());
            let mut work = match self.waiting.recv_timeout(wait) {
                Ok(first) => vec![first],
                Err(mpsc::RecvTimeoutError::Timeout) => Vec::new(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };

            // All that waits shares one commit, so a storm of events costs no commit each.
            work.extend(self.waiting.try_iter().take(TURN_MAX));
            self.turn(work);

            // While stopping, the answers of channels are awaited, so that no message is sent twice.
            let is_sending = || {
                self.engine
                    .outbox()
                    .iter()
                    .any(|row| row.state == RowState::Sending)
            };
            if self
                .stop_by
                .is_some_and(|by| Instant::now() >= by || !is_sending())
            {
                return;
            }
        }
    }

    /// Time until something is due without new work, at most one tick.
    fn until_due(&self, now: Timestamp) -> Duration {
        // While stopping no message leaves, so those that are due are no reason for a turn.
        let messages = self.engine.outbox().next_due();
        let messages = messages.filter(|_| self.stop_by.is_none());
        let routing = self.engine.router().next_due();

        let due = routing
            .into_iter()
            .chain(messages)
            .chain([self.tick_at, self.commits.note_at()])
            .min()
            .unwrap_or(now);
        // After a failed commit, everything waits for the next attempt.
        let due = due.max(self.commits.commit_at());
        let wait = Duration::from_millis(u64::try_from(due.0 - now.0).unwrap_or(0)).min(TICK);

        match self.stop_by {
            Some(by) => wait.min(by.saturating_duration_since(Instant::now())),
            None => wait,
        }
    }

    /// Does the waiting work, begins evaluations, commits and sends.
    fn turn(&mut self, work: Vec<QueuedWork>) {
        let now = self.clock.now(self.outside.now());

        // First, so that what this turn changes replaces what an earlier one could not store.
        let mut batch = self.commits.take_unsaved();
        let mut reports = Vec::new();

        for queued in work {
            batch = batch.then(self.take(queued.work, &mut reports, now));
        }

        if now >= self.tick_at {
            batch = batch.then(self.tick(now));
        }

        // After the work, so that an event that was read in this turn leaves with its commit.
        batch = batch.then(self.engine.flush(&*self.queries, now));

        // A message that leaves now could have its answer after the end, and come again with the next start.
        if self.stop_by.is_none() {
            batch = batch.then(self.commits.mark_due(&mut self.engine, now));
        }
        self.commit(batch, reports, now);
    }

    /// Does one piece of work. Returns what has to be committed.
    fn take(&mut self, work: Work, reports: &mut Vec<CommitReport>, now: Timestamp) -> Batch {
        match work {
            Work::Read(look) => look(&self.engine, &self.delivery.channels, now),
            Work::Change(change) => {
                // Its caller has an answer only after the commit.
                let (changed, report) = change(&mut self.engine, now);
                reports.push(report);
                return changed;
            }
            Work::Event { exporter, event } => return self.event(&exporter, *event, now),
            Work::Answered {
                row,
                outcome,
                pause,
            } => return self.answered(&row, &outcome, pause, now),
            Work::Evaluated(outcome) => {
                let step = self.engine.evaluated(*outcome, &self.outside, now);
                self.report.add(step.report);
                // A rule that is asked now could not be answered before the end.
                if let Some(next) = step.next.filter(|_| self.stop_by.is_none()) {
                    self.pool.put(Task::Rule(next));
                }
                return step.batch;
            }
            Work::Ends(answers) => {
                self.is_asking_ends = false;
                return self.end(answers, now);
            }
            Work::Channels(channels, watch) => {
                self.delivery.channels = channels;
                self.watch.config = watch;
            }
            Work::Stop => self.stop_by = Some(Instant::now() + STOP_WITHIN),
        }
        Batch::default()
    }

    fn event(&mut self, exporter: &str, event: Event, now: Timestamp) -> Batch {
        self.metrics.events.inc();
        self.metrics.event_lag.set((now - event.at) as f64 / 1e3);
        let (jobs, event) = self.outside.jobs_at(&event).attributed(event);

        let mut batch = self.engine.event_of(exporter, &event, &jobs, now);

        // Rules have seen the event; only the log of events has a bound.
        let event = with_jobs(&event, &jobs);
        if self.recorded.admits(&event) {
            batch.events.push(event);
        }
        batch
    }

    fn answered(&mut self, row: &Row, outcome: &Outcome, pause: Duration, now: Timestamp) -> Batch {
        let channels = &self.delivery.channels;
        let fallback = |failed: &str| channels.fallback(failed);
        let batch = self.engine.answered(row.id, outcome, &fallback, now);

        if !pause.is_zero() {
            self.engine.pace(&row.channel, pause, now);
        }
        self.metrics.answered(row, outcome);
        batch
    }

    /// Begins evaluations, checks alerting itself, and sends the heartbeat.
    fn tick(&mut self, now: Timestamp) -> Batch {
        self.tick_at = now.plus(TICK);
        self.follow_maintenance(now);

        let mut batch = self.begin(now);
        // Ends by time need no query. Ends by a condition come with their answers.
        batch = batch.then(self.end(EndAnswers::default(), now));

        let report = mem::take(&mut self.report);
        self.metrics.evaluated(&report);
        self.metrics.groups(&self.engine);
        log_failures(&report.failures);
        self.watch.log_overruns(&self.engine, now);
        self.watch.note_storage(self.outside.storage_problem(), now);

        let posted = self.watch.look(&self.engine, &report, now);
        if !posted.is_empty() {
            batch = batch.then(self.engine.post(posted, now).0);
        }

        match self.watch.heartbeat_due(&self.engine, now) {
            HeartbeatDue::Now(url) => self.delivery.beat(url),
            HeartbeatDue::Withheld => drop(self.metrics.heartbeats_withheld.inc()),
            HeartbeatDue::Later => {}
        }

        self.metrics.outbox(&self.engine, now);
        batch
    }

    /// Begins the evaluations that are due, and asks the end conditions of events' alerts.
    fn begin(&mut self, now: Timestamp) -> Batch {
        if self.stop_by.is_some() {
            return Batch::default();
        }

        let (tasks, batch, report) = self.engine.begin(now);
        self.report.add(report);
        for task in tasks {
            self.pool.put(Task::Rule(task));
        }

        // A slow query must not be asked again each second while its answer is awaited.
        if !self.is_asking_ends
            && let Some(task) = self.engine.end_conditions(now)
        {
            self.is_asking_ends = true;
            self.pool.put(Task::Ends(task));
        }
        batch
    }

    /// Ends alerts of events, by time or by the answers to their end conditions.
    fn end(&mut self, answers: EndAnswers, now: Timestamp) -> Batch {
        let (batch, report) = self.engine.end(answers, &self.outside, now);
        self.report.add(report);
        batch
    }

    fn follow_maintenance(&mut self, now: Timestamp) {
        if now < self.maintenance_at {
            return;
        }
        self.maintenance_at = now.plus(MAINTENANCE_EVERY);
        // If it cannot be read, the known maintenance stays in force; each has its own end.
        if let Some(maintenance) = self.outside.maintenance(now) {
            self.engine.set_maintenance(maintenance, now);
        }
    }

    /// Commits, sends the messages, and reports to the callers. A failed commit does not hold up
    /// messages.
    fn commit(&mut self, batch: Batch, reports: Vec<CommitReport>, now: Timestamp) {
        let committed = self.commits.commit(&self.outside, batch, now);

        self.watch.committed(&committed.result, now);
        if let Err(error) = &committed.result {
            let messages = committed.messages.len();
            let dropped = committed.dropped;
            tracing::error!(
                %error,
                messages,
                transitions_dropped = dropped.transitions,
                events_dropped = dropped.events,
                messages_dropped = dropped.messages,
                "cannot store alert state; sending messages nevertheless and trying again"
            );
            self.metrics.commit_failures.inc();
            self.metrics.uncommitted.inc_by(messages as u64);
            self.metrics.dropped(dropped);
        }

        for mut row in committed.messages {
            // The link holds a secret, so it is made after the commit and never stored.
            if row.message.status == Status::Firing {
                let place = self.delivery.acknowledge_place(&row);
                row.message.acknowledge_url =
                    place.and_then(|place| self.outside.acknowledge_url(&row, place));
            }

            let thread = self.engine.outbox().thread(&row).map(str::to_owned);
            self.delivery.send(row, thread);
        }

        // After the messages: a caller that waits may be slower than a page.
        for report in reports {
            report(committed.result.clone());
        }
    }
}

/// Logs failed rules, one line per cause: an engine that does not answer fails every rule.
fn log_failures(failures: &[(RuleKey, EvalError)]) {
    for (error, rules) in by_cause(failures) {
        let rule = rules[0];
        let rules = rules.len();
        tracing::warn!(%rule, rules, error, "rule evaluation failed");
    }
}

/// Returns the rules that failed, by their error without labels: these name users and jobs, and who reads the log may not
/// see those.
fn by_cause(failures: &[(RuleKey, EvalError)]) -> BTreeMap<String, Vec<&RuleKey>> {
    let mut by_cause: BTreeMap<_, Vec<_>> = BTreeMap::new();
    // Without labels, failures that differ only in their series are one line of the log.
    for (rule, error) in failures {
        let cause = without_labels(&error_chain(error));
        by_cause.entry(cause).or_default().push(rule);
    }
    by_cause
}

/// Leaves out what is between the first brace of an error and the last one: series are written there, and values of labels
/// may have braces, too.
fn without_labels(error: &str) -> String {
    let Some((before, rest)) = error.split_once('{') else {
        return error.to_owned();
    };
    let after = rest.rsplit_once('}').map_or("", |(_, after)| after);
    format!("{before}{{…}}{after}")
}

#[cfg(test)]
mod tests;
