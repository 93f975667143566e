//! Stock engines read the lake in place, and their numbers are the server's: those of the report, and those of
//! the queries of docs/sql.md. docs/lake-queries.md has the queries for the lake.

use crate::lab::{DAY, Lab, MONTH};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_accounting::{GroupBy, Period, usage};
use takt_jobs::time_zone;
use takt_store::Records;
use takt_store::sql::{Limits, run};

/// Engines that run in a Python of their own.
const IN_PROCESS: &[&str] = &["delta-rs", "duckdb", "clickhouse", "polars"];

/// Engines with a Python environment each, by its name.
pub const OWN_PROCESS: [(&str, &str); 3] = [
    ("duckdb-delta", "lake-duckdb"),
    ("spark", "lake-spark"),
    ("trino", "lake-trino"),
];

/// The page with the queries of the lake, and the one with the server's.
const PAGES: [&str; 2] = ["docs/lake-queries.md", "docs/sql.md"];

fn path_of(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page)
}

/// Lets engines answer the questions of `engines.py` about a lake at `address`.
pub fn ask(
    python: &Path,
    lab: &Lab,
    address: &str,
    engines: &[&str],
    keys: &[(&str, &str)],
) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command
        .arg(root.join("tests/lake/engines.py"))
        .arg(address)
        .arg(path_of(PAGES[0]))
        .args(engines)
        .envs(keys.iter().copied());
    // The tables are read with the permissions of the lake alone, and nothing is written there.
    let output = command.current_dir(lab.folder()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// GPU-seconds of each user in October, as the usage report has them.
fn reported(lab: &Lab) -> Value {
    let zone = time_zone("Europe/Oslo").unwrap();
    let now = jiff::Timestamp::try_from(lab.now()).unwrap();
    let month = Period::month("2026-10", &zone, now).unwrap();
    let records = Records::of(lab.store().database());
    let mut runs = records.jobs(&takt_store::JobFilter::default()).unwrap();
    runs.sort_by(|a, b| a.job_id.cmp(&b.job_id));
    let held = runs.iter().map(takt_jobs::JobRun::held);
    let report = usage(held, "lab", &month, &[GroupBy::User], now.into());
    let mut rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| (&row.group.0[0].1, row.figures.gpu_seconds))
        // The engines' sum is NULL for a user without a known number of GPUs.
        .map(|(user, seconds)| json!([user, seconds.filter(|it| *it != 0)]))
        .collect();
    rows.sort_by_key(Value::to_string);
    Value::Array(rows)
}

