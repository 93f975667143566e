//! `takt doctor`: what is wrong, what it costs, and the command that repairs it.
//!
//! The checks need the whole configuration and ask other services, so the server makes them, through the trait [`Doctor`].

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::path::Path;
use takt_access::{Need, Viewer};
use takt_store::Store;

/// Asks for all findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DoctorQuestion {
    /// Only checks whose id begins with this text.
    pub only: Option<String>,
    /// Without the checks whose id begins with this text.
    pub skip: Option<String>,
    /// Instead of all checks: what an upgrade to this release of Slurm (`26.05`) changes.
    pub slurm: Option<String>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Failure,
    /// Something works worse than it could, or will fail.
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Id of the check: `gpu.answers`.
    pub id: String,
    /// Severity.
    pub severity: Severity,
    /// Node, or empty for the server.
    pub node: String,
    /// The observation, in one sentence.
    pub evidence: String,
    /// The consequences of the defect, in one sentence.
    pub cost: String,
    /// Commands or configuration lines to paste.
    pub fix: Vec<String>,
}

/// Answer of the doctor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Findings, failures first, then by check and node.
    pub findings: Vec<Finding>,
    /// Ids of the checks without a finding.
    pub in_order: Vec<String>,
    /// Ids of the checks whose facts are not there yet: the server has just started.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Names of accepted findings: the id, and the node after a colon.
    #[serde(default)]
    pub accepted: Vec<String>,
}

/// Checks the store, the nodes and the services of a configuration.
pub trait Doctor: Debug + Send + Sync {
    /// Makes the checks that `question` asks for. `unserved` is the data directory, if no server runs on it.
    ///
    /// # Errors
    /// When no check has such an id, or the store fails.
    fn diagnose(
        &self,
        question: &DoctorQuestion,
        store: &Store,
        unserved: Option<&Path>,
    ) -> Result<Diagnosis, AnswerError>;
}

impl Question for DoctorQuestion {
    const PATH: &'static str = "/api/takt/v1/doctor";
    const NEED: Need = Need::AllUsers;
    type Answer = Diagnosis;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<Diagnosis, AnswerError> {
        let doctor = config.doctor.as_ref();
        let doctor = doctor
            .ok_or_else(|| AnswerError::Unavailable("nothing can make the checks here".into()))?;
        doctor.diagnose(self, store, config.unserved.as_deref())
    }
}
