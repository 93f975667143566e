//! Asks statements of one client: in processes of their own if the server has them, else here.

use super::gate::refuse_analysis;
use super::session::Session;
use super::{Cancel, Limits, ResultSet, Rows, SqlError, json};
use crate::{Database, MemoryAccount, StoreError};
use std::collections::HashMap;

/// The reader of a statement's rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// Name of the user of PostgreSQL's protocol.
    pub user: Option<&'a str>,
    /// Whether the rows of the audit log are visible.
    pub is_admin: bool,
}

/// A client with statements.
#[derive(Debug, Default)]
pub struct SqlClient {
    /// Name of the user. `Some`: the client sees PostgreSQL's catalog.
    user: Option<String>,
    /// Whether the client sees the rows of the audit log.
    is_admin: bool,
    /// Holds the memory of results.
    memory: MemoryAccount,
    /// The session in this process; opened by the first statement that runs here.
    session: Option<Session>,
}

impl SqlClient {
    /// Returns a client that sees PostgreSQL's catalog, as `user`.
    pub fn postgres(user: String) -> Self {
        Self {
            user: Some(user),
            ..Self::default()
        }
    }

    /// Shows the client the rows of the audit log, if it is an admin's.
    #[must_use]
    pub fn of_admin(mut self, is_admin: bool) -> Self {
        self.is_admin = is_admin;
        self
    }

    /// Charges results to this account.
    #[must_use]
    pub fn charging(mut self, memory: MemoryAccount) -> Self {
        self.memory = memory;
        self
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            user: self.user.as_deref(),
            is_admin: self.is_admin,
        }
    }

    /// Runs one read-only statement and returns its rows as JSON.
    ///
    /// # Errors
    /// [`SqlError`]. The statement changes nothing.
    pub fn rows(
        &mut self,
        database: &Database,
        sql: &str,
        limits: Limits,
    ) -> Result<Rows, SqlError> {
        let answer = self.select(database, sql, limits, &Cancel::default())?;
        Ok(json::rows(&answer))
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
            refuse_analysis(sql)?;
            return process.select(database, self.reader(), sql, limits, cancel, &self.memory);
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
            Some(process) => {
                process.parameter_types(database, self.reader(), sql, limits, &self.memory)
            }
            None => self.session(database)?.parameter_types(sql),
        }
    }

    fn session(&mut self, database: &Database) -> Result<&Session, StoreError> {
        if self.session.is_none() {
            // Clients of PostgreSQL's protocol list the tables right after connecting.
            if self.user.is_some() {
                database.follow_metrics()?;
            }
            let user = self.user.as_deref();
            let session = Session::open(database.connect()?, user, self.is_admin)?;
            self.session = Some(session);
        }
        Ok(self.session.as_ref().expect("opened above"))
    }
}
