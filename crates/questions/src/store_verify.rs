//! A check of all blocks.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_store::Database;

/// Reads every block to its end. Answers with one line per damaged block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyQuestion {}

impl Question for VerifyQuestion {
    const PATH: &'static str = "/api/takt/v1/store/verify";
    const NEED: Need = Need::Samples;
    type Answer = Vec<String>;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<String>, AnswerError> {
        Ok(database.verify_blocks()?)
    }
}
