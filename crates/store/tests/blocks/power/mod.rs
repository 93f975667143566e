//! Power losses: a layer below the program records every change of its files. After each change, the
//! test makes what a crash at this moment leaves, and opens it.
//!
//! Usually a part of these states is opened. `TAKT_TEST_SEEDS` asks for all of them, and sets how many
//! random power losses follow each change.

#![expect(
    clippy::print_stdout,
    reason = "says how much was tried, or why it was skipped"
)]

mod disk;

use super::bench_store::{BEGIN, Bench, METRICS, SECOND, claim, config, value};
pub use disk::Crash;
use disk::Disk;
use std::collections::HashSet;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use takt_model::{METRIC_NAME, Timestamp};
use takt_store::{Database, Sample, Settings};
use tempfile::{TempDir, tempdir};

pub const ROOT: &str = "TAKT_TEST_POWER";

/// File for the acknowledgements. `ACK` in the directory if left out.
pub const ACKNOWLEDGED: &str = "TAKT_TEST_ACKNOWLEDGED";

/// If set, the program that writes samples is killed after its first seal.
pub const KILLED: &str = "TAKT_TEST_KILLED";

/// Metric of the pushed samples.
const PUSHED: &str = "pushed";

/// Starts of the program that is recorded.
const ROUNDS: i64 = 4;

/// Transactions of a round.
const COMMITS: i64 = 5;

/// One state of this many is opened.
const PART: usize = 7;

/// Rows that a transaction adds to each table.
const ROWS: i64 = 40;

/// Acknowledges that everything up to a number is durable.
struct Acknowledgement(fs::File);

impl Acknowledgement {
    fn open(root: &Path) -> Self {
        let path = env::var_os(ACKNOWLEDGED).map_or(root.join("ACK"), PathBuf::from);
        Self(fs::File::create(path).unwrap())
    }

    fn give(&self, number: i64) {
        self.0
            .write_all_at(format!("{number:10}").as_bytes(), 0)
            .unwrap();
    }
}

/// Runs a test of this program under the layer, and calls `check` for what each crash leaves, with
/// the directory and the acknowledged number.
fn crash_after_each_change(child: &str, mut check: impl FnMut(&Path, i64, Crash)) {
    let Some(layer) = layer("record") else {
        return;
    };
    let folder = tempdir().unwrap();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    let record = folder.path().join("record");
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture"])
        .env(ROOT, &root)
        .env("LD_PRELOAD", layer.path().join("layer.so"))
        .env("RECORD_DIR", &root)
        .env("RECORD_TO", &record)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let changes = disk::read(&record);
    let seeds: Option<u64> = env::var("TAKT_TEST_SEEDS").ok().map(|n| n.parse().unwrap());
    let part = if seeds.is_some() { 1 } else { PART };
    let seeds = seeds.unwrap_or(1);
    let mut disk = Disk::new(&root);
    let mut seen = HashSet::new();
    let mut opened = 0;
    let mut interrupted = 0;
    for (n, change) in changes.iter().enumerate() {
        disk.apply(change);
        let random = (0..seeds).map(|seed| Crash::PowerWithParts((seed << 32) + n as u64 + 1));
        let plain = [Crash::Process, Crash::Torn, Crash::Power];
        for crash in plain.into_iter().chain(random) {
            let remains = disk.after(crash, change);
            let mut hash = DefaultHasher::new();
            (&remains, disk.done).hash(&mut hash);
            if !seen.insert(hash.finish()) || !seen.len().is_multiple_of(part) {
                continue;
            }
            opened += 1;
            interrupted += usize::from(remains.has("records.duckdb.undo"));
            let remains_at = tempfile::tempdir_in(memory()).unwrap();
            remains.write(remains_at.path());
            let kind = change.kind as char;
            let case = format!(
                "{crash:?} after change {n} ({kind}), {} acknowledged",
                disk.done
            );
            let checked = std::panic::catch_unwind(AssertUnwindSafe(|| {
                check(remains_at.path(), disk.done, crash);
            }));
            assert!(checked.is_ok(), "{case}");
        }
    }
    let changes = changes.len();
    println!("{changes} changes, {opened} states, {interrupted} in a checkpoint of the records");
    assert!(opened > 50 && interrupted > 0, "{opened} {interrupted}");
}

/// A file system in memory, if there is one: the states need not be durable.
fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() {
        shared
    } else {
        env::temp_dir()
    }
}

/// Compiles a layer of `tests/fault-layer` into `layer.so`. `None` without a compiler.
pub fn layer(name: &str) -> Option<TempDir> {
    let folder = tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fault-layer")
        .join(format!("{name}.c"));
    let compiled = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(folder.path().join("layer.so"))
        .arg(source)
        .args(["-ldl", "-pthread"])
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success());
            Some(folder)
        }
        Err(_) => {
            assert!(env::var_os("TAKT_TEST_NO_SKIP").is_none(), "needs cc");
            println!("skipped: no C compiler (apt install gcc)");
            None
        }
    }
}

fn open(root: &Path) -> Database {
    Database::open(&claim(root), &Settings::default()).unwrap()
}

/// Nothing is damaged. Only a log that has some pages of its last transaction and lacks others is cut.
fn check_damage(database: &Database, crash: Crash) {
    for damaged in database.damaged() {
        let file = damaged.moved_to.to_string_lossy();
        let is_cut = file.contains(".wal.damaged-");
        assert!(
            is_cut && matches!(crash, Crash::PowerWithParts(_)),
            "{damaged:?}"
        );
    }
}

