//! The data lake: its beginning, its state, and its verification.

use super::{AnswerConfig, AnswerError, Question, RequestForm, note_calendar};
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use takt_access::{Need, Role, Viewer};
use takt_lake::{Lake, LakeError, LakeStatus, RoundSummary};
use takt_model::Timestamp;
use takt_store::Database;

/// Creates the data lake, or takes it over from another data directory, and writes all finished
/// days. Answers with the files written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeInitQuestion {}

/// Asks for the tables of the data lake and the result of the last round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeStatusQuestion {}

/// Reads the data lake completely. Answers with one line for each difference from its logs and from
/// the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeVerifyQuestion {}

impl Question for LakeInitQuestion {
    const PATH: &'static str = "/api/takt/v1/lake/init";
    const REQUEST: RequestForm = RequestForm::PostQuery;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = RoundSummary;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<RoundSummary, AnswerError> {
        let now = Timestamp::from(SystemTime::now());
        with_lake(database, config, |lake| lake.round(true, now, &|| false))
    }

    fn prepare(&self, database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
        note_days(database, config)
    }
}

impl Question for LakeStatusQuestion {
    const PATH: &'static str = "/api/takt/v1/lake";
    const NEED: Need = Need::SignedIn;
    type Answer = LakeStatus;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<LakeStatus, AnswerError> {
        with_lake(database, config, |lake| lake.status())
    }
}

impl Question for LakeVerifyQuestion {
    const PATH: &'static str = "/api/takt/v1/lake/verify";
    const NEED: Need = Need::Samples;
    type Answer = Vec<String>;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<String>, AnswerError> {
        let now = Timestamp::from(SystemTime::now());
        with_lake(database, config, |lake| lake.verify(now))
    }

    fn prepare(&self, database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
        note_days(database, config)
    }
}

/// Stores the days of each cluster, by which records are divided.
fn note_days(database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
    let own = config.accounting.cluster.as_deref();
    note_calendar(database, own, &config.accounting)
}

fn with_lake<T>(
    database: &Database,
    config: &AnswerConfig,
    work: impl FnOnce(&Lake<'_>) -> Result<T, LakeError>,
) -> Result<T, AnswerError> {
    let current = config.current.get();
    let lake = Lake::new(database, &current.lake, current.store.min_free_bytes);
    work(&lake).map_err(|error| match error {
        LakeError::Unconfigured => AnswerError::usage(error),
        LakeError::Store(error) => error.into(),
        other => AnswerError::failed(other),
    })
}
