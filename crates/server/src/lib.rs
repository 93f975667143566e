//! The server: answers questions over HTTP and over PostgreSQL's protocol, writes and sends reports, runs the alert
//! engine over the store, and supervises the tasks of a running server.
//!
//! Nothing here parses a command line or draws a page.

pub mod alerting;
pub mod config;
mod config_reference;
mod devices;
pub mod dispatch;
pub mod doctor;
mod failure;
mod lake;
mod open_files;
mod opening;
mod own_series;
mod process_usage;
pub mod reload;
mod remote_write;
pub mod serve;
pub mod setup;
mod slurm_roles;
mod strips;
pub mod tasks;
#[cfg(test)]
mod testing;

pub use config::{Config, CurrentConfig};
pub use config_reference::page as config_reference;
pub use devices::serve_devices;
pub use failure::{Failure, OrUsage};
pub use open_files::{UNIT_FILES, files_needed};
pub use remote_write::RemoteWriteConfig;
