//! A consistent copy of records and samples, for `takt backup`.

use super::{AnswerConfig, AnswerError, Question, RequestForm};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{Snapshot, Store};

/// Makes a copy inside the data directory. The command moves it to its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotQuestion {
    /// Whether the copy is deleted instead.
    #[serde(default)]
    pub drop: bool,
    /// With `drop`: the verified backup that the command has made of the copy.
    #[serde(default)]
    pub backup: Option<Snapshot>,
}

impl Question for SnapshotQuestion {
    const PATH: &'static str = "/api/takt/v1/store/snapshot";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Admin);
    /// The copy; `None` after it was deleted.
    type Answer = Option<Snapshot>;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        _config: &AnswerConfig,
    ) -> Result<Option<Snapshot>, AnswerError> {
        // The backup is noted only after the copy was verified and deleted: an older note stays if that fails.
        if self.drop {
            store.database().drop_snapshot()?;
            if let Some(backup) = &self.backup {
                store.database().note_backup(backup)?;
            }
            Ok(None)
        } else {
            Ok(Some(store.snapshot()?))
        }
    }
}
