//! One read-only SQL statement.

use super::{AnswerConfig, AnswerError, Question, RequestForm, note_budgets, note_calendar};
use crate::query_memory::account_of;
use serde::{Deserialize, Serialize};
use std::io::Write;
use takt_access::{Need, Role, Viewer};
use takt_store::sql::json::write_rows;
use takt_store::sql::{Cancel, Rows, SqlClient, SqlError};
use takt_store::{Database, MemoryAccount};

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
        client(viewer, account_of(&config.memory, viewer))
            .rows(database, &self.statement, config.sql)
            .map_err(answer_error)
    }

    /// Writes rows as they are in memory, where they take a tenth of what they take as JSON's values.
    fn write_answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
        memory: &MemoryAccount,
        out: &mut dyn Write,
    ) -> Result<(), AnswerError> {
        let rows = client(viewer, memory.clone())
            .select(database, &self.statement, config.sql, &Cancel::default())
            .map_err(answer_error)?;
        write_rows(&rows, out).map_err(AnswerError::failed)
    }

    fn prepare(&self, database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
        // Statements join prices and days, which a command on the files has to store itself.
        let own = config.accounting.cluster.as_deref();
        note_calendar(database, own, &config.accounting)?;
        note_budgets(database, own, &config.accounting)
    }
}

fn client(viewer: &Viewer, memory: MemoryAccount) -> SqlClient {
    SqlClient::default()
        .of_admin(viewer.role() == Role::Admin)
        .charging(memory)
}

fn answer_error(error: SqlError) -> AnswerError {
    match error {
        // A refused or failing statement is a mistake of the client, not a failure of the server.
        SqlError::Refused(_) | SqlError::Statement(_) => AnswerError::input(error),
        SqlError::Store(error) => error.into(),
        SqlError::NoMemory(refusal) => refusal.into(),
        SqlError::Unavailable(_) => AnswerError::Unavailable(error.to_string()),
        other => AnswerError::failed(other),
    }
}
