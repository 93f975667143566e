//! All SQL and all files: the only crate that knows DuckDB.
//!
//! A data directory holds two DuckDB files. `records.duckdb` has what must commit together (jobs, alert transitions,
//! silences and the outbox); `hot.duckdb` has the samples of the last hours. Each has its own write-ahead log,
//! so that neither a stall nor a damage of samples reaches the records.

mod alerts;
mod allocator;
mod block;
mod chunk;
mod clock;
mod config;
mod crash;
mod database;
mod directory;
mod error;
mod head;
#[cfg(test)]
mod head_cost;
mod hot;
mod intake;
mod keeper;
mod layout;
mod listing;
mod metric_views;
mod metrics;
mod migrate;
mod open;
mod packed;
mod pieces;
mod promql_source;
mod queue;
mod records;
mod salvage;
mod segment;
mod select;
mod series;
pub mod sql;
mod tally;
mod watermark;

pub use alerts::{
    AlertChanges, AlertRecords, EndedAlert, NotificationRecord, SilenceRecord, TransitionRecord,
};
pub use block::{Reading, Resolution};
pub use clock::Clock;
pub use config::StoreConfig;
pub(crate) use database::microseconds_now;
pub use database::quoted;
pub use database::{Damaged, Database, Settings};
pub use directory::{DataDir, Holder};
pub use error::StoreError;
pub use head::{Column, STALE, is_stale};
pub use hot::Health;
pub use intake::{Committed, Group};
pub use keeper::{Kept, Stat, StatBlock};
pub use listing::Listed;
pub use open::Store;
pub use records::{
    CONFIGURED, ChargedRun, Due, FairsharePoint, GivenGpu, HeldGpu, ImportError, ImportSummary,
    JobFilter, KnownCluster, KnownReason, LostJob, Names, OpenRun, Origin, Records, SchedulerNow,
    SentReport, ShareSettingsRecord, Shifted, WaitingRun,
};
pub use select::{Meter, Sample, SeriesData};
pub use series::SeriesId;
pub use watermark::{ClockWentBack, Ticket};
