//! Scraping: every target's page, at its own moment of every interval, into the store.
//!
//! A job finds its targets (`discovery`, `relabel`) and keeps a task for each (`pool`). That task draws a ticket (the
//! timestamp), fetches the page, reads it against what it remembers of the last one, and commits one row. A scrape that
//! fails commits a row too: `up` 0, and the end of all other series.

mod config;
mod connection;
mod discovery;
mod error;
mod evidence;
mod fetch;
mod http;
mod job;
mod manager;
mod metrics;
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
pub use http::{AuthorizationConfig, BasicAuthConfig, HttpError, TlsConfig};
pub use job::{JobConfig, ScrapeProtocol};
pub use manager::{ScrapeManager, StartError};
pub use pool::TargetAccess;
pub use relabel::{RelabelAction, RelabelConfig};
pub use status::{MetricMetadata, TargetHealth, TargetStatus};
pub use units::{ByteSize, PromDuration};
