//! The packages of `make dist` under a real systemd: installed, upgraded and removed.

use crate::support::machine::{CONFIG, Machine};
use crate::support::{Needed, Skip, need, or_skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::tempdir;

/// Folder of the packages in the machine.
const PACKAGES: &str = "/packages";

/// A kind of package: how it is installed and removed.
struct Kind {
    /// Ending of the files.
    ending: &'static str,
    install: &'static [&'static str],
    upgrade: &'static [&'static str],
    remove: &'static [&'static str],
}

const DEB: Kind = Kind {
    ending: ".deb",
    install: &["dpkg", "--force-unsafe-io", "--install"],
    upgrade: &["dpkg", "--force-unsafe-io", "--install"],
    remove: &["dpkg", "--force-unsafe-io", "--remove"],
};

// This machine's packages are not in the database of rpm.
const RPM: Kind = Kind {
    ending: ".rpm",
    install: &["rpm", "--install", "--nodeps"],
    upgrade: &["rpm", "--upgrade", "--nodeps", "--force"],
    remove: &["rpm", "--erase"],
};

fn needs() -> Result<(), Skip> {
    let of = |program, package| Needed { program, package };
    need(&[
        of("dpkg-deb", "dpkg"),
        of("readelf", "binutils"),
        of("curl", "curl"),
    ])
}

/// Builds the packages of this build's programs and returns the files.
fn build(to: &Path) -> Vec<PathBuf> {
    let programs = Path::new(env!("CARGO_BIN_EXE_takt")).parent().unwrap();
    for program in ["takt-exporter", "libduckdb.so"] {
        let file = programs.join(program);
        assert!(file.exists(), "{program} is missing; make build");
    }
    let done = Command::new("scripts/dist.sh")
        .env("BIN", programs)
        .env("OUT", to)
        .env("QUICK", "1")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    fs::read_dir(to)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

/// Boots a machine that has the packages in a folder. Skips where it cannot boot.
fn boot(folder: &Path) -> Option<Machine> {
    or_skip(needs())?;
    or_skip(Machine::boot(&folder.join("machine"), |files| {
        let packages = build(&folder.join("dist"));
        fit_container_files(&packages);
        let to = files.join(PACKAGES.trim_start_matches('/'));
        fs::create_dir_all(&to).unwrap();
        for package in packages {
            fs::copy(&package, to.join(package.file_name().unwrap())).unwrap();
        }
        let configuration = files.join("etc/takt");
        fs::create_dir_all(&configuration).unwrap();
        fs::write(configuration.join("takt.toml"), CONFIG).unwrap();
    }))
}

/// The recipes of container images copy one package each, and start its program.
fn fit_container_files(packages: &[PathBuf]) {
    for recipe in ["exporter", "server"] {
        let file = format!("packaging/container/{recipe}.Containerfile");
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = fs::read_to_string(text).unwrap();
        let after = |word: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(word))
                .unwrap()
        };
        let copied = after("COPY ").split(' ').next().unwrap();
        let (begin, end) = copied.split_once("*_${TARGETARCH}").unwrap();
        let fitting: Vec<&PathBuf> = packages
            .iter()
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                name.starts_with(begin) && name.ends_with(end)
            })
            .collect();
        assert_eq!(fitting.len(), 1, "{copied}: {packages:?}");
        let listed = Command::new("dpkg-deb")
            .arg("--contents")
            .arg(fitting[0])
            .output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let program = after("ENTRYPOINT [\"").split('"').next().unwrap();
        let is_it = |line: &str| line.split(' ').any(|word| word == format!(".{program}"));
        assert!(listed.lines().any(is_it), "{program}: {listed}");
    }
}

fn shell(machine: &Machine, line: &str) -> String {
    machine.run(["sh", "-c", line]).ok()
}

/// The package of a program: `takt_0.1.0_amd64.deb`, `takt-0.1.0-1.x86_64.rpm`.
fn file(machine: &Machine, name: &str, kind: &Kind) -> String {
    let found = shell(
        machine,
        &format!("ls {PACKAGES}/{name}[-_][0-9]*{}", kind.ending),
    );
    let mut lines = found.lines();
    let file = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{found}");
    file
}

fn property(machine: &Machine, unit: &str, name: &str) -> String {
    let asked = ["systemctl", "show", "--value", "--property", name, unit];
    machine.run(asked).ok().trim().to_owned()
}

