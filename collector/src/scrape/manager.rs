//! All targets together: starting, stopping, and what they are doing now.

use super::config::ScrapeConfig;
use super::error::FailureReason;
use super::fetch::client;
use super::metrics::ScrapeMetrics;
use super::scraper::{Scraper, Shared};
use super::shape::PageRow;
use super::target::Target;
use crate::ConfigError;
use crate::store::Store;
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use takt_model::exposition::{Fact, Metadata};
use takt_model::{Labels, Timestamp};
use tokio::task::JoinSet;

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
    fn new(target: &Target, config: &ScrapeConfig) -> Self {
        Self {
            url: target.url.to_string(),
            labels: target.labels.clone(),
            interval_seconds: config.interval_seconds,
            timeout_seconds: config.timeout_seconds,
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

/// Why scraping cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error("scrape")]
    Config(#[from] ConfigError),
    /// There is no HTTP client, for want of certificates for instance.
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// The running scrapes.
#[derive(Debug)]
pub struct ScrapeManager {
    shared: Arc<Shared>,
    store: Arc<Store>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
    status: Vec<Arc<Mutex<TargetStatus>>>,
}

impl ScrapeManager {
    /// Starts a task for every target, on the tokio runtime that this is called in. Metrics go into `registry`.
    ///
    /// # Errors
    /// When the configuration is wrong or there can be no HTTP client.
    pub fn start(
        store: Arc<Store>,
        config: ScrapeConfig,
        cluster: &str,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let targets = config.targets(cluster)?;
        let client = client(config.timeout())?;
        let metrics = ScrapeMetrics::register(registry);
        metrics.targets.set(targets.len() as i64);
        let shared = Arc::new(Shared { client, config, metrics, metadata: MetadataTable::default() });
        let mut tasks = JoinSet::new();
        let mut all_status = Vec::with_capacity(targets.len());
        for target in targets {
            let status = Arc::new(Mutex::new(TargetStatus::new(&target, &shared.config)));
            all_status.push(Arc::clone(&status));
            tasks.spawn(Scraper::new(Arc::clone(&shared), &store, target, status).run());
        }
        Ok(Self { shared, store, tasks: tokio::sync::Mutex::new(tasks), status: all_status })
    }

    /// Every target as it is now, in the order of the configuration.
    pub fn targets(&self) -> Vec<TargetStatus> {
        self.status.iter().map(|status| status.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    /// What the targets say about their metrics.
    pub fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
        self.shared.metadata.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops all scrapes and commits what they brought. Series do not end: the next start continues them.
    pub async fn shutdown(&self) {
        self.tasks.lock().await.shutdown().await;
        let store = Arc::clone(&self.store);
        let flushed = tokio::task::spawn_blocking(move || store.flush()).await;
        if let Err(error) = flushed {
            tracing::error!(%error, "cannot commit the last samples");
        }
    }
}
