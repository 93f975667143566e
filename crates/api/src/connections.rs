//! Limits and metrics of the server's HTTP connections: they must not take the open files that
//! notifications and the store need. Statements and queries have limits of their own.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::Duration;
use takt_connections::{ANSWER_TIME, CloseReason, ConnectionLimits, Meter};
use takt_identity::{REQUEST_PLACES, RequestPlaces};

/// Least rate of an upload, and of reading an answer.
pub(super) const MIN_BYTES_PER_SECOND: u64 = 1024;
/// Time in which a body has to arrive: 8 MiB of alerts at 1 Mbit/s.
pub(super) const BODY_TIME: Duration = Duration::from_secs(60);

/// Files of all HTTP connections: those that wait, and those with a request.
pub const HTTP_FILES: usize = LIMITS.total + REQUEST_PLACES;

const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 1024,
    per_client: 256,
    head: Duration::from_secs(10),
    // Longer than a dashboard's refresh of a minute.
    idle: Duration::from_secs(150),
    stall: Duration::from_secs(30),
    min_bytes_per_second: MIN_BYTES_PER_SECOND,
    upload_grace: Duration::from_secs(15),
    upload: BODY_TIME,
    answer_in_memory: ANSWER_TIME,
    stall_patience: Duration::from_secs(5),
};

/// Connections of all listeners of the server.
pub type Connections = takt_connections::Connections<ConnectionMetrics>;

/// A connection's place among the open ones.
pub type OpenConnection = takt_connections::OpenConnection<ConnectionMetrics>;

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
pub struct ConnectionMetrics {
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

/// No connections yet, and the places of their requests. Up to [`HTTP_FILES`] `files` may be open for
/// them.
pub fn connections(files: usize, registry: &mut Registry) -> (Connections, RequestPlaces) {
    // Where files are few, both kinds of connections get their part of them.
    let for_requests = files.min(HTTP_FILES) * REQUEST_PLACES / HTTP_FILES;
    let limits = LIMITS.within_files(files - for_requests, 0);
    let connections = Connections::new(limits, registered(registry));
    (connections, RequestPlaces::new(for_requests))
}

fn registered(registry: &mut Registry) -> ConnectionMetrics {
    let metrics = ConnectionMetrics::default();
    registry.register(
        "takt_server_connections",
        "Open HTTP connections to the server",
        metrics.open.clone(),
    );

    for reason in CloseReason::ALL {
        // Each reason begins at zero, so that `increase` sees its first event.
        drop(metrics.closed.get_or_create(&CloseLabel::of(reason)));
    }

    registry.register(
        "takt_server_connections_closed",
        "HTTP connections that the server closed: header_timeout (no complete request), \
         idle_timeout, receive_timeout (an upload stalled or was slow), send_timeout (the client \
         did not read in time), limit (too many connections)",
        metrics.closed.clone(),
    );

    metrics
}
