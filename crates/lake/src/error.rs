//! Errors of the data lake.

use std::io;
use std::path::PathBuf;
use takt_store::StoreError;

/// An error of the data lake. Each names the file or table and, where possible, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// No folder is configured.
    #[error("no data lake is configured; set path in [lake] of takt.toml")]
    Unconfigured,
    /// A file or folder of the lake cannot be read.
    #[error("cannot read {path} of the data lake")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file or folder of the lake cannot be written: a full disk, missing permissions.
    #[error("cannot write {path} of the data lake")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The folder has files, and none of them is a lake's.
    #[error("{path} is not empty and not a data lake; choose an empty folder for [lake] path")]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The lake that this data directory wrote before is gone.
    #[error(
        "the data lake in {path} is gone: mount its file system, or begin a new one with \
         takt lake init"
    )]
    Gone {
        /// The folder.
        path: PathBuf,
    },
    /// The keys of S3 are missing or unreadable.
    #[error(
        "cannot sign in to S3: {reason}; set credentials_file in [lake.s3], or AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY in the server's environment"
    )]
    Keys {
        /// The defect.
        reason: String,
    },
    /// The S3 server overwrites files that it must not overwrite.
    #[error(
        "the S3 server of {path} has no conditional puts (If-None-Match), so two writers would lose \
         commits; use a server that has them, or write a folder and copy it"
    )]
    Unconditional {
        /// The lake.
        path: PathBuf,
    },
    /// Another data directory writes the lake.
    #[error(
        "another data directory writes the data lake in {path}; choose another path, or continue \
         it from here with takt lake init"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// A line of the log cannot be parsed, or does not fit those before.
    #[error("{path} is no valid Delta log: {reason}")]
    Log {
        /// The commit's file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// Another program has made the next commit.
    #[error("another program has written {path}; only Takt may write the tables of the lake")]
    Conflict {
        /// The commit's file.
        path: PathBuf,
    },
    /// The log names a file that Takt did not write.
    #[error(
        "the log of the table {table} has the file {file}, which Takt did not write; only Takt may \
         write the tables of the lake"
    )]
    UnknownFile {
        /// The table.
        table: &'static str,
        /// Path of the file in the table's folder.
        file: String,
    },
    /// The store has no rows of a table any more.
    #[error(
        "the store has no rows for the table {table}, and the lake has some; they stay. If the \
         records were deleted on purpose, remove the folder {table} of the lake"
    )]
    Emptied {
        /// The table.
        table: &'static str,
    },
    /// The server is stopping.
    #[error("the round was stopped; the next one continues it")]
    Stopped,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A statement failed.
    #[error("cannot {what} of the table {table}")]
    Sql {
        /// The operation that failed, as in "cannot …".
        what: &'static str,
        /// The table.
        table: &'static str,
        /// Cause.
        #[source]
        source: duckdb::Error,
    },
}

impl LakeError {
    /// For `map_err`: reading `path` failed.
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    /// For `map_err`: writing `path` failed.
    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }

    /// For `map_err`: the operation `what` on a table failed.
    pub(crate) fn sql(
        what: &'static str,
        table: &'static str,
    ) -> impl FnOnce(duckdb::Error) -> Self {
        move |source| Self::Sql {
            what,
            table,
            source,
        }
    }
}
