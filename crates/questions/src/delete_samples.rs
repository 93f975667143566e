//! Deletion of stored samples.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{CompactionSummary, Store};

/// Deletes the samples of matching series. Answers with the blocks rewritten and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuestion {
    /// A PromQL selector: `{node="g01"}`, `power_watts{gpu="3"}`.
    pub selector: String,
}

impl Question for DeleteQuestion {
    const PATH: &'static str = "/api/takt/v1/store/delete";
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
        // The selector of a PromQL query, so that it can be tried before.
        let matchers = takt_promql::selector(&self.selector).map_err(AnswerError::usage)?;
        Ok(store.delete(&matchers)?)
    }
}
