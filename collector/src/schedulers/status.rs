//! Why a scheduler could not be asked, and how asking goes.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use takt_slurm::Node;
use takt_slurm::jobcomp::JobcompError;
use takt_slurm::sacct::SacctError;
use takt_slurm::share_text::SlurmTextError;
use takt_store::StoreError;

/// Why Slurm could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The program is not there, or has no Slurm to ask.
    #[error("there is no Slurm on this machine: {0}")]
    NoSlurm(String),
    /// Slurm runs without slurmdbd.
    #[error("this Slurm keeps no accounts: {0}")]
    NoAccounting(String),
    /// slurmdbd, or the way to it, is down.
    #[error("slurmdbd does not answer: {0}")]
    DatabaseDown(String),
    /// slurmctld does not answer.
    #[error("slurmctld does not answer: {0}")]
    ControllerDown(String),
    /// The user or the token is not accepted: wrong, expired, or of another cluster.
    #[error("slurmrestd refuses us: {0}; renew the token in jobs.slurmrestd.token_file")]
    Refused(String),
    /// The token cannot be read.
    #[error("cannot read the token in {path}")]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nobody listens there.
    #[error("slurmrestd does not answer at {url}")]
    RestDown {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The file of ended jobs cannot be read.
    #[error("cannot read the job completion file {path}")]
    JobcompFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its lines are not jobcomp's.
    #[error(transparent)]
    Jobcomp(#[from] JobcompError),
    /// No answer in time.
    #[error("{program} did not answer within {seconds} s")]
    Timeout {
        /// What was asked.
        program: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// Any other failure.
    #[error("{program} failed: {stderr}")]
    Failed {
        /// What was asked.
        program: &'static str,
        /// What it said.
        stderr: String,
    },
    /// The program could not be started, or its answer not be read.
    #[error("cannot ask {program}")]
    Run {
        /// What was asked.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The answer is not sacct's.
    #[error(transparent)]
    Unreadable(#[from] SacctError),
    /// What Slurm says of shares and prices cannot be read.
    #[error("cannot read what {program} tells of shares")]
    Shares {
        /// What was asked.
        program: &'static str,
        /// Why.
        #[source]
        source: SlurmTextError,
    },
    /// The answer could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How polling goes, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollState {
    /// Nothing was asked yet.
    #[default]
    Waiting,
    /// The last question was answered and stored.
    Ok,
    /// There is no Slurm here.
    NoSlurm,
    /// This Slurm keeps no accounts.
    NoAccounting,
    /// slurmdbd is down.
    DatabaseDown,
    /// slurmctld is down.
    ControllerDown,
    /// slurmrestd does not accept our token.
    Refused,
    /// It takes too long.
    Timeout,
    /// Something else; the detail says what.
    Failed,
}

impl PollError {
    /// For `map_err`.
    pub(super) fn shares(program: &'static str) -> impl Fn(SlurmTextError) -> Self {
        move |source| Self::Shares { program, source }
    }

    /// The error in one word.
    pub fn state(&self) -> PollState {
        match self {
            Self::NoSlurm(_) => PollState::NoSlurm,
            Self::NoAccounting(_) => PollState::NoAccounting,
            Self::DatabaseDown(_) => PollState::DatabaseDown,
            Self::ControllerDown(_) => PollState::ControllerDown,
            Self::Refused(_) | Self::Token { .. } => PollState::Refused,
            Self::Timeout { .. } => PollState::Timeout,
            _ => PollState::Failed,
        }
    }
}

/// How polling goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollStatus {
    /// In one word.
    pub state: PollState,
    /// The last error and its causes.
    pub detail: Option<String>,
    /// The cluster, once it is known.
    pub cluster: Option<String>,
    /// When it last went well, UTC seconds.
    pub last_success: Option<i64>,
    /// Failures since.
    pub failures: u32,
    /// Runs that have not ended as far as we know, and that sacct knows nothing of any more.
    pub forgotten_runs: usize,
    /// Whether the nodes have GPUs and slurmdbd keeps none of them with a job: `AccountingStorageTRES` lacks `gres/gpu`.
    pub gpus_are_not_counted: bool,
    /// By how many seconds slurmctld's clock is ahead of this machine's; 0 where they agree.
    #[serde(default)]
    pub clock_ahead_seconds: i64,
    /// What waits in the queue, and for what; `None` where slurmctld did not say so with the last question.
    pub pending: Option<Vec<Pending>>,
    /// The nodes as slurmctld told of them with the last question; `None` where it did not.
    #[serde(skip)]
    pub nodes: Option<Vec<Node>>,
}

/// Jobs of a partition that wait for the same; each task of an array is a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Of several that a job waits in, the first.
    pub partition: String,
    /// Slurm's word for what they wait for.
    pub reason: String,
    /// How many.
    pub jobs: u64,
}
