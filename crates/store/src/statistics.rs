//! Statistics of the data directory, and verification of its blocks.

use super::{Database, StoreError, block};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use takt_model::{Timestamp, error_chain};

/// Contents of the data directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Series ever stored.
    pub series: u64,
    /// Samples that are not sealed yet.
    pub hot_samples: u64,
    /// Size of the files of unsealed samples and of `hot.duckdb`, in bytes.
    pub hot_bytes: u64,
    /// The blocks, by resolution and time.
    pub blocks: Vec<StatBlock>,
}

/// One sealed block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatBlock {
    /// `raw`, `5m` or `1h`.
    pub resolution: String,
    /// Folder name of the block.
    pub name: String,
    /// Time of the first row.
    #[serde(rename = "from_ms")]
    pub from: Timestamp,
    /// Time of the last row.
    #[serde(rename = "to_ms")]
    pub to: Timestamp,
    /// Series in the block.
    pub series: u64,
    /// Rows in the block.
    pub rows: u64,
    /// Size of its files, in bytes.
    pub bytes: u64,
}

impl Database {
    /// Counts the stored series and samples, and lists the blocks.
    ///
    /// # Errors
    /// If the database cannot count series or samples.
    pub fn stat(&self) -> Result<Stat, StoreError> {
        let db = self.connect()?;
        let layout = self.layout();

        let count = |sql: &str| {
            db.query_row(sql, [], |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
        };
        let failed = || StoreError::sql("count samples");

        let mut hot_samples = self.unsealed().open_samples();
        hot_samples += layout
            .segments
            .iter()
            .map(|file| file.samples())
            .sum::<u64>();
        for segment in &layout.tables {
            hot_samples +=
                count(&format!("SELECT count(*) FROM hot.{}", segment.table())).map_err(failed())?;
        }

        let bytes = |name: &str| fs::metadata(self.path().join(name)).map_or(0, |file| file.len());
        let unsealed = folder_bytes(self.unsealed().folder());
        let blocks = layout.blocks.iter().map(|block| StatBlock {
            resolution: block.resolution.name().to_owned(),
            name: block.name.to_string(),
            from: block.facts.from,
            to: block.facts.to,
            series: block.series.len(),
            rows: block.facts.rows,
            bytes: block.bytes(),
        });

        Ok(Stat {
            series: count("SELECT count(*) FROM hot.series").map_err(failed())?,
            hot_samples,
            hot_bytes: bytes("hot.duckdb") + bytes("hot.duckdb.wal") + unsealed,
            blocks: blocks.collect(),
        })
    }

    /// Reads every block completely. Returns one message for each damaged block.
    ///
    /// # Errors
    /// If no connection can be opened.
    pub fn verify_blocks(&self) -> Result<Vec<String>, StoreError> {
        let db = self.connect()?;
        let layout = self.layout();
        let verdicts = layout
            .blocks
            .iter()
            .map(|block| block::verify(&db, block))
            .filter_map(Result::err)
            .map(|error| error_chain(&error))
            .collect();
        Ok(verdicts)
    }
}

/// Size of the files in a folder, in bytes.
fn folder_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|file| file.len())
        .sum()
}
