//! Rules, alert state, grouping and notifiers.

pub mod alert;
pub mod duration;
pub mod fingerprint;
pub mod flapping;
pub mod group;
pub mod message;
pub mod outbox;
pub mod ports;
pub mod promtest;
pub mod routing;
pub mod rules;
pub mod schedule;
pub mod state;
pub mod template;
pub mod yaml;

#[cfg(test)]
mod scenario;
#[cfg(test)]
mod testing;

/// What is committed together.
#[derive(Debug, Clone, Default)]
pub struct Batch {}

/// What was committed.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {}
