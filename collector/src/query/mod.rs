//! Asking the store, in SQL (and, when it comes, PromQL).

pub mod sql;
