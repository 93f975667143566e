//! The node's exporter: kernel, GPUs, links, NFS, in one small binary.
//!
//! An ordinary Prometheus exporter. What node_exporter also exports has node_exporter's name, labels and value; ours
//! begins with `takt_`. Nothing here starts a subprocess or asks a scheduler.
//!
//! A [`Collector`] is one file in `collectors/` and one line in [`COLLECTORS`]. Those that cannot block read when the
//! page is asked for; those that can (a mount whose server is gone, a driver that hangs) have a thread each and
//! publish snapshots, so `/metrics` never waits for them.

mod collector;
mod collectors;
mod dbus;
mod events;
mod exporter;
mod file;
mod filter;
mod gpus;
mod log;
mod metered;
mod netlink;
mod options;
mod pace;
mod reader;
mod sysfs;
mod web;
mod web_config;

pub use collector::{CollectError, Collector};
pub use collectors::{COLLECTORS, Entry, Reads};
pub use events::Events;
pub use exporter::{Error, Exporter, UnknownCollector, Wanted};
pub use log::{LogFormat, LogOptions};
pub use options::{Options, Paths, Selection, WebOptions};
pub use web::run;
pub use web_config::WebConfigError;
