//! An error at each write: a layer below the program lets one call fail, or all from one on. The next
//! start has everything that was acknowledged.
//!
//! Usually a part of the calls is tried, `TAKT_TEST_SEEDS` asks for all of them.

#![expect(clippy::print_stdout, reason = "says how much was tried")]

use super::power::{ACKNOWLEDGED, Crash, KILLED, ROOT, check_records, check_samples, layer};
use std::env;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

const EIO: &str = "5";
const ENOSPC: &str = "28";

/// One call of this many fails.
const PART: usize = 29;

/// More calls than the programs make.
const CALLS_MAX: usize = 2000;

/// Runs a test of this program, with further variables, once for each call that changes a file.
/// `mode` is explained in `tests/fault-layer/fault.c`.
fn fail_each_call(
    child: &str,
    variables: &[&str],
    mode: &str,
    errno: &str,
    check: impl Fn(&Path, i64),
) {
    let Some(layer) = layer("fault") else {
        return;
    };
    let part = env::var("TAKT_TEST_SEEDS").map_or(PART, |_| 1);
    for (tried, call) in (1..CALLS_MAX).step_by(part).enumerate() {
        let folder = tempdir().unwrap();
        let root = folder.path().join("data");
        fs::create_dir(&root).unwrap();
        let acknowledged = folder.path().join("acknowledged");
        let log = folder.path().join("calls");
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", child, "--nocapture"])
            .env(ROOT, &root)
            .env(ACKNOWLEDGED, &acknowledged)
            .env("LD_PRELOAD", layer.path().join("layer.so"))
            .env("FAULT_DIR", &root)
            .env("FAULT_AT", call.to_string())
            .env("FAULT_ERRNO", errno)
            .env("FAULT_MODE", mode)
            .env("FAULT_LOG", &log)
            .envs(variables.iter().map(|&name| (name, "1")))
            .output()
            .unwrap();
        let failed = fs::read_to_string(&log).unwrap_or_default();
        let Some(failed) = failed.lines().find(|line| !line.starts_with("calls")) else {
            println!("{mode}: {tried} calls failed");
            assert!(tried > 3, "only {tried} calls");
            return;
        };
        let done = fs::read_to_string(&acknowledged).unwrap_or_default();
        let done = done.trim().parse().unwrap_or(0);
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(&root, done)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            checked.is_ok(),
            "{failed} {mode}: {done} acknowledged\n{said}"
        );
    }
    panic!("more than {CALLS_MAX} calls");
}

fn records(mode: &str, errno: &str) {
    fail_each_call("power::records_child", &[], mode, errno, |root, done| {
        check_records(root, done, Crash::PowerWithParts(0));
    });
}

fn samples(variables: &[&str], mode: &str, errno: &str) {
    fail_each_call(
        "power::samples_child",
        variables,
        mode,
        errno,
        |root, done| {
            check_samples(root, done, Crash::PowerWithParts(0));
        },
    );
}

#[test]
fn an_error_at_any_write_of_the_records_loses_nothing() {
    records("once", EIO);
    records("torn", EIO);
}

#[test]
fn a_full_disk_from_any_write_of_the_records_on_loses_nothing() {
    records("on", ENOSPC);
}

#[test]
fn an_error_at_any_write_of_the_samples_loses_nothing() {
    samples(&[], "once", EIO);
    samples(&[], "torn", EIO);
}

#[test]
fn a_full_disk_from_any_write_of_the_samples_on_loses_nothing() {
    samples(&[], "on", ENOSPC);
}

/// What failed is written again later; a program that is killed before or after that has lost nothing.
#[test]
fn an_error_at_any_write_of_the_samples_and_then_a_kill_lose_nothing() {
    samples(&[KILLED], "once", EIO);
}