/// Number of stored samples of the exporter's last hour.
fn stored(machine: &Machine) -> Option<f64> {
    let query = "sum(count_over_time(up{node=\"g01\"}[1h]))";
    let server = "http://127.0.0.1:9856";
    let asked = [
        "takt", "--server", server, "query", "--format", "csv", query,
    ];
    machine
        .run(asked)
        .stdout
        .lines()
        .nth(1)?
        .rsplit(',')
        .next()?
        .parse()
        .ok()
}

fn install_run_and_remove(machine: &Machine, kind: &Kind) {
    let run = |command: &[&str], argument: &str| {
        let whole: Vec<&str> = command.iter().copied().chain([argument]).collect();
        machine.run(whole).ok()
    };
    let exporter = file(machine, "takt-exporter", kind);
    let server = file(machine, "takt", kind);

    // The exporter needs no configuration: it runs after its installation.
    run(kind.install, &exporter);
    let is_enabled = machine.run(["systemctl", "is-enabled", "takt-exporter"]);
    assert_eq!(is_enabled.stdout.trim(), "enabled");
    machine.wait_until("answering", |machine| {
        machine
            .run(["curl", "-sf", "127.0.0.1:9855/metrics"])
            .stdout
            .contains("takt_exporter_build_info")
            .then_some(())
    });

    // The server starts when it is configured.
    run(kind.install, &server);
    assert_eq!(property(machine, "takt", "ActiveState"), "inactive");
    let owner = shell(machine, "id -u takt && stat -c '%U:%G %a' /etc/takt");
    assert!(owner.ends_with("root:takt 750\n"), "{owner}");
    shell(
        machine,
        "chgrp takt /etc/takt/takt.toml && chmod 640 /etc/takt/takt.toml",
    );
    machine.run(["systemctl", "enable", "--now", "takt"]).ok();
    let before = machine.wait_until("storing samples", |machine| {
        stored(machine).filter(|&count| count > 3.0)
    });
    for page in ["takt", "takt-exporter", "takt-report-usage"] {
        shell(machine, &format!("test -s /usr/share/man/man1/{page}.1.gz"));
    }
    shell(
        machine,
        "test -s /usr/share/bash-completion/completions/takt",
    );

    // An upgrade restarts both and keeps the data.
    let pids = || ["takt", "takt-exporter"].map(|unit| property(machine, unit, "MainPID"));
    let old = pids();
    run(kind.upgrade, &exporter);
    run(kind.upgrade, &server);
    let new = pids();
    assert!(old[0] != new[0] && old[1] != new[1], "{old:?} {new:?}");
    machine.wait_until("storing more samples than before", |machine| {
        stored(machine).filter(|&count| count > before + 3.0)
    });

    // A removal leaves the data and the configuration, and no service.
    run(kind.remove, "takt");
    run(kind.remove, "takt-exporter");
    for unit in ["takt.service", "takt-exporter.service"] {
        assert_eq!(property(machine, unit, "LoadState"), "not-found", "{unit}");
        assert_eq!(property(machine, unit, "ActiveState"), "inactive", "{unit}");
    }
    assert!(machine.run(["curl", "-s", "127.0.0.1:9855/"]).code != Some(0));
    let left = shell(
        machine,
        "find /etc/systemd /usr/lib/systemd /usr/bin /usr/lib/takt /usr/share/man/man1 -name '*takt*' 2>/dev/null; true",
    );
    assert_eq!(left, "");
    shell(
        machine,
        "test -s /etc/takt/takt.toml && test -s /var/lib/takt/records.duckdb",
    );
}

#[test]
#[ignore = "takes minutes: make exam"]
fn the_packages_install_run_and_leave_nothing_running() {
    let directory = tempdir().unwrap();
    let Some(machine) = boot(directory.path()) else {
        return;
    };
    install_run_and_remove(&machine, &DEB);
    // A removal keeps the state of the exporter, and a purge deletes it, but never the records.
    shell(&machine, "test -e /var/lib/private/takt-exporter");
    shell(&machine, "dpkg --purge takt-exporter takt");
    shell(&machine, "test ! -e /var/lib/private/takt-exporter");
    shell(&machine, "test -s /var/lib/takt/records.duckdb");

    let has_rpm = shell(&machine, &format!("ls {PACKAGES}")).contains(".rpm");
    let rpm = has_rpm
        .then_some(())
        .ok_or_else(|| Skip("the part about .rpm needs rpmbuild; apt-get install rpm".to_owned()));
    if or_skip(rpm).is_some() {
        shell(&machine, "rm -rf /var/lib/takt");
        install_run_and_remove(&machine, &RPM);
    }
}
