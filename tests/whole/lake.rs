//! `takt lake` with the real program: failed writes, kills, and a full disk under a server.

use crate::disk_faults::layer;
use crate::lake_reader::{Reader, check_whole};
use crate::support::mount::Mount;
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::{Run, Takt};
use crate::support::{need_root, or_skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

const HEADER: &str = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|\
                      NNodes|NCPUS|NodeList|ElapsedRaw";

fn row(job: u32, user: &str, start: &str, end: &str) -> String {
    format!(
        "{job}|{user}|a|gpu|2024-10-01T10:00:00|2024-10-01T10:00:00|{start}|{end}|COMPLETED|\
         cpu=8,gres/gpu=2,mem=64G,node=1|1|8|n1|7200\n"
    )
}

/// Ended runs of two months.
fn jobs() -> String {
    [
        format!("{HEADER}\n"),
        row(1, "ann", "2024-10-31T20:00:00", "2024-11-02T20:00:00"),
        row(2, "bob", "2024-10-05T08:00:00", "2024-10-05T20:00:00"),
    ]
    .concat()
}

/// A data directory with records, and the configuration of a lake at `lake`.
fn with_records(takt: &Takt, config: &str) -> PathBuf {
    takt.import_sacct(jobs());
    let lake = takt.directory().join("lake");
    takt.file(
        "takt.toml",
        // The file layer knows whole paths.
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n{config}\n[lake]\npath = \"{}\"\n",
            lake.display()
        ),
    );
    lake
}

const INIT: [&str; 6] = ["lake", "init", "--config", "takt.toml", "--format", "json"];

fn rows_of(takt: &Takt, table: &str) -> u64 {
    let status = takt.run([
        "lake",
        "status",
        "--config",
        "takt.toml",
        "--format",
        "json",
    ]);
    let status: Value = serde_json::from_str(&status.ok()).unwrap();
    status["tables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|status| status["table"] == table)
        .unwrap()["rows"]
        .as_u64()
        .unwrap()
}

/// The tables' files by their logs, as a reader without Takt sees them. Each must be on disk, with
/// its length.
fn files_of_readers(lake: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for table in fs::read_dir(lake).into_iter().flatten().flatten() {
        let mut commits: Vec<PathBuf> = fs::read_dir(table.path().join("_delta_log"))
            .into_iter()
            .flatten()
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|found| found == "json"))
            .collect();
        commits.sort();
        for (number, commit) in commits.iter().enumerate() {
            assert!(commit.ends_with(format!("{number:020}.json")), "{commit:?}");
            let text = fs::read_to_string(commit).unwrap();
            assert!(text.ends_with("}\n"), "{commit:?}: {text}");
            for line in text.lines() {
                let action: Value = serde_json::from_str(line).unwrap();
                let path = |action: &Value| Some(table.path().join(action["path"].as_str()?));
                if let Some(path) = path(&action["remove"]) {
                    assert!(files.remove(&path), "{path:?}");
                }
                if let Some(path) = path(&action["add"]) {
                    let found = fs::metadata(&path).unwrap().len();
                    assert_eq!(Some(found), action["add"]["size"].as_u64(), "{path:?}");
                    assert!(files.insert(path));
                }
            }
        }
    }
    files
}

fn all_files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            all_files(&entry.path(), found);
        } else {
            found.insert(entry.path());
        }
    }
}

/// Lets `takt lake init` fail at each write into the lake in turn. Readers see whole versions only,
/// and the next round completes the lake and removes what is left.
fn try_every_call(mode: &str, errno: i32, stride: usize) {
    let takt = Takt::fresh();
    let Some(layer) = or_skip(layer(takt.directory())) else {
        return;
    };
    let lake = with_records(&takt, "");

    // Where delta-rs is installed, it reads the lake, too.
    let mut reader = Reader::start(&lake.display().to_string(), &[]).ok();
    let mut read = || reader.as_mut().map(Reader::read);
    let before = read();
    let log = takt.directory().join("calls");
    for call in (1..1000).step_by(stride) {
        let _ = fs::remove_dir_all(&lake);
        let _ = fs::remove_file(&log);
        let mut command = takt.command(INIT);
        command
            .env("LD_PRELOAD", &layer)
            .env("FAULT_DIR", &lake)
            .env("FAULT_AT", call.to_string())
            .env("FAULT_ERRNO", errno.to_string())
            .env("FAULT_MODE", mode)
            .env("FAULT_LOG", &log);
        let run = Run::of(&command.output().unwrap());
        let failed = fs::read_to_string(&log).unwrap_or_default();
        let failed = failed.lines().find(|line| !line.starts_with("calls"));
        files_of_readers(&lake);
        let seen = read();
        let Some(failed) = failed else {
            run.ok();
            assert!(call > 90, "only {} calls", call - 1);
            return;
        };

        // A failed removal of a finished file is repeated by the next round.
        let is_removal = failed.starts_with("unlink");
        assert!(run.code != Some(0) || is_removal, "{failed}: {run:?}");
        takt.run(INIT).ok();
        if let (Some(before), Some(seen), Some(after)) = (&before, &seen, read()) {
            check_whole(before, seen, &after, failed);
        }
        let named = files_of_readers(&lake);
        assert_eq!(
            named.len(),
            4,
            "{failed}: two months of runs and of usage: {named:?}"
        );
        let mut found = BTreeSet::new();
        all_files(&lake, &mut found);
        found.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with('.') || !name.ends_with(".json")
        });
        assert_eq!(found, named, "{failed}");
        if call % 5 == 1 {
            takt.run(["lake", "verify", "--config", "takt.toml"]).ok();
        }
    }
    panic!("a round makes more than 1000 calls");
}

