//! `kill -9` at the writes of a round that corrects records, replaces days, deletes what is past its
//! retention, and writes checkpoints.

use crate::lab::{DAY, HOUR, Lab, MONTH, TableRows, rows_in};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_lake::{LakeConfig, TableStatus};
use takt_model::Matcher;
use tempfile::TempDir;

/// Folder of the lab on which [`a_round_of_another_process`] works.
const FOLDER: &str = "TAKT_TEST_LAB";

/// URL of the S3 with the lake of the other process; not set for a lake in the lab's folder.
#[cfg(feature = "s3")]
pub const ENDPOINT: &str = "TAKT_TEST_ENDPOINT";

/// Whether the other process verifies the lake after the round.
pub const VERIFIES: &str = "TAKT_TEST_VERIFIES";

/// The configuration of the round under test.
pub fn config() -> LakeConfig {
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
    // The test program runs itself with this variable; in an ordinary run the test has nothing to
    // do.
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    #[cfg_attr(
        not(feature = "s3"),
        expect(unused_mut, reason = "only S3 changes the configuration")
    )]
    let mut lab = Lab::again(Path::new(&folder), config());
    #[cfg(feature = "s3")]
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        lab.use_s3(endpoint);
    }

    let done = lab.try_round(&lab.config, false).unwrap();
    assert_eq!(done.error(), "");
    if env::var_os(VERIFIES).is_some() {
        assert_eq!(lab.verify(), [""; 0]);
    }
}

/// The command of [`a_round_of_another_process`].
pub fn other_process(folder: &Path, more: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "crash::a_round_of_another_process",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .envs(more.iter().copied());
    command
}

/// Brings a store and its lake to the start of a round that deletes a replaced file, corrects two tables of
/// records, replaces the days of all samples without one metric, and with [`config`] deletes a day of one table.
pub fn prepare(lab: &mut Lab) {
    lab.config = LakeConfig {
        path: lab.config.path.clone(),
        s3: lab.config.s3.clone(),
        retention_1h_days: 0,
        ..config()
    };
    let end = |hour: i64| Some(MONTH + 2 * DAY + hour * HOUR);

    lab.round();
    lab.import("1", MONTH + DAY + 9 * HOUR, end(11));
    lab.round();
    lab.later(DAY);
    lab.import("1", MONTH + DAY + 9 * HOUR, end(12));
    lab.store()
        .delete(&[Matcher::metric("node_load1")])
        .unwrap();
}

/// Each table: its status, and the rows that a reader finds.
pub type Tables = BTreeMap<String, (TableStatus, TableRows)>;

/// The tables of a lake whose files are in a folder.
pub fn tables(lab: &Lab, files: &Path) -> Tables {
    let tables = lab.status().tables.into_iter();
    let tables = tables.map(|table| {
        let rows = rows_in(files, &table.table);
        let counted = (rows.rows.cast_unsigned(), rows.rows);
        assert_eq!(counted, (table.rows, rows.different), "{table:?}");
        (table.table.clone(), (table, rows))
    });
    tables.collect()
}

/// Checks that the round between the two states changes what [`prepare`] says.
pub fn check_round(before: &Tables, after: &Tables) {
    for table in ["samples", "samples_5m", "samples_1h", "job_runs", "usage"] {
        assert!(
            before[table].0.version < after[table].0.version,
            "{table}: {after:?}"
        );
    }
    assert!(after["samples_1h"].0.first > before["samples_1h"].0.first);
}

/// Checks a lake whose round was killed: each table is in a version between the two, and whole.
pub fn check_killed(lab: &Lab, files: &Path, [before, after]: [&Tables; 2], step: &str) {
    for (name, (table, rows)) in tables(lab, files) {
        let ends = [&before[&name], &after[&name]];
        let [old, new] = ends.map(|(end, _)| end.version);
        assert!((old..=new).contains(&table.version), "{step}: {table:?}");
        for (end, of_end) in ends {
            if end.version == table.version {
                assert_eq!((end.files, end.bytes), (table.files, table.bytes), "{step}");
                assert_eq!(*of_end, rows, "{step}: {name}");
            }
        }
    }

    // A round that was cut off may be behind the store, but must not have written anything wrong.
    let findings = lab.verify();
    let late = ["the next round writes", "it has no log: write it"];
    let is_late = |finding: &String| late.iter().any(|it| finding.contains(it));
    assert!(findings.iter().all(is_late), "{step}: {findings:?}");
}

/// Checks that a lake has the same files and rows as after a round that was not killed.
pub fn check_ended(lab: &Lab, files: &Path, after: &Tables, step: &str) {
    let ended = tables(lab, files);
    assert_eq!(ended.len(), after.len());
    for (name, (table, rows)) in ended {
        let (end, of_end) = &after[&name];
        assert_eq!(end.files, table.files, "{step}: {name}");
        assert_eq!(*of_end, rows, "{step}: {name}");
    }
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

pub fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let status = command.arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Kills the round at each `stride`-th write.
fn kill(stride: usize) {
    let root = TempDir::with_prefix("takt-lake-kills-").unwrap();
    let Some(layer) = layer(root.path()) else {
        return;
    };
    let mut lab = Lab::new();
    prepare(&mut lab);
    let before = tables(&lab, &lab.lake());
    let old_seconds = lab.gpu_seconds();
    let saved = lab.close();
    let work = root.path().join("work");
    let work_of = |more: &[(&str, &str)]| {
        let _ = fs::remove_dir_all(&work);
        copy(saved.path(), &work);
        let output = other_process(&work, more).output().unwrap();
        let has_ended = output.status.success() || output.status.signal().is_some();
        assert!(has_ended, "{}", String::from_utf8_lossy(&output.stderr));
        output.status
    };
    // Without a kill: the state that every interrupted round has to reach in the end.
    work_of(&[(VERIFIES, "1")]);
    let whole = Lab::again(&work, config());
    let after = tables(&whole, &whole.lake());
    let new_seconds = whole.gpu_seconds();
    // An hour of the corrected run, and a day of the one that has not ended.
    assert_eq!(new_seconds, old_seconds + 2 * 3600 + 2 * 86_400);
    check_round(&before, &after);
    drop(whole);
    let lake = work.join("lake").display().to_string();
    let log = root.path().join("calls").display().to_string();
    // Ends with the first number that the round does not reach.
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
            eprintln!("the round makes less than {call} calls");
            return;
        }

        assert_eq!(status.signal(), Some(9), "{failed}");
        let seen = Lab::again(&work, config());
        check_killed(&seen, &seen.lake(), [&before, &after], &failed);
        drop(seen);

        let next = other_process(&work, &[(VERIFIES, "1")]).output().unwrap();
        assert!(next.status.success(), "{failed}: {next:?}");
        let ended = Lab::again(&work, config());
        check_ended(&ended, &ended.lake(), &after, &failed);
    }
    panic!("a round makes more than 2000 calls");
}

#[test]
fn a_round_with_changes_may_be_killed() {
    kill(61);
}

#[test]
#[ignore = "takes minutes"]
fn a_round_with_changes_may_be_killed_at_each_write() {
    kill(1);
}
