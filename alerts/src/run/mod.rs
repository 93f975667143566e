//! The running engine: one thread owns it, everybody else sends it work.
//!
//! A turn takes all work that waits, evaluates what is due, looks at the groups, marks messages as being sent, commits
//! all of that in one transaction, and only then answers who asked and hands messages to their channels. So what
//! anybody has seen survives the loss of the process, and an event is in the outbox one commit after it was read.

mod deliver;
mod listen;
mod metrics;
mod watch;

pub use deliver::{client, tell};
pub use listen::{Ask, Exporter, listen};
pub use metrics::AlertMetrics;

use crate::notify::channels::Channels;
use crate::outbox::{Outcome, Row, RowState};
use crate::ports::{AlertStore, IsDown, Query, SampleSink, StoreError};
use crate::routing::maintenance::Maintenance;
use crate::{Batch, Engine};
use deliver::Deliver;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use takt_model::{Event, Labels, Timestamp};
use tokio::sync::oneshot;
use watch::Watch;

/// Rules are looked at no more often than this; groups have intervals of their own.
const TICK: Duration = Duration::from_secs(1);

/// How often it is noted that Takt runs, to know after a crash since when it did not.
const NOTE_ALIVE: Duration = Duration::from_secs(15);

/// How often the scheduler's reservations are looked up. Each says when it begins, so nothing is late by this.
const MAINTENANCE_EVERY: Duration = Duration::from_secs(15);

/// After a commit that failed, the next attempt.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);

/// When the end is asked for, channels get this long to answer: a message that was taken is not sent again then.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The most work taken in one turn.
const TURN_MAX: usize = 4096;

/// All that the engine needs of the rest of Takt.
pub trait Outside: Query + AlertStore + SampleSink + Send {
    /// Whether the exporter behind series with these labels was down at an instant; asked for once a group.
    fn exporters_down(&self, at: Timestamp) -> IsDown;

    /// The nodes that are, or will be, worked on; nothing where that cannot be told now.
    fn maintenance(&self, now: Timestamp) -> Option<Vec<Maintenance>>;

    /// What is known of where an event happened and is not in it: the job and the user that were there.
    fn describe(&self, event: &Event) -> Labels;
}

/// An address that is asked again and again as long as alerting works, so that its silence is noticed elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The address.
    pub url: String,
    /// How often.
    pub interval: Duration,
}

/// How alerting looks after itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vigil {
    /// Who is told outside that it goes on.
    pub heartbeat: Option<Heartbeat>,
    /// For so long a channel may take nothing, or a rule fail, before that is an alert.
    pub patience: Duration,
}

/// The thread is gone: the server is ending, or has to start anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the alert engine has stopped")]
pub struct Stopped;

/// Why a change did not happen for certain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It holds for now but is not stored; it will be with the next commit that works.
    #[error("not stored yet")]
    Store(#[source] StoreError),
    /// Nobody is there to do it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

type Look = Box<dyn FnOnce(&Engine, Timestamp) + Send>;

type Change = Box<dyn FnOnce(&mut Engine, Timestamp) -> (Batch, Done) + Send>;

enum Work {
    Read(Look),
    Change(Change),
    Event(String, Event),
    Answered {
        row: Box<Row>,
        outcome: Outcome,
        pause: Duration,
    },
    Channels(Arc<Channels>, Vigil),
    Stop,
}

/// A way to give the engine work.
#[derive(Clone)]
pub struct Handle {
    work: mpsc::Sender<Work>,
}

impl Handle {
    /// Looks at the engine.
    ///
    /// # Errors
    /// When it is gone.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine, Timestamp) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        // Who asked may have gone away; that is no concern of the engine's.
        let work = Work::Read(Box::new(move |engine, now| {
            drop(answer.send(look(engine, now)))
        }));
        self.work.send(work).map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Changes something. When this returns, it is committed.
    ///
    /// # Errors
    /// Where it is not.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Engine, Timestamp) -> (T, Batch) + Send + 'static,
    ) -> Result<T, ChangeError> {
        let (answer, answered) = oneshot::channel();
        let work = Work::Change(Box::new(move |engine, now| {
            let (result, batch) = change(engine, now);
            let done: Done =
                Box::new(move |committed| drop(answer.send(committed.map(|()| result))));
            (batch, done)
        }));
        self.work.send(work).map_err(|_| Stopped)?;
        answered
            .await
            .map_err(|_| Stopped)?
            .map_err(ChangeError::Store)
    }

    /// Something happened on the node behind `exporter`.
    ///
    /// # Errors
    /// When the engine is gone.
    pub fn event(&self, exporter: &str, event: Event) -> Result<(), Stopped> {
        self.work
            .send(Work::Event(exporter.to_owned(), event))
            .map_err(|_| Stopped)
    }

    /// Messages go out by these channels from now on, and this address is asked.
    ///
    /// # Errors
    /// When the engine is gone.
    pub fn use_channels(&self, channels: Channels, vigil: Vigil) -> Result<(), Stopped> {
        self.work
            .send(Work::Channels(Arc::new(channels), vigil))
            .map_err(|_| Stopped)
    }
}

