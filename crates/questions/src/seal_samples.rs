//! Sealing of samples on request.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{CompactionSummary, Store};

/// Writes the hot samples into blocks now. Answers with the blocks written and removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealQuestion {}

impl Question for SealQuestion {
    const PATH: &'static str = "/api/takt/v1/store/seal";
    const REQUEST: RequestForm = RequestForm::PostQuery;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = CompactionSummary;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        _config: &AnswerConfig,
    ) -> Result<CompactionSummary, AnswerError> {
        Ok(store.seal()?)
    }
}
