//! `[[remote_write]]` of `takt.toml`.

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_alerts::notify::http::HttpOptions;
use takt_model::{ConfigError, Labels, METRIC_NAME, Matcher};
use takt_promql::selector;
use takt_push::remote_write::Protocol;
use takt_questions::http_access::{HttpAccess, check_url};

/// A receiver of the stored samples: Prometheus, VictoriaMetrics, Mimir, or another that speaks
/// Prometheus remote write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteWriteConfig {
    /// Address that takes the samples, such as `http://mimir:9009/api/v1/push`.
    pub url: String,
    /// Name of the destination in metrics and log lines. Takt remembers under this name which
    /// samples are acknowledged. Default: host and port of the URL.
    #[serde(default)]
    pub name: Option<String>,
    /// PromQL selectors of the series to send, such as `{__name__=~"takt_.*"}`. Default: all.
    #[serde(default)]
    pub select: Vec<String>,
    /// Labels to add to every series. A label of the series has priority.
    #[serde(default)]
    pub external_labels: BTreeMap<String, String>,
    /// Version of the protocol: `1.0` or `2.0`.
    #[serde(default)]
    pub protocol: Protocol,
    /// File with a bearer token (one line).
    #[serde(default)]
    pub bearer_token_file: Option<PathBuf>,
    /// User for basic authentication.
    #[serde(default)]
    pub username: Option<String>,
    /// File with the password of the user (one line).
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust besides those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Samples in one request.
    #[serde(default = "samples_per_request")]
    pub samples_per_request: usize,
    /// Requests at the same time. A series is always sent by the same one of them.
    #[serde(default = "connections")]
    pub connections: usize,
    /// Seconds after which a request without a reply is sent again.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
    /// Hours that are caught up after an outage. Older samples are skipped. At most
    /// `store.retention_days`.
    #[serde(default = "catch_up_hours")]
    pub catch_up_hours: u64,
}

fn samples_per_request() -> usize {
    5000
}

fn connections() -> usize {
    4
}

fn timeout_seconds() -> u64 {
    30
}

fn catch_up_hours() -> u64 {
    72
}

impl RemoteWriteConfig {
    /// Name of the destination.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| {
            // The default name must stay the same, as the progress is stored under it.
            Url::parse(&self.url).map_or_else(
                |_| self.url.clone(),
                |url| {
                    let host = url.host_str().unwrap_or_default().to_owned();
                    url.port_or_known_default()
                        .map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
                },
            )
        })
    }

    /// The files with secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            ("bearer_token_file", &self.bearer_token_file),
            ("password_file", &self.password_file),
        ]
        .into_iter()
        .filter_map(|(key, file)| Some((key, file.as_deref()?)))
    }

    /// The files that the section names.
    pub fn files(&mut self) -> [&mut Option<PathBuf>; 3] {
        [
            &mut self.bearer_token_file,
            &mut self.password_file,
            &mut self.ca_file,
        ]
    }

    /// Checks that types cannot express.
    pub fn validate(&self, retention_days: u64) -> Result<(), ConfigError> {
        check_url("url", &self.url, "http://mimir:9009/api/v1/push")?;
        self.access().validate("")?;
        self.selectors()?;
        // `__name__` is no label to add: each series has its own.
        if let Some(name) = self
            .external_labels
            .keys()
            .find(|name| name.is_empty() || *name == METRIC_NAME)
        {
            let found = format!("{name:?}");
            return Err(ConfigError::new(
                "external_labels",
                "names of labels",
                found,
            ));
        }

        for (key, value) in [
            ("samples_per_request", self.samples_per_request as u64),
            ("connections", self.connections as u64),
            ("timeout_seconds", self.timeout_seconds),
            ("catch_up_hours", self.catch_up_hours),
        ] {
            if value == 0 {
                return Err(ConfigError::new(key, "at least 1", 0));
            }
        }
        // Each connection holds a request in memory, and receivers limit them.
        if self.connections > 64 {
            let found = self.connections;
            return Err(ConfigError::new("connections", "at most 64", found));
        }

        // Samples that retention has removed cannot be sent.
        let most = retention_days * 24;
        if self.catch_up_hours > most {
            let expected = format!("at most {most}, the hours of store.retention_days");
            let found = self.catch_up_hours;
            return Err(ConfigError::new("catch_up_hours", expected, found));
        }
        Ok(())
    }

    /// Matchers of the selected series, one list for each selector; an empty list selects all.
    pub(super) fn selectors(&self) -> Result<Vec<Vec<Matcher>>, ConfigError> {
        // One empty list of matchers selects all series.
        if self.select.is_empty() {
            return Ok(vec![Vec::new()]);
        }
        self.select
            .iter()
            .map(|text| {
                selector(text).map_err(|error| {
                    let found = format!("{text:?}: {error}");
                    ConfigError::new("select", "a selector", found)
                })
            })
            .collect()
    }

    /// The labels to add.
    pub(super) fn labels(&self) -> Labels {
        self.external_labels.iter().collect()
    }

    /// Settings of the HTTP client. Reads the files.
    pub(crate) fn http_options(&self) -> anyhow::Result<HttpOptions> {
        self.access().options()
    }

    fn access(&self) -> HttpAccess<'_> {
        HttpAccess {
            bearer_token_file: self.bearer_token_file.as_deref(),
            username: self.username.as_deref(),
            password_file: self.password_file.as_deref(),
            ca_file: self.ca_file.as_deref(),
            headers: None,
            timeout: Duration::from_secs(self.timeout_seconds),
        }
    }
}
