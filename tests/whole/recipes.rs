//! Recipes for Kubernetes: the arguments of the DaemonSet start an exporter.

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::Takt;
use crate::support::{Skip, need_program, or_skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Versions of Kubernetes whose schemas the manifest must fit.
const VERSIONS: [&str; 3] = ["1.28", "1.33", "1.37"];

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/takt-exporter.yaml")
}

#[test]
fn the_daemonset_fits_the_schemas_of_kubernetes() {
    let program = need_program("kubernetes-validate")
        .map_err(|_| Skip("needs kubernetes-validate; pip install kubernetes-validate".to_owned()));
    let Some(program) = or_skip(program) else {
        return;
    };
    for version in VERSIONS {
        let asked = ["--kubernetes-version", version, "--strict"];
        let done = Command::new(&program)
            .args(asked)
            .arg(manifest())
            .output()
            .unwrap();
        assert!(done.status.success(), "{version}: {done:?}");
    }
}

#[test]
fn the_daemonset_s_arguments_start_an_exporter() {
    let text = fs::read_to_string(manifest()).unwrap();
    let takt = Takt::fresh();
    let root = takt.directory().display().to_string();

    // The node's root is mounted at /host.
    std::os::unix::fs::symlink("/", takt.directory().join("host")).unwrap();
    let arguments: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"))
        .map(|argument| {
            let argument = argument.replace("=/host", &format!("={root}/host"));
            format!("--{}", argument.replace("=/var/lib", &format!("={root}")))
        })
        .collect();
    // The search is for lines of a list in YAML; another way to write them would find none.
    assert_eq!(arguments.len(), 5, "{arguments:?}");
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("--web.listen-address={address}");
    let mut command = takt.command(["exporter"]);
    command.args(&arguments).arg(listen);
    let mut exporter = Daemon::start("exporter", command, &takt.directory().join("exporter.log"));
    // File systems are read beside the pages, so a first page may be without them.
    for metric in ["node_memory_MemTotal_bytes", "node_filesystem_size_bytes"] {
        exporter.wait_until(metric, Duration::from_secs(60), || {
            let page = http_get(&format!("http://{address}/metrics")).ok()?;
            page.body.contains(metric).then_some(())
        });
    }

    // Takt finds the pods at the exporter's usual port.
    let port = takt_server::setup::EXPORTER_PORT;
    for line in [
        format!("containerPort: {port}"),
        format!("hostPort: {port}"),
    ] {
        assert!(text.contains(&line), "{line}");
    }
}
