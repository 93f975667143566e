//! `[query]` of `takt.toml`: limits of one PromQL query, and the engine that has the samples.

use crate::http_access::{HttpAccess, check_url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_alerts::notify::http::HttpOptions;
use takt_model::ConfigError;
use takt_promql::{Limits, Options};

/// How much one PromQL query may take. Prometheus' flag of the same meaning is in brackets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryConfig {
    /// Seconds before the evaluation time in which a series' newest sample is used
    /// (`query.lookback-delta`).
    pub lookback_seconds: u64,
    /// Number of queries evaluated at the same time; further queries wait
    /// (`query.max-concurrency`).
    pub max_concurrency: usize,
    /// Samples and computed points that one query may hold in memory, 16 bytes each
    /// (`query.max-samples`).
    pub max_samples: u64,
    /// Series that one selector may return.
    pub max_series: usize,
    /// Evaluate what Prometheus calls experimental: functions such as `max_of`, `limitk`, `fill`, `anchored` and
    /// `smoothed`. Otherwise queries with them are refused by name (`enable-feature`). Rules are
    /// always refused.
    pub experimental: bool,
    /// Seconds after which a query is cancelled, waiting time included (`query.timeout`).
    pub timeout_seconds: u64,
    /// Read samples from this engine instead of the own store: an address below which it serves
    /// Prometheus' HTTP API, such as `http://vmselect:8481/select/0/prometheus` or
    /// `https://mimir/prometheus`. Job records stay here.
    pub remote: Option<String>,
    /// File with a bearer token for the engine (one line).
    pub remote_bearer_token_file: Option<PathBuf>,
    /// User of the engine for basic authentication.
    pub remote_username: Option<String>,
    /// File with the password of the user (one line).
    pub remote_password_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust besides those of the system.
    pub remote_ca_file: Option<PathBuf>,
    /// Further headers of requests to the engine, such as `{ X-Scope-OrgID = "lab" }`.
    pub remote_headers: BTreeMap<String, String>,
    /// Seconds after which a request to the engine fails.
    pub remote_timeout_seconds: u64,
}

impl Default for QueryConfig {
    fn default() -> Self {
        let limits = Limits::default();
        let options = Options::default();
        Self {
            lookback_seconds: options.lookback_ms.unsigned_abs() / 1000,
            experimental: false,
            max_concurrency: 20,
            max_samples: limits.max_samples,
            max_series: limits.max_series,
            timeout_seconds: 120,
            remote: None,
            remote_bearer_token_file: None,
            remote_username: None,
            remote_password_file: None,
            remote_ca_file: None,
            remote_headers: BTreeMap::new(),
            remote_timeout_seconds: 20,
        }
    }
}

impl QueryConfig {
    /// Checks the ranges of the values.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let least = [
            ("lookback_seconds", self.lookback_seconds),
            ("max_concurrency", self.max_concurrency as u64),
            ("max_samples", self.max_samples),
            ("max_series", self.max_series as u64),
            ("timeout_seconds", self.timeout_seconds),
            ("remote_timeout_seconds", self.remote_timeout_seconds),
        ];
        // 0 would refuse every query, or time it out at once.
        if let Some((key, _)) = least.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::new(key, "at least 1", 0));
        }
        let Some(url) = &self.remote else {
            return self.check_without_remote();
        };
        check_url("remote", url, "http://mimir:9009/prometheus")?;
        // People copy the address of a query; each request appends the path itself.
        if url.contains("/api/v1") {
            let expected = "the address without /api/v1";
            return Err(ConfigError::new("remote", expected, format!("{url:?}")));
        }
        self.access().validate("remote_")
    }

    fn check_without_remote(&self) -> Result<(), ConfigError> {
        // Such a key has no effect without the engine.
        let given = [
            (
                "remote_bearer_token_file",
                self.remote_bearer_token_file.is_some(),
            ),
            ("remote_username", self.remote_username.is_some()),
            ("remote_password_file", self.remote_password_file.is_some()),
            ("remote_ca_file", self.remote_ca_file.is_some()),
            ("remote_headers", !self.remote_headers.is_empty()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                let problem = "expected remote, the address of the engine, too";
                Err(ConfigError::with_problem(key, problem))
            }
            None => Ok(()),
        }
    }

    fn access(&self) -> HttpAccess<'_> {
        HttpAccess {
            bearer_token_file: self.remote_bearer_token_file.as_deref(),
            username: self.remote_username.as_deref(),
            password_file: self.remote_password_file.as_deref(),
            ca_file: self.remote_ca_file.as_deref(),
            headers: Some(&self.remote_headers),
            timeout: Duration::from_secs(self.remote_timeout_seconds),
        }
    }

    /// Settings of the engine's HTTP client. Reads the files.
    pub fn http_options(&self) -> anyhow::Result<HttpOptions> {
        self.access().options()
    }

    /// The files with secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            (
                "query.remote_bearer_token_file",
                &self.remote_bearer_token_file,
            ),
            ("query.remote_password_file", &self.remote_password_file),
        ]
        .into_iter()
        .filter_map(|(key, file)| Some((key, file.as_deref()?)))
    }

    /// The files that the section names.
    pub fn files(&mut self) -> [&mut Option<PathBuf>; 3] {
        [
            &mut self.remote_bearer_token_file,
            &mut self.remote_password_file,
            &mut self.remote_ca_file,
        ]
    }

    /// Returns the maximum duration of a query.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Returns the options of a query that begins now and has this timeout.
    pub fn options(&self, timeout: Duration) -> Options {
        // The time that the query waits for its place counts, so the clock runs from here.
        let deadline = Some(Instant::now() + timeout);
        let max_samples = self.max_samples;
        let max_series = self.max_series;
        let limits = Limits {
            max_samples,
            max_series,
            deadline,
            ..Limits::default()
        };

        let lookback_ms =
            i64::try_from(self.lookback_seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        Options {
            lookback_ms,
            limits,
            experimental: self.experimental,
            ..Options::default()
        }
    }
}
