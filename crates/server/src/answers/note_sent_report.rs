//! An entry into the log of sent reports.

use super::{AnswerConfig, AnswerError, Asker, Question, RequestForm, sent_reports};
use serde::{Deserialize, Serialize};
use takt_store::{Database, Records, SentReport};

/// Records that a report was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NoteSentReport(pub SentReport);

impl Question for NoteSentReport {
    const PATH: &'static str = sent_reports::PATH;
    const REQUEST: RequestForm = RequestForm::PostJson;
    const CHANGES: bool = true;
    type Answer = ();
    type Data = Database;

    fn answer(
        &self,
        _asker: &Asker,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<(), AnswerError> {
        Ok(Records::of(database).note_sent_report(&self.0)?)
    }
}
