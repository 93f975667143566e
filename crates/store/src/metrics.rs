//! Metrics of the store: `takt_store_*`.

use super::ClockState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Reason why a sample was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The queue was full because samples could not be written to disk.
    QueueFull,
    /// The series has a sample at that time or later.
    OutOfOrder,
    /// The sample's own timestamp is too far from the time of the scrape.
    OutOfBounds,
    /// Another target has the same series.
    OtherTarget,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SuccessLabel {
    success: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct StoreMetrics {
    pub samples: Counter,
    dropped: Family<ReasonLabel, Counter>,
    commits: Family<SuccessLabel, Counter>,
    pub commit_seconds: Histogram,
    pub watermark_seconds: Gauge<f64, AtomicU64>,
    pub series: Gauge,
    pub queue_bytes: Gauge,
    pub blocks: Family<ResolutionLabel, Gauge>,
    pub block_bytes: Family<ResolutionLabel, Gauge>,
    pub unsealed_segments: Gauge,
    pub sealed_samples: Counter,
    pub seal_seconds: Histogram,
    pub compaction_failures: Family<TaskLabel, Counter>,
    pub damaged_files: Gauge,
    pub removed_bytes: Gauge,
    pub clock_trusted: Gauge,
    pub clock_ahead_seconds: Gauge<f64, AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResolutionLabel {
    pub resolution: &'static str,
}

/// Task of the compactor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TaskLabel {
    pub task: &'static str,
}

impl StoreMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            samples: Counter::default(),
            dropped: Family::default(),
            commits: Family::default(),
            // From 1 ms, for a sync of an SSD, to 8 s, for a disk that is busy.
            commit_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            watermark_seconds: Gauge::default(),
            series: Gauge::default(),
            queue_bytes: Gauge::default(),
            blocks: Family::default(),
            block_bytes: Family::default(),
            unsealed_segments: Gauge::default(),
            sealed_samples: Counter::default(),
            seal_seconds: Histogram::new(exponential_buckets(0.05, 2.0, 14)),
            compaction_failures: Family::default(),
            damaged_files: Gauge::default(),
            removed_bytes: Gauge::default(),
            clock_trusted: Gauge::default(),
            clock_ahead_seconds: Gauge::default(),
        };

        let Self {
            samples,
            dropped,
            commits,
            commit_seconds,
            watermark_seconds,
            series,
            queue_bytes,
            ..
        } = &metrics;

        let registry = registry.sub_registry_with_prefix("takt_store");
        registry.register(
            "samples",
            "Samples committed to the database",
            samples.clone(),
        );
        registry.register(
            "dropped_samples",
            "Samples that were not stored, by reason",
            dropped.clone(),
        );
        registry.register(
            "commits",
            "Transactions of samples, by success",
            commits.clone(),
        );
        registry.register(
            "commit_duration_seconds",
            "Time from the start of a transaction of samples until it was durable",
            commit_seconds.clone(),
        );
        registry.register(
            "watermark_timestamp_seconds",
            "Every scrape up to this instant is durable, or was counted as failed or dropped",
            watermark_seconds.clone(),
        );
        registry.register("series", "Series that were ever stored", series.clone());
        registry.register(
            "queue_bytes",
            "Bytes of samples that wait for the next transaction",
            queue_bytes.clone(),
        );

        metrics.register_blocks(registry);
        metrics.register_clock(registry);
        metrics
    }

    fn register_blocks(&self, registry: &mut Registry) {
        registry.register(
            "blocks",
            "Sealed blocks, by resolution",
            self.blocks.clone(),
        );
        registry.register(
            "block_bytes",
            "Bytes of the sealed blocks, by resolution",
            self.block_bytes.clone(),
        );
        registry.register(
            "unsealed_segments",
            "Tables of hot samples that are complete and wait to be sealed",
            self.unsealed_segments.clone(),
        );
        registry.register(
            "sealed_samples",
            "Samples that were sealed into blocks",
            self.sealed_samples.clone(),
        );
        registry.register(
            "seal_duration_seconds",
            "Time to seal a segment into a block",
            self.seal_seconds.clone(),
        );
        registry.register(
            "keeper_failures",
            "Times that sealing, merging or removing blocks failed; each is tried again",
            self.compaction_failures.clone(),
        );
        registry.register(
            "damaged_files",
            "Files and folders that were set aside as damaged and are still there",
            self.damaged_files.clone(),
        );
        registry.register(
            "removed_bytes",
            "Bytes of blocks past their retention that are kept for a day",
            self.removed_bytes.clone(),
        );
    }

    fn register_clock(&self, registry: &mut Registry) {
        registry.register(
            "clock_trusted",
            "Whether the server's clock agrees with the time that has passed and with NTP-kept clocks of targets",
            self.clock_trusted.clone(),
        );
        registry.register(
            "clock_ahead_seconds",
            "Seconds by which the server's clock is ahead of the time that has passed for sure",
            self.clock_ahead_seconds.clone(),
        );
    }

    pub fn note_clock(&self, clock: &ClockState) {
        self.clock_trusted.set(clock.is_trusted.into());
        self.clock_ahead_seconds.set(clock.ahead_seconds());
    }

    pub fn drop_samples(&self, reason: DropReason, count: usize) {
        let reason = match reason {
            DropReason::QueueFull => "queue_full",
            DropReason::OutOfOrder => "out_of_order",
            DropReason::OutOfBounds => "out_of_bounds",
            DropReason::OtherTarget => "other_target",
        };
        // A reason without samples gets no series.
        if count > 0 {
            self.dropped
                .get_or_create(&ReasonLabel { reason })
                .inc_by(count as u64);
        }
    }

    pub fn commit(&self, success: bool) {
        self.commits
            .get_or_create(&SuccessLabel {
                success: if success { "true" } else { "false" },
            })
            .inc();
    }
}
