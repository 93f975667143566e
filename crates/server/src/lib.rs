//! Answers questions over HTTP, over PostgreSQL's protocol and from the files of a data directory.

pub mod api;
pub mod assess;
mod query_config;

pub use query_config::QueryConfig;
