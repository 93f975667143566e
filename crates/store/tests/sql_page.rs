//! Runs the queries of docs/sql.md on a small cluster and compares their results.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use takt_store::sql::{Limits, run};
use takt_store::{DataDir, Database, Settings};
use tempfile::tempdir;

/// Three runs on two nodes, one of which is down. alice holds G1 and uses it; bob holds G2 and
/// leaves it idle.
const CLUSTER: &str = r#"
INSERT INTO records.jobs BY NAME
SELECT 'lab' AS cluster, job_id, submit_time, submit_time AS eligible_time, start_time, end_time, state, user_name AS "user",
    account, 'gpu' AS "partition", 1 AS nodes, 8 AS cpus, gpus, 0 AS suspended_seconds, 7200 AS timelimit_seconds,
    'test' AS source, end_time AS recorded_at
FROM (VALUES
    ('1', TIMESTAMP_S '2026-10-01 08:00:00', TIMESTAMP_S '2026-10-01 08:01:00', TIMESTAMP_S '2026-10-01 09:01:00',
        'COMPLETED', 'alice', 'a', 1),
    ('2', TIMESTAMP_S '2026-10-01 08:30:00', TIMESTAMP_S '2026-10-01 09:30:00', TIMESTAMP_S '2026-10-01 10:30:00',
        'FAILED', 'bob', 'b', 1),
    ('3', TIMESTAMP_S '2026-10-01 09:00:00', TIMESTAMP_S '2026-10-01 09:00:10', TIMESTAMP_S '2026-10-01 10:00:10',
        'COMPLETED', 'bob', 'b', NULL)
) AS t(job_id, submit_time, start_time, end_time, state, user_name, account, gpus);
INSERT INTO records.time_offsets VALUES
    ('lab', 'Europe/Oslo', TIMESTAMP_S '2026-03-29 01:00:00', TIMESTAMP_S '2026-10-25 01:00:00', 7200);
INSERT INTO records.rate_cards VALUES ('lab', TIMESTAMP_S '2025-12-31 23:00:00', NULL, 'EUR', 1.5, '{}', 0.05, 0, 0, 0);
INSERT INTO hot.series (id, metric, labels) VALUES
    (1, 'up', '{"cluster":"lab","instance":"n1:9855","node":"n1"}'),
    (2, 'up', '{"cluster":"lab","instance":"n2:9855","node":"n2"}'),
    (3, 'takt_gpu_job_info', '{"cluster":"lab","jobid":"1","node":"n1","user":"alice","uuid":"G1"}'),
    (4, 'takt_gpu_job_info', '{"cluster":"lab","jobid":"2","node":"n1","user":"bob","uuid":"G2"}'),
    (5, 'takt_gpu_energy_joules_total', '{"cluster":"lab","node":"n1","uuid":"G1"}'),
    (6, 'takt_gpu_energy_joules_total', '{"cluster":"lab","node":"n1","uuid":"G2"}'),
    (7, 'takt_gpu_utilization_ratio', '{"cluster":"lab","node":"n1","uuid":"G1"}'),
    (8, 'takt_gpu_utilization_ratio', '{"cluster":"lab","node":"n1","uuid":"G2"}'),
    (9, 'node_load1', '{"cluster":"lab","node":"n1"}');
-- Every minute from 8 to 11: G1 takes 300 W and G2 60 W; what G1 does it does at 90 percent.
INSERT INTO hot.samples (series, ts, value)
SELECT s.id, t.ts, CASE s.id WHEN 1 THEN 1 WHEN 2 THEN 0 WHEN 5 THEN 300 * epoch(t.ts - TIMESTAMP '2026-10-01')
    WHEN 6 THEN 60 * epoch(t.ts - TIMESTAMP '2026-10-01') WHEN 7 THEN 0.9 WHEN 8 THEN 0 ELSE minute(t.ts) // 5 END
FROM hot.series AS s, range(TIMESTAMP '2026-10-01 08:00:00', TIMESTAMP '2026-10-01 11:00:00', INTERVAL 1 MINUTE) AS t(ts)
WHERE s.id NOT IN (3, 4);
INSERT INTO hot.samples (series, ts, value)
SELECT i.id, t.ts, 1
FROM (VALUES (3, TIMESTAMP '2026-10-01 08:01:00', TIMESTAMP '2026-10-01 09:01:00'),
        (4, TIMESTAMP '2026-10-01 09:30:00', TIMESTAMP '2026-10-01 10:30:00')) AS i(id, since, until),
    range(i.since, i.until, INTERVAL 1 MINUTE) AS t(ts);
