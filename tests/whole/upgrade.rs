//! Upgrades from the data of 0.1.0, and the return to it.

use crate::disk_faults::{copy, layer};
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::Takt;
use crate::support::{Skip, need_peer, or_skip};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Tables that 0.1.0 wrote. tests/fixtures/data-0.1.0 has what it read from each.
const TABLES: [&str; 10] = [
    "jobs",
    "samples",
    "series",
    "alert_transitions",
    "silences",
    "notifications",
    "run_efficiency",
    "rejects",
    "credits",
    "job_gpus",
];

const PATIENCE: Duration = Duration::from_secs(60);

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/data-0.1.0")
        .join(name)
}

/// A `takt` whose data directory 0.1.0 has written.
fn with_old_data() -> Takt {
    let takt = Takt::fresh();
    let done = Command::new("tar")
        .arg("-xzf")
        .arg(fixture("data.tar.gz"))
        .arg("-C")
        .arg(takt.directory())
        .status();
    assert!(done.unwrap().success());
    assert!(takt.data_directory().join("hot.duckdb").exists());
    takt
}

/// Rows that 0.1.0 read from a table, and those that this Takt reads.
fn rows(takt: &Takt, table: &str) -> (Vec<String>, Vec<String>) {
    let expected = fs::read_to_string(fixture(&format!("{table}.csv"))).unwrap();

    // A later release may have more columns.
    let columns: Vec<String> = expected
        .lines()
        .next()
        .unwrap()
        .split(',')
        .map(|name| format!("\"{}\"", name.trim_matches('"')))
        .collect();
    let sql = format!("SELECT {} FROM {table} ORDER BY ALL", columns.join(", "));
    let read = takt.run(["sql", &sql, "--format", "csv"]).ok();
    let lines = |text: &str| text.lines().map(str::to_owned).collect();
    (lines(&expected), lines(&read))
}

/// Compares each table with what 0.1.0 read from it.
fn assert_same(takt: &Takt) {
    for table in TABLES {
        let (expected, read) = rows(takt, table);
        // An empty table would equal an empty answer.
        assert!(
            expected.len() > 1
                || ["credits", "job_gpus", "notifications", "rejects"].contains(&table),
            "{table}"
        );
        let differs = read.iter().zip(&expected).find(|(new, old)| new != old);
        assert!(read == expected, "{table}: {differs:?}");
    }
}

/// Checks that each row of 0.1.0 exists as often as then. A server adds rows, and notes what became
/// of messages.
fn assert_nothing_lost(takt: &Takt, when: &str) {
    for table in TABLES.into_iter().filter(|table| *table != "notifications") {
        let (expected, read) = rows(takt, table);
        // Counted, as a row that exists twice must stay twice.
        let count = |rows: &[String]| {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            rows.iter()
                .for_each(|row| *counts.entry(row.clone()).or_default() += 1);
            counts
        };
        let read = count(&read);
        let lost: Vec<String> = count(&expected)
            .into_iter()
            .filter(|(row, times)| read.get(row) != Some(times))
            .map(|(row, _)| row)
            .collect();
        assert!(
            lost.is_empty(),
            "{when}: {} rows of {table} differ: {:?}",
            lost.len(),
            lost.first()
        );
    }
}

/// Starts a server on the data directory, which keeps old samples.
fn serve(takt: &Takt) -> (Daemon, String) {
    let port = free_port();
    // Nothing may be deleted for its age or for want of space.
    let config = format!(
        "cluster = \"lab\"\n[server]\nlisten_address = \"127.0.0.1:{port}\"\n[jobs]\npoll = false\n\
         [sql]\nlisten_address = \"\"\n[store]\nmin_free_bytes = 0\nretention_days = 36500\n\
         retention_5m_days = 36500\nretention_1h_days = 36500\n"
    );
    takt.file("takt.toml", config);
    let mut daemon = takt.start(["serve", "--config", "takt.toml"]);
    let url = format!("http://127.0.0.1:{port}");
    daemon.wait_until("ready", PATIENCE, || {
        let page = http_get(&format!("{url}/-/ready")).ok()?;
        (page.status == 200).then_some(())
    });
    (daemon, url)
}

