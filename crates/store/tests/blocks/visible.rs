//! SQL shows the tables that are documented, and nothing of internal ones: neither their names, columns and
//! sizes nor the paths of the data directory, although DuckDB's catalog, functions and plans have them.

use crate::bench_store::{BEGIN, Bench, HOUR, SECOND, config};
use duckdb::Connection;
use std::path::Path;
use takt_store::sql::{Limits, SqlClient};
use takt_store::{Database, quoted};
use tempfile::tempdir;

/// Every call and every table of DuckDB's own catalog, with arguments that ask for internals.
fn attempts(root: &Path) -> Vec<String> {
    let duckdb = Connection::open_in_memory().unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut statement = duckdb.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let functions = |kinds: &str| {
        column(&format!(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ({kinds})
             AND regexp_full_match(function_name, '[a-z_0-9]+') ORDER BY 1"
        ))
    };
    let root = root.display();
    let arguments = [
        String::new(),
        "'records'".to_owned(),
        "'records.access.tokens'".to_owned(),
        "'temp_directory'".to_owned(),
        "'takt_needed'".to_owned(),
        "'SELECT * FROM records.access.tokens'".to_owned(),
        format!("'{root}/*'"),
        "'records.access.tokens', 1".to_owned(),
        "'records', 'access', 'tokens'".to_owned(),
        "(SELECT 1)".to_owned(),
    ];

    let mut attempts = Vec::new();
    for name in functions("'table', 'table_macro', 'pragma'") {
        for arguments in &arguments {
            attempts.push(format!("SELECT * FROM {name}({arguments})"));
        }
    }
    for name in functions("'scalar', 'macro'") {
        for (prefix, arguments) in ["", "main.", "system.main.", "pg_catalog."]
            .iter()
            .flat_map(|prefix| {
                arguments[..6]
                    .iter()
                    .map(move |argument| (prefix, argument))
            })
        {
            attempts.push(format!("SELECT {prefix}{name}({arguments})"));
        }
    }
    let views =
        "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE internal ORDER BY 1";
    for view in column(views) {
        let name = view.split_once('.').unwrap().1;
        for table in [
            &view,
            name,
            &format!("system.{view}"),
            &format!("memory.{name}"),
        ] {
            attempts.push(format!("SELECT * FROM {table}"));
            attempts.push(format!("DESCRIBE {table}"));
            attempts.push(format!("SUMMARIZE {table}"));
            attempts.push(format!(
                "WITH \"{name}\" AS (SELECT * FROM {table}) SELECT * FROM \"{name}\""
            ));
            attempts.push(format!(
                "SELECT * FROM {table} JOIN (WITH \"{name}\" AS (SELECT 1 AS n) SELECT * FROM \"{name}\") AS t ON true"
            ));
        }
    }
    attempts.extend(
        [
            "SHOW ALL TABLES",
            "SHOW TABLES",
            "SHOW DATABASES",
            "SHOW SCHEMAS",
            "SHOW VARIABLES",
            "SHOW TABLES FROM records",
            "SHOW TABLES FROM records.access",
            "SHOW TABLES FROM memory",
            "DESCRIBE",
            "DESCRIBE records.access.tokens",
            "SELECT * FROM (SHOW ALL TABLES)",
            "SELECT * FROM (DESCRIBE records.jobs)",
            "SELECT * FROM records.jobs",
            "SELECT * FROM records.main.jobs",
            "SELECT * FROM hot.series",
            "SELECT * FROM records.access.tokens",
            "SELECT * FROM access.tokens",
            "SELECT * FROM tokens",
            "SELECT * FROM token",
            "SELECT records.access.tokens.hash FROM jobs",
            "SELECT * FROM temp.sqlite_master",
            "SELECT * FROM pg.relations",
            "SELECT * FROM information.views",
            "SELECT pg_get_viewdef(oid) FROM pg.pg_class",
            "SELECT * FROM samples",
            "SELECT *, filename FROM samples",
            "SELECT filename FROM power_watts",
            "SELECT * FROM samples ORDER BY error('x')",
            "EXPLAIN SELECT * FROM samples",
            "EXPLAIN (FORMAT json) SELECT * FROM samples",
        ]
        .map(str::to_owned),
    );
    attempts
}

