//! Aborts the process at each step of sealing and merging: the next start has every sample exactly
//! once.
//!
//! The test runs itself as a child process with `TAKT_CRASH_AT`.

use super::bench_store::{BEGIN, Bench, DAY, HOUR, SECOND, config};
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

const STEPS: [&str; 5] = ["written", "verified", "durable", "renamed", "published"];
const MINUTE: i64 = 60 * SECOND;
const END: i64 = BEGIN + 5 * HOUR;

/// Work of the child process.
const WORK: &str = "TAKT_TEST_WORK";
const ROOT: &str = "TAKT_TEST_ROOT";

#[test]
fn child() {
    let (Ok(root), Ok(work)) = (env::var(ROOT), env::var(WORK)) else {
        return;
    };
    let (clock, seal) = match work.as_str() {
        "seal" => (END, true),
        _ => (BEGIN + DAY + HOUR, false),
    };
    let bench = Bench::open(Path::new(&root), &config(), clock);
    let done = if seal {
        bench.store.seal()
    } else {
        bench.store.keep()
    };
    assert!(!done.unwrap().written.is_empty());
}

fn die_at(root: &Path, work: &str, step: &str) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(ROOT, root)
        .env(WORK, work)
        .env("TAKT_CRASH_AT", step)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.signal().is_some(),
        "{work} does not come to {step}: {}\n{said}",
        output.status
    );
}

#[test]
fn a_crash_at_any_step_loses_and_repeats_nothing() {
    for step in STEPS {
        let root = tempdir().unwrap();
        {
            let bench = Bench::open(root.path(), &config(), BEGIN);
            bench.scrape_and_seal(BEGIN, END - HOUR, MINUTE);
            bench.scrape_all(END - HOUR, END, MINUTE);
        }
        die_at(root.path(), "seal", step);
        {
            let bench = Bench::open(root.path(), &config(), END);
            bench.expect_all(BEGIN, END, MINUTE);
            bench.store.seal().unwrap();
            bench.expect_all(BEGIN, END, MINUTE);
            assert_eq!(bench.store.database().stat().unwrap().hot_samples, 0);
            assert_eq!(bench.blocks("raw"), 5);
        }
        die_at(root.path(), "merge", step);
        // The clock is before the end of the day, so this start does not merge: any merged block is
        // from before the crash.
        Bench::open(root.path(), &config(), END).expect_all(BEGIN, END, MINUTE);
        let bench = Bench::open(root.path(), &config(), BEGIN + DAY + HOUR);
        bench.store.keep().unwrap();
        bench.expect_all(BEGIN, END, MINUTE);
        let counts = ["raw", "5m", "1h"].map(|resolution| bench.blocks(resolution));
        assert_eq!(counts, [1, 1, 1], "after {step}");
        assert_eq!(bench.store.database().verify_blocks().unwrap(), [""; 0]);
        drop(bench);
        let left = fs::read_dir(root.path().join("sealing")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "something is left in sealing/");
    }
}
