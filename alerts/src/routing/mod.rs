//! From alerts to messages, as Alertmanager does it: routes, groups, silences, inhibition, and the
//! log of sent notifications.

pub mod config;
pub mod dedup;
pub mod group;
pub mod inhibit;
pub mod interval;
pub mod maintenance;
pub mod matcher;
mod matcher_syntax;
pub mod plan;
mod router;
pub mod routes;
pub mod silence;

pub use router::{Changes, LogKey, Logged, Router, Settings, Suppressed};
