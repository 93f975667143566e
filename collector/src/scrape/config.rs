//! The `[scrape]` table of `takt.toml`: targets, intervals and limits.

use super::job::{Job, JobConfig};
use super::prometheus;
use super::target::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::ConfigError;

/// The scraper's part of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScrapeConfig {
    /// Seconds between two scrapes of a target.
    pub interval_seconds: f64,
    /// Seconds after which a scrape fails; at most `interval_seconds`. Default: 10, or
    /// `interval_seconds` if that is less.
    pub timeout_seconds: Option<f64>,
    /// Maximum size of a page, in bytes. A scrape that exceeds this or one of the following limits
    /// fails as a whole.
    pub body_size_limit_bytes: u64,
    /// Maximum number of samples on a page, after `metric_relabel_configs`.
    pub sample_limit: usize,
    /// Maximum number of series per target in the head, recently ended series included. It bounds a
    /// target that renames its series at every scrape.
    pub series_limit: usize,
    /// Maximum number of labels of a series, target labels included. The labels `cluster` and
    /// `node` do not count if Takt adds them.
    pub label_limit: usize,
    /// Maximum length of a label name, in bytes.
    pub label_name_length_limit: usize,
    /// Maximum length of a label value, in bytes.
    pub label_value_length_limit: usize,
    /// An existing `prometheus.yml`. Its `scrape_configs` and `global` are used as if they were in
    /// `configs`; the rest of the file is ignored.
    pub prometheus_config: Option<PathBuf>,
    /// Targets, one by one.
    pub targets: Vec<TargetConfig>,
    /// Scrape configurations in Prometheus' format.
    pub configs: Vec<JobConfig>,
}

/// Seconds after which a scrape fails by default.
const TIMEOUT_SECONDS: f64 = 10.0;

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            interval_seconds: 15.0,
            timeout_seconds: None,
            body_size_limit_bytes: 64 << 20,
            sample_limit: 200_000,
            series_limit: 500_000,
            label_limit: 64,
            label_name_length_limit: 256,
            label_value_length_limit: 4096,
            prometheus_config: None,
            targets: Vec::new(),
            configs: Vec::new(),
        }
    }
}

