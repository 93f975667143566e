//! `kill -9` at the writes of a round that corrects records, replaces days, deletes what is past its
//! retention, and writes checkpoints.

use crate::lab::{DAY, HOUR, Lab, MONTH};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use takt_lake::{LakeConfig, TableStatus};
use takt_model::Matcher;
use tempfile::TempDir;

/// Folder of the lab on which [`a_round_of_another_process`] works.
const FOLDER: &str = "TAKT_TEST_LAB";

/// Whether the other process verifies the lake after the round.
const VERIFIES: &str = "TAKT_TEST_VERIFIES";

/// The configuration of the round under test.
fn config() -> LakeConfig {
    LakeConfig {
        checkpoint_commits: 2,
        replaced_hours: 1,
        // The first of the two days goes.
        retention_1h_days: 4,
        ..LakeConfig::default()
    }
}

/// A round over the store that another process has left; does nothing unless it is asked to.
#[test]
fn a_round_of_another_process() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let lab = Lab::again(Path::new(&folder), config());
    let done = lab.try_round(&lab.config, false).unwrap();
    assert_eq!(done.error(), "");
    if env::var_os(VERIFIES).is_some() {
        assert_eq!(lab.verify(), [""; 0]);
    }
}

fn other_process(folder: &Path, more: &[(&str, &str)]) -> ExitStatus {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "crash::a_round_of_another_process",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .envs(more.iter().copied());
    let output = command.output().unwrap();
    let has_ended = output.status.success() || output.status.signal().is_some();
    assert!(has_ended, "{}", String::from_utf8_lossy(&output.stderr));
    output.status
}

/// Compiles the layer that kills at a write. `None` without a compiler.
fn layer(folder: &Path) -> Option<PathBuf> {
    let library = folder.join("fault.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fault-layer/fault.c");
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library);
    let status = command.arg(source).arg("-ldl").status();
    if status.is_err() {
        let is_skip_allowed = env::var_os("TAKT_TEST_NO_SKIP").is_none();
        assert!(
            is_skip_allowed,
            "a test of crashes would be skipped: needs gcc"
        );
        return None;
    }
    assert!(status.unwrap().success());
    Some(library)
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Each table with its version, and the versions that readers may see.
fn tables(lab: &Lab) -> BTreeMap<String, TableStatus> {
    let tables = lab.status().tables.into_iter();
    tables.map(|table| (table.table.clone(), table)).collect()
}

/// Kills the round at each `stride`-th write.
fn kill(stride: usize) {
    let root = TempDir::with_prefix("takt-lake-kills-").unwrap();
    let Some(layer) = layer(root.path()) else {
        return;
    };
    let mut lab = Lab::new();
    lab.config = LakeConfig {
        path: lab.config.path.clone(),
        ..config()
    };
    lab.config.retention_1h_days = 0;
    lab.round();
    lab.import(
        "1",
        MONTH + DAY + 9 * HOUR,
        Some(MONTH + 2 * DAY + 11 * HOUR),
    );
    lab.round();
    // What the round under test has to do: delete the file that was replaced, correct two tables of
    // records, replace the days of all samples without one metric, and delete a day of one table.
    lab.later(DAY);
    lab.import(
        "1",
        MONTH + DAY + 9 * HOUR,
        Some(MONTH + 2 * DAY + 12 * HOUR),
    );
    lab.store()
        .delete(&[Matcher::metric("node_load1")])
        .unwrap();
    let before = tables(&lab);
    let old_seconds = lab.gpu_seconds();
    let saved = lab.close();
    let work = root.path().join("work");
    let work_of = |more: &[(&str, &str)]| {
        let _ = fs::remove_dir_all(&work);
        copy(saved.path(), &work);
        other_process(&work, more)
    };
    work_of(&[(VERIFIES, "1")]);
    let whole = Lab::again(&work, config());
    let after = tables(&whole);
    let new_seconds = whole.gpu_seconds();
    // An hour of the corrected run, and a day of the one that has not ended.
    assert_eq!(new_seconds, old_seconds + 2 * 3600 + 2 * 86_400);
    for table in ["samples", "samples_5m", "samples_1h", "job_runs", "usage"] {
        assert!(before[table].version < after[table].version, "{table}");
    }
    assert!(after["samples_1h"].first > before["samples_1h"].first);
    drop(whole);
    let lake = work.join("lake").display().to_string();
    let log = root.path().join("calls").display().to_string();
    for call in (1..2000).step_by(stride) {
        let _ = fs::remove_file(&log);
        let at = call.to_string();
        let status = work_of(&[
            ("LD_PRELOAD", &layer.display().to_string()),
            ("FAULT_DIR", &lake),
            ("FAULT_AT", &at),
            ("FAULT_ERRNO", "5"),
            ("FAULT_MODE", "kill"),
            ("FAULT_LOG", &log),
        ]);
        let failed = fs::read_to_string(&log).unwrap_or_default();
        if status.success() {
            assert!(call > 100, "only {call} calls: {failed}");
            return;
        }
        assert_eq!(status.signal(), Some(9), "{failed}");
        // Readers: each version between the two, whole.
        let seen = Lab::again(&work, config());
        let seconds = seen.gpu_seconds();
        assert!(
            [old_seconds, new_seconds].contains(&seconds),
            "{failed}: {seconds}"
        );
        for (name, table) in tables(&seen) {
            let old = &before[&name];
            let new = &after[&name];
            assert!(
                (old.version..=new.version).contains(&table.version),
                "{failed}: {table:?}"
            );
            let is_end = |end: &TableStatus| end.version == table.version;
            for end in [old, new].into_iter().filter(|end| is_end(end)) {
                assert_eq!(
                    (end.rows, end.files, end.bytes),
                    (table.rows, table.files, table.bytes)
                );
            }
        }
        let findings = seen.verify();
        let is_late = |finding: &String| finding.contains("the next round writes");
        assert!(findings.iter().all(is_late), "{failed}: {findings:?}");
        drop(seen);
        assert!(other_process(&work, &[(VERIFIES, "1")]).success());
        let ended = Lab::again(&work, config());
        assert_eq!(tables(&ended).len(), after.len());
        for (name, table) in tables(&ended) {
            let end = &after[&name];
            assert_eq!(
                (end.rows, end.files),
                (table.rows, table.files),
                "{failed}: {name}"
            );
        }
    }
    panic!("a round makes more than 2000 calls");
}

#[test]
fn a_round_with_changes_may_be_killed() {
    kill(61);
}

#[test]
#[ignore = "takes minutes"]
fn a_round_with_changes_may_be_killed_at_many_writes() {
    kill(5);
}
