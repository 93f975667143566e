//! What is scraped and how often: the `[scrape]` table of `takt.toml`.

use super::target::Target;
use crate::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The scraper's part of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScrapeConfig {
    /// Seconds between two scrapes of one target.
    pub interval_seconds: f64,
    /// Seconds after which a scrape is given up; at most `interval_seconds`.
    pub timeout_seconds: f64,
    /// Bytes of a page. A scrape over this or one of the following limits fails as a whole.
    pub body_size_limit_bytes: u64,
    /// Samples of a page.
    pub sample_limit: usize,
    /// Labels of a series, those of the target included.
    pub label_limit: usize,
    /// Bytes of a label's name.
    pub label_name_length_limit: usize,
    /// Bytes of a label's value.
    pub label_value_length_limit: usize,
    /// The targets.
    pub targets: Vec<TargetConfig>,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            interval_seconds: 15.0,
            timeout_seconds: 10.0,
            body_size_limit_bytes: 64 << 20,
            sample_limit: 200_000,
            label_limit: 64,
            label_name_length_limit: 256,
            label_value_length_limit: 4096,
            targets: Vec::new(),
        }
    }
}

/// One exporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetConfig {
    /// `host:port`; the page is `http://host:port/metrics`. Give this or `url`.
    pub address: String,
    /// The page's address in full. Give this or `address`.
    pub url: String,
    /// The node, by the scheduler's name for it; the host of the address if left out.
    pub node: String,
    /// The label `job`.
    pub job: String,
    /// More labels for every series of this target.
    pub labels: BTreeMap<String, String>,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            url: String::new(),
            node: String::new(),
            job: "node".to_owned(),
            labels: BTreeMap::new(),
        }
    }
}

impl ScrapeConfig {
    /// Checks what no type can say.
    ///
    /// # Errors
    /// The first key whose value cannot be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // A day: beyond it a series would be gone from every query long before its next sample.
        if !(0.1..=86_400.0).contains(&self.interval_seconds) {
            return Err(ConfigError::new("interval_seconds", "0.1 to 86400", self.interval_seconds));
        }
        if !(self.timeout_seconds > 0.0 && self.timeout_seconds <= self.interval_seconds) {
            let expected = format!("more than 0 and at most interval_seconds = {}", self.interval_seconds);
            return Err(ConfigError::new("timeout_seconds", expected, self.timeout_seconds));
        }
        let limits = [
            ("body_size_limit_bytes", self.body_size_limit_bytes),
            ("sample_limit", self.sample_limit as u64),
            ("label_limit", self.label_limit as u64),
            ("label_name_length_limit", self.label_name_length_limit as u64),
            ("label_value_length_limit", self.label_value_length_limit as u64),
        ];
        if let Some((key, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
            return Err(ConfigError::new(*key, "at least 1", 0));
        }
        self.targets("cluster").map(drop)
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval_seconds)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_seconds)
    }

    pub(super) fn targets(&self, cluster: &str) -> Result<Vec<Target>, ConfigError> {
        let mut seen = HashSet::new();
        let mut targets = Vec::with_capacity(self.targets.len());
        for (index, config) in self.targets.iter().enumerate() {
            let target = Target::new(config, cluster, index)?;
            if !seen.insert(target.labels.clone()) {
                let expected = "labels that no other target has";
                return Err(ConfigError::new(format!("targets[{index}]"), expected, &target.labels));
            }
            targets.push(target);
        }
        Ok(targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_names_its_key() {
        let target = |address: &str| TargetConfig { address: address.to_owned(), ..TargetConfig::default() };
        let with_targets = |targets| ScrapeConfig { targets, ..ScrapeConfig::default() };
        let labelled = |name: &str| {
            let labels = [(name.to_owned(), "x".to_owned())].into();
            with_targets(vec![TargetConfig { labels, ..target("g01:1") }])
        };
        let both = TargetConfig { url: "http://g01:1/".to_owned(), ..target("g01:1") };
        let scheme = TargetConfig { url: "ftp://g01/".to_owned(), ..TargetConfig::default() };
        for (config, message) in [
            (
                ScrapeConfig { interval_seconds: 0.0, ..ScrapeConfig::default() },
                "interval_seconds: expected 0.1 to 86400, found 0",
            ),
            (
                ScrapeConfig { timeout_seconds: 16.0, ..ScrapeConfig::default() },
                "timeout_seconds: expected more than 0 and at most interval_seconds = 15, found 16",
            ),
            (ScrapeConfig { sample_limit: 0, ..ScrapeConfig::default() }, "sample_limit: expected at least 1, found 0"),
            (with_targets(vec![target("")]), "targets[0].address: expected host:port, found nothing"),
            (with_targets(vec![target("g01")]), "targets[0].address: expected host:port, found g01"),
            (with_targets(vec![target("http://g01:1")]), "targets[0].address: expected host:port, found http://g01:1"),
            (with_targets(vec![both]), "targets[0]: expected address or url, found both"),
            (with_targets(vec![scheme]), "targets[0].url: expected an http or https address, found ftp://g01/"),
            (
                with_targets(vec![target("g01:1"), target("g01:1")]),
                "targets[1]: expected labels that no other target has, \
                 found {cluster=\"cluster\", instance=\"g01:1\", job=\"node\", node=\"g01\"}",
            ),
            (labelled("job"), "targets[0].labels: expected a label that takt does not set itself, found job"),
            (labelled("a-b"), "targets[0].labels: expected a label name, found a-b"),
            (labelled("__x"), "targets[0].labels: expected a label name, found __x"),
        ] {
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }
        with_targets(vec![target("g01:9855"), target("[::1]:9855")]).validate().unwrap();
    }
}
