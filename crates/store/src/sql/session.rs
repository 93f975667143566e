//! A connection for statements of users, which run one at a time and within limits.
//!
//! DuckDB allocates some results outside its memory limit, and checks for interrupts only between
//! vectors. A server therefore runs sessions in processes of their own ([`super::process`]).

use super::cell::ResultSet;
use super::gate::{VisibleSchemas, admit, explained};
use super::needed::needed;
use super::{Limits, SqlError, first_line};
use crate::unsealed::VARIABLE;
use crate::{StoreError, microseconds_now, quoted};
use duckdb::arrow::array::{Array, StructArray};
use duckdb::{Connection, InterruptHandle};
use rustix::param;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum size of a result, in bytes. The whole result is held in memory, and its JSON takes
/// several times as much.
pub(super) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Interval at which a running statement is checked against its limits.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// Replacements for functions that return the current time, in lower case. DuckDB's own functions
/// return a time zone, which needs an extension that source builds lack. The replacements return
/// the same time in UTC during a whole statement.
const CLOCK: &[(&str, &str)] = &[
    ("now", "TIMESTAMP"),
    ("get_current_timestamp", "TIMESTAMP"),
    ("transaction_timestamp", "TIMESTAMP"),
    ("current_localtimestamp", "TIMESTAMP"),
    ("current_date", "DATE"),
    ("today", "DATE"),
];

/// Cancels a statement. Clones cancel the same statement.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels the statement; one that has not begun will not run.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection for statements of users.
#[derive(Debug)]
pub struct Session {
    pub(super) db: Connection,
    visible: VisibleSchemas,
}

impl Session {
    /// Starts a session on `db` that sees the tables and the metrics; with `user`, also
    /// PostgreSQL's catalog, as that user. Only the session of an admin sees rows of the audit log.
    ///
    /// # Errors
    /// If the database fails.
    pub fn open(db: Connection, user: Option<&str>, is_admin: bool) -> Result<Self, StoreError> {
        let visible = VisibleSchemas::new(user.is_some(), is_admin);
        let names: &[&str] = match user {
            None => &[],
            Some(_) => &["current_user", "session_user", "current_role", "user"],
        };
        let mut sql = format!("SET search_path = {};", quoted(&visible.search_path()));
        for name in names {
            let user = quoted(user.unwrap_or_default());
            sql += &format!("CREATE TEMP MACRO {name}() AS {user};");
        }
        db.execute_batch(&sql)
            .map_err(StoreError::sql("open a session"))?;
        Ok(Self { db, visible })
    }

    /// Runs one read-only statement.
    ///
    /// # Errors
    /// [`SqlError`]. The statement changes nothing.
    pub fn select(
        &self,
        sql: &str,
        limits: Limits,
        cancel: &Cancel,
    ) -> Result<ResultSet, SqlError> {
        admit(&self.db, sql, &self.visible)?;
        self.set_clock(sql)?;
        let watch = StatementWatch::start(self.db.interrupt_handle(), limits, cancel.clone());
        let answer = self.fetch_needed(sql, limits);
        let cause = watch.end();
        // Fails if no transaction has begun.
        drop(self.db.execute_batch("ROLLBACK"));
        match (cause, answer) {
            (Some(cause), Err(_)) => Err(cause),
            (_, answer) => answer,
        }
    }

    /// Returns the types that a statement requires for its parameters, in DuckDB's names, by
    /// number; `None` for parameters of any type. The statement is bound, not run.
    ///
    /// # Errors
    /// If the statement is not allowed or cannot be bound.
    pub fn parameter_types(&self, sql: &str) -> Result<HashMap<usize, String>, SqlError> {
        admit(&self.db, sql, &self.visible)?;
        let failed = |error: duckdb::Error| SqlError::Statement(first_line(&error));
        let question = format!(
            "SELECT json_serialize_plan({}, skip_null := true, skip_empty := true)",
            quoted(sql)
        );
        let plan: String = self
            .db
            .query_row(&question, [], |row| row.get(0))
            .map_err(failed)?;
        let plan =
            serde_json::from_str(&plan).map_err(|error| SqlError::Statement(error.to_string()))?;
        let mut found = HashMap::new();
        find_parameters(&plan, &mut found);
        Ok(found)
    }

