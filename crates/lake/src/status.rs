//! The content of the lake.

use crate::LakeError;
use crate::claim::LakeState;
use crate::log::{Add, Version};
use crate::round::Lake;
use crate::table::{TABLES, Table};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use takt_model::{Timestamp, UnixTime};

/// State of the lake and of its tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeStatus {
    /// Folder of the lake.
    pub path: PathBuf,
    /// End of the last round, UTC seconds.
    pub tried_at: Option<UnixTime>,
    /// End of the last round without an error, UTC seconds.
    pub succeeded_at: Option<UnixTime>,
    /// Errors of the last round; empty after success.
    pub error: String,
    /// The tables.
    pub tables: Vec<TableStatus>,
}

/// The newest version of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Name of the table.
    pub table: String,
    /// Number of the newest version; `None` before the first.
    pub version: Option<u64>,
    /// Time of the last commit, UTC seconds.
    pub committed_at: Option<UnixTime>,
    /// First day or month; empty without files.
    pub first: String,
    /// Last day or month; empty without files.
    pub last: String,
    /// Number of files.
    pub files: u64,
    /// Number of rows.
    pub rows: u64,
    /// Size of the files, in bytes.
    pub bytes: u64,
}

impl Lake<'_> {
    /// Returns the state of the lake. Reads the logs only.
    ///
    /// # Errors
    /// If no lake is configured, or a log cannot be read.
    pub fn status(&self) -> Result<LakeStatus, LakeError> {
        let files = self.files()?;
        let state = LakeState::read(self.database.directory());
        let tables = TABLES.iter().map(|table| {
            let version = self.version(&*files, table)?;
            Ok(status_of(table, &version))
        });

        Ok(LakeStatus {
            path: files.path_of(""),
            tried_at: state.tried_at,
            succeeded_at: state.succeeded_at,
            error: state.error,
            tables: tables.collect::<Result<_, LakeError>>()?,
        })
    }
}

fn status_of(table: &Table, version: &Version) -> TableStatus {
    let files = || version.files.values();
    let partitions = || files().map(Add::partition);
    let text = |partition: Option<&str>| partition.unwrap_or_default().to_owned();

    TableStatus {
        table: table.name.to_owned(),
        version: version.number,
        committed_at: version.committed_at.map(|at| Timestamp(at).whole_seconds()),
        first: text(partitions().min()),
        last: text(partitions().max()),
        files: version.files.len() as u64,
        rows: files().filter_map(Add::rows).sum(),
        bytes: files().map(|file| file.size).sum(),
    }
}
