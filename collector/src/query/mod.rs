//! Asking the store, in SQL and in PromQL.

pub mod promql;
pub mod sql;
mod stored;