    fn set_clock(&self, sql: &str) -> Result<(), SqlError> {
        let sql = sql.to_ascii_lowercase();
        if ![
            "now",
            "current_",
            "localtimestamp",
            "today",
            "transaction_timestamp",
        ]
        .iter()
        .any(|w| sql.contains(w))
        {
            return Ok(());
        }

        let now = microseconds_now();
        let clock: String = CLOCK
            .iter()
            .map(|(name, kind)| {
                format!("CREATE OR REPLACE TEMP MACRO {name}() AS make_timestamp({now})::{kind};")
            })
            .collect();

        self.db
            .execute_batch(&clock)
            .map_err(StoreError::sql("set a session's clock"))
            .map_err(SqlError::from)
    }

    /// Plans the statement, to find the unsealed samples that it needs, and runs it over the same
    /// data. A statement without a plan reads all unsealed samples, or fails. Leaves a transaction,
    /// which reads only.
    fn fetch_needed(&self, sql: &str, limits: Limits) -> Result<ResultSet, SqlError> {
        let execute = |sql: &str| {
            self.db
                .execute_batch(sql)
                .map_err(StoreError::sql("begin a statement"))
        };
        let begin = format!("BEGIN TRANSACTION READ ONLY; SET VARIABLE {VARIABLE} = ''");
        execute(&begin)?;
        match needed(&self.db, explained(sql)) {
            Ok(None) => {}
            Ok(Some(needed)) => execute(&format!("SET VARIABLE {VARIABLE} = '{needed}'"))?,
            Err(_) => execute(&format!("ROLLBACK; {begin}"))?,
        }
        self.fetch(sql, limits)
    }

    pub(super) fn fetch(&self, sql: &str, limits: Limits) -> Result<ResultSet, SqlError> {
        let failed = |error: duckdb::Error| SqlError::Statement(first_line(&error));
        let mut statement = self.db.prepare(sql).map_err(failed)?;
        // The returned iterator panics if fetching fails; `step` does not.
        drop(statement.stream_arrow([]).map_err(failed)?);

        let mut answer = ResultSet::new(statement.schema());
        let mut bytes = 0;
        while let Some(batch) = statement.step().map_err(failed)? {
            bytes += batch_bytes(&batch);
            if bytes > MAX_ANSWER_BYTES {
                return Err(SqlError::TooLarge);
            }
            if !answer.take(&batch, limits.max_rows) {
                break;
            }
        }
        Ok(answer)
    }
}

/// Finds the parameters in DuckDB's plan of a statement.
fn find_parameters(plan: &serde_json::Value, found: &mut HashMap<usize, String>) {
    if plan["expression_class"] == "BOUND_PARAMETER"
        && let (Some(number), Some(kind)) = (
            plan["identifier"].as_str(),
            plan["return_type"]["id"].as_str(),
        )
        && let Ok(number) = number.parse()
    {
        found.insert(number, kind.to_owned());
    }

    match plan {
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| find_parameters(item, found))
        }
        serde_json::Value::Object(items) => {
            items.values().for_each(|item| find_parameters(item, found))
        }
        _ => {}
    }
}

fn batch_bytes(batch: &StructArray) -> usize {
    Array::get_array_memory_size(batch)
}

/// Interrupts a statement that exceeds its time or memory, or that was cancelled.
struct StatementWatch {
    done: mpsc::Sender<()>,
    thread: JoinHandle<Option<SqlError>>,
}

impl StatementWatch {
    fn start(interrupt: Arc<InterruptHandle>, limits: Limits, cancel: Cancel) -> Self {
        let (done, is_done) = mpsc::channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let memory = resident_bytes();
            let mut cause = None;
            while is_done.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let grown = resident_bytes().saturating_sub(memory);
                if cause.is_none() {
                    cause = if cancel.asked() {
                        Some(SqlError::Cancelled)
                    } else if start.elapsed() >= limits.timeout {
                        Some(SqlError::Timeout(limits.timeout))
                    } else if grown > limits.memory_bytes {
                        Some(SqlError::Memory)
                    } else {
                        None
                    };
                }

                // Repeat the interrupt: one sent before the statement begins has no effect.
                if cause.is_some() {
                    interrupt.interrupt();
                }
            }
            cause
        });
        Self { done, thread }
    }

    /// Stops watching. Returns the reason if the statement was interrupted.
    fn end(self) -> Option<SqlError> {
        // Dropping the sender ends the watch thread.
        drop(self.done);
        self.thread.join().ok().flatten()
    }
}

/// Returns the resident memory of this process in bytes; 0 if it is unknown.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * param::page_size() as u64
}
