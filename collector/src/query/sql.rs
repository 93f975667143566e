//! Read-only SQL over the views, for `takt sql` and for everything that speaks SQL to the server.
//!
//! DuckDB parses the statement for us: `json_serialize_sql` turns `SELECT`s into a tree and refuses everything else,
//! so what is allowed is a short list and not a guess at what is dangerous. In the tree every table function must be
//! on a list of harmless ones; `read_text`, `glob` and `query` are not. The instance itself cannot leave the data
//! directory (`store::Database`).

use crate::store::{Database, StoreError};
use duckdb::Connection;
use duckdb::types::{TimeUnit, Value as Cell};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::mpsc;
use std::time::Duration;

/// Table functions that read nothing but their arguments and the catalog.
const TABLE_FUNCTIONS: &[&str] = &[
    "range",
    "generate_series",
    "unnest",
    "repeat",
    "repeat_row",
    "json_each",
    "json_tree",
    "duckdb_columns",
    "duckdb_functions",
    "duckdb_keywords",
    "duckdb_schemas",
    "duckdb_tables",
    "duckdb_types",
    "duckdb_views",
    "pragma_table_info",
    "summary",
];

/// How much one statement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After this long it is interrupted.
    pub timeout: Duration,
    /// Rows beyond this number are left out, and the answer says so.
    pub max_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_rows: 100_000 }
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
    /// The database itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Runs one read-only statement.
///
/// # Errors
/// [`SqlError`]; the statement has changed nothing.
pub fn run(database: &Database, sql: &str, limits: Limits) -> Result<Rows, SqlError> {
    let db = database.connect()?;
    admit(&db, sql)?;
    let guard = Deadline::start(&db, limits.timeout);
    let answer = select(&db, sql, limits.max_rows);
    match guard.passed() {
        true if answer.is_err() => Err(SqlError::Timeout(limits.timeout)),
        _ => answer.map_err(|error| SqlError::Statement(first_line(&error))),
    }
}

/// Refuses whatever is not one `SELECT` over tables and harmless functions.
fn admit(db: &Connection, sql: &str) -> Result<(), SqlError> {
    let text: String = db
        .query_row("SELECT json_serialize_sql(?::VARCHAR)", [sql], |row| row.get(0))
        .map_err(|error| SqlError::Statement(first_line(&error)))?;
    let tree: Value = serde_json::from_str(&text).map_err(|error| SqlError::Statement(error.to_string()))?;
    if tree["error"] == true {
        let message = tree["error_message"].as_str().unwrap_or_default();
        return Err(match tree["error_type"].as_str() {
            Some("not implemented") => SqlError::Refused("only SELECT statements are answered".into()),
            _ => SqlError::Statement(message.lines().next().unwrap_or_default().to_owned()),
        });
    }
    match tree["statements"].as_array().map_or(0, Vec::len) {
        1 => admit_tree(&tree),
        count => Err(SqlError::Refused(format!("expected one statement, found {count}"))),
    }
}

fn admit_tree(node: &Value) -> Result<(), SqlError> {
    match node {
        Value::Array(nodes) => nodes.iter().try_for_each(admit_tree),
        Value::Object(fields) => {
            admit_node(fields)?;
            fields.values().try_for_each(admit_tree)
        }
        _ => Ok(()),
    }
}

fn admit_node(fields: &Map<String, Value>) -> Result<(), SqlError> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "TABLE_FUNCTION" => {
            let name = fields["function"]["function_name"].as_str().unwrap_or_default().to_lowercase();
            match TABLE_FUNCTIONS.contains(&name.as_str()) {
                true => Ok(()),
                false => Err(SqlError::Refused(format!("the function {name} is not available here"))),
            }
        }
        // DuckDB reads a table that is named like a file from that file.
        "BASE_TABLE" if text("table_name").contains(['/', '.', '*']) => {
            Err(SqlError::Refused(format!("{:?} names a file, not a table", text("table_name"))))
        }
        _ => Ok(()),
    }
}

fn select(db: &Connection, sql: &str, max_rows: usize) -> Result<Rows, duckdb::Error> {
    let mut statement = db.prepare(sql)?;
    let mut found = statement.query([])?;
    let columns = found.as_ref().map(|statement| statement.column_names()).unwrap_or_default();
    let (mut rows, mut truncated) = (Vec::new(), false);
    while let Some(row) = found.next()? {
        if rows.len() == max_rows {
            truncated = true;
            break;
        }
        let cells = (0..columns.len()).map(|at| row.get::<_, Cell>(at).map(json));
        rows.push(cells.collect::<Result<_, _>>()?);
    }
    Ok(Rows { columns, rows, truncated })
}

