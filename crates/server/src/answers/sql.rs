//! One read-only SQL statement.

use super::{AnswerConfig, AnswerError, Question, RequestForm, note_budgets, note_calendar};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::Database;
use takt_store::sql::{Rows, SqlClient, SqlError};

/// A read-only SQL statement; the whole request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SqlQuestion {
    /// The statement.
    pub statement: String,
}

impl Question for SqlQuestion {
    const PATH: &'static str = "/api/takt/v1/sql";
    const REQUEST: RequestForm = RequestForm::PostText;
    const NEED: Need = Need::Samples;
    type Answer = Rows;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Rows, AnswerError> {
        SqlClient::default()
            .of_admin(viewer.role() == Role::Admin)
            .rows(database, &self.statement, config.sql)
            .map_err(|error| match error {
                SqlError::Refused(_) | SqlError::Statement(_) => AnswerError::input(error),
                SqlError::Store(error) => error.into(),
                other => AnswerError::failed(other),
            })
    }

    fn prepare(&self, database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
        let own = config.accounting.cluster.as_deref();
        note_calendar(database, own, &config.accounting)?;
        note_budgets(database, own, &config.accounting)
    }
}
