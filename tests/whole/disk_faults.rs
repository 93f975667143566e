//! An I/O error at every single write: a file layer below the real program lets one call fail.

use crate::support::takt::{Run, Takt};
use crate::support::{Needed, Skip, need, or_skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// More calls than an import makes.
const MOST_CALLS: usize = 2000;

const HEADER: &str = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|\
                      NNodes|NCPUS|NodeList|ElapsedRaw";

fn row(job: u32) -> String {
    format!(
        "{job}|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:00:00|2026-10-01T10:01:00|\
         2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|n1|7200\n"
    )
}

/// Compiles the layer. Skips without a compiler.
pub(crate) fn layer(folder: &Path) -> Result<PathBuf, Skip> {
    need(&[Needed {
        program: "cc",
        package: "gcc",
    }])?;
    let library = folder.join("fault.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fault-layer/fault.c");
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library);
    let status = command.arg(source).arg("-ldl").status().unwrap();
    assert!(status.success());
    Ok(library)
}

fn import(takt: &Takt, file: &str) -> Command {
    takt.command([
        "import",
        "sacct",
        file,
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
    ])
}

fn count(takt: &Takt) -> i64 {
    let sql = "SELECT count(*) AS n FROM jobs";
    takt.run(["sql", "--format", "csv", sql])
        .ok()
        .trim_start_matches("n\n")
        .trim()
        .parse()
        .unwrap()
}

/// Imports two more jobs into a copy of a store with two, with a fault at each call in turn.
fn try_every_call(mode: &str, errno: i32) {
    let takt = Takt::fresh();
    let Some(layer) = or_skip(layer(takt.directory())) else {
        return;
    };
    takt.file("two.txt", format!("{HEADER}\n{}{}", row(1), row(2)));
    takt.file("more.txt", format!("{HEADER}\n{}{}", row(3), row(4)));
    Run::of(&import(&takt, "two.txt").output().unwrap()).ok();
    let data = takt.data_directory();
    let saved = takt.directory().join("saved");
    fs::rename(&data, &saved).unwrap();
    let log = takt.directory().join("calls");
    for call in 1..MOST_CALLS {
        copy(&saved, &data);
        let _ = fs::remove_file(&log);
        let mut command = import(&takt, "more.txt");
        command
            .env("LD_PRELOAD", &layer)
            .env("FAULT_DIR", &data)
            .env("FAULT_AT", call.to_string())
            .env("FAULT_ERRNO", errno.to_string())
            .env("FAULT_MODE", mode)
            .env("FAULT_LOG", &log);
        let run = Run::of(&command.output().unwrap());
        let failed = fs::read_to_string(&log).unwrap_or_default();
        let failed = failed.lines().find(|line| !line.starts_with("calls"));
        let Some(failed) = failed else {
            assert!(call > 11, "only {} calls", call - 1);
            return;
        };
        let jobs = count(&takt);

        // A write that fails for good may abort the program, but the data stay.
        assert!(
            jobs == 4 || jobs == 2 && run.code != Some(0),
            "{failed}: {jobs} jobs after {:?}: {}",
            run.code,
            run.stderr
        );
        let entries = fs::read_dir(&data).unwrap().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.contains("damaged"), "{failed}: {name}");
        }
        fs::remove_dir_all(&data).unwrap();
    }
    panic!("the import makes more than {MOST_CALLS} calls");
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn an_error_at_any_write_of_an_import_loses_nothing() {
    try_every_call("once", EIO);
}

#[test]
fn a_disk_that_is_full_from_any_write_of_an_import_on_loses_nothing() {
    try_every_call("on", ENOSPC);
}

#[test]
fn a_write_that_is_torn_at_any_call_of_an_import_loses_nothing() {
    try_every_call("torn", EIO);
}
