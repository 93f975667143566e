//! Statements read only the unsealed samples that they need, and return the same rows as without
//! that.

use super::super::session::Session;
use super::super::{Cancel, Limits, Rows, SqlError, json};
use super::*;
use crate::unsealed::VARIABLE;
use crate::{Clock, Column, DataDir, Group, STALE, Sample, Store, StoreConfig};
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME};
use tempfile::{TempDir, tempdir};

const MINUTE: i64 = 60_000;

/// 2026-11-20 12:00:00 UTC.
const BEGIN: i64 = 1_795_176_000_000;

/// Minutes with rows of unsealed samples.
const MINUTES: i64 = 60;

const METRICS: [&str; 3] = ["heat", "load", "power"];
const NODES: [&str; 2] = ["n1", "n2"];

const LIMITS: Limits = Limits {
    timeout: std::time::Duration::from_secs(60),
    max_rows: 100_000,
    memory_bytes: 2 << 30,
};

/// A store with a sealed hour and then an hour of unsealed samples in chunks, in the head, and with
/// timestamps of their own.
struct Cluster {
    store: Store,
    now: Arc<AtomicI64>,
    group: Group,
    columns: Vec<Column>,
    _root: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let root = tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(BEGIN - 60 * MINUTE));
        let shown = Arc::clone(&now);
        let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
        let config = StoreConfig {
            commit_interval_ms: 20,
            min_free_bytes: 0,
            seal_minutes: 1440,
            ..StoreConfig::default()
        };
        let directory = DataDir::claim(root.path()).unwrap();
        let store = Store::open_at(directory, &config, &mut Registry::default(), clock).unwrap();
        let group = store.group();
        let labels = METRICS
            .iter()
            .flat_map(|metric| NODES.map(|node| (*metric, node)))
            .map(|(metric, node)| {
                [(METRIC_NAME, metric), ("node", node)]
                    .into_iter()
                    .collect::<Labels>()
            });
        let columns = labels
            .map(|labels| group.column(&labels).unwrap())
            .collect();
        let cluster = Self {
            store,
            now,
            group,
            columns,
            _root: root,
        };
        cluster.write(BEGIN - 60 * MINUTE, BEGIN);
        cluster.store.seal().unwrap();
        cluster.write(BEGIN, BEGIN + MINUTES * MINUTE);
        cluster
    }

    /// Writes a row each half minute. A series is absent for ten minutes of each hour, and one has
    /// samples between the rows, too.
    fn write(&self, from: i64, to: i64) {
        for at in (from..to).step_by(MINUTE as usize / 2) {
            self.now.store(at, Ordering::SeqCst);
            let minute = (at - BEGIN).div_euclid(MINUTE);
            let mut row: Vec<f64> = (0..6).map(|n| (minute * (n % 4) + n) as f64).collect();
            if minute.rem_euclid(60) / 10 == 3 {
                row[4] = STALE;
            }
            row[5] = STALE;
            let sample = Sample {
                at: Timestamp(at + 7),
                value: minute as f64,
            };
            let ticket = self.group.ticket(Timestamp(at)).unwrap();
            let own_time = [(self.columns[5], sample)];
            self.group.commit(ticket, &row, &own_time).unwrap();
        }
        self.store.flush();
    }

    fn session(&self) -> Session {
        let database = self.store.database();
        database.follow_metrics().unwrap();
        Session::open(database.connect().unwrap(), None, false).unwrap()
    }
}

/// The text of what a statement needs; empty if that is everything or nothing.
fn text_of(cluster: &Cluster, sql: &str) -> String {
    let db = cluster.store.database().connect().unwrap();
    db.execute_batch("SET search_path = 'memory.main,memory.metrics'")
        .unwrap();
    let needed = needed(&db, sql).unwrap();
    needed.map_or(String::new(), |needed| needed.to_string())
}