/// The thread. Dropping it ends it after its turn.
pub struct Alerting {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Alerting {
    /// Restores `engine` from the store and starts the thread. Messages are sent on the tokio runtime that this is
    /// called in.
    ///
    /// # Errors
    /// Where the stored state cannot be read, or there is no thread.
    pub fn start(
        mut engine: Engine,
        outside: impl Outside + 'static,
        channels: Channels,
        vigil: Vigil,
        metrics: AlertMetrics,
    ) -> Result<Self, StoreError> {
        let now = clock();
        let unsaved = engine.restore(outside.load()?, now);
        let (work, waiting) = mpsc::channel();
        let runtime = tokio::runtime::Handle::current();
        let deliver = Deliver::new(channels, runtime, work.clone(), metrics.clone())?;
        let runner = Runner {
            engine,
            outside,
            waiting,
            deliver,
            unsaved,
            unsent: Vec::new(),
            watch: Watch::new(vigil),
            metrics,
            tick_at: now,
            note_at: now,
            maintenance_at: now,
            commit_at: now,
            stop_by: None,
        };
        let thread = std::thread::Builder::new()
            .name("takt-alerts".to_owned())
            .spawn(move || runner.run());
        let thread =
            thread.map_err(|error| StoreError(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            handle: Handle { work },
            thread: Some(thread),
        })
    }

