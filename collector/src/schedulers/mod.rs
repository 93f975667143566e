//! Asks a live scheduler and hands its answers to the store.

mod command;
mod config;
mod follow;
mod nodes;
pub mod poll;
mod reservations;
mod shares;
mod slurmrestd;
mod source;
mod sreport;
mod status;

pub(crate) use command::ask_slurm;
pub use command::{LocalSlurm, detect};
pub use config::JobsConfig;
pub use shares::{ShareAccount, SharesConfig};
pub use slurmrestd::SlurmrestdConfig;
pub use sreport::sreport;
pub use status::{Pending, PollError, PollState, PollStatus};