/// A cell as JSON. What JSON's numbers cannot hold exactly goes out as text.
fn json(cell: Cell) -> Value {
    const EXACT: i128 = 1 << 53;
    let integer = |n: i128| match i64::try_from(n) {
        Ok(small) if n.abs() <= EXACT => small.into(),
        _ => n.to_string().into(),
    };
    match cell {
        Cell::Null => Value::Null,
        Cell::Boolean(b) => b.into(),
        Cell::TinyInt(n) => n.into(),
        Cell::SmallInt(n) => n.into(),
        Cell::Int(n) => n.into(),
        Cell::BigInt(n) => integer(n.into()),
        Cell::HugeInt(n) => integer(n),
        Cell::UTinyInt(n) => n.into(),
        Cell::USmallInt(n) => n.into(),
        Cell::UInt(n) => n.into(),
        Cell::UBigInt(n) => integer(n.into()),
        Cell::Float(x) => number(x.into()),
        Cell::Double(x) => number(x),
        Cell::Timestamp(unit, n) => instant(unit, n),
        Cell::Date32(days) => date(days),
        Cell::Text(text) | Cell::Enum(text) => text.into(),
        Cell::List(items) | Cell::Array(items) => items.into_iter().map(json).collect(),
        Cell::Struct(fields) => fields.iter().map(|(name, value)| (name.clone(), json(value.clone()))).collect(),
        other => format!("{other:?}").into(),
    }
}

/// JSON has no NaN and no infinity; they keep Prometheus' spelling.
fn number(x: f64) -> Value {
    match serde_json::Number::from_f64(x) {
        Some(finite) => finite.into(),
        None if x.is_nan() => "NaN".into(),
        None => if x > 0.0 { "+Inf" } else { "-Inf" }.into(),
    }
}

fn instant(unit: TimeUnit, n: i64) -> Value {
    let at = match unit {
        TimeUnit::Second => Timestamp::from_second(n),
        TimeUnit::Millisecond => Timestamp::from_millisecond(n),
        TimeUnit::Microsecond => Timestamp::from_microsecond(n),
        TimeUnit::Nanosecond => Timestamp::from_nanosecond(n.into()),
    };
    at.map_or_else(|_| n.into(), |at| at.to_string().into())
}

fn date(days: i32) -> Value {
    let day = Date::constant(1970, 1, 1).checked_add(jiff::Span::new().days(days));
    day.map_or_else(|_| days.into(), |day| day.to_string().into())
}

fn first_line(error: &duckdb::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Interrupts a connection's statement once its time is up.
struct Deadline {
    done: mpsc::Sender<()>,
    timer: std::thread::JoinHandle<bool>,
}

impl Deadline {
    fn start(db: &Connection, timeout: Duration) -> Self {
        let interrupt = db.interrupt_handle();
        let (done, is_done) = mpsc::channel();
        let timer = std::thread::spawn(move || {
            let passed = is_done.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
            if passed {
                interrupt.interrupt();
            }
            passed
        });
        Self { done, timer }
    }

    /// Stops the clock; whether the time was up before.
    fn passed(self) -> bool {
        let _ = self.done.send(());
        self.timer.join().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DataDir, Settings};
    use serde_json::json;

    fn ask(sql: &str) -> Result<Rows, SqlError> {
        let root = tempfile::tempdir().unwrap();
        let database = Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        run(&database, sql, Limits { timeout: Duration::from_millis(500), max_rows: 3 })
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
            ("DROP VIEW jobs", "refused: only SELECT statements are answered"),
            ("INSERT INTO records.jobs SELECT * FROM jobs", "refused: only SELECT statements are answered"),
            ("COPY jobs TO 'x'", "refused: only SELECT statements are answered"),
            ("ATTACH 'x'", "refused: only SELECT statements are answered"),
            ("SET threads = 1", "refused: only SELECT statements are answered"),
            ("SELECT 1; DROP VIEW jobs", "refused: only SELECT statements are answered"),
            ("SELECT 1; SELECT 2", "refused: expected one statement, found 2"),
            ("", "refused: expected one statement, found 0"),
            ("SELECT * FROM read_text('takt.lock')", "refused: the function read_text is not available here"),
            ("SELECT (SELECT count(*) FROM glob('*'))", "refused: the function glob is not available here"),
            ("WITH t AS (FROM Read_CSV('x')) FROM t", "refused: the function read_csv is not available here"),
            ("SELECT * FROM query('SELECT 1')", "refused: the function query is not available here"),
            ("SELECT * FROM 'takt.parquet'", "refused: \"takt.parquet\" names a file, not a table"),
        ] {
            assert_eq!(ask(sql).unwrap_err().to_string(), said, "{sql}");
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_line() {
        let said = ask("SELECT * FROM jbs").unwrap_err().to_string();
        assert!(said.contains("jbs does not exist") && !said.contains('\n'), "{said}");
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