/// Writes records. Each transaction adds rows with its number to two tables, and removes the rows of
/// an earlier transaction from one. Each round ends with a checkpoint.
#[test]
fn records_child() {
    let Some(root) = env::var_os(ROOT) else {
        return;
    };
    let root = Path::new(&root);
    let acknowledgement = Acknowledgement::open(root);
    let mut number = 0;
    for _ in 0..ROUNDS {
        let database = open(root);
        let db = database.connect().unwrap();
        for _ in 0..COMMITS {
            number += 1;
            db.execute_batch(&format!(
                "BEGIN;
                 INSERT INTO records.alert_state SELECT 'power', {number}, sha256(n::VARCHAR)
                     FROM range({ROWS}) AS t(n);
                 INSERT INTO records.rejects
                     SELECT 'power', {number}, sha256(n::VARCHAR), '', TIMESTAMP '2026-10-01'
                     FROM range({ROWS}) AS t(n);
                 DELETE FROM records.rejects WHERE line = {number} - 3;
                 COMMIT;"
            ))
            .unwrap();
            acknowledgement.give(number);
        }
        drop(db);
        drop(database);
    }
}

#[test]
fn a_power_loss_at_any_write_of_the_records_loses_nothing() {
    crash_after_each_change("power::records_child", check_records);
}

/// All acknowledged transactions are there, and at most one more, each as a whole.
pub fn check_records(root: &Path, done: i64, crash: Crash) {
    // The second start finds what the first one restored.
    for _ in 0..2 {
        let database = open(root);
        check_damage(&database, crash);
        let db = database.connect().unwrap();
        let rows: Vec<(i64, i64, i64, i64)> = db
                .prepare(
                    "SELECT key::BIGINT, count(*), count(DISTINCT body),
                            (SELECT count(DISTINCT reason) FROM records.rejects WHERE line = key::BIGINT)
                     FROM records.alert_state GROUP BY key ORDER BY 1",
                )
                .unwrap()
            .query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let last = rows.len() as i64;
        // One transaction may be durable and not acknowledged yet.
        assert!((done..=done + 1).contains(&last), "{last} of {done}");
        for (row, number) in rows.into_iter().zip(1..) {
            let kept = if number + 3 <= last { 0 } else { ROWS };
            assert_eq!(row, (number, ROWS, ROWS, kept));
        }
    }
}

/// Writes samples each second, and seals them at times.
#[test]
fn samples_child() {
    let Some(root) = env::var_os(ROOT) else {
        return;
    };
    let root = Path::new(&root);
    let acknowledgement = Acknowledgement::open(root);
    let mut second = 0;
    // Pushed samples that are not acknowledged: a sender repeats them.
    let mut unsent = Vec::new();
    for _ in 0..2 {
        let bench = Bench::open(root, &config(), BEGIN + second * SECOND);
        let pushed = bench.store.pushed_group();
        let column = pushed
            .column(&[(METRIC_NAME, PUSHED)].into_iter().collect())
            .unwrap();
        for n in 0..8 {
            let at = BEGIN + second * SECOND;
            bench.scrape_all(at, at + SECOND, SECOND);
            second += 1;
            unsent.push(Sample {
                at: Timestamp(at),
                value: value(0, at),
            });
            let request: Vec<_> = unsent.iter().map(|&sample| (column, sample)).collect();
            let placed = bench.store.place(&pushed, &request);
            let is_sent = placed.and_then(|placed| bench.store.confirm(&pushed, &placed));
            if is_sent.is_ok() {
                unsent.clear();
            }
            // After an error of the disk, samples wait.
            if bench.store.watermark().0 >= at && unsent.is_empty() {
                acknowledgement.give(second);
            }
            if n == 4 {
                drop(bench.store.seal());
            }
            if n == 6 && env::var_os(KILLED).is_some() {
                process::abort();
            }
        }
        // A database that failed does not store what waits.
        if bench.store.watermark().0 < BEGIN + (second - 1) * SECOND {
            return;
        }
    }
}

#[test]
fn a_power_loss_at_any_write_of_the_samples_loses_nothing() {
    crash_after_each_change("power::samples_child", |root, done, crash| {
        let found = check_samples(root, done, crash);
        assert!(found <= done + 1, "{found} of {done}");
    });
}

/// All acknowledged samples are there once, and no others before later ones. Returns the number of
/// seconds with samples.
pub fn check_samples(root: &Path, done: i64, crash: Crash) -> i64 {
    let mut last = 0;
    let bench = Bench::open(root, &config(), BEGIN + (done + 20) * SECOND);
    check_damage(bench.store.database(), crash);
    for (metric, name) in METRICS.iter().chain([&PUSHED]).enumerate() {
        let found = bench.samples_of(name, BEGIN, BEGIN + 100 * SECOND);
        // The values of the pushed samples are those of the first metric.
        let metric = metric % METRICS.len();
        let expected: Vec<_> = (0..found.len() as i64)
            .map(|second| BEGIN + second * SECOND)
            .map(|at| (at, value(metric, at)))
            .collect();
        assert_eq!(found, expected, "{name}");
        let seconds = found.len() as i64;
        assert!(seconds >= done, "{name}: {seconds} of {done}");
        if *name != PUSHED {
            last = last.max(seconds);
        }
    }
    last
}
