//! Scraping, job records, the DuckDB store, queries and accounting.
//!
//! Data flows one way: `scrape` and `jobs` write into `store`; `query` and `accounting` read from it; `api` answers
//! over HTTP. Accounting is arithmetic over plain values: no I/O, no SQL, no clock. Nothing here sends a message to
//! a person.

mod config_error;

pub mod accounting;
pub mod api;
pub mod assess;
pub mod jobs;
pub mod query;
pub mod scrape;
pub mod store;

pub use config_error::ConfigError;
pub(crate) use takt_model::error_chain;
