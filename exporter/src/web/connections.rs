//! Limits and metrics of the exporter's connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use takt_connections::{CloseReason, ConnectionLimits, Meter, open_files_max, raise_open_files};
use takt_model::{Metric, Samples};

/// Open files that stay for the collectors, the history of events and the driver's library.
const RESERVED_FILES: usize = 256;
/// The soft limit of open files that a start asks for, where the hard limit allows it.
const WANTED_FILES: u64 = 8192;

/// Time a client has to read a page, or one message of a stream of events.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 1024,
    per_client: 256,
    head: Duration::from_secs(10),
    // Longer than two scrape intervals of a minute.
    idle: Duration::from_secs(150),
    stall: SEND_TIMEOUT,
    // The exporter reads no uploads, and each page has to be read within the time limit.
    min_bytes_per_second: 1024,
    upload_grace: SEND_TIMEOUT,
    upload: SEND_TIMEOUT,
    // Only connections without a request give way. Pages have a way of their own to end slow readers.
    answer_in_memory: SEND_TIMEOUT,
    stall_patience: SEND_TIMEOUT,
};

const OPEN: Metric = Metric::gauge(
    "takt_exporter_connections",
    "Open connections to the exporter.",
    &[],
);
const CLOSED: Metric = Metric::counter(
    "takt_exporter_connections_closed_total",
    "Connections that the exporter closed: header_timeout (no complete request), idle_timeout, \
     send_timeout (the client did not read), limit (too many connections).",
    &["reason"],
);

/// All open connections of the exporter.
pub(crate) type Connections = takt_connections::Connections<ClosedConnections>;

/// Connections that the exporter closed, in the order of [`CloseReason::ALL`].
#[derive(Debug, Default)]
pub(crate) struct ClosedConnections([AtomicU64; CloseReason::ALL.len()]);

impl Meter for ClosedConnections {
    fn opened(&self, _: usize) {}

    fn closed(&self, reason: CloseReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// No connections yet, with limits for this process. Raises its soft limit of open files.
pub(crate) fn connections() -> Connections {
    if let Err(error) = raise_open_files(WANTED_FILES) {
        tracing::debug!(%error, wanted = WANTED_FILES, "cannot raise the limit of open files");
    }

    let limits = LIMITS.within_files(open_files_max(), RESERVED_FILES);
    Connections::new(limits, ClosedConnections::default())
}

/// Adds the metrics of the connections to the page. The exporter reads no uploads.
pub(crate) fn report(connections: &Connections, out: &mut Samples) {
    out.push::<&str>(&OPEN, &[], connections.count() as f64);
    for reason in CloseReason::ALL {
        if reason != CloseReason::ReceiveTimeout {
            let count = connections.meter().0[reason as usize].load(Ordering::Relaxed);
            out.push(&CLOSED, &[reason.name()], count as f64);
        }
    }
}
