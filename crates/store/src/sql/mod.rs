//! Read-only SQL over the views, for `takt sql` and for everything that speaks SQL to the server.
//!
//! [`gate`] says what is answered at all, [`Session`] runs it within [`Limits`], [`cell`] reads what came.

pub mod cell;
mod gate;
pub mod json;
mod session;

pub use cell::Answer;
pub use session::{Cancel, Session};

use crate::{Database, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// How much one statement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After this long it is interrupted.
    pub timeout: Duration,
    /// Rows beyond this number are left out, and the answer says so.
    pub max_rows: usize,
    /// It is interrupted once the process has grown by so much while it ran. DuckDB has a limit of its own, which
    /// holds for most of what it allocates, not for all.
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

/// The answer to a statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Names, in the order of the statement.
    pub columns: Vec<String>,
    /// One array a row. Instants are RFC 3339 in UTC; 64-bit numbers that JSON cannot hold exactly are strings.
    pub rows: Vec<Vec<Value>>,
    /// Whether rows were left out because of [`Limits::max_rows`].
    pub truncated: bool,
}

/// Why a statement got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// Not a `SELECT`, or one that does more than read the tables.
    #[error("refused: {0}")]
    Refused(String),
    /// DuckDB's own word on the statement.
    #[error("{0}")]
    Statement(String),
    /// It took longer than [`Limits::timeout`].
    #[error("interrupted after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// It took more than [`Limits::memory_bytes`].
    #[error("interrupted: it takes too much memory; ask for less at a time")]
    Memory,
    /// Its answer is too large to be held.
    #[error("the answer is larger than 256 MiB; ask for fewer rows or columns")]
    TooLarge,
    /// Nobody waits for it any more.
    #[error("cancelled")]
    Cancelled,
    /// The database itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Runs one read-only statement.
///
/// # Errors
/// [`SqlError`]; the statement has changed nothing.
pub fn run(database: &Database, sql: &str, limits: Limits) -> Result<Rows, SqlError> {
    let answer = Session::open(database)?.select(database, sql, limits, &Cancel::default())?;
    Ok(json::rows(&answer))
}

fn first_line(error: &duckdb::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Settings};
    use serde_json::json;

    fn ask(sql: &str) -> Result<Rows, SqlError> {
        let root = tempfile::tempdir().unwrap();
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
    fn every_kind_of_value_has_its_json() {
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
            (
                "SELECT 1; DROP VIEW jobs",
                "refused: only SELECT statements are answered",
            ),
            (
                "SELECT 1; SELECT 2",
                "refused: expected one statement, found 2",
            ),
            ("", "refused: expected one statement, found 0"),
            (
                "SELECT * FROM read_text('takt.lock')",
                "refused: the function read_text is not available here",
            ),
            (
                "SELECT (SELECT count(*) FROM glob('*'))",
                "refused: the function glob is not available here",
            ),
            (
                "WITH t AS (FROM Read_CSV('x')) FROM t",
                "refused: the function read_csv is not available here",
            ),
            (
                "SELECT * FROM query('SELECT 1')",
                "refused: the function query is not available here",
            ),
            (
                "SELECT * FROM 'takt.parquet'",
                "refused: \"takt.parquet\" names a file, not a table",
            ),
        ] {
            assert_eq!(ask(sql).unwrap_err().to_string(), said, "{sql}");
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_line() {
        let said = ask("SELECT * FROM jbs").unwrap_err().to_string();
        assert!(
            said.contains("jbs does not exist") && !said.contains('\n'),
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
        let endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3";
        assert!(matches!(ask(endless), Err(SqlError::Timeout(_))));
    }
}
