//! Values and formats of Slurm: job runs, nodes, reservations, associations, TRES, node lists, and
//! the output of `sacct`, `sacctmgr`, `scontrol`, `sreport`, jobcomp and slurmrestd.
//!
//! Parsers take text and return values. This crate runs no commands, opens no sockets and knows no
//! tables.

pub mod access_text;
mod amounts;
mod association;
pub mod billing;
mod bounded;
mod job;
pub mod jobcomp;
mod lines;
pub mod node;
mod node_state;
pub mod nodelist;
pub mod openapi;
pub mod process_usage;
pub mod reasons;
pub mod releases;
pub mod reservation;
pub mod sacct;
mod share_settings;
pub mod share_text;
pub mod sreport;
mod times;
pub mod tres;
mod usage_reset;

pub use amounts::Amounts;
pub use association::{Association, Shares};
pub use billing::{BillingWeights, TresError};
pub use bounded::{MAX_TEXT_BYTES, bounded};
pub use job::{Entry, HeldRun, JobRun, Reject, UnknownTimeZone, time_zone};
pub use lines::LinesError;
pub use node::{Node, NodeEvent};
pub use node_state::{NodeCondition, NodeState, NodeWord};
pub use reservation::{Owner, Reservation};
pub use share_settings::{BillingRates, PriorityFlags, PrioritySettings, Qos, ShareSettings};
pub use usage_reset::UsageResetPeriod;
