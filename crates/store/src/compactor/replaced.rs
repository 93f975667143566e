//! Samples that the layout no longer names, until no query reads them.

use super::removed::set_removed;
use crate::block::Block;
use crate::layout::remove_block;
use crate::segments::Segment;
use crate::unsealed::SegmentFile;
use crate::{Database, StoreError};
use duckdb::Connection;
use std::fs;
use std::io;
use std::sync::Arc;
use takt_model::Timestamp;

/// A segment or block that the layout no longer names. Running queries may still read it.
pub(crate) struct Replaced {
    pub data: ReplacedData,
    /// Time when the layout dropped the data.
    pub since: Timestamp,
}

pub(crate) enum ReplacedData {
    Table(Segment),
    Segment(Arc<SegmentFile>),
    Block(Arc<Block>),
    /// A block past its retention, which is kept for a day.
    Expired(Arc<Block>),
}

impl ReplacedData {
    /// Returns whether a query reads the data.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Block(block) | Self::Expired(block) => Arc::strong_count(block) > 1,
            Self::Segment(file) => Arc::strong_count(file) > 1,
            Self::Table(_) => false,
        }
    }

    /// Deletes the data.
    pub fn remove(&self, database: &Database) -> Result<(), StoreError> {
        let failed = |block: &Block| {
            let path = block.path.clone();
            |source| StoreError::Directory { path, source }
        };

        match self {
            Self::Segment(file) => match fs::remove_file(file.path()) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(StoreError::Directory {
                        path: file.path().to_owned(),
                        source,
                    })
                }
                _ => Ok(()),
            },
            Self::Table(segment) => {
                let sql = format!("DROP TABLE IF EXISTS hot.{}", segment.table());
                let db: Connection = database.connect()?;
                db.execute_batch(&sql)
                    .map_err(StoreError::sql("drop a sealed table"))
            }
            Self::Block(block) => remove_block(database.path(), block).map_err(failed(block)),
            Self::Expired(block) => {
                let now = database.clock_state().surely_passed();
                set_removed(database.path(), block, now).map_err(failed(block))
            }
        }
    }
}
