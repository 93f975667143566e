//! Blocks and their sizes.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_store::{Database, Stat};

/// Asks for the blocks on disk and the hot samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatQuestion {}

impl Question for StatQuestion {
    const PATH: &'static str = "/api/takt/v1/store";
    const NEED: Need = Need::SignedIn;
    type Answer = Stat;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Stat, AnswerError> {
        Ok(database.stat()?)
    }
}
