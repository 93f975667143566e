//! Metrics of remote write.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DestinationLabel {
    destination: String,
}

/// Metrics of all destinations.
#[derive(Debug, Clone, Default)]
pub struct RemoteWriteMetrics {
    samples: Family<DestinationLabel, Counter>,
    bytes: Family<DestinationLabel, Counter>,
    retries: Family<DestinationLabel, Counter>,
    refused: Family<DestinationLabel, Counter>,
    skipped: Family<DestinationLabel, Counter<f64, AtomicU64>>,
    lag: Family<DestinationLabel, Gauge<f64, AtomicU64>>,
}

fn label(destination: &str) -> DestinationLabel {
    DestinationLabel {
        destination: destination.to_owned(),
    }
}

impl RemoteWriteMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "takt_remote_write_samples",
            "Samples that the destination has acknowledged",
            metrics.samples.clone(),
        );
        registry.register(
            "takt_remote_write_bytes",
            "Compressed bytes of acknowledged requests",
            metrics.bytes.clone(),
        );
        registry.register(
            "takt_remote_write_retries",
            "Requests that have to be sent again",
            metrics.retries.clone(),
        );
        registry.register(
            "takt_remote_write_refused_samples",
            "Samples in requests that the destination refused for good",
            metrics.refused.clone(),
        );
        registry.register(
            "takt_remote_write_skipped_seconds",
            "Time whose samples were older than catch_up_hours and are not sent",
            metrics.skipped.clone(),
        );
        registry.register(
            "takt_remote_write_lag_seconds",
            "Age of the newest time up to which the destination has all samples",
            metrics.lag.clone(),
        );
        metrics
    }

    /// Creates the series of a destination, so that `increase()` shows their first change.
    pub(super) fn expect(&self, destination: &str) {
        let label = label(destination);
        for counter in [&self.samples, &self.bytes, &self.retries, &self.refused] {
            drop(counter.get_or_create(&label));
        }
        drop(self.skipped.get_or_create(&label));
    }

    pub(super) fn sent(&self, destination: &str, samples: u64, body: &[u8]) {
        let label = label(destination);
        self.samples.get_or_create(&label).inc_by(samples);
        self.bytes.get_or_create(&label).inc_by(body.len() as u64);
    }

    pub(super) fn retried(&self, destination: &str) {
        self.retries.get_or_create(&label(destination)).inc();
    }

    pub(super) fn refused(&self, destination: &str, samples: u64) {
        self.refused
            .get_or_create(&label(destination))
            .inc_by(samples);
    }

    pub(super) fn skipped(&self, destination: &str, seconds: f64) {
        self.skipped
            .get_or_create(&label(destination))
            .inc_by(seconds);
    }

    pub(super) fn lag(&self, destination: &str, seconds: f64) {
        self.lag.get_or_create(&label(destination)).set(seconds);
    }
}
