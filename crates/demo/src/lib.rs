//! A simulated cluster for `takt demo`, for tests of the whole program and for the pictures in the
//! documentation.
//!
//! Everything above the node is real: the server scrapes pages over HTTP, listens to events, runs
//! Slurm's commands, sends mail and calls Slack's API. This crate is the other end of each of these
//! connections. Readings are functions of the node and the time; no state is kept, except for the
//! messages that were received.

pub mod cluster;
mod curve;
mod faults;
mod history;
mod mail;
mod mailbox;
mod metrics;
mod noise;
mod pace;
mod page;
mod schedule;
mod serve;
mod slack;
mod slurm;
mod tour;
mod workload;

pub use cluster::{Cluster, Size};
pub use history::{HistorySink, HistorySpan, history, spans};
pub use mail::MailFolder;
pub use page::{Demo, Instant, Scope, Sink};
pub use serve::{Ports, serve};
pub use slurm::{PROGRAMS, answer as answer_slurm};
pub use tour::{Stop, tour};
