//! The data lake: finished days of samples and ended job runs as Parquet tables with a Delta log,
//! which other engines read in place.
//!
//! ```text
//! takt-lake.json                             the data directory that writes here
//! samples/_delta_log/00000000000000000000.json
//!         day=2026-11-22/2026-11-22T00-00_12-15.0-0.parquet
//! job_runs/_delta_log/…
//!          month=2026-10/5f0c….parquet
//! ```
//!
//! The names of files say what they contain: the block and the number of its part, or the digest
//! of a month's rows. A round compares these names with the store and writes what is missing, so a
//! crash at any step costs one repetition. A file is complete and durable under its name before a
//! commit of the log names it, and it is deleted only some time after a commit has removed it.

#[cfg(feature = "s3")]
mod bucket;
mod checkpoint;
mod claim;
mod config;
mod error;
mod files;
mod log;
mod records;
mod round;
mod samples;
mod status;
mod table;
mod verify;

pub use claim::LakeState;
pub use config::{LakeConfig, S3Config};
pub use error::LakeError;
pub use round::{Lake, RoundSummary, TableSummary};
pub use status::{LakeStatus, TableStatus};
pub use table::{Column, ColumnType, TABLES, Table};
