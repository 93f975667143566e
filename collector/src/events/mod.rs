//! Events of exporters: read as they happen, and handed to an [`EventSink`], which remembers how far each exporter was read.

mod listen;

pub use listen::{Exporter, RequestFactory, listen};

use async_trait::async_trait;
use takt_model::Event;

/// Takes the events of all exporters.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// State of one exporter's stream.
    type Stream: StreamState;

    /// The state of an exporter's stream, until it is dropped.
    fn stream(&self, exporter: &Exporter) -> Self::Stream;

    /// Returns the id of the last event that was stored of the exporter at this URL; `None` if it was never read.
    ///
    /// # Errors
    /// If the sink has stopped.
    async fn read_until(&self, exporter: &str) -> Result<Option<u64>, SinkStopped>;

    /// Notes that the exporter is read from the event after `after` on.
    ///
    /// # Errors
    /// If the sink has stopped.
    async fn begin_reading(&self, exporter: &str, after: u64) -> Result<(), SinkStopped>;

    /// Takes an event; waits while the sink is busy.
    ///
    /// # Errors
    /// If the sink has stopped.
    async fn event(&self, exporter: &str, event: Event) -> Result<(), SinkStopped>;
}

/// Whether the events of one exporter are read.
pub trait StreamState: Send + Sync {
    /// Notes whether they are read.
    fn set(&self, is_up: bool);

    /// Returns whether they are read.
    fn is_up(&self) -> bool;

    /// Ends the state: the exporter has no events.
    fn forget(&self);
}

/// The sink takes no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sink of events has stopped")]
pub struct SinkStopped;
