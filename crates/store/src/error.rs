//! Errors of the store.

use crate::RemoteError;
use std::io;
use std::path::PathBuf;

/// Bytes for people: `77 MiB`.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0..1024 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// An error of the store. Each names the file or directory and, where possible, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created, read or written.
    #[error("cannot use the data directory {path}")]
    Directory {
        /// The data directory.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The directory is on a network file system, where DuckDB's locks and log are not safe, or on one of the kernel,
    /// which keeps no files.
    #[error("the data directory {path} is on {filesystem}; choose a local disk (--data-dir)")]
    Filesystem {
        /// The data directory.
        path: PathBuf,
        /// Name of the file system.
        filesystem: &'static str,
    },
    /// Root tried to write into the data directory of another user.
    #[error(
        "the data directory {path} belongs to user {uid}, who could not write files created by root: \
         run takt as that user (sudo -u '#{uid}' takt …)"
    )]
    Foreign {
        /// The data directory.
        path: PathBuf,
        /// Owner of the directory.
        uid: u32,
    },
    /// Another process has the directory open.
    #[error(
        "the data directory {path} is held by another takt (process {pid}{at})",
        at = .address.as_deref().map(|a| format!(", {a}")).unwrap_or_default()
    )]
    Held {
        /// The data directory.
        path: PathBuf,
        /// Process that holds it.
        pid: u32,
        /// Address of that process, if it is a server.
        address: Option<String>,
    },
    /// A database file cannot be opened and is not damaged: missing permissions or a full disk.
    #[error("cannot open {path}")]
    Open {
        /// The database file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: duckdb::Error,
    },
    /// A file was written by a newer version of takt.
    #[error(
        "{path} has schema version {found}, newer than {known} of this takt: install the newer takt \
         again, or restore the backup from before the upgrade (takt restore)"
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this program supports.
        known: i64,
    },
    /// The caller stopped the read ([`Meter`](super::Meter)), or the client of the work has left.
    #[error("the caller stopped reading")]
    GivenUp,
    /// The engine that samples are read from failed.
    #[error(transparent)]
    Remote(RemoteError),
    /// DuckDB met a fatal error. Every later statement fails until the process reopens the files.
    /// Committed data is safe.
    #[error("the database must be reopened: restart takt")]
    Invalidated {
        /// DuckDB's error.
        #[source]
        source: duckdb::Error,
    },
    /// Another directory has replaced the data directory.
    #[error("{path} is not the directory that was opened: it was removed or replaced")]
    Replaced {
        /// The data directory.
        path: PathBuf,
    },
    /// The disk is nearly full.
    #[error(
        "{path} has {} free, less than {} (store.min_free_bytes): samples wait until enough space \
         is free",
        size(*.free),
        size(*.floor)
    )]
    DiskLow {
        /// The data directory.
        path: PathBuf,
        /// Free space, in bytes.
        free: u64,
        /// Required free space (`min_free_bytes`), in bytes.
        floor: u64,
    },
    /// A block's file is missing, truncated or has wrong content.
    #[error("{path} is damaged: {reason}")]
    DamagedBlock {
        /// The file.
        path: PathBuf,
        /// The damage found.
        reason: String,
    },
    /// Samples could not be sealed into a block. They remain in their segment.
    #[error("cannot seal {what}: {reason}")]
    Unsealed {
        /// The segment or blocks.
        what: String,
        /// Cause.
        reason: &'static str,
    },
    /// The log of samples cannot be written.
    #[error("cannot store samples")]
    Log {
        /// Cause, with the file.
        #[source]
        source: io::Error,
    },
    /// The compactor thread has ended.
    #[error("the store is closing")]
    Closing,
    /// A stored series has labels that are not a JSON object.
    #[error("series {id} in hot.duckdb has unreadable labels")]
    SeriesLabels {
        /// Number of the series.
        id: i64,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// A statement failed.
    #[error("cannot {what}")]
    Sql {
        /// The operation that failed, as in "cannot …".
        what: &'static str,
        /// Cause.
        #[source]
        source: duckdb::Error,
    },
}

impl From<RemoteError> for StoreError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::GivenUp => Self::GivenUp,
            error => Self::Remote(error),
        }
    }
}

impl StoreError {
    /// Returns whether a read of fewer samples could succeed.
    pub fn is_too_much(&self) -> bool {
        matches!(
            self,
            Self::GivenUp | Self::Remote(RemoteError::TooMuch { .. })
        )
    }

    /// For `map_err`: an error of the operation `what`.
    pub fn sql(what: &'static str) -> impl FnOnce(duckdb::Error) -> Self {
        move |source| {
            if is_fatal(&source) {
                Self::Invalidated { source }
            } else {
                Self::Sql { what, source }
            }
        }
    }
}

/// Returns whether the database is unusable for this process, not only the statement: after an
/// internal error or a failed checkpoint (`Database "hot" has been invalidated because
/// checkpointing failed`).
fn is_fatal(error: &duckdb::Error) -> bool {
    let text = error.to_string();
    text.contains("FATAL Error") || text.contains("has been invalidated")
}