/// One exporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetConfig {
    /// `host:port` of the exporter; the page is `http://host:port/metrics`. Give this or `url`.
    pub address: String,
    /// Full URL of the page. Give this or `address`.
    pub url: String,
    /// Name of the node in the scheduler. Default: the host of the address.
    pub node: String,
    /// Value of the label `job`.
    pub job: String,
    /// Additional labels of every series of this target.
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
    /// Checks the ranges of the values.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // The maximum is a day: with a longer interval, queries would no longer find the latest
        // sample.
        if !(0.1..=86_400.0).contains(&self.interval_seconds) {
            return Err(ConfigError::new(
                "interval_seconds",
                "0.1 to 86400",
                self.interval_seconds,
            ));
        }

        let timeout = self.timeout_seconds();
        if !(timeout > 0.0 && timeout <= self.interval_seconds) {
            let expected = format!(
                "more than 0 and at most interval_seconds = {}",
                self.interval_seconds
            );
            return Err(ConfigError::new("timeout_seconds", expected, timeout));
        }

        let limits = [
            ("body_size_limit_bytes", self.body_size_limit_bytes),
            ("sample_limit", self.sample_limit as u64),
            ("series_limit", self.series_limit as u64),
            ("label_limit", self.label_limit as u64),
            (
                "label_name_length_limit",
                self.label_name_length_limit as u64,
            ),
            (
                "label_value_length_limit",
                self.label_value_length_limit as u64,
            ),
        ];

        if let Some((key, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
            return Err(ConfigError::new(*key, "at least 1", 0));
        }

        self.jobs()?;
        self.listed("cluster").map(drop)
    }

    /// The files with passwords and tokens of `configs`, each with its key.
    pub fn secret_files(&self) -> impl Iterator<Item = (String, &Path)> {
        self.configs.iter().enumerate().flat_map(|(at, job)| {
            let files = job.secret_files();
            files.map(move |(key, file)| (format!("scrape.configs[{at}].{key}"), file))
        })
    }

    /// Makes the configured file paths relative to `base`.
    pub fn resolve_paths(&mut self, base: &Path) {
        if let Some(path) = &mut self.prometheus_config {
            *path = base.join(&*path);
        }

        self.configs
            .iter_mut()
            .for_each(|job| job.resolve_paths(base));
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval_seconds)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_seconds())
    }

    fn timeout_seconds(&self) -> f64 {
        let usual = TIMEOUT_SECONDS.min(self.interval_seconds);
        self.timeout_seconds.unwrap_or(usual)
    }

    /// Returns each target of `static_configs` that can never be scraped. The scraper drops these
    /// and scrapes the others. None if [`Self::validate`] fails.
    pub fn invalid_targets(&self) -> Vec<ConfigError> {
        let mut invalid = Vec::new();
        for (key, config) in self.keyed_jobs().unwrap_or_default() {
            // `validate` has reported the job's own mistakes, which are errors and not invalid targets.
            let Ok(job) = Job::new(config, self, &key) else {
                continue;
            };
            for (at, list) in job.config.static_configs.iter().enumerate() {
                for (index, labels) in list.discovered(None).iter().enumerate() {
                    if let Err(error) = Target::discovered(labels, &job, "cluster") {
                        let key = format!("{key}.static_configs[{at}].targets[{index}]");
                        invalid.push(ConfigError::with_problem(key, error));
                    }
                }
            }
        }
        invalid
    }

    /// Returns each `slurm_bin` of `slurm_sd_configs` without a `scontrol`. None if [`Self::validate`] fails.
    pub fn missing_commands(&self) -> Vec<ConfigError> {
        let mut missing = Vec::new();
        for (key, config) in self.keyed_jobs().unwrap_or_default() {
            for (at, sd) in config.slurm_sd_configs.iter().enumerate() {
                if let Some(folder) = &sd.slurm_bin
                    && !folder.join("scontrol").is_file()
                {
                    missing.push(ConfigError::new(
                        format!("{key}.slurm_sd_configs[{at}].slurm_bin"),
                        "the folder of scontrol",
                        format!("no scontrol in {}", folder.display()),
                    ));
                }
            }
        }
        missing
    }

    /// Returns the checked scrape configurations: `configs` first, then those of
    /// `prometheus_config`.
    pub(super) fn jobs(&self) -> Result<Vec<Job>, ConfigError> {
        // Names of jobs are unique across both files, because `up` and the pages identify a job by its name.
        let mut names = HashSet::new();
        self.keyed_jobs()?
            .into_iter()
            .map(|(key, config)| {
                if !names.insert(config.job_name.clone()) {
                    let expected = "a unique name";
                    return Err(ConfigError::new(
                        format!("{key}.job_name"),
                        expected,
                        &config.job_name,
                    ));
                }
                Job::new(config, self, &key)
            })
            .collect()
    }

    /// Returns the scrape configurations, each with its key for messages.
    fn keyed_jobs(&self) -> Result<Vec<(String, JobConfig)>, ConfigError> {
        let imported = self
            .prometheus_config
            .as_deref()
            .map(prometheus::scrape_configs)
            .transpose()?;

        let own = self
            .configs
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, job)| (format!("configs[{index}]"), job));

        // The key begins with the file, so that a message never points into `takt.toml` for an imported job.
        let file = self.prometheus_config.as_deref().unwrap_or(Path::new(""));
        let imported = imported
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, job)| {
                let file = file.display();
                let key = format!("prometheus_config: {file}: scrape_configs[{index}]");
                (key, job)
            });

        Ok(own.chain(imported).collect())
    }

    /// Returns the names of the scrape configurations with https. A file that cannot be read has
    /// none.
    pub fn encrypted_jobs(&self) -> Vec<String> {
        self.jobs()
            .unwrap_or_default()
            .into_iter()
            .filter(|job| job.config.scheme == "https")
            .map(|job| job.config.job_name.clone())
            .collect()
    }

    /// Number of targets that the configuration lists. Others are discovered while the server runs.
    pub fn listed_targets(&self) -> usize {
        let jobs = self.configs.iter().flat_map(|job| &job.static_configs);
        self.targets.len() + jobs.map(|listed| listed.targets.len()).sum::<usize>()
    }

    /// Returns the pages that several of `targets` have, with these targets. GPUs on them count for each.
    pub fn pages_of_several(&self) -> BTreeMap<String, Vec<usize>> {
        let mut pages: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        // The cluster's name differs from the real one, but it changes neither URLs nor nodes.
        let listed = self.listed("cluster").map(|(_, targets)| targets);
        for (index, target) in listed.unwrap_or_default().iter().enumerate() {
            pages.entry(target.url.to_string()).or_default().push(index);
        }
        pages.retain(|_, targets| targets.len() > 1);
        pages
    }

    /// Returns the nodes that `targets` of several machines claim to be, with the names of these machines.
    pub fn nodes_of_several(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let listed = self.listed("cluster").map(|(_, targets)| targets);
        for target in listed.unwrap_or_default() {
            let host = target.url.host_str().map(str::to_owned);
            if let Some((node, host)) = target.labels.get("node").zip(host) {
                nodes.entry(node.to_owned()).or_default().insert(host);
            }
        }
        nodes.retain(|_, hosts| hosts.len() > 1);
        nodes
    }

    /// Returns the job of `targets` and its targets.
    pub(super) fn listed(&self, cluster: &str) -> Result<(Job, Vec<Target>), ConfigError> {
        // No other job can have an empty name.
        let job = JobConfig {
            job_name: "[[scrape.targets]]".to_owned(),
            ..JobConfig::default()
        };
        let job = Job::new(job, self, "targets")?;

        let mut seen = HashSet::new();
        let mut targets = Vec::with_capacity(self.targets.len());
        for (index, config) in self.targets.iter().enumerate() {
            let target = Target::listed(config, &job, cluster, index)?;
            // Equal labels would give two targets the same series, with two samples at each time.
            if !seen.insert(target.labels.clone()) {
                let expected = "labels that differ from those of every other target";
                return Err(ConfigError::new(
                    format!("targets[{index}]"),
                    expected,
                    &target.labels,
                ));
            }
            targets.push(target);
        }

        Ok((job, targets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_names_its_key() {
        let target = |address: &str| TargetConfig {
            address: address.to_owned(),
            ..TargetConfig::default()
        };
        let with_targets = |targets| ScrapeConfig {
            targets,
            ..ScrapeConfig::default()
        };
        let labelled = |name: &str| {
            let labels = [(name.to_owned(), "x".to_owned())].into();
            with_targets(vec![TargetConfig {
                labels,
                ..target("g01:1")
            }])
        };
        let both = TargetConfig {
            url: "http://g01:1/".to_owned(),
            ..target("g01:1")
        };
        let scheme = TargetConfig {
            url: "ftp://g01/".to_owned(),
            ..TargetConfig::default()
        };

        for (config, message) in [
            (
                ScrapeConfig {
                    interval_seconds: 0.0,
                    ..ScrapeConfig::default()
                },
                "interval_seconds: expected 0.1 to 86400, found 0",
            ),
            (
                ScrapeConfig {
                    timeout_seconds: Some(16.0),
                    ..ScrapeConfig::default()
                },
                "timeout_seconds: expected more than 0 and at most interval_seconds = 15, found 16",
            ),
            (
                ScrapeConfig {
                    sample_limit: 0,
                    ..ScrapeConfig::default()
                },
                "sample_limit: expected at least 1, found 0",
            ),
            (
                with_targets(vec![target("")]),
                "targets[0].address: expected host:port, found nothing",
            ),
            (
                with_targets(vec![target("g01")]),
                "targets[0].address: expected host:port, found g01",
            ),
            (
                with_targets(vec![target("http://g01:1")]),
                "targets[0].address: expected host:port, found http://g01:1",
            ),
            (
                with_targets(vec![both]),
                "targets[0]: expected address or url, found both",
            ),
            (
                with_targets(vec![scheme]),
                "targets[0].url: expected an http or https address, found ftp://g01/",
            ),
            (
                with_targets(vec![target("g01:1"), target("g01:1")]),
                "targets[1]: expected labels that differ from those of every other target, \
                 found {cluster=\"cluster\", instance=\"g01:1\", job=\"node\", node=\"g01\"}",
            ),
            (
                labelled("job"),
                "targets[0].labels: expected a label that takt does not set itself, found job",
            ),
            (
                labelled("a-b"),
                "targets[0].labels: expected a label name, found a-b",
            ),
            (
                labelled("__x"),
                "targets[0].labels: expected a label name, found __x",
            ),
        ] {
            assert_eq!(config.validate().unwrap_err().to_string(), message);
        }

        // Neither a port beside a name nor an IPv6 address is a mistake.
        with_targets(vec![target("g01:9855"), target("[::1]:9855")])
            .validate()
            .unwrap();
    }

    #[test]
    fn each_mistake_of_a_scrape_configuration_names_its_key() {
        use serde_json::json;
        for (jobs, message) in [
            (
                json!([{}]),
                "configs[0].job_name: expected a name, found nothing",
            ),
            (
                json!([{"job_name": "a"}, {"job_name": "a"}]),
                "configs[1].job_name: expected a unique name, found a",
            ),
            (
                json!([{"job_name": "a", "scheme": "ftp"}]),
                "configs[0].scheme: expected http or https, found ftp",
            ),
            (
                json!([{"job_name": "a", "scrape_interval": "5s", "scrape_timeout": "6s"}]),
                "configs[0].scrape_timeout: expected at most scrape_interval = 5s, found 6s",
            ),
            (
                json!([{"job_name": "a", "metric_relabel_configs": [{"action": "keep", "regex": "*"}]}]),
                "configs[0].metric_relabel_configs[0].regex: expected a regular expression, found *",
            ),
            (
                json!([{"job_name": "a", "file_sd_configs": [{"files": ["t.txt"]}]}]),
                "configs[0].file_sd_configs[0].files: expected a path that ends in .json, .yml or .yaml, with at most one * and that in its last part, found t.txt",
            ),
            (
                json!([{"job_name": "a", "static_configs": [{"targets": ["g01:1", "http://g01:1"]}]}]),
                "configs[0].static_configs[0].targets: expected host:port; the rest goes to scheme and metrics_path, found http://g01:1",
            ),
            (
                json!([{"job_name": "a", "file_sd_configs": [{}]}]),
                "configs[0].file_sd_configs[0].files: expected at least one path, found none",
            ),
            (
                json!([{"job_name": "a", "http_sd_configs": [{"url": "g01"}]}]),
                "configs[0].http_sd_configs[0].url: expected an http or https address, found \"g01\"",
            ),
        ] {
            let configs = serde_json::from_value(jobs).unwrap();
            let error = ScrapeConfig {
                configs,
                ..ScrapeConfig::default()
            }
            .validate()
            .unwrap_err();
            assert_eq!(error.to_string(), message);
        }

        // A probe's address may be a URL, because relabelling replaces it before the scrape.
        let probe = json!([{
            "job_name": "probe",
            "static_configs": [{"targets": ["http://g01:1"]}],
            "relabel_configs": [{"target_label": "__address__", "replacement": "prober:9115"}],
        }]);
        let probed = ScrapeConfig {
            configs: serde_json::from_value(probe).unwrap(),
            ..ScrapeConfig::default()
        };
        probed.validate().unwrap();
        assert_eq!(probed.invalid_targets(), []);

        let missing = ScrapeConfig {
            prometheus_config: Some("/none.yml".into()),
            ..ScrapeConfig::default()
        };
        assert_eq!(
            missing.validate().unwrap_err().to_string(),
            "prometheus_config: expected a Prometheus configuration with scrape_configs, \
             found /none.yml: No such file or directory (os error 2)"
        );
    }

    /// As in Prometheus, an address without a port has that of the scheme.
    #[test]
    fn targets_that_can_never_be_scraped_are_named_in_both_files() {
        let folder = tempfile::tempdir().unwrap();

        // The imported file has a valid job with one empty address in its second list.
        let file = folder.path().join("prometheus.yml");
        let text = "scrape_configs:\n- job_name: b\n  static_configs:\n  \
                    - targets: [g01:1]\n  - targets: [g02:1, '']\n";
        std::fs::write(&file, text).unwrap();

        // The first three have a usable form without a port; an empty port is also that of the scheme.
        let own = serde_json::json!([{
            "job_name": "a",
            "static_configs": [{"targets": ["g01", "g02:", "[::1]", "g03:70000", "g04:x"]}],
        }]);
        let config = ScrapeConfig {
            configs: serde_json::from_value(own).unwrap(),
            prometheus_config: Some(file.clone()),
            ..ScrapeConfig::default()
        };
        config.validate().unwrap();
        let form = "__address__: expected host:port with a port from 1 to 65535, or a host alone \
                    for port 80 (http) or 443 (https)";
        let imported = format!("prometheus_config: {}: scrape_configs", file.display());

        let said: Vec<String> = config
            .invalid_targets()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                format!("configs[0].static_configs[0].targets[3]: {form}, found \"g03:70000\""),
                format!("configs[0].static_configs[0].targets[4]: {form}, found \"g04:x\""),
                format!("{imported}[0].static_configs[1].targets[1]: {form}, found \"\""),
            ]
        );
    }
}
