//! Slurm's access settings: who may see others' jobs, and who administers.

use super::command::ask;
use super::config::JobsConfig;
use super::status::PollError;
use takt_slurm::access_text::{SlurmRoles, private_data};

/// Access settings of a Slurm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmAccess {
    /// `PrivateData` of slurm.conf: words separated by commas. Empty if the setting is missing.
    pub private_data: String,
    /// Administrators, operators and coordinators; empty without slurmdbd. `None` if slurmdbd does not answer.
    pub roles: Option<SlurmRoles>,
}

/// Reads the access settings of the Slurm that this machine's commands use.
///
/// # Errors
/// [`PollError::NoSlurm`] without a Slurm; other variants if slurmctld does not answer.
pub async fn slurm_access(config: &JobsConfig) -> Result<SlurmAccess, PollError> {
    let text = ask(config, "scontrol", ["show", "config"]).await?;
    let text = String::from_utf8_lossy(&text);

    Ok(SlurmAccess {
        private_data: private_data(&text).unwrap_or_default().to_owned(),
        roles: roles(config).await.ok(),
    })
}

async fn roles(config: &JobsConfig) -> Result<SlurmRoles, PollError> {
    // slurmdbd selects by level: a name that a coordinator gave to a user can not add a level.
    let administrators = ["user", "adminlevel=administrator", "format=user"];
    let operators = ["user", "adminlevel=operator", "format=user"];
    let accounts = ["account", "withcoord", "format=account,coordinators"];

    let administrators = match list(config, &administrators).await {
        // Without slurmdbd, Slurm has no administrators and no coordinators.
        Err(PollError::NoAccounting(_) | PollError::NoSlurm(_) | PollError::Unconfigured(_)) => {
            return Ok(SlurmRoles::default());
        }
        administrators => administrators?,
    };

    let operators = list(config, &operators).await?;
    let accounts = list(config, &accounts).await?;
    Ok(SlurmRoles::parse(&administrators, &operators, &accounts))
}

async fn list(config: &JobsConfig, what: &[&str]) -> Result<String, PollError> {
    let args = ["--noheader", "--parsable2", "show"].iter().chain(what);
    let text = ask(config, "sacctmgr", args).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
