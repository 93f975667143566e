//! The bounded queue of the engine's thread, and the handle that puts work into it.
//!
//! At most [`QUEUE_MAX`] pieces of work wait. When the queue is full:
//! - events of exporters wait for room: the exporter keeps them, so none is lost;
//! - requests (API, pages) wait [`ROOM_TIMEOUT`] for room, then fail with [`EngineError::Busy`],
//!   which clients see as 503 and repeat; `takt_alerts_requests_refused_total` counts them;
//! - answers of channels and of rules always enter: each channel has one message under way and each
//!   group one rule, so they are few.

use super::metrics::StreamGauge;
use super::{AlertMetrics, WatchConfig};
use crate::engine::RuleOutcome;
use crate::events::EndAnswers;
use crate::notify::channels::Channels;
use crate::outbox::{Outcome, Row};
use crate::ports::StoreError;
use crate::{Batch, Engine};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use takt_model::{Event, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time;

/// Pieces of work that may wait for the engine. An event of 1 kB makes this 8 MB.
pub(super) const QUEUE_MAX: usize = 8192;

/// Time that a request waits for room in the queue.
pub(super) const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// The engine cannot take work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine's thread has ended: the server is stopping, or the engine failed.
    #[error("the alert engine has stopped")]
    Stopped,
    /// The queue has been full for [`ROOM_TIMEOUT`].
    #[error("the alert engine is busy; try again")]
    Busy,
}

