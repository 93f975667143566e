//! Job runs, the newest first.

use super::near::did_you_mean;
use super::visible::{hide_details, visible_runs};
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_slurm::{JobRun, reasons};
use takt_store::{Database, JobFilter, Records, StoreError};

/// Asks for job runs, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsQuestion {
    /// Job id; its array tasks and components are included.
    pub job_id: Option<String>,
    /// User of the runs.
    pub user: Option<String>,
    /// States, separated by commas; names or Slurm's letters (`R`, `PD`).
    pub state: Option<String>,
    /// Maximum number of runs.
    pub limit: usize,
}

impl Default for JobsQuestion {
    fn default() -> Self {
        Self {
            job_id: None,
            user: None,
            state: None,
            limit: 1000,
        }
    }
}

/// A run, and the reason of a pending one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRun {
    /// The run.
    #[serde(flatten)]
    pub run: JobRun,
    /// Why the run is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WhyWaiting>,
}

/// Why a run is pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyWaiting {
    /// Slurm's reason, such as `Priority`.
    pub reason: String,
    /// The reason, explained.
    pub words: String,
    /// Since when Slurm has given this reason, UTC seconds.
    pub since: i64,
    /// Slurm's estimate of the start, UTC seconds.
    pub expected_start: Option<i64>,
}

impl Question for JobsQuestion {
    const PATH: &'static str = "/api/takt/v1/jobs";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<ListedRun>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<ListedRun>, AnswerError> {
        let records = Records::of(database);
        let states = self.state.iter().flat_map(|states| states.split(','));
        let filter = JobFilter {
            job_id: self.job_id.clone(),
            user: self.user.clone(),
            states: states.map(state_of).collect::<Result<_, _>>()?,
            limit: Some(self.limit),
            visible: visible_runs(viewer),
            ..JobFilter::default()
        };
        let mut runs = records.jobs(&filter)?;
        runs.iter_mut().for_each(|run| hide_details(viewer, run));
        let listed = runs.into_iter().map(|run| listed(&records, run));
        Ok(listed.collect::<Result<_, StoreError>>()?)
    }
}

fn listed(records: &Records<'_>, run: JobRun) -> Result<ListedRun, StoreError> {
    let is_pending = run.start.is_none() && run.end.is_none();
    let known = if is_pending {
        records.reason(&run.cluster, &run.job_id, run.submit)?
    } else {
        None
    };
    let waiting = known.map(|known| WhyWaiting {
        words: reasons::in_words(&known.reason, &run),
        reason: known.reason,
        since: known.since,
        expected_start: known.expected_start,
    });
    Ok(ListedRun { run, waiting })
}

/// The state with this name or these letters of `squeue` and `sacct`.
fn state_of(asked: &str) -> Result<String, AnswerError> {
    let asked = asked.trim().to_uppercase();
    let known = STATES
        .iter()
        .find(|(letters, name)| *letters == asked || *name == asked);
    known.map(|(_, name)| (*name).to_owned()).ok_or_else(|| {
        let near = did_you_mean(&asked, STATES.iter().map(|(_, name)| *name));
        AnswerError::Usage(format!("jobs have no state '{asked}'{near}"))
    })
}

/// The states of Slurm's jobs, with their letters.
const STATES: &[(&str, &str)] = &[
    ("BF", "BOOT_FAIL"),
    ("CA", "CANCELLED"),
    ("CD", "COMPLETED"),
    ("CF", "CONFIGURING"),
    ("CG", "COMPLETING"),
    ("DL", "DEADLINE"),
    ("F", "FAILED"),
    ("NF", "NODE_FAIL"),
    ("OOM", "OUT_OF_MEMORY"),
    ("PD", "PENDING"),
    ("PR", "PREEMPTED"),
    ("R", "RUNNING"),
    ("RQ", "REQUEUED"),
    ("RS", "RESIZING"),
    ("RV", "REVOKED"),
    ("S", "SUSPENDED"),
    ("ST", "STOPPED"),
    ("TO", "TIMEOUT"),
];
