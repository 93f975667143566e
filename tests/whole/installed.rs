//! The files of `make install` under a real systemd, with the shipped units.

use crate::support::machine::{CONFIG, Machine};
use crate::support::{Needed, need, or_skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// Uses the stand-in for NVML; everything else is the shipped unit.
const WITH_GPUS: &str = "[Service]\nEnvironment=NVML_STAND_IN_SCRIPT=/run/gpus\nExecStart=\n\
    ExecStart=/usr/local/bin/takt-exporter --state-directory=%S/takt-exporter \
    --nvml.library=/usr/local/lib/nvml.so\n";

fn install(files: &Path) {
    let programs = Path::new(env!("CARGO_BIN_EXE_takt")).parent().unwrap();
    for program in ["takt-exporter", "libnvml_stand_in.so"] {
        assert!(
            programs.join(program).exists(),
            "{program} is missing; cargo build --workspace"
        );
    }
    let done = Command::new("make")
        .arg("install")
        .arg(format!("DESTDIR={}", files.display()))
        .arg(format!("BIN={}", programs.display()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    for file in [
        "share/man/man1/takt-report-usage.1",
        "share/man/man1/takt-exporter.1",
        "share/bash-completion/completions/takt",
        "share/zsh/site-functions/_takt-exporter",
        "share/fish/vendor_completions.d/takt.fish",
    ] {
        let path = files.join("usr/local").join(file);
        let length = path.metadata().map(|found| found.len());
        assert!(length.is_ok_and(|length| length > 100), "{file}");
    }
    let put = |path: &str, content: &str| {
        let path = files.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("etc/takt/takt.toml", CONFIG);
    put(
        "etc/systemd/system/takt-exporter.service.d/gpus.conf",
        WITH_GPUS,
    );
    fs::copy(
        programs.join("libnvml_stand_in.so"),
        files.join("usr/local/lib/nvml.so"),
    )
    .unwrap();
}

#[test]
fn the_units_work_with_their_privileges() {
    let directory = tempdir().unwrap();
    let Some(machine) = or_skip(Machine::boot(&directory.path().join("machine"), install)) else {
        return;
    };
    machine.run(["systemd-sysusers"]).ok();
    machine
        .run([
            "systemd-analyze",
            "verify",
            "takt.service",
            "takt-exporter.service",
        ])
        .ok();

    machine
        .run([
            "systemd-run",
            "--unit=work",
            "--uid=nobody",
            "sleep",
            "1000",
        ])
        .ok();
    let pid = machine
        .run(["systemctl", "show", "--value", "--property=MainPID", "work"])
        .ok();
    let script = format!(
        "profile rtx5090\\ngpu 0 process {} 1GiB compute\\n",
        pid.trim()
    );
    machine
        .run([
            "sh",
            "-c",
            &format!("printf '{script}' >/run/gpus && chmod 644 /run/gpus"),
        ])
        .ok();
    machine.run(["systemctl", "start", "takt-exporter"]).ok();
    let page = machine.wait_until("showing another user's process on its GPU", |machine| {
        let page = machine
            .run(["curl", "-sf", "127.0.0.1:9855/metrics"])
            .stdout;
        page.lines()
            .any(|line| {
                line.starts_with("takt_gpu_process_memory_used_bytes") && line.contains("sleep")
            })
            .then_some(page)
    });

    // The exporter reads the kernel log, and no collector failed for lack of a privilege.
    assert!(
        page.contains("node_scrape_collector_success{collector=\"events\"} 1"),
        "{page}"
    );
    let says_denied = |log: &str| log.contains("denied") || log.contains("not permitted");
    let log = machine
        .run(["journalctl", "--unit=takt-exporter", "--output=cat"])
        .stdout;
    assert!(!says_denied(&log), "{log}");

    // As docs/install.md says.
    machine
        .run([
            "sh",
            "-c",
            "install -d -m 750 -g takt /etc/takt && chgrp takt /etc/takt/takt.toml",
        ])
        .ok();
    machine.run(["systemctl", "start", "takt"]).ok();

    // systemd warns if the folder has other rights than the unit says.
    let all = machine.run(["journalctl", "--output=cat"]).stdout;
    assert!(
        all.contains("Takt server") && !all.contains("mode is different"),
        "{all}"
    );
    let takt = |machine: &Machine, arguments: &[&str]| {
        machine.run(
            ["env", "TAKT_SERVER=http://127.0.0.1:9856", "takt"]
                .iter()
                .chain(arguments),
        )
    };
    let stored = |machine: &Machine| -> Option<f64> {
        let query = "sum(count_over_time(up{node=\"g01\"}[1h])) and on() (up{node=\"g01\"} == 1)";
        takt(machine, &["query", "--format", "csv", query])
            .stdout
            .lines()
            .nth(1)?
            .rsplit(',')
            .next()?
            .parse()
            .ok()
    };
    let before = machine.wait_until("storing samples", |machine| {
        stored(machine).filter(|&count| count > 5.0)
    });
    machine.run(["systemctl", "reload", "takt"]).ok();
    machine.wait_until("saying that it has read its configuration", |machine| {
        let log = machine
            .run(["journalctl", "--unit=takt", "--output=cat"])
            .stdout;
        assert!(!says_denied(&log), "{log}");
        log.contains("configuration reloaded").then_some(())
    });

    // A mistake makes the reload fail, and the server continues.
    let mistake = "printf '\n[cluster]\nx = 1\n' >>/etc/takt/takt.toml";
    machine
        .run([
            "sh",
            "-c",
            &format!("cp /etc/takt/takt.toml /run/good && {mistake}"),
        ])
        .ok();
    let reload = machine.run(["systemctl", "reload", "takt"]);
    assert_eq!(reload.code, Some(1), "{}", reload.stderr);
    let status = machine.run(["systemctl", "status", "takt"]).stdout;
    assert!(
        status.contains("keeping the previous configuration"),
        "{status}"
    );
    machine.run(["cp", "/run/good", "/etc/takt/takt.toml"]).ok();
    machine.run(["systemctl", "reload", "takt"]).ok();

    // root's command is refused, since it would leave files that the server's user cannot write.
    machine.run(["systemctl", "stop", "takt"]).ok();
    let said = machine
        .run(["takt", "sql", "--data-dir", "/var/lib/takt", "SELECT 1"])
        .fails(1);
    assert!(said.contains("run takt as that user"), "{said}");
    machine.run(["systemctl", "start", "takt"]).ok();
    machine.wait_until("storing more samples than before", |machine| {
        stored(machine).filter(|&count| count > before + 5.0)
    });
}

/// `systemd-analyze security` rates both units well (0 to 10; here in tenths), and neither writes a core dump.
#[test]
fn the_units_are_confined() {
    let analyze = Needed {
        program: "systemd-analyze",
        package: "systemd",
    };
    if or_skip(need(&[analyze])).is_none() {
        return;
    }
    for (unit, tenths) in [("takt", "20"), ("takt-exporter", "40")] {
        let file = format!("{}/packaging/{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--no-pager"])
            .args([&format!("--threshold={tenths}"), &file])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&judged.stdout);

        // Releases before 250 do not read files.
        let is_old = String::from_utf8_lossy(&judged.stderr).contains("--offline");
        assert!(judged.status.success() || is_old, "{unit}: {said}");
        assert!(
            fs::read_to_string(file).unwrap().contains("LimitCORE=0\n"),
            "{unit}"
        );
    }
}
