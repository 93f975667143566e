//! What targets are doing and what they say about their metrics, for whoever asks.

use super::error::FailureReason;
use super::series_cache::PageRow;
use super::target::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use takt_model::exposition::{Fact, Metadata};
use takt_model::{Labels, Timestamp};

/// Whether a target answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetHealth {
    /// It was not scraped yet.
    Unknown,
    /// The last scrape gave a page.
    Up,
    /// The last scrape failed.
    Down,
}

/// What a target is doing, at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// Where its page is.
    pub url: String,
    /// The labels of its series.
    pub labels: Labels,
    /// The labels it was found with.
    pub discovered: Labels,
    /// The job it belongs to.
    pub pool: String,
    /// Seconds between two scrapes.
    pub interval_seconds: f64,
    /// Seconds that a scrape may take.
    pub timeout_seconds: f64,
    /// When the last scrape began.
    pub last_scrape: Option<Timestamp>,
    /// How long it took.
    pub duration_seconds: f64,
    /// How many samples its page had.
    pub samples: usize,
    /// Whether it gave a page.
    pub health: TargetHealth,
    /// The kind of failure, if it failed.
    pub reason: Option<FailureReason>,
    /// The failure in words.
    pub error: Option<String>,
}

impl TargetStatus {
    pub(super) fn new(target: &Target, pool: &str) -> Self {
        Self {
            url: target.url.to_string(),
            labels: target.labels.clone(),
            discovered: target.discovered.clone(),
            pool: pool.to_owned(),
            interval_seconds: target.interval.as_secs_f64(),
            timeout_seconds: target.timeout.as_secs_f64(),
            last_scrape: None,
            duration_seconds: 0.0,
            samples: 0,
            health: TargetHealth::Unknown,
            reason: None,
            error: None,
        }
    }

    pub(super) fn take(&mut self, row: &PageRow, duration: Duration) {
        self.samples = row.samples;
        self.duration_seconds = duration.as_secs_f64();
    }
}

/// What the targets say about one metric.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MetricMetadata {
    /// Its type as OpenMetrics names it; empty if none was given.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it means.
    pub help: String,
    /// Its base unit; empty if none was given.
    pub unit: String,
}

/// By metric, as last read with a series that was new.
#[derive(Debug, Default)]
pub(super) struct MetadataTable(RwLock<BTreeMap<String, MetricMetadata>>);

impl MetadataTable {
    pub fn all(&self) -> BTreeMap<String, MetricMetadata> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn note(&self, metadata: &Metadata<'_>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entry(metadata.metric().into_owned()).or_default();
        match metadata.fact {
            Fact::Type(kind) => entry.kind = kind.as_str(),
            Fact::Help(help) => entry.help = help.to_string(),
            Fact::Unit(unit) => entry.unit = String::from_utf8_lossy(unit).into_owned(),
        }
    }
}
