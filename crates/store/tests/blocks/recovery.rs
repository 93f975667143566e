//! Recovery after crashes, damage, a wrong clock and a full disk.

use super::bench_store::{BEGIN, Bench, HOUR, METRICS, SECOND, config, value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::tempdir;

const STEP: i64 = 15 * SECOND;

/// Copies the directory of an open store: its state after a power failure.
fn image(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            image(&entry.path(), &target)
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The newest file in the folder of unsealed samples with this extension.
fn unsealed_file(root: &Path, extension: &str) -> PathBuf {
    fs::read_dir(root.join("unsealed"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .max()
        .unwrap()
}

/// Writes one hour into a block and one hour into the log and chunks, and opens the store after
/// `damage` has changed the log. Returns the number of damaged files, and of samples of the second
/// hour.
fn with_damaged_log(damage: impl Fn(&mut Vec<u8>)) -> (f64, usize) {
    with_damaged("log", End::Crash, damage)
}

/// How the process ended before the damage.
#[derive(PartialEq, Eq)]
enum End {
    /// The last chunks are not synced, and the log has their rows.
    Crash,
    /// All chunks are synced, and there is no log. The mark of an orderly end is removed.
    InOrder,
}

fn with_damaged(extension: &str, end: End, damage: impl Fn(&mut Vec<u8>)) -> (f64, usize) {
    let root = tempdir().unwrap();
    let copy = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, STEP);
    bench.scrape_all(BEGIN + HOUR, BEGIN + 2 * HOUR, STEP);
    if end == End::Crash {
        image(root.path(), copy.path());
        drop(bench);
    } else {
        drop(bench);
        image(root.path(), copy.path());
        fs::remove_file(copy.path().join("unsealed/clean")).unwrap();
    }
    let log = unsealed_file(copy.path(), extension);
    let mut content = fs::read(&log).unwrap();
    damage(&mut content);
    fs::write(&log, content).unwrap();

    let bench = Bench::open(copy.path(), &config(), BEGIN + 2 * HOUR);
    for metric in 0..METRICS.len() {
        let sealed = bench.samples(metric, BEGIN, BEGIN + HOUR - 1);
        assert!(
            sealed
                == (BEGIN..BEGIN + HOUR)
                    .step_by(STEP as usize)
                    .map(|at| (at, value(metric, at)))
                    .collect::<Vec<_>>()
        );
    }
    let logged = bench.samples(0, BEGIN + HOUR, BEGIN + 2 * HOUR - 1).len();
    // The store continues, including sealing.
    bench.scrape_and_seal(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, STEP);
    bench.expect_all(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, STEP);
    (bench.metric("takt_store_damaged_files "), logged)
}

#[test]
fn an_intact_log_loses_nothing() {
    assert_eq!(with_damaged_log(|_| {}), (0.0, 240));
}

#[test]
fn a_damaged_log_is_replayed_up_to_the_damage_and_set_aside() {
    let (damaged, logged) = with_damaged_log(|log| {
        let middle = log.len() / 2;
        log[middle..middle + 64].fill(0x5a);
    });
    assert!(
        damaged == 1.0 && logged < 240,
        "{damaged} damaged, {logged} samples"
    );
    // Only the last rows are in the log alone: a chunk takes 16 rows or more.
    let (damaged, logged) = with_damaged_log(|log| log.fill(0x5a));
    assert!(
        damaged == 1.0 && (240 - 32..240).contains(&logged),
        "{damaged} damaged, {logged} samples"
    );
}

#[test]
fn a_damaged_chunk_loses_only_its_rows_and_a_copy_is_set_aside() {
    let flip = |chunks: &mut Vec<u8>| {
        let middle = chunks.len() / 2;
        chunks[middle] ^= 0x10;
    };
    let (damaged, stored) = with_damaged("chunks", End::InOrder, flip);
    assert!(
        damaged == 1.0 && (240 - 32..240).contains(&stored),
        "{damaged} damaged, {stored} samples"
    );
    // The log has what was not synced.
    assert_eq!(with_damaged("chunks", End::Crash, flip), (0.0, 240));
    let cut = |chunks: &mut Vec<u8>| chunks.truncate(chunks.len() - 7);
    assert_eq!(with_damaged("chunks", End::Crash, cut), (0.0, 240));
}

#[test]
fn a_truncated_log_is_set_aside() {
    let (damaged, logged) = with_damaged_log(|log| log.truncate(log.len() - 7));
    assert!(
        damaged == 1.0 && logged < 240,
        "{damaged} damaged, {logged} samples"
    );
}

#[test]
fn a_clock_an_hour_ahead_stores_no_sample_twice() {
    let root = tempdir().unwrap();
    let minute = 60 * SECOND;
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, BEGIN + 10 * minute, STEP);
        bench.scrape_all(BEGIN + HOUR, BEGIN + HOUR + 10 * minute, STEP);
        bench.store.seal().unwrap();
        // The clock is right again: a ticket for a settled time is refused.
        bench.set_clock(BEGIN + 10 * minute);
        assert!(
            bench
                .store
                .group()
                .ticket(takt_model::Timestamp(BEGIN + 10 * minute))
                .is_err()
        );
    }
    // After a restart, samples with the right time are stored again, and repeated ones only once.
    let bench = Bench::open(root.path(), &config(), BEGIN + 10 * minute - SECOND);
    bench.scrape_all(BEGIN + 10 * minute, BEGIN + HOUR, STEP);
    bench.store.seal().unwrap();
    bench.scrape_all(BEGIN + HOUR, BEGIN + 2 * HOUR, STEP);
    bench.store.seal().unwrap();
    bench.expect_all(BEGIN, BEGIN + 2 * HOUR, STEP);
}

const ROOT: &str = "TAKT_TEST_FULL";

#[test]
fn full_child() {
    let Ok(root) = env::var(ROOT) else {
        return;
    };
    let bench = Bench::open(Path::new(&root), &config(), BEGIN + HOUR);
    // Existing files stay writable, as on a full disk, but no file can grow.
    let bytes = fs::metadata(Path::new(&root).join("hot.duckdb"))
        .unwrap()
        .len();
    let current = Some(bytes);
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    // The result depends on free space inside DuckDB's file. The state afterwards counts.
    let done = bench.store.seal();
    println!("{done:?}");
}

#[test]
fn a_full_disk_while_sealing_loses_nothing() {
    let root = tempdir().unwrap();
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, BEGIN + HOUR, SECOND);
    }
    let status = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "recovery::full_child", "--nocapture"])
        .env(ROOT, root.path())
        .output()
        .unwrap();
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stderr)
    );
    let bench = Bench::open(root.path(), &config(), BEGIN + HOUR);
    bench.expect_all(BEGIN, BEGIN + HOUR, SECOND);
    bench.store.seal().unwrap();
    bench.expect_all(BEGIN, BEGIN + HOUR, SECOND);
    assert_eq!(bench.store.database().stat().unwrap().hot_samples, 0);
}