#[test]
fn a_round_may_be_killed_while_it_writes() {
    try_every_call("kill", EIO, 7);
}

#[test]
fn a_disk_may_be_full_from_any_write_on() {
    try_every_call("on", ENOSPC, 13);
}

#[test]
#[ignore = "takes minutes"]
fn a_round_may_fail_at_each_single_write() {
    try_every_call("kill", EIO, 1);
    try_every_call("once", EIO, 1);
    try_every_call("torn", EIO, 1);
}

/// The steps between two calls, at which the files are complete.
#[test]
fn a_round_may_end_at_any_step() {
    let takt = Takt::fresh();
    let lake = with_records(&takt, "");
    for step in [
        "lake-file-written",
        "lake-file-placed",
        "lake-commit-written",
        "lake-committed",
    ] {
        let _ = fs::remove_dir_all(&lake);
        let status = takt
            .command(INIT)
            .env("TAKT_CRASH_AT", step)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.code(), None, "{step}");
        files_of_readers(&lake);
        takt.run(INIT).ok();
        takt.run(["lake", "verify", "--config", "takt.toml"]).ok();
        assert_eq!(files_of_readers(&lake).len(), 4, "{step}");
    }
}

#[test]
fn a_lake_without_a_folder_is_a_mistake() {
    let takt = Takt::fresh();
    takt.import_sacct(jobs());
    for command in ["init", "status", "verify"] {
        let said = takt.run(["lake", command]).fails(2);
        assert!(said.contains("set path in [lake] of takt.toml"), "{said}");
    }
}

/// A full disk below the lake: the error has a name, a metric and a finding, samples are stored,
/// and the lake is complete as soon as there is room.
#[test]
fn a_full_lake_does_not_stop_the_server() {
    let Some(()) = or_skip(need_root()) else {
        return;
    };
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[server]\nlisten_address = \"{address}\"\n[sql]\nlisten_address = \"127.0.0.1:{}\"\n\
         [jobs]\npoll = false\n",
        free_port()
    );
    let lake = with_records(&takt, &config);
    let mount = Mount::tmpfs(&lake, "size=1m");
    takt.run(INIT).ok();
    let late = row(3, "bob", "2024-10-06T08:00:00", "2024-10-06T20:00:00");
    takt.import_sacct(format!("{HEADER}\n{late}"));
    mount.fill_whole();
    let mut server: Daemon = takt.start(["serve", "--config", "takt.toml"]);
    let metric = |name: &str| -> Option<f64> {
        http_get(&format!("http://{address}/metrics"))
            .ok()?
            .body
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?
            .parse()
            .ok()
    };
    server.wait_until("failing to write the lake", SOON, || {
        (metric("takt_lake_failing{table=\"job_runs\"}")? == 1.0).then_some(())
    });
    assert_eq!(
        metric("takt_lake_last_success_timestamp_seconds"),
        Some(0.0)
    );
    assert!(metric("takt_lake_failures_total{table=\"job_runs\"}").unwrap() >= 1.0);
    let status = takt.run(["lake", "status", "--config", "takt.toml"]);
    assert_eq!(status.code, Some(1));
    assert!(
        status.stderr.contains("the data lake is not complete"),
        "{status:?}"
    );
    let doctor = takt.run(["doctor", "--only", "lake", "--config", "takt.toml"]);
    assert_eq!(doctor.code, Some(2), "{doctor:?}");
    assert!(doctor.stdout.contains("lake.written"), "{doctor:?}");
    let before = metric("takt_store_samples_total").unwrap();
    server.wait_until("storing samples", SOON, || {
        (metric("takt_store_samples_total")? > before).then_some(())
    });

    mount.free();
    takt.run(INIT).ok();
    assert_eq!(rows_of(&takt, "job_runs"), 3);
    takt.run(["lake", "verify", "--config", "takt.toml"]).ok();
    let doctor = takt.run(["doctor", "--only", "lake", "--config", "takt.toml"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    server.stop();

    // Without the server the answer is the same.
    assert_eq!(rows_of(&takt, "usage"), 5);
    drop(mount);
}
