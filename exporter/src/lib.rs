//! The node's exporter: kernel, GPUs, links, NFS, in one small binary.
//!
//! An ordinary Prometheus exporter. What node_exporter also exports has node_exporter's name,
//! labels and value; ours begins with `takt_`. Nothing here starts a subprocess or asks a
//! scheduler.
//!
//! A [`Collector`] is one file in `collectors/` and one line in [`COLLECTORS`]. Those that cannot
//! block read when the page is asked for; those that can (a mount whose server is gone, a driver
//! that hangs) have a thread each and publish snapshots, so `/metrics` never waits for them.
//!
//! Where the node is not Linux, none of this is there, but the basics through `sysinfo`.

#![warn(clippy::undocumented_unsafe_blocks)]

#[cfg(target_os = "linux")]
mod collector;
#[cfg(target_os = "linux")]
mod collectors;
#[cfg(target_os = "linux")]
mod crash_guard;
#[cfg(target_os = "linux")]
mod dbus;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod exporter;
#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod gpus;
#[cfg(target_os = "linux")]
mod ioctl;
#[cfg(target_os = "linux")]
mod job_path;
mod log;
#[cfg(target_os = "linux")]
mod metered;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(target_os = "linux")]
mod paths;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod sysfs;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod web;
#[cfg(target_os = "linux")]
mod web_config;

#[cfg(target_os = "linux")]
pub use collector::{CollectError, Collector};
#[cfg(target_os = "linux")]
pub use collectors::{COLLECTORS, CollectorEntry, Options, Reads, Selection};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Error, Options, run};
#[cfg(target_os = "linux")]
pub use events::{Events, recognise};
#[cfg(target_os = "linux")]
pub use exporter::{Error, Exporter, OWN_METRICS, UnknownCollector, Wanted};
pub use log::{LogFormat, LogOptions};
#[cfg(target_os = "linux")]
pub use options::WebOptions;
#[cfg(target_os = "linux")]
pub use paths::Paths;
#[cfg(target_os = "linux")]
pub use process::ProcessUsage;
#[cfg(target_os = "linux")]
pub use web::run;
#[cfg(target_os = "linux")]
pub use web_config::WebConfigError;
