//! Scraping: every target's page, at its own moment of every interval, into the store.
//!
//! One task a target. It draws a ticket (the timestamp), fetches the page, reads it against what it remembers of the
//! last one, and commits one row. A scrape that fails commits a row too: `up` 0, and the end of all other series.

mod config;
mod error;
mod fetch;
mod manager;
mod metrics;
mod schedule;
mod scraper;
mod shape;
mod target;

pub use config::{ScrapeConfig, TargetConfig};
pub use error::{FailureReason, ScrapeError};
pub use manager::{MetricMetadata, ScrapeManager, StartError, TargetHealth, TargetStatus};
