use super::*;
use crate::sql::{Limits, Rows, SqlError, run};
use crate::{DataDir, Settings};
use serde_json::json;
use tempfile::{TempDir, tempdir};

/// A database with the series that a `SELECT` of id, metric and labels returns.
fn database_of(series: &str) -> (Database, TempDir) {
    let root = tempdir().unwrap();
    let data = DataDir::claim(root.path()).unwrap();
    let database = Database::open(&data, &Settings::default()).unwrap();
    let insert = format!("INSERT INTO hot.series (id, metric, labels) {series}");
    database.connect().unwrap().execute_batch(&insert).unwrap();
    (database, root)
}

fn ask(database: &Database, sql: &str) -> Result<Rows, SqlError> {
    run(database, sql, Limits::default())
}

/// Number of views of metrics that DuckDB has.
fn view_count(database: &Database) -> usize {
    let db = database.connect().unwrap();
    let sql = "SELECT count(*) FROM duckdb_views() WHERE schema_name = 'metrics'";
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A page with 190,000 names took SQL 3.4 GB and minutes of work before any statement.
#[test]
fn many_metrics_make_few_views() {
    let (database, _root) = database_of(
        r#"SELECT range, 'm' || range, '{"node":"n' || range || '"}' FROM range(50000)"#,
    );
    assert!(database.follow_metrics().unwrap());
    assert_eq!(view_count(&database), LISTED_METRICS);
    let left_out = database.metric_views.lock().unwrap().left_out();
    assert_eq!(left_out, 50_000 - LISTED_METRICS);
    assert!(!database.follow_metrics().unwrap());

    // A statement that names no metric makes no view, others one for each.
    let mut expected = LISTED_METRICS;
    for (sql, views) in [
        ("SELECT 1", 0),
        ("SELECT node, ts FROM m7", 0),
        ("SELECT node, ts FROM m49999", 1),
        ("SELECT node FROM metrics.m49998", 1),
        ("SELECT node FROM memory.metrics.\"M49997\"", 1),
        (
            "WITH t AS (SELECT * FROM M49996) SELECT a.node FROM t AS a JOIN (FROM m49995) AS b USING (node)",
            2,
        ),
        ("DESCRIBE m49994", 1),
        ("EXPLAIN SELECT * FROM m49993", 1),
    ] {
        ask(&database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        expected += views;
        assert_eq!(view_count(&database), expected, "{sql}");
    }

    // The oldest metrics are listed, and what does not exist has no view.
    let listed = ask(
        &database,
        "SELECT * FROM (SHOW TABLES) WHERE name IN ('m999', 'm1000')",
    );
    assert_eq!(listed.unwrap().rows, [[json!("m999")]]);
    let error = ask(&database, "SELECT * FROM m50000").unwrap_err();
    assert!(
        error.to_string().contains("m50000 does not exist"),
        "{error}"
    );
    assert_eq!(view_count(&database), expected);
}

/// One label that SQL could not name kept all metrics from SQL.
#[test]
fn no_name_of_a_target_keeps_others_from_statements() {
    let (database, _root) = database_of(
        r#"VALUES (1, 'up', '{"id":"1","node":"n1","~/":"x"}'),
            (2, 'up', '{"NODE":"other","a\"b":"y","label_ts":"1","ts":"2"}'),
            (3, 'UP', '{"stolen":"1"}'),
            (4, 'zero' || chr(0), '{"node":"n1"}'),
            (5, 'quoted "; DROP', '{"zero\u0000":"1","it''s; --":"z"}')"#,
    );
    let insert =
        "INSERT INTO hot.samples SELECT id, TIMESTAMP_MS '2026-10-01 00:00:00', id FROM hot.series";
    database.connect().unwrap().execute_batch(insert).unwrap();

    // Before and after the views of listed metrics exist.
    for _ in 0..2 {
        let rows = ask(&database, "SELECT * EXCLUDE (ts) FROM up ORDER BY value").unwrap();
        let columns = ["value", "a\"b", "id", "label_ts", "node", "~/"];
        assert_eq!(rows.columns, columns);
        assert_eq!(
            rows.rows[0],
            [
                json!(1.0),
                json!(null),
                json!("1"),
                json!(null),
                json!("n1"),
                json!("x")
            ]
        );
        assert_eq!(
            rows.rows[1],
            [
                json!(2.0),
                json!("y"),
                json!(null),
                json!("1"),
                json!(null),
                json!(null)
            ]
        );
        assert_eq!(rows.rows.len(), 2);

        let rows = ask(&database, r#"SELECT * EXCLUDE (ts) FROM "Quoted ""; drop""#).unwrap();
        assert_eq!(rows.columns, ["value", "it's; --"]);
        assert_eq!(rows.rows, [[json!(5.0), json!("z")]]);

        database.follow_metrics().unwrap();
    }
}

#[test]
fn a_view_has_a_limited_number_of_columns() {
    let (database, _root) = database_of(
        r#"SELECT range, 'm', '{"node":"n1","l' || range || '":"x"}' FROM range(1000)"#,
    );
    let columns = ask(&database, "DESCRIBE m").unwrap().rows.len();
    assert_eq!(columns, 2 + COLUMNS_MAX);
    database.follow_metrics().unwrap();
    assert_eq!(ask(&database, "DESCRIBE m").unwrap().rows.len(), columns);
    assert!(ask(&database, "SELECT node, l0 FROM m").is_ok());
}
