//! Reads the blocks with plain DuckDB, without takt.

use super::bench_store::{BEGIN, Bench, HOUR, SECOND, config, value};
use duckdb::Connection;
use std::fs;
use tempfile::tempdir;

#[test]
fn plain_duckdb_reads_the_blocks() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + 25 * HOUR, 60 * SECOND);

    // The server keeps running; only files are opened.
    let db = Connection::open_in_memory().unwrap();
    let path = root.path().to_string_lossy().replace('\'', "''");
    db.execute_batch(&format!("SET file_search_path = '{path}'"))
        .unwrap();
    db.execute_batch(&fs::read_to_string(root.path().join("blocks.sql")).unwrap())
        .unwrap();
    let sql =
        "SELECT epoch_ms(ts), value, labels FROM samples WHERE metric = 'power_watts' ORDER BY ts";
    let rows: Vec<(i64, f64, String)> = db
        .prepare(sql)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let expected: Vec<(i64, f64, String)> = (0..25 * 60)
        .map(|minute| BEGIN + minute * 60 * SECOND)
        .map(|at| (at, value(1, at), r#"{"node":"g02"}"#.to_owned()))
        .collect();
    assert!(rows == expected, "{} rows", rows.len());
    let hours: i64 = db
        .query_row(
            "SELECT count(*) FROM samples_1h WHERE metric = 'counter_total' AND increase = 3600",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(hours >= 21, "{hours}");
    let names: i64 = db
        .query_row("SELECT count(DISTINCT metric) FROM series", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(names, 4);
}