    /// A way to give it work.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the thread is gone without having been asked to.
    pub fn is_stopped(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Alerting {
    fn drop(&mut self) {
        let _ = self.handle.work.send(Work::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the alert engine had panicked");
        }
    }
}

struct Runner<O> {
    engine: Engine,
    outside: O,
    waiting: mpsc::Receiver<Work>,
    deliver: Deliver,
    /// What a commit that failed should have stored, and the messages that wait for it.
    unsaved: Batch,
    unsent: Vec<Row>,
    watch: Watch,
    metrics: AlertMetrics,
    tick_at: Timestamp,
    note_at: Timestamp,
    maintenance_at: Timestamp,
    /// After a failure, not before this.
    commit_at: Timestamp,
    /// The end was asked for: messages that are being sent get until then to be answered.
    stop_by: Option<Timestamp>,
}

fn clock() -> Timestamp {
    SystemTime::now().into()
}

impl<O: Outside> Runner<O> {
    fn run(mut self) {
        loop {
            let mut work = match self.waiting.recv_timeout(self.until_due(clock())) {
                Ok(first) => vec![first],
                Err(mpsc::RecvTimeoutError::Timeout) => Vec::new(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            work.extend(self.waiting.try_iter().take(TURN_MAX));
            self.turn(work);
            let is_sending = || {
                self.engine
                    .outbox()
                    .iter()
                    .any(|row| row.state == RowState::Sending)
            };
            if self
                .stop_by
                .is_some_and(|by| clock() >= by || !is_sending())
            {
                return;
            }
        }
    }

    /// How long nothing has to be done if no work comes. Rules wait for the tick.
    fn until_due(&self, now: Timestamp) -> Duration {
        let told = self
            .engine
            .router()
            .next_due()
            .into_iter()
            .chain(self.engine.outbox().next_due());
        let due = told
            .chain([self.tick_at, self.note_at])
            .min()
            .unwrap_or(now);
        let due = if self.unsaved.is_empty() {
            due
        } else {
            due.max(self.commit_at)
        };
        Duration::from_millis(u64::try_from(due.0 - now.0).unwrap_or(0)).min(TICK)
    }

    /// Takes all work, decides, commits, acts.
    fn turn(&mut self, work: Vec<Work>) {
        let now = clock();
        let mut batch = std::mem::take(&mut self.unsaved);
        let mut done = Vec::new();
        for work in work {
            match work {
                Work::Read(look) => look(&self.engine, now),
                Work::Change(change) => {
                    let (changed, answer) = change(&mut self.engine, now);
                    batch = batch.then(changed);
                    done.push(answer);
                }
                Work::Event(exporter, event) => {
                    batch = batch.then(self.event(&exporter, event, now))
                }
                Work::Answered {
                    row,
                    outcome,
                    pause,
                } => batch = batch.then(self.answered(&row, &outcome, pause, now)),
                Work::Channels(channels, vigil) => {
                    self.deliver.channels = channels;
                    self.watch.vigil = vigil;
                }
                Work::Stop => self.stop_by = Some(now.plus(STOP_WITHIN)),
            }
        }
        if now >= self.tick_at {
            batch = batch.then(self.tick(now));
        }
        batch = batch.then(self.engine.flush(&self.outside, now));
        if self.stop_by.is_none() {
            let (rows, sending) = self.engine.send_due(now);
            self.unsent.extend(rows);
            batch = batch.then(sending);
        }
        self.commit(batch, done, now);
    }

    fn event(&mut self, exporter: &str, mut event: Event, now: Timestamp) -> Batch {
        self.metrics.events.inc();
        self.metrics
            .event_lag
            .set((now.0 - event.at.0) as f64 / 1000.0);
        for (name, value) in self.outside.describe(&event).iter() {
            if event.labels.get(name).is_none() {
                event.labels.set(name, value);
            }
        }
        self.engine.event_of(exporter, &event, now)
    }

    fn answered(&mut self, row: &Row, outcome: &Outcome, pause: Duration, now: Timestamp) -> Batch {
        let channels = &self.deliver.channels;
        let batch = self
            .engine
            .answered(row.id, outcome, &|failed| channels.other(failed), now);
        if !pause.is_zero() {
            self.engine.pace(&row.channel, pause, now);
        }
        self.metrics.answered(row, outcome);
        batch
    }

    /// Rules, and looking after ourselves.
    fn tick(&mut self, now: Timestamp) -> Batch {
        self.tick_at = now.plus(TICK);
        self.follow_maintenance(now);
        let begun = Instant::now();
        let outside = &self.outside;
        let (mut batch, report) =
            self.engine
                .evaluate(outside, outside, &|at| outside.exporters_down(at), now);
        self.metrics.evaluated(&report, begun.elapsed());
        for (rule, error) in &report.failures {
            tracing::warn!(%rule, %error, "a rule cannot be evaluated");
        }
        let posted = self.watch.look(&self.engine, &report, now);
        if !posted.is_empty() {
            batch = batch.then(self.engine.post(posted, now).0);
        }
        if let Some(url) = self.watch.heartbeat_due(now) {
            self.deliver.beat(url);
        }
        self.metrics.outbox(&self.engine, now);
        batch
    }

    fn follow_maintenance(&mut self, now: Timestamp) {
        if now < self.maintenance_at {
            return;
        }
        self.maintenance_at = now.plus(MAINTENANCE_EVERY);
        // While it cannot be asked, what was known holds on: it says itself when it ends.
        if let Some(maintenance) = self.outside.maintenance(now) {
            self.engine.set_maintenance(maintenance);
        }
    }

    fn commit(&mut self, batch: Batch, done: Vec<Done>, now: Timestamp) {
        let notes = now >= self.note_at;
        let result = match (batch.is_empty(), notes) {
            (true, false) => Ok(()),
            _ => self.outside.commit(&batch, now),
        };
        match &result {
            Ok(()) => {
                if notes {
                    self.note_at = now.plus(NOTE_ALIVE);
                }
                for row in std::mem::take(&mut self.unsent) {
                    let thread = self.engine.outbox().thread(&row).map(str::to_owned);
                    self.deliver.send(row, thread);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot store alerts; trying again");
                self.metrics.commit_failures.inc();
                self.unsaved = batch;
                self.commit_at = now.plus(COMMIT_PAUSE);
            }
        }
        done.into_iter().for_each(|answer| answer(result.clone()));
    }
}
