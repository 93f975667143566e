//! Scrapes the pages of all targets into the store, each target at its own offset in the interval.
//!
//! A job discovers its targets (`discovery`, `relabel`) and runs a task for each (`pool`). The task
//! draws a ticket (the timestamp), fetches the page, compares it with the previous page, and
//! commits one row. A failed scrape commits a row, too: `up` is 0, and all other series end.

mod config;
mod connection;
mod discovery;
mod error;
mod evidence;
mod fetch;
mod files;
mod http;
mod job;
mod lookup;
mod manager;
mod metrics;
mod page_row;
mod pool;
mod prometheus;
mod relabel;
mod schedule;
mod scraper;
mod series_cache;
mod status;
mod target;
mod units;

pub use config::{ScrapeConfig, TargetConfig};
pub use discovery::{FileSdConfig, HttpSdConfig, SlurmSdConfig, StaticConfig};
pub use error::{FailureReason, ScrapeError};
pub use files::{StreamFile, TargetFiles};
pub use http::{AuthorizationConfig, BasicAuthConfig, HttpError, TlsConfig};
pub use job::{JobConfig, ScrapeProtocol};
pub use manager::{ScrapeManager, StartError};
pub use pool::TargetAccess;
pub use relabel::{RelabelAction, RelabelConfig, RelabelStep};
pub use status::{DiscoveryProblem, MetricMetadata, TargetHealth, TargetStatus};
pub use units::{ByteSize, PromDuration};
