//! `[query]` of `takt.toml`: limits of one PromQL query.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
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
        ];
        match least.iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(ConfigError::new(*key, "at least 1", 0)),
            None => Ok(()),
        }
    }

    /// Returns the maximum duration of a query.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Returns the options of a query that begins now and has this timeout.
    pub fn options(&self, timeout: Duration) -> Options {
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
