//! Values of work and their laws: job runs, nodes and their states, reservations, amounts, shares, billing.
//!
//! This crate does no I/O. Formats of schedulers (takt-slurm) turn their texts into these values. Words of states, lists of
//! nodes and names of resources are Slurm's.

mod amounts;
mod association;
pub mod billing;
mod bounded;
mod card_book;
mod card_counter;
mod job;
mod job_state;
mod node;
mod node_state;
pub mod nodelist;
pub mod process_usage;
pub mod reasons;
mod reservation;
mod share_settings;
mod sreport_key;
mod usage_reset;

pub use amounts::Amounts;
pub use association::{Association, Shares};
pub use billing::{BillingWeights, TresError};
pub use bounded::{MAX_TEXT_BYTES, bounded};
pub use card_book::{CardBook, CardPlacement, CardSighting, UNSEEN_SECONDS};
pub use card_counter::{CardChange, CardCounter, CardReadingKind};
pub use job::{Entry, HeldRun, JobRun, Reject, UnknownTimeZone, time_zone};
pub use job_state::is_known_state;
pub use node::{Node, NodeEvent, gpus_are_counted};
pub use node_state::{NodeCondition, NodeState, NodeWord};
pub use reservation::{Owner, Reservation};
pub use share_settings::{BillingRates, PriorityFlags, PrioritySettings, Qos, ShareSettings};
pub use sreport_key::SreportKey;
pub use usage_reset::UsageResetPeriod;
