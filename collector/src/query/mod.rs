//! Asking the store, in SQL and in PromQL.

mod config;
pub mod promql;
pub mod sql;
mod stored;

pub use config::QueryConfig;
