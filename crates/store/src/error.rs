//! What can go wrong with a data directory.

use std::io;
use std::path::PathBuf;

/// An error of the store; each names the file or directory and what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made, read or written.
    #[error("cannot use the data directory {path}")]
    Directory {
        /// The data directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory lies on a network file system, where DuckDB's locks and its log are not safe.
    #[error("the data directory {path} is on {filesystem}; choose a local disk (--data-dir)")]
    Network {
        /// The data directory.
        path: PathBuf,
        /// The file system's usual name.
        filesystem: &'static str,
    },
    /// Root was about to write into another user's data.
    #[error(
        "the data directory {path} is that of user {uid}, whose server could not write it after root had: run this as that user (sudo -u '#{uid}' takt …)"
    )]
    Foreign {
        /// The data directory.
        path: PathBuf,
        /// Who owns it.
        uid: u32,
    },
    /// Another process has the directory open.
    #[error("the data directory {path} is held by another takt (process {pid}{at})", at = .address.as_deref().map(|a| format!(", {a}")).unwrap_or_default())]
    Held {
        /// The data directory.
        path: PathBuf,
        /// The process that holds it.
        pid: u32,
        /// Where that process answers, if it is a server.
        address: Option<String>,
    },
    /// A database file cannot be opened and is not damaged: permissions, a full disk.
    #[error("cannot open {path}")]
    Open {
        /// The database file.
        path: PathBuf,
        /// Why.
        #[source]
        source: duckdb::Error,
    },
    /// A file was written by a newer takt.
    #[error(
        "{path} has schema version {found}, this takt knows {known}: it was written by a newer takt"
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// Whoever asked for samples wants no more of them ([`Meter`](super::Meter)).
    #[error("reading samples was given up")]
    GivenUp,
    /// DuckDB met an error that it cannot continue after. Every later statement fails until the process opens the
    /// files again; what was committed is safe.
    #[error("the database must be opened anew: restart takt")]
    Invalidated {
        /// What DuckDB said.
        #[source]
        source: duckdb::Error,
    },
    /// Another directory stands where the data directory was.
    #[error("{path} is not the directory that was opened: somebody removed or replaced it")]
    Replaced {
        /// The data directory.
        path: PathBuf,
    },
    /// The disk has too little room left.
    #[error(
        "{path} has {free} bytes free, less than min_free_bytes = {floor}: samples wait until there is room"
    )]
    DiskLow {
        /// The data directory.
        path: PathBuf,
        /// What is free.
        free: u64,
        /// What must stay free.
        floor: u64,
    },
    /// A block's file is missing, shorter than it was, or has other bytes.
    #[error("{path} is damaged: {reason}")]
    DamagedBlock {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Samples could not be sealed into a block; they stay where they are.
    #[error("cannot seal {what}: {reason}")]
    Unsealed {
        /// The segment or the blocks.
        what: String,
        /// Why.
        reason: &'static str,
    },
    /// The thread that keeps the blocks has ended.
    #[error("the store is closing")]
    Closing,
    /// A stored series has labels that are no JSON object.
    #[error("series {id} in hot.duckdb has unreadable labels")]
    SeriesLabels {
        /// The series' number.
        id: i64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A statement failed.
    #[error("cannot {what}")]
    Sql {
        /// What was attempted.
        what: &'static str,
        /// Why.
        #[source]
        source: duckdb::Error,
    },
}

impl StoreError {
    /// For `map_err`: names what was attempted.
    pub(crate) fn sql(what: &'static str) -> impl FnOnce(duckdb::Error) -> Self {
        move |source| match is_fatal(&source) {
            true => Self::Invalidated { source },
            false => Self::Sql { what, source },
        }
    }
}

/// Whether the database is lost to this process, not just the statement: an internal error, or a checkpoint that could
/// not be written (`Database "hot" has been invalidated because checkpointing failed`).
fn is_fatal(error: &duckdb::Error) -> bool {
    let text = error.to_string();
    text.contains("FATAL Error") || text.contains("has been invalidated")
}
