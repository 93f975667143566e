//! What the store finds after something went wrong, and that it goes on from there.

use super::bench_store::{BEGIN, Bench, HOUR, METRICS, SECOND, config, value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::Path;
use std::process::Command;

const STEP: i64 = 15 * SECOND;

/// The directory as a power failure would leave it: everything that is durable, while the store is open.
fn image(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => image(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// An hour in a block, and then an hour in the log; the log is as `damage` leaves it.
fn with_damaged_log(damage: impl Fn(&mut Vec<u8>)) -> (f64, usize) {
    let (root, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = Bench::open(root.path(), &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, STEP);
    bench.scrape_all(BEGIN + HOUR, BEGIN + 2 * HOUR, STEP);
    image(root.path(), copy.path());
    drop(bench);
    let log = copy.path().join("hot.duckdb.wal");
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
    // It goes on, sealing included.
    bench.scrape_and_seal(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, STEP);
    bench.expect_all(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, STEP);
    (bench.metric("takt_store_damaged_files "), logged)
}

#[test]
fn a_log_that_is_whole_loses_nothing() {
    assert_eq!(with_damaged_log(|_| {}), (0.0, 240));
}

#[test]
fn a_log_with_garbage_is_read_up_to_there_and_set_aside() {
    let (damaged, logged) = with_damaged_log(|log| {
        let middle = log.len() / 2;
        log[middle..middle + 64].fill(0x5a);
    });
    assert!(
        damaged == 1.0 && logged < 240,
        "{damaged} damaged, {logged} samples"
    );
    let (damaged, logged) = with_damaged_log(|log| log.fill(0x5a));
    assert_eq!((damaged, logged), (1.0, 0));
}

#[test]
fn a_log_that_lost_its_end_is_set_aside() {
    let (damaged, logged) = with_damaged_log(|log| log.truncate(log.len() - 7));
    assert!(
        damaged == 1.0 && logged < 240,
        "{damaged} damaged, {logged} samples"
    );
}

#[test]
fn a_clock_that_jumps_an_hour_ahead_and_back_takes_nothing_twice() {
    let root = tempfile::tempdir().unwrap();
    let minute = 60 * SECOND;
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, BEGIN + 10 * minute, STEP);
        bench.scrape_all(BEGIN + HOUR, BEGIN + HOUR + 10 * minute, STEP);
        bench.store.seal().unwrap();
        // The clock is right again: an instant that is settled long since is not given out.
        bench.set_clock(BEGIN + 10 * minute);
        assert!(
            bench
                .store
                .group()
                .ticket(takt_model::Timestamp(BEGIN + 10 * minute))
                .is_err()
        );
    }
    // After a restart the right time goes on being stored, and what is given twice is stored once.
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
    let Ok(root) = std::env::var(ROOT) else {
        return;
    };
    let bench = Bench::open(Path::new(&root), &config(), BEGIN + HOUR);
    // What is there stays writable, as on a full disk, but nothing grows.
    let bytes = fs::metadata(Path::new(&root).join("hot.duckdb"))
        .unwrap()
        .len();
    let (current, maximum) = (Some(bytes), getrlimit(Resource::Fsize).maximum);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    // Whether that fails depends on what DuckDB finds room for in its file; what counts is what is left afterwards.
    let done = bench.store.seal();
    println!("{done:?}");
}

#[test]
fn a_disk_that_is_full_while_sealing_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, BEGIN + HOUR, SECOND);
    }
    let status = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
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
