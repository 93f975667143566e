//! The log of sent reports.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Owner, Viewer};
use takt_store::{Database, Records, SentReport};

/// Path of the log: GET lists it, POST adds to it.
pub(super) const PATH: &str = "/api/takt/v1/report/sent";

/// Asks for the reports of a month that were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentQuestion {
    /// Month of the reports, `2026-10`.
    pub month: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

impl Question for SentQuestion {
    const PATH: &'static str = PATH;
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<SentReport>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<SentReport>, AnswerError> {
        let mut sent = sent_reports(database, self, config.accounting.home.as_deref())?;
        sent.retain(|report| {
            let owner = match report.kind.as_str() {
                "user" => Owner::new(&report.subject, ""),
                "account" => Owner::new("", &report.subject),
                _ => return viewer.sees_all(),
            };
            viewer.sees_details(owner)
        });
        Ok(sent)
    }
}

/// The reports of a month that were sent.
///
/// # Errors
/// When the cluster is unknown or the store fails.
pub fn sent_reports(
    database: &Database,
    question: &SentQuestion,
    home: Option<&str>,
) -> Result<Vec<SentReport>, AnswerError> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref(), home)?;
    Ok(records.sent_reports(&cluster.cluster, &question.month)?)
}
