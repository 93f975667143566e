//! Events of exporters for the alert engine.

use async_trait::async_trait;
use takt_alerts::run::{ChangeError, EngineError, Handle, StreamGauge};
use takt_collector::events::{EventSink, Exporter, SinkStopped, StreamState};
use takt_model::Event;

/// The alert engine as the taker of events.
pub(super) struct EngineSink(pub Handle);

/// The metric of an exporter's stream.
pub(super) struct EngineStream(StreamGauge);

#[async_trait]
impl EventSink for EngineSink {
    type Stream = EngineStream;

    fn stream(&self, exporter: &Exporter) -> EngineStream {
        let node = exporter.labels.get("node").unwrap_or_default();
        EngineStream(self.0.event_stream(node, &exporter.url))
    }

    async fn read_until(&self, exporter: &str) -> Result<Option<u64>, SinkStopped> {
        let name = exporter.to_owned();
        let read = self.0.read(move |engine, _| engine.read_until(&name));
        read.await.map_err(stopped)
    }

    async fn begin_reading(&self, exporter: &str, after: u64) -> Result<(), SinkStopped> {
        let name = exporter.to_owned();
        let begun = self
            .0
            .change(move |engine, _| ((), engine.begin_reading(&name, after)));
        match begun.await {
            Err(ChangeError::Engine(error)) => Err(stopped(error)),
            // The next successful commit stores the position.
            Ok(()) | Err(ChangeError::Store(_)) => Ok(()),
        }
    }

    async fn event(&self, exporter: &str, event: Event) -> Result<(), SinkStopped> {
        self.0.event(exporter, event).await.map_err(stopped)
    }
}

fn stopped(_: EngineError) -> SinkStopped {
    SinkStopped
}

impl StreamState for EngineStream {
    fn set(&self, is_up: bool) {
        self.0.set(is_up);
    }

    fn is_up(&self) -> bool {
        self.0.is_up()
    }

    fn forget(&self) {
        self.0.forget();
    }
}
