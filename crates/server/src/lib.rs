//! The server: answers questions over HTTP, over PostgreSQL's protocol and from the files of a data
//! directory, writes and sends reports, runs the alert engine over the store, and supervises the
//! tasks of a running server.
//!
//! Nothing here parses a command line or draws a page.

pub mod alerting;
pub mod answers;
pub mod assess;
pub mod config;
mod config_reference;
mod failure;
pub mod http;
mod http_access;
mod http_thread;
mod lake;
pub mod listing;
mod open_files;
mod opening;
mod own_series;
mod postgres;
mod process_usage;
mod query_config;
mod query_memory;
pub mod reload;
mod remote_engine;
mod remote_write;
pub mod reports;
pub mod serve;
pub mod setup;
pub mod sparkline;
mod strips;
pub mod tasks;
#[cfg(test)]
mod testing;
mod view;

pub use config::{Config, CurrentConfig};
pub use config_reference::page as config_reference;
pub use failure::{Failure, OrUsage};
pub use open_files::{UNIT_FILES, files_needed};
pub use postgres::{Passwords, PasswordsError, SqlConfig, SqlConfigError, SqlMetrics, SqlServer};
pub use query_config::QueryConfig;
pub use remote_engine::remote_engine;
pub use remote_write::RemoteWriteConfig;
pub use view::{ViewConfig, ViewServerConfig};
