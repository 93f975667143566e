//! The log of imports.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_store::{Database, ImportRecord, Records};

/// Asks for the imports of files, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportsQuestion {}

impl Question for ImportsQuestion {
    const PATH: &'static str = "/api/takt/v1/imports";
    const NEED: Need = Need::Samples;
    type Answer = Vec<ImportRecord>;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<ImportRecord>, AnswerError> {
        Ok(Records::of(database).imports()?)
    }
}
