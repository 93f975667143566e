//! Stock engines read the lake in place, and their numbers are the server's.

use crate::lab::{DAY, Lab, MONTH};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_accounting::{GroupBy, Period, usage};
use takt_slurm::time_zone;
use takt_store::Records;

/// Engines that run in a Python of their own.
const IN_PROCESS: &[&str] = &["delta-rs", "duckdb", "clickhouse", "polars"];

/// Lets engines answer the questions of `engines.py` about a lake at `address`. The month is October
/// 2024, the day the first one with samples.
pub fn ask(
    python: &Path,
    lab: &Lab,
    address: &str,
    engines: &[&str],
    keys: &[(&str, &str)],
) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let midnight = lab.now().0 / 1000 / DAY * DAY;
    let day = jiff::Timestamp::from_second(midnight - 4 * DAY).unwrap();
    let mut command = Command::new(python);
    command
        .arg(root.join("tests/lake/engines.py"))
        .args([address, "2024-10", &day.strftime("%Y-%m-%d").to_string()])
        .arg(root.join("../../docs/lake.md"))
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

/// Compares the answers of engines with the report, the store, and each other.
pub fn check(lab: &Lab, answers: &Value, engines: &[&str], page: &Value, step: &str) {
    let status = lab.status();
    let rows = status.tables.iter();
    let rows = rows.map(|table| (table.table.clone(), table.rows.into()));
    let rows = Value::Object(rows.collect());
    let power = json!([
        ["g01", 720, 300.0 + 719.0 / 7.0],
        ["g02", 720, 300.0 + 719.0 / 7.0]
    ]);
    let expected = json!({"rows": rows, "gpu_seconds": reported(lab), "power": power});
    assert_eq!(
        expected["gpu_seconds"].as_array().unwrap().len(),
        2,
        "{expected}"
    );
    for engine in engines {
        for question in ["rows", "gpu_seconds", "power"] {
            let answer = &answers[engine][question];
            assert_eq!(*answer, expected[question], "{engine}, {step}: {question}");
        }
        if *engine != "polars" {
            for (title, rows) in page.as_object().unwrap() {
                let own = &answers[engine]["page"][title];
                assert_eq!(own, rows, "{engine}, {step}: {title}");
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

/// Checks that the queries of the page have rows, and that its GPU-hours are the report's.
fn check_page(lab: &Lab, page: &Value) {
    let queries = page.as_object().unwrap();
    assert!(queries.len() >= 12, "{queries:?}");
    for (title, rows) in queries {
        let is_of_failed_runs = title.contains("did not complete");
        let is_empty = rows.as_array().unwrap().is_empty();
        assert_eq!(is_empty, is_of_failed_runs, "{title}: {rows}");
    }
    let hours = &page["GPU-hours of a month by user, as in the report"];
    let reported = reported(lab);
    let reported = reported.as_array().unwrap();
    assert_eq!(hours.as_array().unwrap().len(), reported.len());
    for (row, reported) in hours.as_array().unwrap().iter().zip(reported) {
        assert_eq!(row[0], reported[0]);
        let seconds = row[1].as_f64().unwrap() * 3600.0;
        assert!(
            (seconds - reported[1].as_f64().unwrap()).abs() < 1.0,
            "{row} {reported}"
        );
    }
}

/// Reads the lake after the first round and after corrections, from checkpoints and from commits behind
/// them. `others` are engines with the Python of each.
fn read_twice(lab: &mut Lab, python: &Path, others: &[(PathBuf, &str)]) {
    lab.config.checkpoint_commits = 2;
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
        check_page(lab, page);
        check(lab, &answers, IN_PROCESS, page, step);
        for (python, engine) in others {
            let answers = ask(python, lab, &address, &[engine], &[]);
            check(lab, &answers, &[engine], page, step);
        }
    }
    let log = std::fs::read_dir(lab.lake().join("usage/_delta_log")).unwrap();
    let names = log.map(|file| file.unwrap().file_name().into_string().unwrap());
    let checkpoints: Vec<String> = names.filter(|name| name.contains(".checkpoint.")).collect();
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
    let (Some(python), Some(spark), Some(trino)) =
        (find("lake-venv"), find("lake-spark"), find("lake-trino"))
    else {
        return;
    };
    read_twice(
        &mut Lab::new(),
        &python,
        &[(spark, "spark"), (trino, "trino")],
    );
}
