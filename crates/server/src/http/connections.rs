//! Limits and metrics of the server's HTTP connections: they must not take the open files that
//! notifications and the store need. Statements and queries have limits of their own.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::Duration;
use takt_connections::{CloseReason, Limits, Meter, open_files_max, raise_open_files};

/// Open files that stay for the store, scrapes, event streams, notifications and SQL clients.
const RESERVED_FILES: usize = 4096;
/// The soft limit of open files that a start asks for, where the hard limit allows it.
const WANTED_FILES: u64 = 65_536;

const LIMITS: Limits = Limits {
    total: 1024,
    per_client: 256,
    head: Duration::from_secs(10),
    // Longer than a dashboard's refresh of a minute.
    idle: Duration::from_secs(150),
    stall: Duration::from_secs(30),
    stall_patience: Duration::from_secs(5),
};

/// Connections of all listeners of the server.
pub(crate) type Connections = takt_connections::Connections<ConnectionMetrics>;

/// A connection's place among the open ones.
pub(crate) type OpenConnection = takt_connections::OpenConnection<ConnectionMetrics>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloseLabel {
    reason: &'static str,
}

impl CloseLabel {
    fn of(reason: CloseReason) -> Self {
        let reason = reason.name();
        Self { reason }
    }
}

/// Metrics of the server's connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionMetrics {
    open: Gauge,
    closed: Family<CloseLabel, Counter>,
}

impl Meter for ConnectionMetrics {
    fn opened(&self, count: usize) {
        self.open.set(count as i64);
    }

    fn closed(&self, reason: CloseReason) {
        self.closed.get_or_create(&CloseLabel::of(reason)).inc();
    }
}

/// No connections yet, with limits for this process. Raises its soft limit of open files.
pub(crate) fn connections(registry: &mut Registry) -> Connections {
    if let Err(error) = raise_open_files(WANTED_FILES) {
        tracing::warn!(%error, wanted = WANTED_FILES, "cannot raise the limit of open files");
    }
    let limits = LIMITS.within_files(open_files_max(), RESERVED_FILES);
    Connections::new(limits, registered(registry))
}

fn registered(registry: &mut Registry) -> ConnectionMetrics {
    let metrics = ConnectionMetrics::default();
    registry.register(
        "takt_server_connections",
        "Open HTTP connections to the server",
        metrics.open.clone(),
    );
    for reason in CloseReason::ALL {
        drop(metrics.closed.get_or_create(&CloseLabel::of(reason)));
    }
    registry.register(
        "takt_server_connections_closed",
        "HTTP connections that the server closed: header_timeout (no complete request), \
         idle_timeout, receive_timeout (an upload stalled), send_timeout (the client did not \
         read), limit (too many connections)",
        metrics.closed.clone(),
    );
    metrics
}
