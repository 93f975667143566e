//! Finished days: blocks that the compactor will not change any more, unless late samples arrive or
//! series are deleted. The data lake copies them.

use super::block::{Block, BlockName, Resolution};
use super::compactor::{days, is_over};
use super::database::quoted;
use super::layout::{RAW_VALUES, ROLLUP_VALUES};
use super::{Database, StoreError};
use duckdb::Connection;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use takt_model::Timestamp;

/// A block with the samples of a finished day. Its files stay on disk until the value is dropped.
#[derive(Debug, Clone)]
pub struct FinishedBlock(Arc<Block>);

/// Rows of a block with one day and one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayRows {
    /// UTC day of the rows' timestamps, such as `2026-11-22`.
    pub day: String,
    /// Hash of the metric's name. The rows of a block are sorted by it.
    pub metric_hash: i32,
    /// Number of rows.
    pub rows: u64,
}

impl FinishedBlock {
    /// Time of the first row.
    pub fn from(&self) -> Timestamp {
        self.0.facts.from
    }

    /// Time of the last row.
    pub fn to(&self) -> Timestamp {
        self.0.facts.to
    }

    /// Returns whether this block replaces the block of that name. The names of two data
    /// directories can be alike, so the caller also compares times.
    pub fn replaces(&self, name: &str) -> bool {
        name.parse::<BlockName>()
            .is_ok_and(|other| self.0.name.replaces(&other))
    }

    /// Returns whether the text is the name of a block.
    pub fn is_name(text: &str) -> bool {
        text.parse::<BlockName>().is_ok()
    }

    /// Returns a SELECT of the rows, in the order of `metric_hash`, with the series' labels as JSON
    /// and the labels that most questions use as columns.
    pub fn query(&self) -> String {
        let values = match self.0.resolution {
            Resolution::Raw => RAW_VALUES,
            Resolution::FiveMinutes | Resolution::Hour => ROLLUP_VALUES,
        };
        format!(
            "SELECT b.ts, s.*, b.metric_hash, {values} FROM read_parquet({}) AS b
             JOIN (SELECT series AS number, metric, labels, (labels ->> '$.cluster') AS cluster,
                       (labels ->> '$.node') AS node, (labels ->> '$.uuid') AS uuid,
                       (labels ->> '$.jobid') AS jobid, (labels ->> '$.user') AS \"user\"
                   FROM read_parquet({})) AS s ON s.number = b.series",
            self.0.samples(),
            self.0.series_file()
        )
    }

    /// Counts the rows by day and metric, in this order.
    ///
    /// # Errors
    /// If the block cannot be read.
    pub fn days(&self, db: &Connection) -> Result<Vec<DayRows>, StoreError> {
        let sql = format!(
            "SELECT ts::DATE::VARCHAR AS day, metric_hash, count(*) FROM read_parquet({})
             GROUP BY ALL ORDER BY ALL",
            self.0.samples()
        );

        let read = || -> Result<Vec<DayRows>, duckdb::Error> {
            db.prepare(&sql)?
                .query_map([], |row| {
                    Ok(DayRows {
                        day: row.get(0)?,
                        metric_hash: row.get(1)?,
                        rows: row.get::<_, i64>(2)?.cast_unsigned(),
                    })
                })?
                .collect()
        };

        read().map_err(StoreError::sql("count the rows of a block"))
    }
}

/// The block's name.
impl fmt::Display for FinishedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.name.fmt(f)
    }
}

impl Database {
    /// Returns the blocks of all finished days, in order of time. A day is finished when its raw
    /// blocks are merged.
    pub fn finished_blocks(&self, resolution: Resolution, now: Timestamp) -> Vec<FinishedBlock> {
        let layout = self.layout();
        if resolution != Resolution::Raw {
            return layout.of(resolution).cloned().map(FinishedBlock).collect();
        }
        days(&layout)
            .into_iter()
            .filter_map(|day| match <[_; 1]>::try_from(day) {
                Ok([only]) if is_over(only.facts.to, now) => Some(FinishedBlock(only)),
                _ => None,
            })
            .collect()
    }

    /// Returns the path of a new file in the data directory's folder `name`, which statements of
    /// this database can write. Creates the folder; removes its files.
    ///
    /// # Errors
    /// If the folder cannot be emptied, or less than `floor` bytes are free on its disk.
    pub fn staging(&self, name: &str, floor: u64) -> Result<PathBuf, StoreError> {
        let folder = self.path().join(name);
        let failed = |source| StoreError::Directory {
            path: folder.clone(),
            source,
        };
        super::layout::remove_if_there(&folder).map_err(failed)?;
        fs::create_dir(&folder).map_err(failed)?;
        super::free_space::check_free_space(self.path(), floor)?;
        // DuckDB remembers the footers of files by their paths.
        Ok(folder.join(format!("{}.parquet", super::microseconds_now())))
    }

    /// Path of the data directory.
    pub fn directory(&self) -> &std::path::Path {
        self.path()
    }
}

/// Opens an empty DuckDB in memory that can read and write files anywhere. Its statements must not
/// contain text of users.
///
/// # Errors
/// If DuckDB cannot start.
pub fn in_memory(memory_limit_mib: u64, threads: i64) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, duckdb::Error> {
        let config = duckdb::Config::default()
            .enable_autoload_extension(false)?
            .max_memory(&format!("{memory_limit_mib}MiB"))?
            .threads(threads)?;
        Connection::open_in_memory_with_flags(config)
    };
    open().map_err(StoreError::sql("start DuckDB"))
}

/// Returns files as a SQL list.
pub fn file_list<'p>(files: impl IntoIterator<Item = &'p std::path::Path>) -> String {
    let quoted = files
        .into_iter()
        .map(|file| quoted(&file.to_string_lossy()));
    super::block::list_of(quoted)
}
