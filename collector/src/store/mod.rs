//! All SQL and all files: the only module that knows DuckDB.
//!
//! A data directory holds two DuckDB files. `records.duckdb` has what must commit together (jobs, node states, later
//! alert transitions and the outbox); `hot.duckdb` has the samples of the last hours. Each has its own write-ahead log,
//! so that neither a stall nor a damage of samples reaches the records.

mod database;
mod directory;
mod error;
mod migrate;
mod records;

pub use database::{Damaged, Database, Settings};
pub use directory::{DataDir, Holder};
pub use error::StoreError;
pub use records::{ImportError, ImportSummary, JobFilter, KnownCluster, OpenRun, Origin, Records};
