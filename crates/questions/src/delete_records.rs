//! Deletion of job records.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{Database, DeleteRuns, Records};

/// Deletes job records. Answers with their number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeleteRecordsQuestion(pub DeleteRuns);

impl Question for DeleteRecordsQuestion {
    const PATH: &'static str = "/api/takt/v1/jobs/delete";
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
        // Without a condition, every record would be deleted.
        if self.0 == DeleteRuns::default() {
            let error = "name the records to delete: a cluster, a job, or both";
            return Err(AnswerError::Usage(error.to_owned()));
        }
        Ok(Records::of(database).delete_runs(&self.0)?)
    }
}
