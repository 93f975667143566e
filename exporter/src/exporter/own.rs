//! Metrics of the exporter itself: its collectors, its version, its process, requests it refused.

use crate::collector::flag;
use crate::metered::ReadingOutcome;
use crate::process::ProcessUsage;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use takt_model::{Metric, Samples};

const DURATION: Metric = Metric::gauge(
    "node_scrape_collector_duration_seconds",
    "Time the collector's last reading took; where it has not ended, time since it began.",
    &["collector"],
);
const SUCCESS: Metric = Metric::gauge(
    "node_scrape_collector_success",
    "Whether the collector succeeded; also 0 where the node has no such hardware.",
    &["collector"],
);
const ABSENT: Metric = Metric::gauge(
    "takt_exporter_collector_absent",
    "Whether the node has no such hardware, so that there is nothing to collect and nothing \
     broken.",
    &["collector"],
);
const READ_AT: Metric = Metric::gauge(
    "takt_exporter_collector_read_timestamp_seconds",
    "When the collector's values were read. Collectors without this series read when the page is \
     asked for.",
    &["collector"],
);
const BUILD_INFO: Metric = Metric::gauge(
    "takt_exporter_build_info",
    "Which takt-exporter this is.",
    &["version"],
);
const REFUSED: Metric = Metric::counter(
    "takt_exporter_requests_refused_total",
    "Requests answered with 503: too many pages at the same time (metrics) or too many listeners \
     (events).",
    &["route"],
);

/// Metrics that every exporter adds to those of its collectors.
pub const OWN_METRICS: [Metric; 6] = [DURATION, SUCCESS, ABSENT, READ_AT, BUILD_INFO, REFUSED];

/// Requests that were answered with 503 since the start.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Requests for the page.
    pub metrics: AtomicU64,
    /// Requests for events.
    pub events: AtomicU64,
}

impl Refusals {
    /// Adds the counters to the page.
    pub fn report(&self, out: &mut Samples) {
        for (route, count) in [("metrics", &self.metrics), ("events", &self.events)] {
            out.push(&REFUSED, &[route], count.load(Ordering::Relaxed) as f64);
        }
    }
}

/// Adds the exporter's version.
pub(super) fn report_build(out: &mut Samples) {
    out.push(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
}

/// Adds the use of the process. Without `/proc` its metrics are missing.
pub(super) fn report_process(out: &mut Samples) {
    match ProcessUsage::read() {
        Ok(usage) => usage.report(out),
        Err(error) => tracing::debug!(%error, "cannot read the use of this process"),
    }
}

/// Adds the result of a collector's last reading.
pub(super) fn report_reading(
    out: &mut Samples,
    name: &str,
    outcome: ReadingOutcome,
    duration: Duration,
) {
    out.push(&DURATION, &[name], duration.as_secs_f64());
    out.push(
        &SUCCESS,
        &[name],
        flag(outcome == ReadingOutcome::Collected),
    );
    out.push(&ABSENT, &[name], flag(outcome == ReadingOutcome::Absent));
}

/// Adds when the shown values of a collector were read.
pub(super) fn report_read_at(out: &mut Samples, name: &str, at: SystemTime) {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.push(&READ_AT, &[name], at.as_secs_f64());
}
