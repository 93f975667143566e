//! Blocks: sealed samples in files that never change.
//!
//! ```text
//! blocks/raw/2026-11-21T13-00_12-15.0/samples.parquet   every sample, in order of metric, series and time
//!                                     series.parquet    the series in it: labels, first and last sample, count
//!                                     block.json        times, sizes and hashes: what it must be
//! blocks/5m/…, blocks/1h/…                              the same days at a lower resolution
//! blocks.sql                                            views over them for anybody's `duckdb`
//! sealing/                                              a block that is being written
//! ```
//!
//! A block is written aside, read back and compared, made durable and then renamed to where it belongs; only then do
//! the samples it was made of go. Whatever a crash leaves is told by the names alone ([`Name`]).

mod encode;
mod feed;
mod files;
mod name;
mod plan;
mod read;
mod reading;
mod rollup;
mod verify;
mod without;
mod write;

pub(super) use feed::register;
pub(super) use files::{Facts, sync_directory};
pub(super) use name::Name;
pub use name::Resolution;
pub(super) use plan::{Source, metric_hash};
pub(super) use read::{Wanted, collect, read_blocks, read_rows};
pub use reading::Reading;
pub(super) use verify::verify;
pub(super) use without::without;
pub(super) use write::{Output, write};

use super::StoreError;
use super::database::quoted;
use roaring::RoaringBitmap;
use std::path::{Path, PathBuf};
use takt_model::Timestamp;

/// The folder of the blocks in the data directory.
pub(super) const BLOCKS: &str = "blocks";

/// The folder in which blocks are written.
pub(super) const SEALING: &str = "sealing";

pub(super) const SAMPLES: &str = "samples.parquet";
pub(super) const SERIES: &str = "series.parquet";
pub(super) const FACTS: &str = "block.json";

/// A block, as it is known in memory.
#[derive(Debug)]
pub(crate) struct Block {
    pub name: Name,
    pub resolution: Resolution,
    pub path: PathBuf,
    pub facts: Facts,
    /// The series in it.
    pub series: RoaringBitmap,
}

impl Block {
    /// The file of its rows as a SQL literal.
    pub fn samples(&self) -> String {
        quoted(&self.path.join(SAMPLES).to_string_lossy())
    }

    /// The file of its series as a SQL literal.
    pub fn series_file(&self) -> String {
        quoted(&self.path.join(SERIES).to_string_lossy())
    }

    /// Whether it may have samples in `[from, to]`.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        self.facts.from_ms <= to.0 && from.0 <= self.facts.to_ms
    }

    /// The bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.facts.files.values().map(|file| file.bytes).sum()
    }

    /// Its folder and name, for people.
    pub fn title(&self) -> String {
        format!("{}/{}", self.resolution.name(), self.name)
    }
}

/// The folder of a resolution's blocks.
pub(super) fn folder(data: &Path, resolution: Resolution) -> PathBuf {
    data.join(BLOCKS).join(resolution.name())
}

/// Files as a SQL list.
pub(crate) fn list_of(files: impl Iterator<Item = String>) -> String {
    format!("[{}]", files.collect::<Vec<_>>().join(", "))
}

/// A block's file that cannot be read, or is not what was written.
pub(super) fn damaged(path: &Path, reason: impl ToString) -> StoreError {
    StoreError::DamagedBlock {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
