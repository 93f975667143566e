//! A lake that a store with samples and records writes: rounds, corrections, retention, defects,
//! and other engines that read it in place.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot have its surroundings shall end, and says what it skipped"
)]

mod crash;
mod engines;
mod lab;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod s3_crash;
#[cfg(feature = "s3")]
mod s3_server;

use lab::{DAY, HOUR, Lab, MONTH};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use takt_lake::{LakeConfig, LakeError, TABLES};
use takt_model::Matcher;

/// The Python of an environment that `scripts/lake-engines.sh` makes, if it is complete. Writes the
/// reason for skipping to the terminal. With `TAKT_TEST_NO_SKIP`, a skip is a failure.
fn environment(test: &str, name: &str, script: &str) -> Option<PathBuf> {
    let cache = |variable: &str, below: &str| {
        env::var_os(variable).map(|folder| PathBuf::from(folder).join(below))
    };
    let folder = cache("TAKT_CACHE_DIR", "")
        .or_else(|| cache("XDG_CACHE_HOME", "takt"))
        .or_else(|| cache("HOME", ".cache/takt"));
    let found = folder
        .map(|folder| folder.join(name))
        .filter(|folder| folder.join("complete").exists());
    if found.is_none() {
        let is_skip_allowed = env::var_os("TAKT_TEST_NO_SKIP").is_none();
        assert!(is_skip_allowed, "{test} would be skipped");
        let line = format!("test {test} ... skipped: needs {script}\n");
        io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found.map(|folder| folder.join("bin/python"))
}

#[test]
fn a_round_writes_what_is_missing_and_the_next_one_nothing() {
    let lab = Lab::new();
    let done = lab.round();
    for table in &done.tables {
        assert!(table.files > 0 && table.rows > 0, "{table:?}");
    }

    assert_eq!(lab.verify(), [""; 0]);
    let status = lab.status();
    let names: Vec<&str> = status.tables.iter().map(|t| t.table.as_str()).collect();
    assert_eq!(names, TABLES.map(|table| table.name));
    assert_eq!(status.error, "");
    let rows: BTreeMap<&str, u64> = status
        .tables
        .iter()
        .map(|table| (table.table.as_str(), table.rows))
        .collect();
    assert_eq!(rows["samples"], lab.samples());
    assert_eq!(rows["job_runs"], 7, "a run that has not ended is not in it");
    // Two days of the first run and of the eighth, one of four others, and the finished ones of the run
    // that has not ended.
    let oslo_day = |seconds: i64| (seconds + 2 * HOUR).div_euclid(DAY);
    let days = oslo_day(lab.now().0 / 1000) - oslo_day(lab.running_since());
    assert_eq!((rows["usage"], days), (8 + 3, 3));

    let again = lab.round();
    assert!(again.tables.iter().all(|t| t.files == 0 && t.removed == 0));
    assert_eq!(lab.status().tables, status.tables);
    assert!(!lab.data().join("lake-staging").exists());
}

#[test]
fn files_have_the_permissions_of_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    fs::create_dir_all(lab.lake()).unwrap();
    // Neither the default nor what a usual umask gives.
    fs::set_permissions(lab.lake(), fs::Permissions::from_mode(0o750)).unwrap();
    lab.round();

    let mut folders = vec![lab.lake()];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            let is_folder = entry.file_type().unwrap().is_dir();
            let expected = if is_folder { 0o750 } else { 0o640 };
            assert_eq!(mode, expected, "{}", entry.path().display());
            if is_folder {
                folders.push(entry.path());
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

/// Files of the table below its folder, without the log.
fn files(lab: &Lab, table: &str) -> Vec<String> {
    let mut files = Vec::new();
    for folder in fs::read_dir(lab.lake().join(table)).unwrap() {
        let folder = folder.unwrap();
        if folder.file_name() != "_delta_log" {
            for file in fs::read_dir(folder.path()).unwrap() {
                files.push(file.unwrap().file_name().to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_corrected_record_replaces_its_month_and_the_old_file_goes_after_the_grace() {
    let lab = Lab::new();
    lab.round();
    let before = files(&lab, "job_runs");
    assert_eq!(before.len(), 1);
    let version = lab.version("job_runs");
    let usage = lab.gpu_seconds();

    lab.import(
        "1",
        MONTH + DAY + 9 * HOUR,
        Some(MONTH + 2 * DAY + 11 * HOUR),
    );
    let findings = lab.verify();
    let is_named = |text: &str| findings.iter().any(|finding| finding.contains(text));
    assert!(
        is_named("job_runs: month 2026-10 is not as in the records"),
        "{findings:?}"
    );
    assert!(is_named("usage: month 2026-10 of lab has "), "{findings:?}");

    let done = lab.round();
    let changed: Vec<&str> = done
        .tables
        .iter()
        .filter(|table| table.files > 0)
        .map(|table| table.table.as_str())
        .collect();
    assert_eq!(changed, ["job_runs", "usage"]);
    assert_eq!(lab.version("job_runs"), version + 1);
    // The run is an hour longer, with two GPUs.
    assert_eq!(lab.gpu_seconds(), usage + 2 * 3600);
    assert_eq!(lab.verify(), [""; 0]);
    let both = files(&lab, "job_runs");
    assert!(both.len() == 2 && both.contains(&before[0]), "{both:?}");

    // The grace is a day.
    lab.later(23 * HOUR);
    lab.round();
    assert_eq!(
        files(&lab, "job_runs"),
        both,
        "readers may have the old list"
    );
    lab.later(2 * HOUR);
    lab.round();
    let after = files(&lab, "job_runs");
    assert!(after.len() == 1 && after != before, "{after:?}");
    assert_eq!(lab.verify(), [""; 0]);
}

/// Deleted series are deleted in the lake, too; the rows of other series stay.
#[test]
fn deleted_series_leave_the_lake() {
    let lab = Lab::new();

    lab.round();
    let before = lab.status();
    let matcher = Matcher::metric("takt_gpu_power_watts");
    let deleted = lab.store().delete(&[matcher]).unwrap();
    assert!(deleted.rows > 0);
    lab.round();
    let after = lab.status();
    for (before, after) in before.tables.iter().zip(&after.tables).take(3) {
        assert!(0 < after.rows && after.rows < before.rows, "{after:?}");
    }
    assert_eq!(after.tables[0].rows, lab.samples());
    assert_eq!(lab.verify(), [""; 0]);
}

#[test]
fn a_day_with_many_rows_has_several_files() {
    let mut lab = Lab::new();
    lab.config.file_rows = 1000;
    lab.round();
    let samples = &lab.status().tables[0];
    assert!(samples.files >= 4, "{samples:?}");
    assert_eq!(samples.rows, lab.samples());
    assert_eq!(lab.verify(), [""; 0]);
}

#[test]
fn what_the_store_forgets_stays_until_the_lakes_own_retention() {
    let mut lab = Lab::new();
    lab.round();
    let before = lab.status().tables;
    // The store deletes samples after 15 days.
    lab.later(16 * DAY);
    lab.store().keep().unwrap();
    assert_eq!(lab.samples(), 0);
    lab.round();
    let after = lab.status().tables;
    assert_eq!(
        (after[0].rows, after[0].files),
        (before[0].rows, before[0].files)
    );
    assert_eq!(lab.verify(), [""; 0]);

    lab.config.retention_days = 10;
    lab.round();
    let after = lab.status().tables;
    assert_eq!((after[0].rows, after[0].files), (0, 0));
    assert_eq!(after[1].rows, before[1].rows, "rows of five minutes stay");

    lab.later(25 * HOUR);
    lab.round();
    assert_eq!(files(&lab, "samples"), [""; 0]);
}

#[test]
fn each_defect_has_a_finding() {
    let lab = Lab::new();
    lab.round();
    let file_of = |table: &str| {
        let mut found = Vec::new();
        for folder in fs::read_dir(lab.lake().join(table)).unwrap() {
            let folder = folder.unwrap().path();
            if !folder.ends_with("_delta_log") {
                found.extend(
                    fs::read_dir(folder)
                        .unwrap()
                        .map(|file| file.unwrap().path()),
                );
            }
        }
        found.sort();
        found.remove(0)
    };
    let found = |text: &str| {
        let findings = lab.verify();
        assert!(
            findings.iter().any(|finding| finding.contains(text)),
            "{text}: {findings:?}"
        );
    };
    let spoil = |path: &Path, spoiled: Option<Vec<u8>>, text: &str| {
        let whole = fs::read(path).unwrap();
        match spoiled {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        found(text);
        fs::write(path, whole).unwrap();
        assert_eq!(lab.verify(), [""; 0]);
    };
    for table in ["samples", "usage"] {
        let file = file_of(table);
        let whole = fs::read(&file).unwrap();
        spoil(&file, None, "No such file");
        spoil(
            &file,
            Some(whole[..whole.len() - 1].to_vec()),
            " bytes instead of ",
        );
        // Some bytes of the pages are not read by anyone, so several are tried.
        let mut is_found = false;
        for at in [20, whole.len() / 3, whole.len() / 2] {
            let mut bytes = whole.clone();
            // Within the pages, and not in the footer, whose damage makes the whole file
            // unreadable.
            bytes[at] ^= 0x55;
            fs::write(&file, bytes).unwrap();
            is_found |= !lab.verify().is_empty();
        }
        assert!(is_found, "{table}: no changed byte is found");
        fs::write(&file, &whole).unwrap();
    }

    let log = lab
        .lake()
        .join("usage/_delta_log/00000000000000000001.json");
    spoil(
        &log,
        Some(b"{\"add\": 7}\n".to_vec()),
        "is no valid Delta log",
    );
    let text = fs::read_to_string(&log).unwrap();
    let foreign = text.replace(".parquet", "-other.parquet");
    spoil(&log, Some(foreign.into_bytes()), "which Takt did not write");
    let statistics = text.replace("numRecords\\\":", "numRecords\\\":9");
    spoil(
        &log,
        Some(statistics.into_bytes()),
        "are not those of its statistics",
    );
    let first = lab
        .lake()
        .join("usage/_delta_log/00000000000000000000.json");
    spoil(&first, None, "the commit is missing");
}

/// The actions of a kind (`add`, `remove`) in the log of a table, in order.
fn actions(lab: &Lab, table: &str, kind: &str) -> Vec<serde_json::Value> {
    let log = lab.lake().join(table).join("_delta_log");
    let commits = (0..=lab.version(table)).map(|number| log.join(format!("{number:020}.json")));
    let text: String = commits
        .map(|commit| fs::read_to_string(commit).unwrap())
        .collect();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|action: &serde_json::Value| !action[kind].is_null())
        .collect()
}

/// Commits actions to a table, as a defect of Takt would.
fn commit(lab: &Lab, table: &str, actions: &[serde_json::Value]) {
    let number = lab.version(table) + 1;
    let path = format!("{table}/_delta_log/{number:020}.json");
    let lines = actions.iter().map(|action| format!("{action}\n"));
    fs::write(lab.lake().join(path), lines.collect::<String>()).unwrap();
}

/// A block that no file has, and one that is there twice, also under the name that it had before.
#[test]
fn lost_and_doubled_samples_are_findings() {
    let lab = Lab::new();
    lab.round();
    for table in ["samples", "samples_5m", "samples_1h"] {
        // The block has a file for each of two days.
        for (number, finding) in [
            "day 2026-10-08 has 0 rows, the store has ",
            "the next round writes it",
        ]
        .into_iter()
        .enumerate()
        {
            let added = &actions(&lab, table, "add")[number];
            let remove = serde_json::json!({
                "path": added["add"]["path"],
                "deletionTimestamp": lab.now().0,
                "dataChange": true,
            });
            commit(&lab, table, &[serde_json::json!({"remove": remove})]);
            let findings = lab.verify();
            let of_table = findings
                .iter()
                .find(|it| it.starts_with(&format!("{table}: ")));
            assert!(of_table.unwrap().contains(finding), "{findings:?}");
        }
        lab.round();
        assert_eq!(lab.verify(), [""; 0]);
    }
    assert_eq!(lab.status().tables[0].rows, lab.samples());

    let before = actions(&lab, "samples", "add");
    lab.store()
        .delete(&[Matcher::metric("node_load1")])
        .unwrap();
    lab.round();
    assert_eq!(lab.verify(), [""; 0]);
    let removed = actions(&lab, "samples", "remove").pop().unwrap();
    let is_removed = |add: &&serde_json::Value| add["add"]["path"] == removed["remove"]["path"];
    let again = before.iter().rfind(is_removed).unwrap();
    // Both blocks now have the rows of these days.
    commit(&lab, "samples", std::slice::from_ref(again));
    let findings = lab.verify();
    assert!(
        findings.len() == 1 && findings[0].contains("which replaces it"),
        "{findings:?}"
    );
}

#[test]
fn a_lake_has_one_writer() {
    let lab = Lab::new();
    let other = Lab::new();
    lab.round();
    let config = LakeConfig {
        path: Some(lab.lake()),
        ..LakeConfig::default()
    };

    let error = other.try_round(&config, false).unwrap_err();
    assert!(matches!(error, LakeError::Foreign { .. }), "{error}");
    // The operator moves to another data directory, with a copy of the old one's records.
    other.try_round(&config, true).unwrap();
    let error = lab.try_round(&config, false).unwrap_err();
    assert!(matches!(error, LakeError::Foreign { .. }), "{error}");
    // Its file system is not mounted.
    fs::rename(lab.lake(), lab.lake().with_extension("away")).unwrap();
    let error = other.try_round(&config, false).unwrap_err();
    assert!(matches!(error, LakeError::Gone { .. }), "{error}");
    assert!(!lab.lake().exists());

    // A folder of a person's files must not become a lake, even on request.
    fs::create_dir(lab.lake()).unwrap();
    fs::write(lab.lake().join("thesis.tex"), "x").unwrap();
    let error = other.try_round(&config, true).unwrap_err();
    assert!(matches!(error, LakeError::Occupied { .. }), "{error}");
}

/// Another program that commits to a table is noticed, and its commit stays.
#[test]
fn a_commit_of_another_program_is_not_overwritten() {
    let lab = Lab::new();
    lab.round();
    let version = lab.version("job_runs");
    let next = lab
        .lake()
        .join(format!("job_runs/_delta_log/{:020}.json", version + 1));
    let add = concat!(
        r#"{"add":{"path":"month=2026-10/part-0.snappy.parquet","size":7,"modificationTime":7,"#,
        r#""partitionValues":{"month":"2026-10"},"dataChange":true}}"#
    );
    fs::write(&next, add).unwrap();
    lab.import("9", MONTH + 5 * DAY, Some(MONTH + 5 * DAY + HOUR));
    let done = lab.try_round(&lab.config, false).unwrap();
    assert!(done.error().contains("Takt did not write"), "{done:?}");
    assert_eq!(fs::read_to_string(&next).unwrap(), add);
    assert!(
        lab.status().error.contains("job_runs"),
        "{:?}",
        lab.status()
    );
    fs::remove_file(next).unwrap();
    assert_eq!(lab.round().error(), "");
    assert_eq!(lab.verify(), [""; 0]);
}

#[test]
fn records_that_are_all_gone_stay_in_the_lake() {
    let lab = Lab::new();
    lab.round();
    let rows = lab.status().tables[3].rows;
    let db = lab.store().database().connect().unwrap();
    db.execute_batch("DELETE FROM records.jobs").unwrap();

    let done = lab.try_round(&lab.config, false).unwrap();
    assert!(
        done.error().contains("no rows for the table job_runs"),
        "{done:?}"
    );
    assert_eq!(lab.status().tables[3].rows, rows);
}

#[test]
fn the_page_names_each_table_with_its_division() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join("docs/lake.md");
    let page = fs::read_to_string(root).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for table in TABLES {
        let name = format!("`{}`", table.name);
        let division = format!("`{}`", table.partition.name);
        let is_row = |row: &&str| row.contains(&name) && row.contains(&division);
        assert!(rows.iter().any(is_row), "{name}");
    }
}

/// A table that an earlier version wrote without a column gets it with the next round.
#[test]
fn new_columns_are_a_commit() {
    let lab = Lab::new();
    lab.round();
    let first = lab
        .lake()
        .join("usage/_delta_log/00000000000000000000.json");
    let text = fs::read_to_string(&first).unwrap();
    assert!(text.contains("billing_seconds"));
    // As if an earlier version had named the column differently.
    fs::write(&first, text.replace("billing_seconds", "other_seconds")).unwrap();
    let version = lab.version("usage");
    let done = lab.round();
    assert_eq!(done.tables[4].files, 0, "the rows are the same");
    assert_eq!(lab.version("usage"), version + 1);
    assert_eq!(lab.verify(), [""; 0]);
    lab.round();
    assert_eq!(lab.version("usage"), version + 1);
}

/// Checkpoints are written after some commits, and Takt reads from them; a damaged or missing one is a
/// finding, costs nothing, and is replaced.
#[test]
fn checkpoints_are_the_version_of_their_number() {
    let mut lab = Lab::new();
    lab.config.checkpoint_commits = 3;
    lab.round();
    let log = lab.lake().join("usage/_delta_log");
    let checkpoints = || {
        let mut names: Vec<String> = fs::read_dir(&log)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains(".checkpoint."))
            .collect();
        names.sort();
        names
    };
    assert_eq!(checkpoints(), [""; 0], "two commits are not enough");
    let correct = |lab: &Lab, hour: i64| {
        lab.later(HOUR);
        let end = MONTH + 2 * DAY + hour * HOUR;
        lab.import("1", MONTH + DAY + 9 * HOUR, Some(end));
        lab.round();
    };
    correct(&lab, 11);
    let first = "00000000000000000002.checkpoint.parquet";
    assert_eq!(checkpoints(), [first]);
    let pointer = fs::read_to_string(log.join("_last_checkpoint")).unwrap();
    assert!(pointer.starts_with(r#"{"version":2,"size":"#), "{pointer}");
    assert_eq!(lab.verify(), [""; 0]);

    for hour in 12..15 {
        correct(&lab, hour);
    }
    let second = "00000000000000000005.checkpoint.parquet";
    assert_eq!(checkpoints(), [first, second]);
    let whole = lab.status().tables;
    assert_eq!(lab.verify(), [""; 0]);

    // The commits before it are not needed.
    let old = log.join("00000000000000000001.json");
    let aside = log.with_file_name("aside");
    fs::rename(&old, &aside).unwrap();
    assert_eq!(lab.status().tables, whole);
    lab.round();
    assert!(
        lab.verify()
            .iter()
            .any(|text| text.contains("the commit is missing"))
    );
    fs::rename(&aside, &old).unwrap();

    let finding = |text: &str| {
        let findings = lab.verify();
        assert!(
            findings.iter().any(|it| it.contains(text)),
            "{text}: {findings:?}"
        );
        assert!(
            findings
                .iter()
                .all(|it| it.contains("the next round writes both")),
            "{findings:?}"
        );
    };
    let path = log.join(second);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    finding(second);
    // Without a checkpoint the commits say the same.
    assert_eq!(lab.status().tables, whole);
    fs::write(&path, fs::read(log.join(first)).unwrap()).unwrap();
    finding("it has other files than the commits before it");
    fs::remove_file(&path).unwrap();
    finding("_last_checkpoint names no checkpoint");
    assert_eq!(lab.status().tables, whole);
    fs::remove_file(log.join("_last_checkpoint")).unwrap();
    lab.round();
    assert_eq!(checkpoints(), [first, second]);
    assert_eq!(lab.verify(), [""; 0]);
    // A file that was removed before the checkpoint is deleted after its time.
    lab.later(26 * HOUR);
    lab.round();
    assert_eq!(files(&lab, "job_runs").len(), 1);
    assert_eq!(lab.verify(), [""; 0]);
}
