//! An entry into the log of sent reports.

use super::{AnswerConfig, AnswerError, Question, RequestForm, sent_reports};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{Database, Records, SentReport};

/// Records that a report was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NoteSentReport(pub SentReport);

impl Question for NoteSentReport {
    const PATH: &'static str = sent_reports::PATH;
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = ();
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<(), AnswerError> {
        Ok(Records::of(database).note_sent_report(&self.0)?)
    }
}