#[test]
fn conditions_on_time_and_metric_limit_what_is_read() {
    let cluster = Cluster::new();
    cluster.session();
    let least = i64::MIN;
    let most = i64::MAX;
    let [heat, load] = ["heat", "load"].map(metric_hash);
    let noon = BEGIN;
    for (sql, expected) in [
        ("SELECT count(*) FROM samples", String::new()),
        ("SELECT count(*), max(ts) FROM samples", format!("{least} {most} all")),
        (
            "SELECT avg(value) FROM samples WHERE metric = 'heat' AND ts > TIMESTAMP '2026-11-20 12:00:00'",
            format!("{noon} {most} of {heat}"),
        ),
        (
            "SELECT ts, value FROM samples WHERE metric = 'heat' AND (labels ->> '$.node') = 'n1'",
            format!("{least} {most} of {heat}"),
        ),
        (
            "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS time, avg(value) FROM samples WHERE metric IN ('heat', 'load')
             AND ts BETWEEN '2026-11-20T12:00:00Z' AND '2026-11-20T12:30:00.0005Z' GROUP BY 1 ORDER BY 1",
            format!("{noon} {} of {heat} {load}", noon + 30 * MINUTE + 1),
        ),
        (
            "SELECT * FROM heat WHERE ts >= make_timestamp(1795174200000000) AND '2026-11-20 12:30' > ts",
            format!("{} {} all", noon - 30 * MINUTE, noon + 30 * MINUTE + 1),
        ),
        // A semi-join reads one side before and one after noon.
        (
            "SELECT count(*) FROM (SELECT * FROM samples WHERE ts < '2026-11-20 12:00') AS a
             WHERE value IN (SELECT value FROM samples WHERE ts > '2026-11-20 12:30')",
            format!("{least} {most} all"),
        ),
        // Conditions that are no range.
        (
            "SELECT count(*) FROM samples WHERE ts < '2026-11-20 12:00' OR value > 3",
            format!("{least} {most} all"),
        ),
        (
            "SELECT count(*) FROM samples WHERE ts + INTERVAL 9 MINUTE > TIMESTAMP '2026-11-20 12:00'",
            format!("{least} {most} all"),
        ),
        // The window needs the rows before.
        (
            "SELECT * FROM (SELECT ts, lag(value) OVER (ORDER BY ts) AS v FROM samples) WHERE ts > '2026-11-20 12:00'",
            format!("{least} {most} all"),
        ),
        ("SELECT * FROM jobs WHERE submit_time > '2026-11-20' -- ts", String::new()),
    ] {
        assert_eq!(text_of(&cluster, sql), expected, "{sql}");
    }
}

/// SQL of a time, in all forms that clients send.
fn time() -> impl Strategy<Value = String> {
    (-70_i64..70, 0_i64..3, 0..6).prop_map(|(minutes, extra, form)| {
        let at = BEGIN + minutes * MINUTE + extra * 7;
        let text = jiff::Timestamp::from_millisecond(at)
            .unwrap()
            .strftime("%Y-%m-%d %H:%M:%S.%3f")
            .to_string();
        match form {
            0 => format!("TIMESTAMP '{text}'"),
            1 => format!("'{}Z'", text.replace(' ', "T")),
            2 => format!("make_timestamp({})", at * 1000 + 1),
            3 => format!("(TIMESTAMP '{text}' - INTERVAL 5 MINUTE)"),
            4 => format!("'{text}'::TIMESTAMP_MS"),
            _ => format!("DATE '{}'", &text[..10]),
        }
    })
}

/// A condition on the table `t`.
fn condition() -> impl Strategy<Value = String> {
    let comparison = prop::sample::select(vec!["<", "<=", ">", ">=", "=", "<>"]);
    let metric = prop::sample::select(vec!["heat", "load", "power", "none", "", "Heat"]);
    let leaf = prop_oneof![
        4 => (comparison.clone(), time()).prop_map(|(is, time)| format!("t.ts {is} {time}")),
        1 => (comparison.clone(), time()).prop_map(|(is, time)| format!("{time} {is} t.ts")),
        2 => (time(), time()).prop_map(|(from, to)| format!("t.ts BETWEEN {from} AND {to}")),
        1 => (time(), time()).prop_map(|(one, other)| format!("t.ts NOT BETWEEN {one} AND {other}")),
        1 => (time(), time()).prop_map(|(one, other)| format!("t.ts IN ({one}, {other})")),
        1 => time().prop_map(|time| format!("date_trunc('hour', t.ts) >= {time}")),
        1 => time().prop_map(|time| format!("t.ts + INTERVAL 9 MINUTE < {time}")),
        1 => (0_i64..70).prop_map(|n| format!("epoch_ms(t.ts) > {}", BEGIN + n * MINUTE)),
        1 => (0_i64..9000).prop_map(|n| format!("t.ts > now() - INTERVAL {n} MINUTE")),
        4 => metric.clone().prop_map(|metric| format!("t.metric = '{metric}'")),
        1 => metric.clone().prop_map(|metric| format!("t.metric <> '{metric}'")),
        1 => (metric.clone(), metric.clone()).prop_map(|(a, b)| format!("t.metric IN ('{a}', '{b}')")),
        1 => metric.clone().prop_map(|m| format!("t.metric IN ('{m}', 'a', 'b', 'load', 'd', 'e', 'f')")),
        1 => Just("t.metric LIKE 'po%'".to_owned()),
        1 => Just("(t.labels ->> '$.node') = 'n1'".to_owned()),
        1 => (0..200).prop_map(|n| format!("t.value > {n}")),
        1 => Just("t.value IS NULL".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 2..4).prop_map(|all| format!("({})", all.join(" AND "))),
            1 => prop::collection::vec(inner.clone(), 2..3).prop_map(|all| format!("({})", all.join(" OR "))),
            1 => inner.prop_map(|one| format!("NOT ({one})")),
        ]
    })
}

