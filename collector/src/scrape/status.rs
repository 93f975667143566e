//! The state of targets and the metadata of their metrics, for the API and the pages.

use super::error::FailureReason;
use super::page_row::PageRow;
use super::target::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use takt_model::exposition::{Fact, Metadata};
use takt_model::{Labels, Timestamp};

/// Result of a target's last scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetHealth {
    /// The target has not been scraped yet.
    Unknown,
    /// The last scrape succeeded.
    Up,
    /// The last scrape failed.
    Down,
}

/// Why a list of targets cannot be read, or a target that a file or server lists cannot be scraped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryProblem {
    /// Name of the job.
    pub job: String,
    /// The error's text.
    pub problem: String,
}

/// The state of a target at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// URL of the target's page, without values of parameters that may be secrets.
    pub url: String,
    /// Labels of the target's series.
    pub labels: Labels,
    /// Labels before relabelling.
    pub discovered: Labels,
    /// Name of the job.
    pub pool: String,
    /// Time between two scrapes, in seconds.
    pub interval_seconds: f64,
    /// Maximum duration of a scrape, in seconds.
    pub timeout_seconds: f64,
    /// Time at which the last scrape began.
    pub last_scrape: Option<Timestamp>,
    /// Duration of the last scrape, in seconds.
    pub duration_seconds: f64,
    /// Number of samples on the last page.
    pub samples: usize,
    /// Result of the last scrape.
    pub health: TargetHealth,
    /// Kind of the failure, if the last scrape failed.
    pub reason: Option<FailureReason>,
    /// Message of the failure.
    pub error: Option<String>,
}

impl TargetStatus {
    pub(super) fn new(target: &Target, pool: &str) -> Self {
        Self {
            url: target.shown_url(),
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

    /// Why the last scrape failed: the whole message, which may repeat a part of the page, or the kind of the failure only.
    pub fn failure(&self, is_whole: bool) -> Option<&str> {
        let error = self.error.as_deref()?;
        let kind = self.reason.map_or("failed", FailureReason::as_str);
        Some(if is_whole { error } else { kind })
    }

    pub(super) fn take(&mut self, row: &PageRow, duration: Duration) {
        self.samples = row.samples;
        self.duration_seconds = duration.as_secs_f64();
    }
}

/// Metadata of one metric, from the pages of the targets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MetricMetadata {
    /// Type of the metric in OpenMetrics' words; empty if the page has none.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Help text of the metric.
    pub help: String,
    /// Base unit of the metric; empty if the page has none.
    pub unit: String,
}

/// Metadata by metric, as last read with a new series.
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