#[test]
fn the_data_of_0_1_0_are_complete_after_an_upgrade() {
    let takt = with_old_data();
    // By a command, which migrates the files itself, before any server has seen them.
    assert_same(&takt);

    let (mut daemon, _) = serve(&takt);
    assert_nothing_lost(&takt, "asked from a server");

    // The samples of 0.1.0's tables become blocks.
    takt.run(["store", "seal"]).ok();
    assert_nothing_lost(&takt, "sealed");
    let verified = takt.run(["store", "verify"]).ok();
    assert!(verified.contains("no block is damaged"), "{verified}");

    // PromQL finds the last sample of a series of that time.
    let samples = fs::read_to_string(fixture("samples.csv")).unwrap();
    let last = samples
        .lines()
        .rev()
        .find(|row| row.starts_with("node_load1,"))
        .unwrap();
    let (rest, value) = last.rsplit_once(',').unwrap();
    let (_, at) = rest.rsplit_once(',').unwrap();
    let at = at.trim_matches('"').replace(' ', "T");
    let at = format!("{}Z", at.trim_end_matches('Z'));
    let asked = ["query", "node_load1", "--time", &at, "--format", "csv"];
    let answer = takt.run(asked).ok();
    let found = answer.lines().nth(1).unwrap().rsplit(',').next().unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    assert_eq!(number(found), number(value), "{answer}");

    let silences = takt.run(["alerts", "silence", "--format", "json"]).ok();
    assert!(silences.contains("an old silence"), "{silences}");
    assert!(daemon.stop().success(), "{}", daemon.log());

    assert_nothing_lost(&takt, "after the server's end");

    // A migration that gives up on something says so in the log.
    let log = daemon.log();
    assert!(!log.contains("damaged") && !log.contains("ERROR"), "{log}");
}

/// Content of all files below a folder, except the lock.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        // Even a refused command takes the lock.
        } else if entry.file_name() != "takt.lock" {
            let content = fs::read(entry.path()).unwrap();
            found.insert(entry.path(), content);
        }
    }
}

fn all_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(folder, &mut found);
    found
}

fn need_0_1_0() -> Result<PathBuf, Skip> {
    need_peer("takt-0.1.0/takt").map_err(|_| {
        Skip("needs takt 0.1.0; scripts/earlier-release.sh 0.1.0 builds it".to_owned())
    })
}

#[test]
fn the_program_of_0_1_0_refuses_newer_data_and_changes_nothing() {
    let Some(old) = or_skip(need_0_1_0()) else {
        return;
    };
    let takt = with_old_data();
    let (mut daemon, _) = serve(&takt);
    assert!(daemon.stop().success(), "{}", daemon.log());

    let before = all_files(&takt.data_directory());
    for arguments in [
        &["jobs"][..],
        &["sql", "SELECT 1"],
        &["serve", "--config", "takt.toml"],
    ] {
        let done = Command::new(&old)
            .args(arguments)
            .current_dir(takt.directory())
            .env("TAKT_DATA_DIR", takt.data_directory())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{arguments:?}: {done:?}");
        assert!(said.contains("written by a newer takt"), "{said}");
    }

    let after = all_files(&takt.data_directory());
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    let changed: Vec<_> = before
        .iter()
        .filter(|(path, content)| after[*path] != **content)
        .map(|(path, _)| path)
        .collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert_nothing_lost(&takt, "after 0.1.0 was started");
}

/// More writes than an upgrade makes.
const MOST_WRITES: usize = 3000;

/// The first command of a new release migrates the data of 0.1.0, and is killed in the middle of a
/// write, of each in turn.
#[test]
fn a_kill_at_any_write_of_an_upgrade_loses_nothing() {
    let takt = with_old_data();
    let Some(layer) = or_skip(layer(takt.directory())) else {
        return;
    };
    let data = takt.data_directory();
    let saved = takt.directory().join("saved");
    fs::rename(&data, &saved).unwrap();

    // Each attempt begins with the old data and is killed one write later.
    for write in 1..MOST_WRITES {
        copy(&saved, &data);
        let mut command = takt.command(["sql", "SELECT 1"]);
        command
            .env("LD_PRELOAD", &layer)
            .env("FAULT_DIR", &data)
            .env("FAULT_AT", write.to_string())
            .env("FAULT_MODE", "kill");
        // The first command that ends by itself has made all its writes.
        let was_killed = !command.output().unwrap().status.success();

        // Each comparison asks for every table; all of them are asked at some of the kills.
        if write % 20 == 1 || !was_killed {
            assert_same(&takt);
        } else {
            let (expected, read) = rows(&takt, TABLES[write % TABLES.len()]);
            assert_eq!(read, expected, "killed in write {write}");
        }
        let entries = fs::read_dir(&data).unwrap().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.contains("damaged"), "write {write}: {name}");
        }
        if !was_killed {
            assert!(write > 20, "only {} writes", write - 1);
            return;
        }
        fs::remove_dir_all(&data).unwrap();
    }
    panic!("an upgrade makes more than {MOST_WRITES} writes");
}