/// A change was not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change is in force but not stored; the next successful commit stores it.
    #[error("not stored yet")]
    Store(#[source] StoreError),
    /// The change was not made.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Reports the result of the commit to the caller.
pub(super) type CommitReport = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

pub(super) type ReadWork = Box<dyn FnOnce(&Engine, &Arc<Channels>, Timestamp) + Send>;

pub(super) type ChangeWork =
    Box<dyn FnOnce(&mut Engine, Timestamp) -> (Batch, CommitReport) + Send>;

/// Work for the engine's thread.
pub(super) enum Work {
    Read(ReadWork),
    Change(ChangeWork),
    Event {
        exporter: String,
        event: Box<Event>,
    },
    Answered {
        row: Box<Row>,
        outcome: Outcome,
        pause: Duration,
    },
    Evaluated(Box<RuleOutcome>),
    Ends(EndAnswers),
    Channels(Arc<Channels>, WatchConfig),
    Stop,
}

/// Work in the queue, with its place in it. Dropping the place makes room.
pub(super) struct QueuedWork {
    pub work: Work,
    _place: Option<OwnedSemaphorePermit>,
}

/// Puts work into the engine's queue. Clones use the same queue.
#[derive(Clone)]
pub struct Handle {
    work: mpsc::Sender<QueuedWork>,
    places: Arc<Semaphore>,
    room_timeout: Duration,
    metrics: AlertMetrics,
}

impl Handle {
    /// A handle and the receiving end of its queue.
    pub(super) fn new(metrics: AlertMetrics) -> (Self, mpsc::Receiver<QueuedWork>) {
        Self::with_limits(metrics, QUEUE_MAX, ROOM_TIMEOUT)
    }

    fn with_limits(
        metrics: AlertMetrics,
        queue_max: usize,
        room_timeout: Duration,
    ) -> (Self, mpsc::Receiver<QueuedWork>) {
        let (work, waiting) = mpsc::channel();
        let handle = Self {
            work,
            places: Arc::new(Semaphore::new(queue_max)),
            room_timeout,
            metrics,
        };
        (handle, waiting)
    }

    /// The gauge of the event stream of a node's exporter at `url`.
    pub fn event_stream(&self, node: &str, url: &str) -> StreamGauge {
        self.metrics.event_stream(node, url)
    }

    /// Counts posted alerts that were refused.
    pub(crate) fn note_refused_alerts(&self, count: usize) {
        self.metrics.posted_refused.inc_by(count as u64);
    }

    /// Reads from the engine.
    ///
    /// # Errors
    /// If the engine has stopped or is busy.
    pub async fn read<T>(
        &self,
        look: impl FnOnce(&Engine, Timestamp) -> T + Send + 'static,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
    {
        self.read_channels(move |engine, _, now| look(engine, now))
            .await
    }

    /// Reads from the engine and the channels in use.
    ///
    /// # Errors
    /// If the engine has stopped or is busy.
    pub async fn read_channels<T>(
        &self,
        look: impl FnOnce(&Engine, &Arc<Channels>, Timestamp) -> T + Send + 'static,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();

        // A caller that has gone away needs no answer.
        let work = Work::Read(Box::new(move |engine, channels, now| {
            drop(answer.send(look(engine, channels, now)))
        }));
        self.request(work).await?;
        answered.await.map_err(|_| EngineError::Stopped)
    }

    /// Changes the engine. On success the change is committed.
    ///
    /// # Errors
    /// If the change was not made, or not stored.
    pub async fn change<T>(
        &self,
        change: impl FnOnce(&mut Engine, Timestamp) -> (T, Batch) + Send + 'static,
    ) -> Result<T, ChangeError>
    where
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();

        let work = Work::Change(Box::new(move |engine, now| {
            let (result, batch) = change(engine, now);
            // The result waits for the commit: a caller that has it may rely on it after a crash.
            let report: CommitReport =
                Box::new(move |committed| drop(answer.send(committed.map(|()| result))));
            (batch, report)
        }));
        self.request(work).await?;
        answered
            .await
            .map_err(|_| EngineError::Stopped)?
            .map_err(ChangeError::Store)
    }

    /// Hands over an event of the exporter at `exporter`; waits while the queue is full.
    ///
    /// # Errors
    /// If the engine has stopped.
    pub async fn event(&self, exporter: &str, event: Event) -> Result<(), EngineError> {
        // The exporter keeps its events while this waits, so none is lost.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| EngineError::Stopped)?;

        let work = Work::Event {
            exporter: exporter.to_owned(),
            event: Box::new(event),
        };
        self.put(work, Some(place))
    }

    /// Uses these channels and these self-checks from now on.
    ///
    /// # Errors
    /// If the engine has stopped.
    pub fn use_channels(&self, channels: Channels, watch: WatchConfig) -> Result<(), EngineError> {
        self.put(Work::Channels(Arc::new(channels), watch), None)
    }

    /// Work that enters even if the queue is full.
    pub(super) fn put_always(&self, work: Work) -> Result<(), EngineError> {
        self.put(work, None)
    }

    async fn request(&self, work: Work) -> Result<(), EngineError> {
        let place = Arc::clone(&self.places).acquire_owned();
        let Ok(place) = time::timeout(self.room_timeout, place).await else {
            self.metrics.requests_refused.inc();
            return Err(EngineError::Busy);
        };
        let place = place.map_err(|_| EngineError::Stopped)?;
        self.put(work, Some(place))
    }

    fn put(&self, work: Work, place: Option<OwnedSemaphorePermit>) -> Result<(), EngineError> {
        let queued = QueuedWork {
            work,
            _place: place,
        };
        self.work.send(queued).map_err(|_| EngineError::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time;

    fn event() -> Event {
        serde_json::from_value(serde_json::json!({
            "id": 1,
            "at": 0,
            "kind": "xid",
            "labels": {},
            "message": "",
        }))
        .unwrap()
    }

    /// Nothing is lost when the engine is slower than its clients: events wait, and requests are
    /// refused and counted.
    #[tokio::test]
    async fn a_full_queue_refuses_requests_and_holds_events_back() {
        let metrics = AlertMetrics::default();
        let timeout = Duration::from_millis(50);
        let (handle, waiting) = Handle::with_limits(metrics.clone(), 3, timeout);

        for _ in 0..3 {
            handle.event("http://g01", event()).await.unwrap();
        }

        let refused = handle.read(|_, _| ()).await;
        assert_eq!(refused, Err(EngineError::Busy));
        assert_eq!(metrics.requests_refused.get(), 1);

        let held = tokio::spawn({
            let handle = handle.clone();
            async move { handle.event("http://g01", event()).await }
        });
        time::sleep(2 * timeout).await;
        assert!(!held.is_finished(), "the event waits");

        // Answers of channels enter in any case: they make room.
        let answer = Work::Channels(Arc::default(), WatchConfig::default());
        handle.put_always(answer).unwrap();

        drop(waiting.recv().unwrap());
        assert_eq!(held.await.unwrap(), Ok(()));
        assert_eq!(waiting.try_iter().count(), 4);

        drop(waiting);
        assert_eq!(
            handle.event("http://g01", event()).await,
            Err(EngineError::Stopped)
        );
    }
}
