//! Metrics about scraping: `takt_collector_*`.

use super::error::FailureReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Mechanism {
    mechanism: &'static str,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ScrapeMetrics {
    scrapes: Family<Outcome, Counter>,
    pub samples: Counter,
    pub duplicates: Counter,
    pub targets: Gauge,
    pub scraper_restarts: Counter,
    discovery_failures: Family<Mechanism, Counter>,
}

impl ScrapeMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self {
            scrapes,
            samples,
            duplicates,
            targets,
            scraper_restarts,
            discovery_failures,
        } = &metrics;

        let registry = registry.sub_registry_with_prefix("takt_collector");
        registry.register(
            "scrapes",
            "Scrapes by result: success, or the kind of failure",
            scrapes.clone(),
        );
        registry.register(
            "scraped_samples",
            "Samples on scraped pages",
            samples.clone(),
        );
        registry.register(
            "duplicate_samples",
            "Samples ignored because their page already had a sample of the series",
            duplicates.clone(),
        );
        registry.register("targets", "Scraped targets", targets.clone());
        registry.register(
            "scraper_restarts",
            "Scrapers that ended early and were restarted",
            scraper_restarts.clone(),
        );
        registry.register(
            "discovery_failures",
            "Failed reads of target lists; the previous list stays in use",
            discovery_failures.clone(),
        );
        metrics
    }

    pub fn scrape(&self, failed: Option<FailureReason>) {
        let result = failed.map_or("success", FailureReason::as_str);
        self.scrapes.get_or_create(&Outcome { result }).inc();
    }

    pub fn discovery_failed(&self, mechanism: &'static str) {
        self.discovery_failures
            .get_or_create(&Mechanism { mechanism })
            .inc();
    }
}
