//! What the exporter knows, from its page.

use std::collections::BTreeMap;
use takt_model::Labels;
use takt_model::exposition::{Format, Line, Page, ReadError};

/// Collectors that the checks read.
pub(crate) const COLLECTORS: &[&str] = &[
    "nvml",
    "jobs",
    "events",
    "filesystem",
    "mountstats",
    "links",
    "infiniband",
    "timex",
];

/// Metrics that the checks read.
const METRICS: &[&str] = &[
    "node_filesystem_avail_bytes",
    "node_filesystem_device_error",
    "node_filesystem_readonly",
    "node_filesystem_size_bytes",
    "node_infiniband_rate_bytes_per_second",
    "node_infiniband_state_id",
    "node_scrape_collector_success",
    "node_timex_offset_seconds",
    "node_timex_sync_status",
    "takt_exporter_collector_absent",
    "takt_exporter_collector_read_timestamp_seconds",
    "takt_gpu_fabric_ready",
    "takt_gpu_info",
    "takt_gpu_nvlink_up",
    "takt_gpu_pcie_degraded",
    "takt_gpu_process_without_job",
    "takt_gpu_recovery_action",
    "takt_gpu_retired_pages_pending",
    "takt_gpu_row_remap_failed",
    "takt_gpu_row_remap_pending",
    "takt_gpu_sram_threshold_exceeded",
    "takt_gpu_up",
    "takt_gpu_xid_last_seen_timestamp_seconds",
    "takt_link_below_capability",
    "takt_link_negotiated_bits_per_second",
    "takt_nfs_mount_hung_seconds",
];

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    labels: Labels,
    /// The value.
    pub value: f64,
}

impl Fact {
    /// The label's value; empty without it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).unwrap_or_default()
    }
}

/// The samples of a page that the checks read, by metric.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts(BTreeMap<&'static str, Vec<Fact>>);

impl Facts {
    /// Reads a page.
    ///
    /// # Errors
    /// If a line is no sample and no comment. Half a page would look like a node without faults.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let mut facts = Self::default();
        let mut page = Page::new(Format::Text, text.as_bytes());
        while let Some(line) = page.next_line(b"")? {
            let Line::Sample(sample) = line else {
                continue;
            };
            // Only the few metrics of the checks are kept; a page has thousands of series.
            let name = sample.series.split(|byte| *byte == b'{').next();
            let metric = METRICS
                .iter()
                .find(|metric| name == Some(metric.as_bytes()));
            if let Some(metric) = metric {
                let labels = sample.labels()?;
                let value = sample.value;
                facts
                    .0
                    .entry(metric)
                    .or_default()
                    .push(Fact { labels, value });
            }
        }
        Ok(facts)
    }

    /// The samples of a metric.
    pub fn of(&self, metric: &str) -> &[Fact] {
        debug_assert!(METRICS.contains(&metric), "{metric} is not in the list");
        self.0.get(metric).map_or(&[], Vec::as_slice)
    }

    /// Whether this is the page of a takt-exporter, and not of another program.
    pub fn are_of_takt_exporter(&self) -> bool {
        self.0.contains_key("takt_exporter_collector_absent")
    }

    /// The samples of a metric whose label has this value.
    pub fn of_with<'a>(
        &'a self,
        metric: &str,
        label: &'a str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Fact> {
        let facts = self.of(metric).iter();
        facts.filter(move |fact| fact.label(label) == value)
    }
}
