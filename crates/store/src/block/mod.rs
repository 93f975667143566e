//! Blocks: sealed samples in files that never change.
//!
//! ```text
//! blocks/raw/2026-11-21T13-00_12-15.0/samples.parquet   samples, by metric, series and time
//!                                     series.parquet    labels, first and last time, count
//!                                     block.json        times, sizes and hashes
//! blocks/5m/…, blocks/1h/…                              down-sampled days
//! blocks.sql                                            views for other programs
//! sealing/                                              unfinished blocks
//! ```
//!
//! A block is written to `sealing/`, read back and compared, synced, and then renamed to its final
//! path. Only then are the source samples dropped. The names alone ([`BlockName`]) identify
//! everything that a crash leaves behind.

mod encode;
mod feed;
mod files;
mod name;
mod parquet;
mod plan;
mod read;
mod reading;
mod rollup;
mod verify;
mod without;
mod write;

pub(super) use feed::register;
pub(super) use files::{BlockFacts, load_series, sync_directory};
pub(super) use name::BlockName;
pub use name::Resolution;
pub(super) use plan::{BlockSource, metric_hash};
pub(super) use read::{Caching, SampleSelection, collect, read_blocks, read_rows};
pub use reading::Reading;
pub(super) use verify::{check_bytes, verify};
pub(super) use without::without;
pub(super) use write::{BlockOutput, write};

use super::StoreError;
use super::database::quoted;
use roaring::RoaringBitmap;
use std::path::{Path, PathBuf};
use takt_model::Timestamp;

/// Folder of the blocks in the data directory.
pub(super) const BLOCKS: &str = "blocks";

/// Folder in which blocks are written.
pub(super) const SEALING: &str = "sealing";

pub(super) const SAMPLES: &str = "samples.parquet";
pub(super) const SERIES: &str = "series.parquet";
pub(super) const FACTS: &str = "block.json";

/// The files with data.
pub(super) const ALL_FILES: [&str; 2] = [SAMPLES, SERIES];

/// A block on disk.
#[derive(Debug)]
pub(crate) struct Block {
    pub name: BlockName,
    pub resolution: Resolution,
    pub path: PathBuf,
    pub facts: BlockFacts,
    /// Series in the block.
    pub series: RoaringBitmap,
}

impl Block {
    /// Path of the rows' file as a SQL literal.
    pub fn samples(&self) -> String {
        quoted(&self.path.join(SAMPLES).to_string_lossy())
    }

    /// Path of the series' file as a SQL literal.
    pub fn series_file(&self) -> String {
        quoted(&self.path.join(SERIES).to_string_lossy())
    }

    /// Returns whether the block may have samples in `[from, to]`.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        self.facts.from <= to && from <= self.facts.to
    }

    /// Size of its files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.facts.files.values().map(|file| file.bytes).sum()
    }

    /// Resolution and name, for messages.
    pub fn title(&self) -> String {
        format!("{}/{}", self.resolution.name(), self.name)
    }
}

/// Folder of the blocks of a resolution.
pub(super) fn folder(data: &Path, resolution: Resolution) -> PathBuf {
    data.join(BLOCKS).join(resolution.name())
}

/// Returns files as a SQL list.
pub(crate) fn list_of(files: impl Iterator<Item = String>) -> String {
    format!("[{}]", files.collect::<Vec<_>>().join(", "))
}

/// Error for a block's file that cannot be read or has wrong content.
pub(super) fn damaged(path: &Path, reason: impl ToString) -> StoreError {
    StoreError::DamagedBlock {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
