//! Asks statements of one client: in processes of their own if the server has them, else here.

use super::session::Session;
use super::{Cancel, Limits, ResultSet, SqlError};
use crate::{Database, StoreError};
use std::collections::HashMap;

/// A client with statements.
#[derive(Debug, Default)]
pub struct SqlClient {
    /// Name of the user. `Some`: the client sees PostgreSQL's catalog.
    user: Option<String>,
    /// The session in this process; opened by the first statement that runs here.
    session: Option<Session>,
}

impl SqlClient {
    /// Returns a client that sees PostgreSQL's catalog, as `user`.
    pub fn postgres(user: String) -> Self {
        Self {
            user: Some(user),
            session: None,
        }
    }

    /// Runs one read-only statement.
    ///
    /// # Errors
    /// [`SqlError`]. The statement changes nothing.
    pub fn select(
        &mut self,
        database: &Database,
        sql: &str,
        limits: Limits,
        cancel: &Cancel,
    ) -> Result<ResultSet, SqlError> {
        if let Some(process) = database.query_process() {
            return process.select(database, self.user.as_deref(), sql, limits, cancel);
        }
        let session = self.session(database)?;
        match session.select(sql, limits, cancel) {
            // The metric may be newer than the views.
            Err(error) if error.is_unknown_name() && database.follow_metrics()? => {
                session.select(sql, limits, cancel)
            }
            answer => answer,
        }
    }

    /// Returns the types that a statement requires for its parameters, in DuckDB's names, by
    /// number; `None` for parameters of any type. The statement is bound, not run.
    ///
    /// # Errors
    /// If the statement is not allowed or cannot be bound.
    pub fn parameter_types(
        &mut self,
        database: &Database,
        sql: &str,
        limits: Limits,
    ) -> Result<HashMap<usize, String>, SqlError> {
        match database.query_process() {
            Some(process) => process.parameter_types(database, self.user.as_deref(), sql, limits),
            None => self.session(database)?.parameter_types(sql),
        }
    }

    fn session(&mut self, database: &Database) -> Result<&Session, StoreError> {
        if self.session.is_none() {
            // Clients of PostgreSQL's protocol list the tables right after connecting.
            if self.user.is_some() {
                database.follow_metrics()?;
            }
            self.session = Some(Session::open(database.connect()?, self.user.as_deref())?);
        }
        Ok(self.session.as_ref().expect("opened above"))
    }
}
