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
pub use poll::JOB_RECORDS;
pub use scheduler::{Scheduler, SchedulerAnswer};
pub use shares::{ShareAccount, SharesConfig};
pub use slurmrestd::{SlurmrestdConfig, VERSIONS as API_VERSIONS};
pub use sreport::sreport;
pub use status::{
    CONTROLLER_DOWN, DATABASE_DOWN, JOBS_HIDDEN, NOT_READ, OTHER_CLUSTER, Pending, PollError,
    PollState, PollStatus, SourceStatus, TOKEN_REFUSED,
};

use std::collections::BTreeMap;
use takt_jobs::Node;

/// Returns the name of the cluster whose scheduler is configured or runs on this machine.
///
/// # Errors
/// [`PollError::NoSlurm`] without a scheduler; other variants if the scheduler does not answer.
pub async fn detect(config: &JobsConfig) -> Result<String, PollError> {
    scheduler::configured(config)?.cluster().await
}

/// Cluster name, nodes and configuration, as the scheduler reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Name of the cluster.
    pub cluster: String,
    /// Nodes and their capacity.
    pub nodes: Vec<Node>,
    /// Slurm's configuration; empty if only slurmrestd answers.
    pub settings: BTreeMap<String, String>,
}

/// Asks the configured scheduler, or the one of this machine, for its nodes and settings.
///
/// # Errors
/// As [`detect`].
pub async fn survey(config: &JobsConfig) -> Result<Survey, PollError> {
    let mut scheduler = scheduler::configured(config)?;
    let cluster = scheduler.cluster().await?;
    let nodes = scheduler.nodes().await?;

    let settings = command::ask(config, "scontrol", ["show", "config"])
        .await
        .unwrap_or_default();
    let settings = String::from_utf8_lossy(&settings)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();

    Ok(Survey {
        cluster,
        nodes,
        settings,
    })
}