/// A statement over samples. `t` stands for the table of a condition.
fn statement() -> impl Strategy<Value = String> {
    let all = [condition(), condition(), condition()];
    (all, 0..20).prop_map(|([x, y, z], form)| {
        let of = |condition: &str, table: &str| condition.replace("t.", &format!("{table}."));
        let a = of(&x, "a");
let b = of(&y, "b");
        let both = of(&z, "b");
let c = of(&z, "s");
        let on = "a.metric = b.metric AND a.labels = b.labels";
        let join = |kind: &str, on: &str, after: &str| {
            format!("SELECT a.*, b.* FROM samples AS a {kind} JOIN samples AS b ON {on} WHERE {after}")
        };
        match form {
            0 => format!("SELECT * FROM samples AS a WHERE {a}"),
            1 => format!("SELECT * FROM recent AS a WHERE {a}"),
            2 => format!("SELECT metric, count(*), min(ts), max(ts), sum(value) FROM samples AS a WHERE {a} GROUP BY ALL"),
            3 => join("INNER", &format!("{on} AND a.ts = b.ts"), &format!("{a} AND {b}")),
            4 => join("LEFT", &format!("{on} AND a.ts = b.ts AND {both}"), &a),
            5 => join("FULL", &format!("{on} AND a.ts = b.ts AND {both}"), &format!("{a} OR {b}")),
            6 => join("RIGHT", &format!("{on} AND a.ts = b.ts"), &b),
            7 => join("ASOF LEFT", &format!("{on} AND a.ts > b.ts + INTERVAL 3 MINUTE"), &b),
            8 => join("ASOF", &format!("{on} AND a.ts >= b.ts"), &format!("{a} AND {b}")),
            9 => format!("SELECT a.* FROM samples AS a SEMI JOIN samples AS b ON {on} AND a.value = b.value AND {b}"),
            10 => format!("SELECT a.* FROM samples AS a ANTI JOIN samples AS b ON {on} AND a.value = b.value AND {b} WHERE {a}"),
            11 => format!("SELECT * FROM samples AS a WHERE {a} AND EXISTS (SELECT 1 FROM samples AS b WHERE a.ts = b.ts AND {b})"),
            12 => format!("SELECT * FROM samples AS a WHERE value NOT IN (SELECT value FROM samples AS b WHERE value IS NOT NULL AND {b})"),
            13 => format!("SELECT * FROM (SELECT *, lag(value) OVER (PARTITION BY metric, labels ORDER BY ts) FROM samples AS a WHERE {a}) AS b WHERE {b}"),
            14 => format!("SELECT * FROM (SELECT * FROM samples AS a WHERE {a} ORDER BY ALL LIMIT 20 OFFSET 5) AS b WHERE {b}"),
            15 => format!("SELECT * FROM samples AS a WHERE {a} UNION ALL SELECT * FROM samples AS b WHERE {b}"),
            16 => format!("WITH s AS (SELECT * FROM samples AS a WHERE {a}) SELECT count(*), max(s.ts) FROM s, s AS b WHERE s.ts = b.ts AND {c}"),
            17 => format!("SELECT * FROM latest AS a WHERE {a}"),
            18 => format!("SELECT a.ts, a.value, b.value FROM heat AS a JOIN samples AS b USING (ts) WHERE {b}"),
            _ => format!("SELECT a.metric, (SELECT max(b.value) FROM samples AS b WHERE b.metric = a.metric AND {b}) FROM samples AS a WHERE {a}"),
        }
    })
}

/// The rows of an answer, sorted; an error's text is the same for both ways.
fn sorted(answer: Result<super::super::ResultSet, SqlError>) -> Result<Rows, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    let mut rows = json::rows(&answer);
    rows.rows
        .sort_by_key(|row| row.iter().map(ToString::to_string).collect::<Vec<_>>());
    Ok(rows)
}

/// Each statement returns the same rows whether or not scans leave samples out, and so do the
/// statements after it in its session.
#[test]
fn a_statement_returns_the_rows_that_it_returns_with_all_samples() {
    let cluster = Cluster::new();
    let session = cluster.session();
    // Some lists of times mix types that DuckDB does not compare.
    let answered = Cell::new(0);
    let limited = Cell::new(0);
    let config = ProptestConfig {
        cases: 400,
        ..ProptestConfig::default()
    };
    proptest!(config, |(sql in statement())| {
        let found = sorted(session.select(&sql, LIMITS, &Cancel::default()));
        // The same session has the same clock.
        session.db.execute_batch(&format!("SET VARIABLE {VARIABLE} = ''")).unwrap();
        let expected = sorted(session.fetch(&sql, LIMITS));
        prop_assert_eq!(&found, &expected);
        answered.set(answered.get() + u32::from(found.is_ok()));
        let text = text_of(&cluster, &sql.replace("now()", "TIMESTAMP '2026-11-20 13:00'"));
        let is_limited = !text.is_empty() && text != Needed::ALL.to_string();
        limited.set(limited.get() + u32::from(is_limited));
    });
    let counts = (answered.get(), limited.get());
    assert!(counts.0 > 350 && counts.1 > 50, "{counts:?}");
}
