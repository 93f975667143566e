//! A consistent copy of records and samples, for `takt backup`.

use super::{AnswerConfig, AnswerError, Asker, Question, RequestForm};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_store::{Database, Snapshot};

/// Makes a copy inside the data directory. The command moves it to its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotQuestion {
    /// Whether the copy is deleted instead.
    #[serde(default)]
    pub drop: bool,
}

impl Question for SnapshotQuestion {
    const PATH: &'static str = "/api/takt/v1/store/snapshot";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const CHANGES: bool = true;
    /// The copy; `None` after it was deleted.
    type Answer = Option<Snapshot>;
    type Data = Database;

    fn answer(
        &self,
        _asker: &Asker,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Option<Snapshot>, AnswerError> {
        if self.drop {
            database.drop_snapshot()?;
            Ok(None)
        } else {
            let now = Timestamp::now().as_second();
            Ok(Some(database.snapshot(now)?))
        }
    }
}
