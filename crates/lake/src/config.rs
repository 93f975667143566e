//! `[lake]` of `takt.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use takt_model::ConfigError;

/// The data lake: a folder with copies of all finished days that other engines read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LakeConfig {
    /// Folder of the lake, relative to this file. It may be on a network file system. Default: no
    /// lake is written.
    pub path: Option<PathBuf>,
    /// Minutes between two rounds, which write what is new.
    pub interval_minutes: u64,
    /// Days that samples are kept in the lake; 0: for ever. Records are kept for ever.
    pub retention_days: u64,
    /// Days that five-minute rows are kept in the lake; 0: for ever.
    pub retention_5m_days: u64,
    /// Days that one-hour rows are kept in the lake; 0: for ever.
    pub retention_1h_days: u64,
    /// Hours that replaced files stay, for readers that opened the table before.
    pub replaced_hours: u64,
    /// Rows after which the samples of a day continue in another file. 100 million samples take
    /// about 110 MB.
    pub file_rows: u64,
}

impl Default for LakeConfig {
    fn default() -> Self {
        Self {
            path: None,
            interval_minutes: 60,
            retention_days: 0,
            retention_5m_days: 0,
            retention_1h_days: 0,
            replaced_hours: 24,
            file_rows: 100_000_000,
        }
    }
}

impl LakeConfig {
    /// Checks ranges of values, which types cannot express.
    ///
    /// # Errors
    /// The first key whose value is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("interval_minutes", self.interval_minutes, 1..=1440),
            ("retention_days", self.retention_days, 0..=36_500),
            ("retention_5m_days", self.retention_5m_days, 0..=36_500),
            ("retention_1h_days", self.retention_1h_days, 0..=36_500),
            ("replaced_hours", self.replaced_hours, 1..=8760),
            ("file_rows", self.file_rows, 1000..=10_000_000_000),
        ];
        match ranges
            .into_iter()
            .find(|(_, value, range)| !range.contains(value))
        {
            Some((key, value, range)) => Err(ConfigError::new(
                key,
                format!("{} to {}", range.start(), range.end()),
                value,
            )),
            None => Ok(()),
        }
    }

    /// Time between two rounds.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(60 * self.interval_minutes)
    }
}
