//! The metrics that exporter, server and rules declare.

use std::collections::{BTreeMap, BTreeSet};

use super::boards::repository;
use std::fs;

/// Prefixes of the server's metrics about itself. A metric without an event yet is not on its page.
pub const OF_SERVER: [&str; 5] = [
    "prometheus_rule_group_",
    "takt_alerts_",
    "takt_collector_",
    "takt_notifications_",
    "takt_store_",
];

/// Prefixes of metrics about collectors, and of RAPL's, whose names the kernel gives.
const OF_EXPORTER: [&str; 3] = ["node_scrape_collector_", "takt_exporter_", "node_rapl_"];

/// Names that a query may use.
pub struct Declared {
    /// Label names of the exporter's metrics, by metric.
    pub metrics: BTreeMap<&'static str, Vec<&'static str>>,
    /// Families of metrics that the kernel names, by prefix.
    pub families: Vec<&'static str>,
    documented: BTreeSet<String>,
}

impl Declared {
    pub fn read() -> Self {
        let options = takt_exporter::Options::default();
        let collectors: Vec<_> = takt_exporter::COLLECTORS
            .iter()
            .map(|entry| (entry.new)(&options))
            .collect();
        let metrics = collectors
            .iter()
            .flat_map(|collector| collector.metrics())
            .chain(takt_probe::DEVICE_METRICS)
            .map(|metric| (metric.name, metric.labels.to_vec()))
            .collect();
        let families = collectors
            .iter()
            .flat_map(|collector| collector.families())
            .map(|family| family.prefix)
            .collect();
        // The server's own series, those of a scrape, and those of rules.
        let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
        let mut documented: BTreeSet<_> = read("docs/server-series.md")
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        documented.extend(
            [
                "up",
                "scrape_duration_seconds",
                "scrape_samples_scraped",
                "ALERTS",
            ]
            .map(str::to_owned),
        );
        if read("dashboards/rules/thresholds.rules.yml").contains("record: takt_threshold") {
            documented.insert("takt_threshold".to_owned());
        }
        Self {
            metrics,
            families,
            documented,
        }
    }

    /// Whether exporter, server or rules declare the metric.
    pub fn has(&self, metric: &str) -> bool {
        self.metrics.contains_key(metric)
            || self.documented.contains(metric)
            || self
                .families
                .iter()
                .any(|prefix| metric.starts_with(prefix))
            || OF_SERVER.iter().any(|prefix| metric.starts_with(prefix))
            || OF_EXPORTER.iter().any(|prefix| metric.starts_with(prefix))
    }
}
