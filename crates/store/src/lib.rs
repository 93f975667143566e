//! Storage: the files of the data directory, and the SQL over them. Only this crate opens DuckDB;
//! the data lake writes its statements on connections from here, and the server encodes rows.
//!
//! `records.duckdb` holds jobs, alert transitions, silences and the outbox, which must commit
//! together. `hot.duckdb` holds the list of series. Samples are in memory (the head), in the logs
//! and chunks of `unsealed/`, and in the Parquet files of `blocks/`. So a stalled or damaged file
//! of samples does not affect the records.

mod alerts;
mod allocator;
mod attach;
mod block;
mod block_cache;
mod blocking;
mod checkpoint;
mod clock;
mod compactor;
mod config;
mod crash;
mod database;
mod directory;
mod error;
mod exemplars;
mod finished;
mod free_space;
mod head;
#[cfg(test)]
mod head_memory;
mod intake;
mod last_backup;
mod layout;
mod listing;
mod memory;
mod metric_views;
mod metrics;
mod migrate;
mod native;
mod open;
mod packed;
mod promql_source;
mod push;
mod queue;
mod records;
mod remote;
mod reserve;
mod salvage;
mod segments;
mod select;
mod series;
mod snapshot;
pub mod sql;
mod statistics;
mod strips;
mod trusted_clock;
mod trusted_time;
mod unsealed;
mod watermark;
mod work;

pub use alerts::{
    AlertChanges, AlertRecords, EndedAlert, EventRecord, NotificationRecord, SilenceRecord,
    TransitionRecord,
};
pub use attach::Damaged;
pub use block::{Reading, Resolution};
pub use blocking::{Blocking, blocking, spawn_blocking};
pub use clock::Clock;
pub use compactor::CompactionSummary;
pub use config::StoreConfig;
pub use crash::crash_point;
pub(crate) use database::microseconds_now;
pub use database::quoted;
pub use database::{Database, Settings};
pub use directory::{DataDir, Holder};
pub use error::StoreError;
pub use exemplars::SeriesExemplars;
pub use finished::{DayRows, FinishedBlock, file_list, in_memory};
pub use head::{Column, STALE, is_stale};
pub use intake::{CommitOutcome, Group};
pub use listing::Listed;
pub use memory::{HeldMemory, MemoryAccount, MemoryBudget, MemoryRefusal, MemoryUse};
pub use open::Store;
pub use push::{Placed, Placement, PushError};
pub use records::{
    AlertTransition, AllocatedGpu, AuditFilter, AuditRecord, BudgetNow, CONFIGURED, CardNews,
    CardNote, CardReading, CardRun, ChargedRun, Corrections, DeleteRuns, Due, EndedRatio,
    FailingChannel, FairsharePoint, ForecastRound, ForecastSummary, ForecastTimes, GivenGpu,
    GpuHold, GpuInterval, GradedForecast, HeldGpu, HoldingRun, ImportError, ImportRecord,
    ImportSummary, JobCursor, JobFilter, JobOrder, JobSort, KnownCluster, KnownForecast,
    KnownReason, LIVE_QUEUE, ListedJob, LostJob, Names, NotedForecast, OpenRun, Origin, PastGpu,
    PastRun, PricedTime, QueueCounts, RecordHits, Records, RegisteredSize, RemoteWriteProgress,
    RunCurves, RunStrip, RunningJob, SchedulerNow, SentReport, SessionRecord, ShareSettingsRecord,
    Shifted, SortValue, TimeOffset, TokenRecord, VisibleRuns, WaitingRun,
};
pub use remote::{RemoteEngine, RemoteError, RemoteSeries, Steps};
pub use segments::Health;
pub use select::{Meter, Sample, SeriesData};
pub use series::SeriesId;
pub use snapshot::Snapshot;
pub use statistics::{Stat, StatBlock};
pub use strips::{GpuPlace, SLOT_SECONDS, SLOTS, Slot, Strips, slot_of, slot_start};
pub use trusted_time::ClockState;
pub use watermark::{ClockWentBack, Ticket};
pub use work::{WorkError, WorkPlaces, is_abandoned};
