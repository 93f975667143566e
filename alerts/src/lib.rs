//! Rules, alert state, grouping and notifiers: from a sample or a kernel line to a message in the outbox.
//!
//! Everything is a value with the clock as an argument; [`Engine`] puts the values together. What leaves it is a
//! [`Batch`], committed in one transaction by who implements [`ports::AlertStore`]; only then are messages sent. The
//! rest of Takt is reached through the traits in [`ports`] alone.

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
pub mod state;
pub mod template;
mod unquote;

pub use engine::{Batch, Engine, Snapshot};
pub use takt_model::{duration, yaml};

#[cfg(test)]
mod scenario;
#[cfg(test)]
mod testing;