/// The names that only the inside knows: tables, columns and sequences of tokens, sessions and passwords.
fn secrets(database: &Database) -> Vec<String> {
    let db = database.connect().unwrap();
    let mut statement = db
        .prepare(
            "SELECT DISTINCT column_name FROM duckdb_columns()
             WHERE database_name = 'records' AND schema_name = 'access' AND column_name LIKE '%\\_%' ESCAPE '\\'
             UNION SELECT 'access.' || table_name FROM duckdb_tables()
             WHERE database_name = 'records' AND schema_name = 'access'",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn sql_shows_nothing_of_internal_tables_and_files() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, 60 * SECOND);
    let database = bench.store.database();
    database.follow_metrics().unwrap();

    let mut secrets = secrets(database);
    assert!(secrets.len() > 5, "{secrets:?}");
    // Some names are those of columns of documented tables, too.
    let shown = database.connect().unwrap();
    let mut shown = shown
        .prepare("SELECT DISTINCT column_name FROM information.columns UNION SELECT column_name FROM pg.columns")
        .unwrap();
    let shown = shown.query_map([], |row| row.get(0)).unwrap();
    let shown: Vec<String> = shown.map(Result::unwrap).collect();
    secrets.retain(|name| !shown.contains(name));
    secrets.push(root.path().display().to_string());

    let limits = Limits {
        timeout: std::time::Duration::from_secs(2),
        ..Limits::default()
    };
    // An admin's session differs in the audit log only: a part of the attempts will do.
    let clients = [
        ("HTTP", SqlClient::default(), 1),
        ("HTTP, admin", SqlClient::default().of_admin(true), 20),
        ("PostgreSQL", SqlClient::postgres("alice".to_owned()), 1),
    ];
    let mut answered = 0;
    let mut told = Vec::new();
    let attempts = attempts(root.path());
    for (from, mut client, step) in clients {
        let asked = attempts.iter().step_by(step);
        for attempt in asked.filter(|attempt| !attempt.contains("sleep")) {
            let (is_answer, said) = match client.rows(database, attempt, limits) {
                Ok(rows) => (true, serde_json::to_string(&rows).unwrap()),
                Err(error) => (false, error.to_string()),
            };
            answered += usize::from(is_answer);
            for secret in &secrets {
                // An answer may repeat its question.
                if said.contains(secret) && !attempt.contains(secret) {
                    told.push(format!("{from}: {attempt}: {secret}: {said:.300}"));
                }
            }
        }

        // Clients can still list the tables.
        for needed in [
            "SHOW TABLES",
            "DESCRIBE jobs",
            "SUMMARIZE jobs",
            takt_store::sql::TABLES,
        ] {
            let rows = client.rows(database, needed, limits).unwrap();
            assert!(rows.rows.len() > 5, "{needed}: {rows:?}");
        }
        for (table, said) in [
            (
                "power_wats",
                "Catalog Error: Table with name power_wats does not exist! Did you mean \"power_watts\"?",
            ),
            (
                "tokens",
                "Catalog Error: Table with name tokens does not exist!",
            ),
            (
                "sqlite_master",
                "refused: the table sqlite_master is not available here",
            ),
        ] {
            let error = client
                .rows(database, &format!("SELECT * FROM {}", table), limits)
                .unwrap_err();
            assert!(error.to_string().starts_with(said), "{error}");
        }
        let of_subquery = "WITH tokens AS (SELECT 1 AS n), t AS (FROM tokens) SELECT * FROM t JOIN tokens USING (n)";
        assert_eq!(
            client
                .rows(database, of_subquery, limits)
                .unwrap()
                .rows
                .len(),
            1
        );
        assert!(
            client
                .rows(database, &format!("SELECT {}", quoted("x")), limits)
                .is_ok()
        );
    }
    assert!(answered > 100, "{answered}");
    assert!(
        told.is_empty(),
        "{} answers:\n{}",
        told.len(),
        told.join("\n")
    );
}
