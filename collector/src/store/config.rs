//! How the store is set up: the `[store]` table of `takt.toml`.

use super::Settings;
use crate::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The store's part of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Memory for DuckDB's buffers and operators, in MiB.
    pub duckdb_memory_mib: u64,
    /// Threads one SQL query may use; 0 means half the cores, at least 2.
    pub duckdb_threads: u32,
    /// Milliseconds between two commits of samples. What a crash can lose is what came after the last one.
    pub commit_interval_ms: u64,
    /// Minutes of samples that are kept in memory for alert rules and instant queries.
    pub head_minutes: u64,
    /// MiB of samples that may wait while the disk cannot take them. Beyond it the oldest are dropped and counted.
    pub queue_limit_mib: u64,
    /// No sample is written while the disk has less free than this many bytes; they wait in the queue.
    pub min_free_bytes: u64,
    /// Days that samples are kept.
    pub retention_days: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            duckdb_memory_mib: 1024,
            duckdb_threads: 0,
            commit_interval_ms: 1000,
            head_minutes: 15,
            queue_limit_mib: 64,
            min_free_bytes: 512 << 20,
            retention_days: 15,
        }
    }
}

impl StoreConfig {
    /// Checks what no type can say.
    ///
    /// # Errors
    /// The first key whose value is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("duckdb_memory_mib", self.duckdb_memory_mib, 128..=u64::MAX),
            ("commit_interval_ms", self.commit_interval_ms, 10..=60_000),
            ("head_minutes", self.head_minutes, 6..=1440),
            ("queue_limit_mib", self.queue_limit_mib, 1..=65_536),
            ("retention_days", self.retention_days, 1..=36_500),
        ];
        match ranges.into_iter().find(|(_, value, range)| !range.contains(value)) {
            Some((key, value, range)) if *range.end() == u64::MAX => {
                Err(ConfigError::new(key, format!("at least {}", range.start()), value))
            }
            Some((key, value, range)) => {
                Err(ConfigError::new(key, format!("{} to {}", range.start(), range.end()), value))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings { memory_limit_mib: self.duckdb_memory_mib, ..Settings::default() };
        if self.duckdb_threads > 0 {
            settings.threads = self.duckdb_threads;
        }
        settings
    }

    pub(crate) fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.commit_interval_ms)
    }

    pub(crate) fn head_window(&self) -> Duration {
        Duration::from_secs(60 * self.head_minutes)
    }

    pub(crate) fn retention(&self) -> Duration {
        Duration::from_secs(86_400 * self.retention_days)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_wrong_value_is_named() {
        assert_eq!(StoreConfig::default().validate(), Ok(()));
        let wrong = StoreConfig { head_minutes: 1, ..StoreConfig::default() };
        assert_eq!(wrong.validate().unwrap_err().to_string(), "head_minutes: expected 6 to 1440, found 1");
    }
}
