//! Read-only SQL over the views, for `takt sql` and the server's SQL interfaces.
//!
//! [`gate`] decides which statements are allowed, [`needed`] finds which unsealed samples they read,
//! [`session`] runs them within [`Limits`], [`cell`] reads the values. A server runs each statement in a process of its own ([`process`]), which the
//! kernel ends at the limits; a command runs it in its own process. [`SqlClient`] hides the
//! difference.

pub mod cell;
mod client;
mod gate;
pub mod json;
mod needed;
mod process;
mod recipes;
mod session;

pub use cell::ResultSet;
pub use client::SqlClient;
pub use process::serve;
pub(crate) use process::{ProcessConfig, QueryProcess};
pub use recipes::{RECIPES, TABLES};
pub use session::Cancel;

use crate::{Database, MemoryRefusal, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Limits of one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time until the statement is interrupted.
    pub timeout: Duration,
    /// Maximum number of rows. Further rows are omitted, and the result is marked as truncated.
    pub max_rows: usize,
    /// Memory that the statement's process may take, in bytes.
    pub memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            max_rows: 100_000,
            memory_bytes: 2 << 30,
        }
    }
}

/// Result of a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Column names, in the order of the statement.
    pub columns: Vec<String>,
    /// Rows, one array each. Timestamps are RFC 3339 in UTC; 64-bit integers that JSON cannot
    /// represent exactly are strings.
    pub rows: Vec<Vec<Value>>,
    /// Whether rows were omitted because of [`Limits::max_rows`].
    pub truncated: bool,
}

/// Reason why a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The statement is not a `SELECT`, or does more than read tables.
    #[error("refused: {0}")]
    Refused(String),
    /// DuckDB rejected the statement. Contains its message.
    #[error("{0}")]
    Statement(String),
    /// The statement took longer than [`Limits::timeout`].
    #[error("interrupted after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The statement took more memory than [`Limits::memory_bytes`].
    #[error("interrupted: the query takes too much memory; query less at a time")]
    Memory,
    /// The result is too large to be held in memory.
    #[error("the result is larger than 64 MiB; select fewer rows or columns")]
    TooLarge,
    /// The server has no memory for the rows.
    #[error("the result cannot be held: {0}")]
    NoMemory(MemoryRefusal),
    /// The kernel ended the statement's process.
    #[error(
        "the statement's process ended: it took too much memory or failed; query less at a time"
    )]
    ProcessEnded,
    /// Statements cannot run at the moment.
    #[error("SQL is not available: {0}")]
    Unavailable(String),
    /// The client cancelled the statement.
    #[error("cancelled")]
    Cancelled,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SqlError {
    /// Whether the statement names a table or function that does not exist.
    fn is_unknown_name(&self) -> bool {
        matches!(self, Self::Statement(text) if text.contains("does not exist"))
    }
}

/// Runs one read-only statement.
///
/// # Errors
/// [`SqlError`]. The statement changes nothing.
pub fn run(database: &Database, sql: &str, limits: Limits) -> Result<Rows, SqlError> {
    SqlClient::default().rows(database, sql, limits)
}

