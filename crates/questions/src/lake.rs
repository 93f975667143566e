//! The data lake: its beginning, its state, and its verification.

use super::{AnswerConfig, AnswerError, LakeSettings, Question, RequestForm, note_calendar};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::SystemTime;
use takt_access::{Need, Role, Viewer};
use takt_lake::{Lake, LakeConfig, LakeError, LakeStatus, RoundSummary};
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
        // Records are divided into days, so the days have to be known before the round.
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

/// The section of a configuration file that is about the lake.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FileSections {
    lake: LakeConfig,
}

/// The error of a server without a data lake. The file may have one by now: only a new start reads it.
fn unconfigured(settings: &LakeSettings) -> AnswerError {
    let file = settings.file.as_deref();
    let is_set = |file: &&Path| {
        // The file may be unreadable for the server's user, or changed in the meantime: then nothing is said of it.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let sections: Result<FileSections, _> = toml::from_str(&text);
        sections.is_ok_and(|sections| sections.lake.path.is_some())
    };
    match file.filter(is_set) {
        Some(file) => AnswerError::Usage(format!(
            "the server has not read [lake] of {} yet: restart it",
            file.display()
        )),
        None => AnswerError::usage(LakeError::Unconfigured),
    }
}

fn with_lake<T>(
    database: &Database,
    config: &AnswerConfig,
    work: impl FnOnce(&Lake<'_>) -> Result<T, LakeError>,
) -> Result<T, AnswerError> {
    let settings = &config.lake;
    let lake = Lake::new(database, &settings.config, settings.min_free_bytes);
    work(&lake).map_err(|error| match error {
        LakeError::Unconfigured => unconfigured(settings),
        LakeError::Store(error) => error.into(),
        other => AnswerError::failed(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn a_lake_that_the_server_has_not_read_needs_a_restart() {
        let folder = tempdir().unwrap();
        let file = folder.path().join("takt.toml");

        let current = LakeSettings {
            file: Some(file.clone()),
            ..LakeSettings::default()
        };
        // Without the file, with one that has no lake, and with one that has.
        fs::write(&file, "cluster = 'lab'").unwrap();
        let none = "no data lake is configured; set path in [lake] of takt.toml";
        assert_eq!(unconfigured(&current).to_string(), none);
        assert_eq!(unconfigured(&LakeSettings::default()).to_string(), none);

        fs::write(&file, "[lake]\npath = '/srv/lake'").unwrap();
        assert_eq!(
            unconfigured(&current).to_string(),
            format!(
                "the server has not read [lake] of {} yet: restart it",
                file.display()
            )
        );
    }
}
