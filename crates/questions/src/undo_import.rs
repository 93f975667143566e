//! Undoing an import.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Deletes the runs that only this import has stored. Answers with their number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoImportQuestion {
    /// Number of the import.
    pub id: i64,
}

impl Question for UndoImportQuestion {
    const PATH: &'static str = "/api/takt/v1/imports/undo";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = u64;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<u64, AnswerError> {
        let now = UnixTime::from(Timestamp::now());
        Records::of(database)
            .undo_import(self.id, now)?
            .ok_or_else(|| {
                let id = self.id;
                AnswerError::Usage(format!(
                    "there is no import {id}, or it was undone before (takt records imports)"
                ))
            })
    }
}
