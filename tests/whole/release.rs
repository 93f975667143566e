//! The exporters of `make dist` for older C libraries, another processor and no C library.

use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::{Needed, Skip, find_program, need, need_root, or_skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::tempdir;

/// Where Debian's `libc6-arm64-cross` puts the libraries of arm64.
const ARM_LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Newest C library that the programs may need.
const GLIBC: [u32; 2] = [2, 28];

const PATIENCE: Duration = Duration::from_secs(60);

/// Builds the exporter for a target and returns the program. Skips without cargo-zigbuild.
fn build(target: &str) -> Result<PathBuf, Skip> {
    need(&[Needed {
        program: "readelf",
        package: "binutils",
    }])?;
    let done = Command::new("scripts/release.sh")
        .args(["exporter", target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    // The script's own code for a missing tool.
    if done.status.code() == Some(3) {
        return Err(Skip(format!(
            "needs cargo-zigbuild and the target {target}: {said}"
        )));
    }
    assert!(done.status.success(), "{said}");
    let program = String::from_utf8(done.stdout).unwrap();
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join(program.trim()))
}

/// Versions of the C library whose symbols the program needs.
fn needed(program: &Path) -> Vec<[u32; 2]> {
    let listed = Command::new("readelf")
        .args(["--wide", "--version-info"])
        .arg(program)
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout)
        .unwrap()
        .split("GLIBC_")
        .skip(1)
        .filter_map(|after| {
            let mut numbers = after.split(|c: char| !c.is_ascii_digit());
            Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
        })
        .collect()
}

/// Starts the exporter, waits for its page, and checks that the node is on it.
fn serves(mut command: Command, log: &Path) {
    let port = free_port();
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut daemon = Daemon::start("exporter", command, log);
    let page = wait_for("the page", PATIENCE, || {
        let page = http_get(&format!("http://127.0.0.1:{port}/metrics"));
        Some(page.ok()?.body)
    });
    for metric in ["takt_exporter_build_info{", "node_time_seconds "] {
        assert!(page.contains(metric), "{metric}: {page}");
    }
    assert!(daemon.stop().success(), "{}", daemon.log());
}

#[test]
#[ignore = "compiles for minutes: make exam"]
fn the_exporter_runs_with_an_older_c_library() {
    let Some(program) = or_skip(build("x86_64-unknown-linux-gnu.2.28")) else {
        return;
    };
    let needed = needed(&program);
    assert!(!needed.is_empty());
    assert!(needed.iter().all(|version| *version <= GLIBC), "{needed:?}");
    let directory = tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--state-directory={}", directory.path().display()));
    serves(command, &directory.path().join("log"));
}

#[test]
#[ignore = "compiles for minutes: make exam"]
fn the_exporter_runs_on_arm64() {
    let Some(program) = or_skip(build("aarch64-unknown-linux-gnu.2.28")) else {
        return;
    };
    let needed = needed(&program);
    assert!(!needed.is_empty());
    assert!(needed.iter().all(|version| *version <= GLIBC), "{needed:?}");
    let emulator = find_program("qemu-aarch64-static")
        .filter(|_| Path::new(ARM_LIBRARIES).exists())
        .ok_or_else(|| {
            Skip("needs arm64; apt-get install qemu-user-static libc6-arm64-cross".to_owned())
        });
    let Some(emulator) = or_skip(emulator) else {
        return;
    };
    let directory = tempdir().unwrap();
    let mut command = Command::new(emulator);
    command.args(["-L", ARM_LIBRARIES]).arg(program);
    command.arg(format!("--state-directory={}", directory.path().display()));
    serves(command, &directory.path().join("log"));
}

/// A static program needs no file besides itself.
#[test]
#[ignore = "compiles for minutes: make exam"]
fn the_exporter_runs_in_an_empty_root() {
    let Some(program) = or_skip(build("x86_64-unknown-linux-musl")) else {
        return;
    };
    assert_eq!(needed(&program), [[0; 2]; 0]);
    if or_skip(need_root()).is_none() {
        return;
    }
    let directory = tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::copy(program, root.join("takt-exporter")).unwrap();
    let mut command = Command::new(find_program("chroot").unwrap());
    command.arg(&root).arg("/takt-exporter");
    command.arg("--state-directory=/state");
    serves(command, &directory.path().join("log"));
}
