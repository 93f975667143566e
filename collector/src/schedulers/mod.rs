//! Reads live schedulers and imports their answers into the store.

mod access;
mod command;
mod config;
mod follow;
pub mod poll;
mod scheduler;
mod shares;
mod slurm_commands;
mod slurmrestd;
mod sreport;
mod status;

pub use access::{SlurmAccess, slurm_access};
pub(crate) use command::ask_slurm;
pub use config::JobsConfig;
pub use shares::{ShareAccount, SharesConfig};
pub use slurmrestd::SlurmrestdConfig;
pub use sreport::sreport;
pub use status::{Pending, PollError, PollState, PollStatus};

/// Returns the name of the cluster whose scheduler is configured or runs on this machine.
///
/// # Errors
/// [`PollError::NoSlurm`] without a scheduler; other variants if the scheduler does not answer.
pub async fn detect(config: &JobsConfig) -> Result<String, PollError> {
    scheduler::configured(config)?.cluster().await
}
