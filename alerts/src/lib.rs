//! Rules, alert state, grouping and notifiers: from a sample or a kernel line to a message in the
//! outbox.
//!
//! All decisions are pure, with the clock as an argument; [`Engine`] combines them. Its output is a
//! [`Batch`], which [`ports::AlertStore`] commits in one transaction; then [`run`] sends the
//! messages. The rest of Takt is reached only through the traits in [`ports`].

pub mod alert;
pub mod api;
pub mod config;
pub mod engine;
pub mod events;
pub mod fingerprint;
mod finite;
pub mod flapping;
pub mod glob;
pub mod group;
pub mod letters;
pub mod message;
pub mod notify;
mod order;
pub mod outbox;
pub mod ports;
pub mod promtest;
pub mod routing;
pub mod rules;
pub mod run;
pub mod schedule;
mod series;
pub mod state;
pub mod template;
mod unquote;

pub use engine::{Batch, Engine, Snapshot};
pub use takt_model::{duration, yaml};

#[cfg(test)]
mod scenario;
#[cfg(test)]
mod testing;
