//! Stock engines read the lake in place, and their numbers are the server's.

use crate::lab::{DAY, Lab, MONTH};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_accounting::{GroupBy, Period, usage};
use takt_slurm::time_zone;
use takt_store::Records;

/// The Python of the virtual environment that `scripts/lake-engines.sh` makes, if it exists. Writes
/// the reason for skipping to the terminal. With `TAKT_TEST_NO_SKIP`, a skip is a failure.
fn python() -> Option<PathBuf> {
    let cache = |variable: &str, below: &str| {
        std::env::var_os(variable).map(|folder| PathBuf::from(folder).join(below))
    };
    let folder = cache("TAKT_CACHE_DIR", "")
        .or_else(|| cache("XDG_CACHE_HOME", "takt"))
        .or_else(|| cache("HOME", ".cache/takt"));
    let python = folder.map(|folder| folder.join("lake-venv/bin/python"));
    let found = python.filter(|python| python.exists());
    if found.is_none() {
        let test = "engines_read_the_lake_in_place";
        assert!(
            std::env::var_os("TAKT_TEST_NO_SKIP").is_none(),
            "{test} would be skipped"
        );
        let line = format!("test {test} ... skipped: needs scripts/lake-engines.sh\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}

fn ask(python: &Path, lab: &Lab, day: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lake/engines.py");
    let mut command = Command::new(python);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lake.md");
    command
        .arg(script)
        .arg(lab.lake())
        .args(["2024-10", day])
        .arg(page);
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
    let month = Period::month("2024-10", &zone, now).unwrap();
    let records = Records::of(lab.store().database());
    let mut runs = records.jobs(&takt_store::JobFilter::default()).unwrap();
    runs.sort_by(|a, b| a.job_id.cmp(&b.job_id));
    let held = runs.iter().map(takt_slurm::JobRun::held);
    let report = usage(held, "lab", &month, &[GroupBy::User], now.into());
    let mut rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| json!([row.group.0[0].1, row.figures.gpu_seconds]))
        .filter(|row| row[1] != 0)
        .collect();
    rows.sort_by_key(Value::to_string);
    Value::Array(rows)
}

#[test]
fn engines_read_the_lake_in_place() {
    let Some(python) = python() else { return };
    let lab = Lab::new();
    lab.round();
    let midnight = lab.now().0 / 1000 / DAY * DAY;
    let day = jiff::Timestamp::from_second(midnight - 4 * DAY).unwrap();
    let day = day.strftime("%Y-%m-%d").to_string();
    let check = |step: &str| {
        let answers = ask(&python, &lab, &day);
        let status = lab.status();
        let rows: serde_json::Map<String, Value> = status
            .tables
            .iter()
            .map(|table| (table.table.clone(), table.rows.into()))
            .collect();
        let rows = Value::Object(rows);
        let power = json!([
            ["g01", 720, 300.0 + 719.0 / 7.0],
            ["g02", 720, 300.0 + 719.0 / 7.0]
        ]);
        let expected = json!({"rows": rows, "gpu_seconds": reported(&lab), "power": power});
        assert_eq!(
            expected["gpu_seconds"].as_array().unwrap().len(),
            2,
            "{expected}"
        );
        let page = answers["duckdb"]["page"].as_object().unwrap();
        assert!(page.len() >= 8, "{page:?}");
        for (title, rows) in page {
            let is_of_failed_runs = title.contains("did not complete");
            let is_empty = rows.as_array().unwrap().is_empty();
            assert_eq!(is_empty, is_of_failed_runs, "{title}: {rows}");
        }
        for engine in ["delta-rs", "duckdb", "clickhouse", "polars"] {
            for question in ["rows", "gpu_seconds", "power"] {
                let answer = &answers[engine][question];
                assert_eq!(*answer, expected[question], "{engine}, {step}: {question}");
            }
            if engine != "polars" {
                let own = &answers[engine]["page"];
                for (title, rows) in page {
                    assert_eq!(own[title], *rows, "{engine}, {step}: {title}");
                }
            }
        }
        // The page's query is the report's number.
        let hours = &page["GPU-hours of a month by user, as in the report"];
        for (row, reported) in hours
            .as_array()
            .unwrap()
            .iter()
            .zip(reported(&lab).as_array().unwrap())
        {
            assert_eq!(row[0], reported[0]);
            let seconds = row[1].as_f64().unwrap() * 3600.0;
            assert!(
                (seconds - reported[1].as_f64().unwrap()).abs() < 1.0,
                "{row} {reported}"
            );
        }
        for table in status.tables {
            assert_eq!(
                answers["version"][&table.table],
                json!(table.version),
                "{}",
                table.table
            );
        }
    };
    check("first round");
    // A commit that removes and adds is seen as one change.
    lab.import("1", MONTH + 2 * DAY, Some(MONTH + 3 * DAY));
    lab.round();
    check("after a correction");
}
