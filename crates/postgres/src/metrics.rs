//! Metrics of the SQL server, and warnings about clients that it refuses.

use super::connection::ConnectionError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use takt_connections::{CloseReason, Meter};
use takt_model::error_chain;

/// Shortest time between two warnings about clients, so that no client fills the log.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Values of the label `reason`.
const REASONS: [&str; 6] = [
    "limit",
    "login_failed",
    "login_timeout",
    "malformed",
    "memory",
    "send_timeout",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloseLabel {
    reason: &'static str,
}

/// The metrics; clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct SqlMetrics {
    open: Gauge,
    closed: Family<CloseLabel, Counter>,
    /// Time of the last warning.
    warned: Arc<Mutex<Option<Instant>>>,
}

impl Meter for SqlMetrics {
    fn opened(&self, count: usize) {
        self.open.set(count as i64);
    }

    fn closed(&self, reason: CloseReason) {
        let reason = match reason {
            // Before the login, a client that is too slow has the phase of a head.
            CloseReason::HeaderTimeout => "login_timeout",
            other => other.name(),
        };
        self.closed.get_or_create(&CloseLabel { reason }).inc();
    }
}

impl SqlMetrics {
    /// Creates the metrics and adds them to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "takt_sql_connections",
            "Open connections of SQL clients",
            metrics.open.clone(),
        );
        registry.register(
            "takt_sql_connections_closed",
            "Connections of SQL clients that the server ended, by reason",
            metrics.closed.clone(),
        );
        for reason in REASONS {
            // Each reason begins at zero, so that `increase` sees its first event.
            drop(metrics.closed.get_or_create(&CloseLabel { reason }));
        }
        metrics
    }

    /// Counts and logs the end of a connection.
    pub(super) fn note(&self, peer: SocketAddr, error: &ConnectionError) {
        let chain = error_chain(error);
        let Some(reason) = error.reason() else {
            tracing::debug!(%peer, error = chain, "SQL connection failed");
            return;
        };
        self.closed.get_or_create(&CloseLabel { reason }).inc();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%peer, error = chain, "closed a SQL connection");
        } else {
            tracing::debug!(%peer, error = chain, "closed a SQL connection");
        }
    }
}
