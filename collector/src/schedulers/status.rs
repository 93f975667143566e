//! Errors and state of polling a scheduler.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use takt_jobs::Node;
use takt_model::UnixTime;
use takt_slurm::jobcomp::JobcompError;
use takt_slurm::sacct::SacctError;
use takt_slurm::share_text::SlurmTextError;
use takt_store::StoreError;

/// The reason for a failed poll.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The program is missing.
    #[error("this machine has no Slurm: {0}")]
    NoSlurm(String),
    /// The program is there, and finds no slurm.conf.
    #[error("Slurm's commands find no configuration of Slurm: {0}")]
    Unconfigured(String),
    /// Slurm runs without slurmdbd.
    #[error("Slurm runs without slurmdbd: {0}")]
    NoAccounting(String),
    /// slurmdbd rolls up no usage.
    #[error(
        "slurmdbd rolls up no usage (DisableRollups in slurmdbd.conf), so sreport has no hours to compare with"
    )]
    NoRollups,
    /// slurmdbd is unreachable.
    #[error("slurmdbd does not answer: {0}")]
    DatabaseDown(String),
    /// slurmctld does not answer.
    #[error("slurmctld does not answer: {0}")]
    ControllerDown(String),
    /// Slurm says another name than the configuration: its records would be stored as those of another cluster.
    #[error(
        "takt.toml has cluster = {configured:?}, and Slurm's ClusterName is {slurm:?}; nothing is stored"
    )]
    OtherCluster {
        /// The configured name.
        configured: String,
        /// Slurm's name.
        slurm: String,
    },
    /// slurmrestd rejected the user or the token: wrong, expired, or of another cluster.
    #[error("slurmrestd rejected the request: {0}; renew the token in jobs.slurmrestd.token_file")]
    Refused(String),
    /// The token file cannot be read.
    #[error("cannot read the token in {path}")]
    Token {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// slurmrestd is unreachable.
    #[error("slurmrestd does not answer at {url}")]
    RestDown {
        /// The configured URL.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The job completion file cannot be read.
    #[error("cannot read the job completion file {path}")]
    JobcompFile {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The lines of the job completion file are malformed.
    #[error(transparent)]
    Jobcomp(#[from] JobcompError),
    /// The program did not answer in time.
    #[error("{program} did not answer within {seconds} s")]
    Timeout {
        /// Name of the program.
        program: &'static str,
        /// The timeout in seconds.
        seconds: u64,
    },
    /// Any other failure.
    #[error("{program} failed: {stderr}")]
    Failed {
        /// Name of the program.
        program: &'static str,
        /// The program's error message.
        stderr: String,
    },
    /// The program cannot be started, or its output cannot be read.
    #[error("cannot ask {program}")]
    Run {
        /// Name of the program.
        program: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The answer is not the output of sacct.
    #[error(transparent)]
    Unreadable(#[from] SacctError),
    /// The shares and prices are malformed.
    #[error("cannot read the shares of {program}")]
    Shares {
        /// Name of the program.
        program: &'static str,
        /// The cause.
        #[source]
        source: SlurmTextError,
    },
    /// The store cannot save the answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The state of polling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollState {
    /// The first poll has not finished.
    #[default]
    Waiting,
    /// The last poll succeeded.
    Ok,
    /// This machine has no Slurm.
    NoSlurm,
    /// This machine has Slurm's commands, and no Slurm that they find.
    Unconfigured,
    /// This Slurm runs without slurmdbd.
    NoAccounting,
    /// slurmdbd is down.
    DatabaseDown,
    /// slurmctld is down.
    ControllerDown,
    /// Slurm has another name than the configuration.
    OtherCluster,
    /// slurmrestd rejects the token.
    Refused,
    /// The scheduler did not answer in time.
    Timeout,
    /// Another failure; the detail has the message.
    Failed,
}

impl PollError {
    /// Returns a conversion for `map_err`.
    pub(super) fn shares(program: &'static str) -> impl Fn(SlurmTextError) -> Self {
        move |source| Self::Shares { program, source }
    }

    /// Returns whether this machine has no Slurm: no commands, or commands of a package that was never configured. Those look for
    /// slurmctld in DNS, which has no such record; where Slurm is configured, or DNS does not answer, they say something else.
    pub fn is_without_slurm(&self) -> bool {
        match self {
            Self::NoSlurm(_) => true,
            Self::Unconfigured(text) => text.contains("res_nsearch error: Unknown host"),
            _ => false,
        }
    }

    /// Returns the state after this error.
    pub fn state(&self) -> PollState {
        match self {
            Self::NoSlurm(_) => PollState::NoSlurm,
            Self::Unconfigured(_) => PollState::Unconfigured,
            Self::NoAccounting(_) => PollState::NoAccounting,
            Self::DatabaseDown(_) => PollState::DatabaseDown,
            Self::ControllerDown(_) => PollState::ControllerDown,
            Self::OtherCluster { .. } => PollState::OtherCluster,
            Self::Refused(_) | Self::Token { .. } => PollState::Refused,
            Self::Timeout { .. } => PollState::Timeout,
            _ => PollState::Failed,
        }
    }
}

impl PollState {
    /// Returns whether this machine has no Slurm, or only its commands.
    pub fn is_absent(self) -> bool {
        matches!(self, Self::NoSlurm | Self::Unconfigured)
    }

    /// Returns why the job records are not up to date, without texts of others; `None` if they are, or without Slurm.
    pub fn problem(self) -> Option<&'static str> {
        match self {
            Self::Ok | Self::NoSlurm | Self::Unconfigured => None,
            Self::Waiting => Some(NOT_READ),
            Self::NoAccounting => Some("Slurm runs without slurmdbd and writes no completion file"),
            Self::DatabaseDown => Some(DATABASE_DOWN),
            Self::ControllerDown => Some(CONTROLLER_DOWN),
            Self::OtherCluster => Some(OTHER_CLUSTER),
            Self::Refused => Some(TOKEN_REFUSED),
            Self::Timeout => Some("Slurm did not answer in time"),
            Self::Failed => Some("the request to Slurm failed"),
        }
    }
}

/// Problem of a source before its first answer.
pub const NOT_READ: &str = "not read yet";

/// Problem of the job records while slurmdbd is down.
pub const DATABASE_DOWN: &str = "slurmdbd does not answer";

/// Problem of the sources at slurmctld while it is down.
pub const CONTROLLER_DOWN: &str = "slurmctld does not answer";

/// Problem of the job records while the configured name is not that of Slurm.
pub const OTHER_CLUSTER: &str = "the cluster in takt.toml is not Slurm's ClusterName";

/// Problem of the sources at slurmrestd that rejects the token.
pub const TOKEN_REFUSED: &str = "slurmrestd rejects the token";

/// Problem of the queue while `PrivateData` hides jobs.
pub const JOBS_HIDDEN: &str =
    "PrivateData hides the jobs of other users from the user who runs Takt";

/// State of a source of the poller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Time of the last answer.
    pub last_success: Option<UnixTime>,
    /// Number of things in that answer: runs, nodes, events.
    pub items: u64,
    /// Why the last answer is missing or not complete.
    pub problem: Option<String>,
    /// Message and causes of the last error: the command, its exit code and what it said.
    #[serde(default)]
    pub detail: Option<String>,
}

/// The state of polling and the latest answers of the live queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollStatus {
    /// State after the last poll.
    pub state: PollState,
    /// Message and causes of the last error.
    pub detail: Option<String>,
    /// Name of the cluster, once known.
    pub cluster: Option<String>,
    /// Name of the cluster that Slurm says; `None` before it did.
    #[serde(default)]
    pub slurm_cluster: Option<String>,
    /// Time of the last success.
    pub last_success: Option<UnixTime>,
    /// Number of failures since the last success.
    pub failures: u32,
    /// Number of runs that are open in the store, but that sacct no longer knows.
    pub forgotten_runs: usize,
    /// Whether the nodes have GPUs that slurmdbd does not record with jobs: `AccountingStorageTRES`
    /// lacks `gres/gpu`.
    pub gpus_are_not_counted: bool,
    /// Seconds by which slurmctld's clock is ahead of this machine's; 0 if they agree.
    #[serde(default)]
    pub clock_ahead_seconds: i64,
    /// Whether jobs can open only their own GPUs; `None` if Slurm does not say.
    #[serde(default)]
    pub constrains_devices: Option<bool>,
    /// Version of slurmctld; `None` if Slurm does not say.
    #[serde(default)]
    pub version: Option<String>,
    /// Number of records that were set aside since the start, each counted once: malformed ones, and those
    /// that contradict stored runs.
    #[serde(default)]
    pub records_set_aside: u64,
    /// Runs of the last poll by states that Takt does not know.
    #[serde(default)]
    pub unknown_states: BTreeMap<String, u64>,
    /// Sources by name: `job_records`, `queue`, `nodes`, `slurmdbd` (history of nodes).
    #[serde(default)]
    pub sources: BTreeMap<String, SourceStatus>,
    /// Pending jobs by partition and reason; `None` if slurmctld did not answer at the last poll.
    pub pending: Option<Vec<Pending>>,
    /// Nodes at the last poll; `None` if slurmctld did not answer.
    #[serde(skip)]
    pub nodes: Option<Vec<Node>>,
}

/// Pending jobs of one partition with the same reason. Each task of an array counts as a job; a job that asks
/// for several partitions counts in each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// A partition of the jobs.
    pub partition: String,
    /// Slurm's reason.
    pub reason: String,
    /// Number of pending jobs.
    pub jobs: u64,
}