"#;

/// Expected first rows of each query, by its title.
fn expected() -> Vec<(&'static str, Value)> {
    vec![
        ("energy by user", json!([["alice", 0.3], ["bob", 0.06]])),
        (
            "worst idle GPUs",
            json!([["n1", "G2", "bob", "2", 0.0, 60]]),
        ),
        (
            "waiting time by partition and user",
            json!([["gpu", "bob", 2, 1805, 3420], ["gpu", "alice", 1, 60, 60]]),
        ),
        (
            "GPU hours by account, with each one's share",
            json!([["a", 1.0, 50.0], ["b", 1.0, 50.0]]),
        ),
        (
            "GPU hours of runs that did not complete",
            json!([["FAILED", "bob", 1, 1.0]]),
        ),
        (
            "time asked for and time used",
            json!([["alice", 1, 0.5], ["bob", 1, 0.5]]),
        ),
        ("submissions by hour of the day", json!([[10, 2], [11, 1]])),
        ("GPU hours by day", json!([["2026-10-01", 2.0]])),
        (
            "cost by account",
            json!([["b", "EUR", 2.3], ["a", "EUR", 1.9]]),
        ),
        (
            "nodes and GPUs that are down",
            json!([["lab", "n2", null, "2026-10-01T10:59:00Z"]]),
        ),
        (
            "load by node in steps of five minutes",
            json!([
                ["2026-10-01T08:00:00Z", "n1", 0.0],
                ["2026-10-01T08:05:00Z", "n1", 1.0]
            ]),
        ),
        (
            "runs whose GPUs never worked",
            json!([["lab", "2", "bob", 1, 1.0]]),
        ),
    ]
}

#[test]
fn each_query_of_the_page_returns_the_expected_rows() {
    let root = tempdir().unwrap();
    let database =
        Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
    database.connect().unwrap().execute_batch(CLUSTER).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let page = fs::read_to_string(page).unwrap();
    let queries: Vec<&str> = page
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let expected = expected();
    assert_eq!(queries.len(), expected.len());
    for (sql, (title, rows)) in queries.iter().zip(expected) {
        assert!(
            sql.starts_with(&format!("-- {title}\n")),
            "expected the query {title:?}, found:\n{sql}"
        );
        let found = run(&database, sql, Limits::default())
            .unwrap_or_else(|error| panic!("{title}: {error}"));
        let rows = rows.as_array().unwrap();
        assert!(found.rows.len() >= rows.len(), "{title}: {:?}", found.rows);
        for (found, expected) in found.rows.iter().zip(rows) {
            let expected = expected.as_array().unwrap();
            // The bar chart is not compared.
            assert_eq!(&found[..expected.len()], &expected[..], "{title}");
        }
    }
}

#[test]
fn a_metric_is_a_view_with_its_labels() {
    let root = tempdir().unwrap();
    let database =
        Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
    let insert = |sql: &str| database.connect().unwrap().execute_batch(sql).unwrap();
    let ask = |sql: &str| run(&database, sql, Limits::default());
    assert!(
        ask("SELECT * FROM up")
            .unwrap_err()
            .to_string()
            .contains("up does not exist")
    );
    insert(
        r#"INSERT INTO hot.series (id, metric, labels) VALUES (1, 'up', '{"node":"n1","ts":"x"}');
        INSERT INTO hot.samples VALUES (1, TIMESTAMP_MS '2026-10-01 00:00:00', 1)"#,
    );
    // A metric that is newer than the views. Its label `ts` does not clash with the column `ts`.
    let rows = ask("SELECT * FROM up").unwrap();
    assert_eq!(rows.columns, ["ts", "value", "node", "label_ts"]);
    assert_eq!(
        rows.rows,
        [[
            json!("2026-10-01T00:00:00Z"),
            json!(1.0),
            json!("n1"),
            json!("x")
        ]]
    );
    insert(
        r#"INSERT INTO hot.series (id, metric, labels) VALUES (2, 'up', '{"node":"n2","rack":"a b"}');
        INSERT INTO hot.samples VALUES (2, TIMESTAMP_MS '2026-10-01 00:00:01', 0)"#,
    );
    assert!(database.follow_metrics().unwrap());
    assert!(!database.follow_metrics().unwrap());
    let rows = ask("SELECT node, rack, value FROM metrics.up ORDER BY ts").unwrap();
    assert_eq!(
        rows.rows,
        [
            [json!("n1"), json!(null), json!(1.0)],
            [json!("n2"), json!("a b"), json!(0.0)]
        ]
    );
}
