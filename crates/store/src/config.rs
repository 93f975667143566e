//! Configuration of the store: the `[store]` table of `takt.toml`.

use super::{Resolution, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use takt_model::ConfigError;

/// A segment with this many samples is complete.
pub(crate) const SEGMENT_SAMPLES: u64 = 64 << 20;

/// Configuration of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Memory for DuckDB's buffers and operators, in MiB.
    pub duckdb_memory_mib: u64,
    /// Threads of one SQL query; 0 means half the cores.
    pub duckdb_threads: u32,
    /// Memory for data read from blocks, in MiB, packed to two or three bytes per sample.
    /// Dashboards read the same data again and again.
    pub block_cache_mib: u64,
    /// Milliseconds between two commits of samples. A crash loses at most what was scraped since
    /// the last commit.
    pub commit_interval_ms: u64,
    /// Minutes of samples kept in memory for alert rules and instant queries.
    pub head_minutes: u64,
    /// Memory for samples that wait while the disk is full, in MiB. Beyond it, the oldest are
    /// dropped and counted.
    pub queue_limit_mib: u64,
    /// Free disk space below which no samples are written, in bytes. Samples wait in memory until
    /// space is available.
    pub min_free_bytes: u64,
    /// Minutes of samples that are sealed into a block together. 64 million samples are sealed
    /// earlier.
    pub seal_minutes: u64,
    /// Memory for building a block, in MiB.
    pub seal_memory_mib: u64,
    /// Days that samples are kept.
    pub retention_days: u64,
    /// Days that five-minute rows are kept, but never shorter than samples (`retention_days`); 0
    /// disables them.
    pub retention_5m_days: u64,
    /// Days that one-hour rows are kept, but never shorter than samples (`retention_days`); 0
    /// disables them.
    pub retention_1h_days: u64,
    /// Maximum size of sealed blocks, in GiB; beyond it, the oldest are deleted before their
    /// retention ends. 0: no limit.
    pub max_disk_gib: u64,
    /// Maximum number of exemplars in memory, of all series together; a new one replaces the
    /// oldest. They take memory only while targets send them, and are lost at a restart. 0: none
    /// (`storage.exemplars.exemplars-limit`).
    pub max_exemplars: usize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            duckdb_memory_mib: 1024,
            duckdb_threads: 0,
            block_cache_mib: 64,
            commit_interval_ms: 1000,
            head_minutes: 15,
            queue_limit_mib: 64,
            min_free_bytes: 512 << 20,
            seal_minutes: 60,
            seal_memory_mib: 32,
            retention_days: 15,
            retention_5m_days: 90,
            retention_1h_days: 730,
            max_disk_gib: 0,
            max_exemplars: 100_000,
        }
    }
}

impl StoreConfig {
    /// Checks ranges of values, which types cannot express.
    ///
    /// # Errors
    /// The first key whose value is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("duckdb_memory_mib", self.duckdb_memory_mib, 128..=u64::MAX),
            ("block_cache_mib", self.block_cache_mib, 0..=65_536),
            ("commit_interval_ms", self.commit_interval_ms, 10..=60_000),
            ("head_minutes", self.head_minutes, 6..=1440),
            ("queue_limit_mib", self.queue_limit_mib, 1..=65_536),
            ("seal_minutes", self.seal_minutes, 1..=1440),
            ("seal_memory_mib", self.seal_memory_mib, 16..=65_536),
            ("retention_days", self.retention_days, 1..=36_500),
            ("retention_5m_days", self.retention_5m_days, 0..=36_500),
            ("retention_1h_days", self.retention_1h_days, 0..=36_500),
            ("max_disk_gib", self.max_disk_gib, 0..=1 << 20),
            ("max_exemplars", self.max_exemplars as u64, 0..=10_000_000),
        ];
        match ranges
            .into_iter()
            .find(|(_, value, range)| !range.contains(value))
        {
            Some((key, value, range)) if *range.end() == u64::MAX => Err(ConfigError::new(
                key,
                format!("at least {}", range.start()),
                value,
            )),
            Some((key, value, range)) => Err(ConfigError::new(
                key,
                format!("{} to {}", range.start(), range.end()),
                value,
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        let memory_limit_mib = self.duckdb_memory_mib;
        let block_cache_mib = self.block_cache_mib;
        let mut settings = Settings {
            memory_limit_mib,
            block_cache_mib,
            ..Settings::default()
        };
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
        days(self.retention_days)
    }

    /// Retention of the blocks of a resolution; `None` if the resolution is disabled.
    pub(crate) fn retention_of(&self, resolution: Resolution) -> Option<Duration> {
        match resolution {
            Resolution::Raw => Some(self.retention_days),
            Resolution::FiveMinutes => Some(self.retention_5m_days).filter(|&days| days > 0),
            Resolution::Hour => Some(self.retention_1h_days).filter(|&days| days > 0),
        }
        // Rows removed before their samples would be computed again and again.
        .map(|kept| days(kept.max(self.retention_days)))
    }

    pub(crate) fn seal_interval(&self) -> Duration {
        Duration::from_secs(60 * self.seal_minutes)
    }

    /// Number of samples in memory while a block is written. A sample takes a timestamp and a
    /// value.
    pub(crate) fn slice_samples(&self) -> usize {
        usize::try_from((self.seal_memory_mib << 20) / 16).unwrap_or(usize::MAX)
    }

    pub(crate) fn max_disk_bytes(&self) -> Option<u64> {
        Some(self.max_disk_gib << 30).filter(|&bytes| bytes > 0)
    }
}

fn days(days: u64) -> Duration {
    Duration::from_secs(86_400 * days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_errors_name_the_key() {
        assert_eq!(StoreConfig::default().validate(), Ok(()));
        let wrong = StoreConfig {
            head_minutes: 1,
            ..StoreConfig::default()
        };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "head_minutes: expected 6 to 1440, found 1"
        );
    }
}