/// The error without the statement, on one line: the first line, and the names that were meant.
fn first_line(error: &duckdb::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    lines
        .filter(|line| line.starts_with("Did you mean") || line.starts_with("Candidate"))
        .fold(first, |said, line| said + " " + line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Settings};
    use serde_json::json;
    use tempfile::tempdir;

    fn ask(sql: &str) -> Result<Rows, SqlError> {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        run(
            &database,
            sql,
            Limits {
                timeout: Duration::from_millis(500),
                max_rows: 3,
                ..Limits::default()
            },
        )
    }

    #[test]
    fn a_verdict_names_the_fault_or_the_largest_part_of_the_gpu_time() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let db = database.connect().unwrap();
        // Used, unmeasured, never used, idle for long, lightly used.
        for (job, held, parts, fault) in [
            (1, "100.0", [60, 10, 30, 0, 0], "NULL"),
            (2, "100.0", [10, 20, 30, 40, 0], "NULL"),
            (3, "100.0", [0, 50, 50, 0, 0], "NULL"),
            (4, "0.0", [0; 5], "NULL"),
            (5, "NULL", [0; 5], "NULL"),
            (6, "100.0", [100, 0, 0, 0, 0], "'node failed'"),
        ] {
            let [used, unmeasured, idle, streak, low] = parts;
            let row = format!(
                "INSERT INTO records.run_efficiency VALUES ('c', '{job}', '2026-10-01', '2026-10-02', '2026-10-02',
                 1, {held}, 1.0, 1, 0, {} false, {used}, {idle}, {streak}, {low}, 0, 0, {unmeasured}, 0, {fault})",
                "NULL, ".repeat(17)
            );
            db.execute_batch(&row).unwrap();
        }
        let sql = "SELECT verdict FROM run_efficiency ORDER BY job_id";
        let rows = run(&database, sql, Limits::default()).unwrap().rows;
        let verdicts: Vec<&str> = rows.iter().filter_map(|row| row[0].as_str()).collect();
        let expected = [
            "GPUs mostly used",
            "GPUs mostly idle for long",
            "GPUs mostly not measured",
            "no GPUs",
            "number of GPUs unknown",
            "lost to a fault: node failed",
        ];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn every_kind_of_value_has_its_json() {
        // 9007199254740993 is the first whole number that a double does not have.
        let rows = ask(
            "SELECT 1 AS n, 2::DOUBLE / 3 AS x, 'nan'::DOUBLE, NULL, 'text', DATE '2026-10-25',
             TIMESTAMP_S '2026-10-25 01:00:00', 9007199254740993, [1, 2], {'a': 1}, 12345678901234567890::HUGEINT, true",
        )
        .unwrap();
        assert_eq!(rows.columns[..2], ["n", "x"]);
        assert_eq!(
            rows.rows,
            [vec![
                json!(1),
                json!(2.0 / 3.0),
                json!("NaN"),
                json!(null),
                json!("text"),
                json!("2026-10-25"),
                json!("2026-10-25T01:00:00Z"),
                json!("9007199254740993"),
                json!([1, 2]),
                json!({"a": 1}),
                json!("12345678901234567890"),
                json!(true),
            ]]
        );
    }

    #[test]
    fn only_selects_over_tables_are_answered() {
        for (sql, said) in [
            (
                "DROP VIEW jobs",
                "refused: only SELECT statements are answered",
            ),
            (
                "INSERT INTO records.jobs SELECT * FROM jobs",
                "refused: only SELECT statements are answered",
            ),
            (
                "COPY jobs TO 'x'",
                "refused: only SELECT statements are answered",
            ),
            ("ATTACH 'x'", "refused: only SELECT statements are answered"),
            (
                "SET threads = 1",
                "refused: only SELECT statements are answered",
            ),
            // A harmless first statement must not hide the second.
            (
                "SELECT 1; DROP VIEW jobs",
                "refused: only SELECT statements are answered",
            ),
            (
                "SELECT 1; SELECT 2",
                "refused: expected one statement, found 2",
            ),
            ("", "refused: expected one statement, found 0"),
            // These functions read files of the server.
            (
                "SELECT * FROM read_text('takt.lock')",
                "refused: the function read_text is not available here",
            ),
            (
                "SELECT (SELECT count(*) FROM glob('*'))",
                "refused: the function glob is not available here",
            ),
            // DuckDB ignores the case of names.
            (
                "WITH t AS (FROM Read_CSV('x')) FROM t",
                "refused: the function read_csv is not available here",
            ),
            // `query` runs a text that the gate has not seen.
            (
                "SELECT * FROM query('SELECT 1')",
                "refused: the function query is not available here",
            ),
            (
                "SELECT estimated_size FROM duckdb_tables()",
                "refused: the function duckdb_tables is not available here",
            ),
            (
                "SELECT estimated_size FROM main.DuckDB_Tables",
                "refused: the table main.DuckDB_Tables is not available here; SHOW TABLES lists tables, information.columns their columns",
            ),
            (
                "SELECT (SELECT max(reltuples) FROM pg_catalog.pg_class)",
                "refused: the table pg_catalog.pg_class is not available here; SHOW TABLES lists tables, information.columns their columns",
            ),
            (
                "SELECT max(reltuples) FROM PG_Class",
                "refused: the table PG_Class is not available here; SHOW TABLES lists tables, information.columns their columns",
            ),
            // DuckDB reads a file if its name is in the place of a table.
            (
                "SELECT * FROM 'takt.parquet'",
                "refused: \"takt.parquet\" names a file, not a table",
            ),
        ] {
            assert_eq!(ask(sql).unwrap_err().to_string(), said, "{sql}");
        }
    }

    #[test]
    fn errors_take_one_line() {
        let said = ask("SELECT * FROM jbs").unwrap_err().to_string();
        assert!(
            said.contains("jbs does not exist! Did you mean \"jobs\"?") && !said.contains('\n'),
            "{said}"
        );
    }

    #[test]
    fn describes_tables() {
        assert_eq!(ask("DESCRIBE jobs").unwrap().rows[0][0], json!("cluster"));
    }

    #[test]
    fn rows_and_time_are_bounded() {
        let rows = ask("SELECT * FROM range(10)").unwrap();
        assert_eq!((rows.rows.len(), rows.truncated), (3, true));

        // 10^12 pairs take far longer than half a second.
        let endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3";
        assert!(matches!(ask(endless), Err(SqlError::Timeout(_))));
    }
}
