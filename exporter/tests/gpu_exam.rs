//! `scripts/gpu-exam.sh`, the comparison with NVML on a machine with GPUs, against the stand-in: it finds
//! no difference where there is none, and each where there is one.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

#[path = "support/mod.rs"]
mod support;

const MODELS: &str = "profile h100 1\nprofile rtx5090 1\ngpu 1 temperature 50\n";

/// Runs the examination. `exporter_script` is what the exporter's GPUs do, `script` what the examiner
/// sees. Returns whether it passed, and what it said.
fn examine(script: &str, exporter_script: &str) -> (bool, String) {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let seen = file("seen", script);
    let other = file("other", exporter_script);
    let exporter = file(
        "exporter",
        &format!(
            "#!/bin/sh\nNVML_STAND_IN_SCRIPT={} exec {} --path.kmsg=/nonexistent \"$@\"\n",
            other.display(),
            env!("CARGO_BIN_EXE_takt-exporter"),
        ),
    );
    fs::set_permissions(&exporter, fs::Permissions::from_mode(0o755)).unwrap();

    let exam = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu-exam.sh");
    let library = support::stand_in();
    let run = Command::new(exam)
        .arg("--exporter")
        .arg(&exporter)
        .args([&library.replace("--nvml.library=", "--nvml=")])
        .args(["--seconds", "4", "--no-smi", "--no-load"])
        .env("NVML_STAND_IN_SCRIPT", &seen)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code().is_some_and(|code| code < 2), "{said}");
    (run.status.success(), said.into_owned())
}

#[test]
fn the_exam_of_gpus_passes_for_equal_readings_and_fails_for_others() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: python3 is not installed");
        return;
    }
    let (passed, said) = examine(MODELS, MODELS);
    assert!(passed && said.contains("**0 differences**"), "{said}");
    assert!(said.contains("| idle | nvml | "), "{said}");

    // The exporter sees a warmer GPU, has no fan, and a limit that NVML does not give.
    let script = format!("{MODELS}gpu 0 unsupported nvmlDeviceGetEnforcedPowerLimit\n");
    let other =
        format!("{MODELS}gpu 1 temperature 60\ngpu 1 unsupported nvmlDeviceGetMinorNumber\n");
    let (passed, said) = examine(&script, &other);
    assert!(!passed, "{said}");
    for difference in [
        "'sensor': 'gpu'",
        "saw 50 to 50",
        "takt_gpu_power_limit_watts",
        "NVML does not support it",
        "index and minor number of GPU 1",
    ] {
        assert!(said.contains(difference), "{difference}:\n{said}");
    }
}
