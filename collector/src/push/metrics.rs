//! Metrics of pushed samples.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;

/// Why samples of a readable request are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// The labels of the series break a rule, or a limit.
    Labels,
    /// The native histogram breaks a rule.
    NativeHistogram,
    /// The timestamp is more than ten minutes ahead.
    Future,
    /// The sample is older than `push.max_age_hours`.
    TooOld,
    /// The series has another value at that time.
    Conflict,
    /// The sender has `max_series` series.
    SeriesLimit,
    /// A target or another sender writes the series.
    OtherWriter,
    /// A data point of OTLP breaks a rule.
    DataPoint,
}

impl RejectReason {
    /// All reasons, with their names in metrics and replies.
    pub const ALL: [(Self, &str, &str); 8] = [
        (Self::Labels, "labels", "invalid labels"),
        (
            Self::NativeHistogram,
            "native_histogram",
            "the native histogram cannot be stored",
        ),
        (Self::Future, "future", "more than 10 minutes in the future"),
        (Self::TooOld, "too_old", "older than push.max_age_hours"),
        (
            Self::Conflict,
            "conflict",
            "another value is stored at that time",
        ),
        (
            Self::SeriesLimit,
            "series_limit",
            "the sender has max_series series",
        ),
        (
            Self::OtherWriter,
            "other_writer",
            "a target or another sender writes the series",
        ),
        (Self::DataPoint, "data_point", "invalid data point"),
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(reason, ..)| *reason == self)
            .map_or("", |(_, name, _)| name)
    }

    /// Returns the words in replies.
    pub fn words(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(reason, ..)| *reason == self)
            .map_or("", |(.., words)| words)
    }
}

impl EncodeLabelValue for RejectReason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SenderLabel {
    sender: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectedLabels {
    sender: String,
    reason: RejectReason,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    sender: String,
    protocol: &'static str,
    code: u16,
}

/// Metrics of all senders.
#[derive(Debug, Clone, Default)]
pub struct PushMetrics {
    requests: Family<RequestLabels, Counter>,
    samples: Family<SenderLabel, Counter>,
    repeated: Family<SenderLabel, Counter>,
    replica: Family<SenderLabel, Counter>,
    rejected: Family<RejectedLabels, Counter>,
    series: Family<SenderLabel, Gauge>,
    newest: Family<SenderLabel, Gauge<f64, AtomicU64>>,
}

impl PushMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();

        // The encoder adds `_total` to the names of counters.
        registry.register(
            "takt_push_requests",
            "Requests of senders, by the code of the reply",
            metrics.requests.clone(),
        );
        registry.register(
            "takt_push_samples",
            "Pushed samples that were stored",
            metrics.samples.clone(),
        );
        registry.register(
            "takt_push_repeated_samples",
            "Pushed samples that were stored already",
            metrics.repeated.clone(),
        );
        registry.register(
            "takt_push_replica_samples",
            "Pushed samples of replicas that are not elected",
            metrics.replica.clone(),
        );
        registry.register(
            "takt_push_rejected_samples",
            "Pushed samples that were rejected",
            metrics.rejected.clone(),
        );
        registry.register(
            "takt_push_series",
            "Series with pushed samples in the last minutes",
            metrics.series.clone(),
        );
        registry.register(
            "takt_push_newest_timestamp_seconds",
            "Timestamp of the newest pushed sample, or time of the server's start before the first one",
            metrics.newest.clone(),
        );
        metrics
    }

    /// Counts a request.
    pub fn request(&self, sender: &str, protocol: &'static str, code: u16) {
        let labels = RequestLabels {
            sender: sender.to_owned(),
            protocol,
            code,
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Returns the metrics of one sender. Creates its series, so that `increase()` shows their
    /// first change.
    pub(super) fn of(&self, sender: &str) -> SenderMetrics {
        let label = SenderLabel {
            sender: sender.to_owned(),
        };

        // The reasons are a fixed list, while the codes of requests are known only when they occur.
        for (reason, ..) in RejectReason::ALL {
            let sender = sender.to_owned();
            drop(
                self.rejected
                    .get_or_create(&RejectedLabels { sender, reason }),
            );
        }

        SenderMetrics {
            samples: self.samples.get_or_create_owned(&label),
            repeated: self.repeated.get_or_create_owned(&label),
            replica: self.replica.get_or_create_owned(&label),
            series: self.series.get_or_create_owned(&label),
            newest: self.newest.get_or_create_owned(&label),
            rejected: self.rejected.clone(),
            sender: sender.to_owned(),
        }
    }
}

/// Metrics of one sender.
#[derive(Debug)]
pub(super) struct SenderMetrics {
    pub samples: Counter,
    pub repeated: Counter,
    pub replica: Counter,
    pub series: Gauge,
    pub newest: Gauge<f64, AtomicU64>,
    rejected: Family<RejectedLabels, Counter>,
    sender: String,
}

impl SenderMetrics {
    pub fn reject(&self, reason: RejectReason, samples: usize) {
        let sender = self.sender.clone();
        let rejected = self
            .rejected
            .get_or_create(&RejectedLabels { sender, reason });
        rejected.inc_by(samples as u64);
    }
}