/// Compares the answers of engines with the report, the store, and each other.
pub fn check(lab: &Lab, answers: &Value, engines: &[&str], page: &Value, step: &str) {
    let status = lab.status();
    let rows = status
        .tables
        .iter()
        .map(|table| (table.table.clone(), table.rows.into()));
    let rows = Value::Object(rows.collect());
    // Averages over 720 samples that rise by 1/7 W.
    let power = json!([
        ["g01", 720, 300.0 + 719.0 / 7.0],
        ["g02", 720, 300.0 + 719.0 / 7.0],
    ]);
    let expected = json!({
        "rows": rows,
        "gpu_seconds": reported(lab),
        "power": power,
    });
    assert_eq!(
        expected["gpu_seconds"].as_array().unwrap().len(),
        3,
        "{expected}"
    );

    for engine in engines {
        for question in ["rows", "gpu_seconds", "power"] {
            let answer = &answers[engine][question];
            assert_eq!(*answer, expected[question], "{engine}, {step}: {question}");
        }
        if *engine != "polars" {
            let own = &answers[engine]["page"];
            let titles = |page: &Value| -> Vec<String> {
                page.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(titles(own), titles(page), "{engine} lacks a version");
            for (title, rows) in page.as_object().unwrap() {
                assert_eq!(own[title], *rows, "{engine}, {step}: {title}");
            }
        }
    }
    if let Some(versions) = answers["version"].as_object() {
        for table in status.tables {
            assert_eq!(
                versions[&table.table],
                json!(table.version),
                "{}",
                table.table
            );
        }
    }
}

/// A cell as `engines.py` writes it: numbers, also those in texts, are rounded, and times have no zone.
fn plain(cell: &Value) -> Value {
    let number = match cell {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    if let Some(number) = number {
        let rounded: f64 = format!("{number:.8e}").parse().unwrap();
        return json!(rounded);
    }
    let is_time = |text: &str| text.parse::<jiff::Timestamp>().is_ok();
    match cell.as_str() {
        Some(text) if is_time(text) => json!(text[..19].replace('T', " ")),
        _ => cell.clone(),
    }
}

/// Titles and texts of the queries of docs/sql.md.
fn own_queries() -> Vec<(String, String)> {
    fs::read_to_string(path_of(PAGES[1]))
        .unwrap()
        .split("```sql\n-- ")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .map(|query| query.split_once('\n').unwrap())
        .map(|(title, sql)| (title.to_owned(), sql.to_owned()))
        .collect()
}

/// Checks that each query of docs/sql.md has the same answer from the lake as from the server's own SQL, or is
/// listed as one that cannot be asked, and that the page's GPU-hours are the report's.
pub fn check_page(lab: &Lab, page: &Value, step: &str) {
    let text = fs::read_to_string(path_of(PAGES[0])).unwrap();
    let mut compared = 0;
    for (title, sql) in own_queries() {
        let is_listed = text.contains(&format!("\n| {title} | "));
        let Some(rows) = page.get(&title) else {
            assert!(is_listed, "{} lacks {title:?}", PAGES[0]);
            continue;
        };
        assert!(!is_listed, "{title:?} is a query of {}", PAGES[0]);
        let own = run(lab.store().database(), &sql, Limits::default())
            .unwrap_or_else(|error| panic!("{title}: {error}"));
        // Only DuckDB has bars.
        let count = own
            .columns
            .iter()
            .take_while(|name| *name != "many")
            .count();
        let own: Vec<Value> = own
            .rows
            .iter()
            .map(|row| row[..count].iter().map(plain).collect())
            .collect();
        assert_eq!(*rows, Value::Array(own), "{step}: {title}");
        compared += 1;
    }

    // A page whose queries are no longer found would otherwise pass.
    assert!(compared >= 10, "only {compared} queries of {}", PAGES[1]);
    for (title, rows) in page.as_object().unwrap() {
        assert!(!rows.as_array().unwrap().is_empty(), "{title} has no rows");
    }

    let hours = &page["GPU-hours of a month by user, as in the report"];
    let reported = reported(lab);
    let reported = reported.as_array().unwrap();
    assert_eq!(hours.as_array().unwrap().len(), reported.len());
    for (row, reported) in hours.as_array().unwrap().iter().zip(reported) {
        assert_eq!(row[0], reported[0]);
        let seconds = row[1].as_f64().map(|hours| (hours * 3600.0).round());
        assert_eq!(seconds, reported[1].as_f64(), "{row} {reported}");
    }
}

/// Reads the lake after the first round and after corrections, from checkpoints and from commits behind
/// them. `others` are engines with the Python of each.
fn read_twice(lab: &mut Lab, python: &Path, others: &[(PathBuf, &str)]) {
    // So few that one round reads a checkpoint with commits behind it.
    lab.config.checkpoint_commits = 2;
    lab.end_all();
    let address = lab.lake().display().to_string();
    for step in [
        "a checkpoint",
        "a correction behind it",
        "another checkpoint",
    ] {
        match step {
            "a checkpoint" => {}
            // A commit that removes and adds is seen as one change.
            "a correction behind it" => lab.import("1", MONTH + 2 * DAY, Some(MONTH + 3 * DAY)),
            _ => lab.import("2", MONTH + 3 * DAY, Some(MONTH + 5 * DAY)),
        }
        lab.round();
        let answers = ask(python, lab, &address, IN_PROCESS, &[]);
        let page = &answers["duckdb"]["page"];
        check_page(lab, page, step);
        check(lab, &answers, IN_PROCESS, page, step);
        for (python, engine) in others {
            let answers = ask(python, lab, &address, &[engine], &[]);
            check(lab, &answers, &[engine], page, step);
        }
    }

    let checkpoints: Vec<String> = fs::read_dir(lab.lake().join("usage/_delta_log"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".checkpoint."))
        .collect();
    assert_eq!(checkpoints.len(), 2, "{checkpoints:?}");
    assert_eq!(lab.verify(), [""; 0]);
}

#[test]
fn engines_read_the_lake_in_place() {
    let test = "engines_read_the_lake_in_place";
    let Some(python) = crate::environment(test, "lake-venv", "scripts/lake-engines.sh") else {
        return;
    };
    read_twice(&mut Lab::new(), &python, &[]);
}

#[test]
#[ignore = "takes minutes"]
fn spark_and_trino_read_the_lake_in_place() {
    let test = "spark_and_trino_read_the_lake_in_place";
    let find = |name| crate::environment(test, name, "scripts/lake-engines.sh exam");
    let Some(python) = find("lake-venv") else {
        return;
    };
    let others = OWN_PROCESS.map(|(engine, name)| Some((find(name)?, engine)));
    let others: Vec<(PathBuf, &str)> = others.into_iter().flatten().collect();
    read_twice(&mut Lab::new(), &python, &others);
}
