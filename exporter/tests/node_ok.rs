//! `takt-exporter node ok` against a running exporter with simulated GPUs.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};
use support::{Running, stand_in};
use tempfile::TempDir;

#[path = "support/mod.rs"]
mod support;

const GPUS: &str = "profile h100 2\ngpu 0 uuid GPU-a\ngpu 1 uuid GPU-b\n";

/// Checks that do not depend on the machine of the test.
const CHECKS: &str = "mounts = []\n[gpus]\ncount = 2\n[checks]\nreadings = \"off\"\nnfs = \"off\"\n\
                      link_speed = \"off\"\nclock = \"off\"\n";

/// A node with two simulated GPUs.
struct Node {
    directory: TempDir,
    exporter: Running,
}

impl Node {
    fn new(script: &str) -> Self {
        Self::with(script, &[])
    }

    fn with(script: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("script");
        fs::write(&path, format!("{GPUS}{script}")).unwrap();
        fs::write(directory.path().join("checks.toml"), CHECKS).unwrap();
        let library = stand_in();
        // The kernel log of this machine may contain any events.
        let flags = [&["--path.kmsg=/nonexistent", &library], flags].concat();
        let exporter = Running::takt(&flags, &[("NVML_STAND_IN_SCRIPT", &path)]);
        exporter.wait_for("both GPUs", |page| {
            page.matches("\ntakt_gpu_up{").count() == 2
        });
        Self {
            directory,
            exporter,
        }
    }

    fn becomes(&self, script: &str) {
        // Renamed, so that the stand-in never reads half of a script.
        let draft = self.directory.path().join("draft");
        fs::write(&draft, format!("{GPUS}{script}")).unwrap();
        fs::rename(draft, self.directory.path().join("script")).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = node_ok(&self.exporter.address.to_string());
        let checks = self.directory.path().join("checks.toml");
        command.arg("--checks").arg(checks).args(arguments);
        command
    }

    fn ok(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Asks until the answer has this exit code; readings take a moment.
    fn ok_until(&self, code: i32, arguments: &[&str]) -> Said {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let said = self.ok(arguments);
            if said.code == Some(code) || Instant::now() > until {
                return said;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn node_ok(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt-exporter"));
    command.args(["node", "ok", "--exporter", address]);

    // The test may itself run within a job.
    command.env_remove("SLURM_JOB_GPUS");
    command.env("SLURMD_NODENAME", "g01");
    command
}

#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_lost_gpu_makes_the_node_unfit_in_the_words_of_nhc() {
    let node = Node::new("");
    let well = node.ok(&[]);
    assert_eq!((well.code, well.stdout.as_str()), (Some(0), ""), "{well:?}");

    node.becomes("gpu 1 lost\n");
    let lost = node.ok_until(1, &[]);
    assert_eq!(lost.code, Some(1), "{lost:?}");
    assert_eq!(
        lost.stdout.lines().collect::<Vec<_>>(),
        [
            "ERROR:  nhc:  Health check failed:  check_takt_gpu_count:  1 GPUs answer, expected 2",
            "ERROR:  nhc:  Health check failed:  check_takt_gpu_up:  GPU 1 (GPU-b): does not answer: lost",
            "ERROR:  nhc:  2 health checks failed.",
        ]
    );

    let reason = node.ok(&["--format", "reason"]).stdout;
    assert!(
        reason.starts_with("NHC: check_takt_gpu_count: 1 GPUs answer"),
        "{reason}"
    );
    let command = node.ok(&["--format", "scontrol"]).stdout;
    assert!(
        command.starts_with("scontrol update 'NodeName=g01' State=DRAIN 'Reason=NHC: "),
        "{command}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&node.ok(&["--format", "json"]).stdout).unwrap();
    assert_eq!(json["fitness"], "unfit");
    assert_eq!(json["exit_code"], 1);
    assert_eq!(json["findings"][1]["gpu"], "GPU-b");

    // A dry run says the same and lets the job start.
    let dry = node.ok(&["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(dry.stdout.contains("check_takt_gpu_up:  GPU 1"), "{dry:?}");
    assert!(
        dry.stdout.ends_with("dry run: the node is not fit\n"),
        "{dry:?}"
    );
    assert!(dry.stdout.contains("check_takt_clock:  off:"), "{dry:?}");
    assert!(
        dry.stdout.contains("check_takt_links:  not configured:"),
        "{dry:?}"
    );
}

#[test]
fn a_fault_of_another_gpu_does_not_fail_the_job_if_the_file_says_so() {
    let node = Node::new("gpu 1 recovery-action 1\n");
    assert_eq!(node.ok(&[]).code, Some(1));
    let of_job = |list: &str| {
        let mut command = node.command(&["--only-job-gpus"]);
        said(command.env("SLURM_JOB_GPUS", list).output().unwrap())
    };
    assert_eq!(of_job("1").code, Some(1));
    let other = of_job("0");
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(
        other.stdout,
        "WARNING:  nhc:  check_takt_gpu_recovery:  GPU 1 (GPU-b): the driver asks for a reset of the GPU\n"
    );
    assert_eq!(node.ok(&["--job-gpus", "GPU-b"]).code, Some(1));
    let wrong = node.ok(&["--job-gpus", "x"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let unknown = of_job("7");
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown
            .stdout
            .contains("the job's GPU \"7\" is not on this node"),
        "{unknown:?}"
    );
}

#[test]
fn an_exporter_that_cannot_be_asked_is_said_and_counts_as_configured() {
    // Connections to a port that has just been closed are refused.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let asked = |arguments: &[&str]| said(node_ok(&address).args(arguments).output().unwrap());
    for (arguments, code) in [
        (&[][..], 2),
        (&["--if-unknown", "fit"], 0),
        (&["--if-unknown", "unfit"], 1),
        (&["--if-unknown", "unfit", "--dry-run"], 0),
        // A mistake of the caller is no unknown state of the node, so it stays a mistake.
        (&["--checks", "/nonexistent", "--if-unknown", "fit"], 2),
        (&["--exporter-address", "x"], 2),
    ] {
        let said = asked(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(!said.stderr.is_empty(), "{arguments:?}");
    }
    let unknown = asked(&["--if-unknown", "unfit"]);
    assert!(
        unknown.stdout.starts_with(
            "ERROR:  nhc:  Health check failed:  check_takt_exporter:  cannot connect"
        ),
        "{unknown:?}"
    );
    let json = asked(&["--format", "json"]).stdout;
    assert!(json.contains("\"fitness\":\"unknown\""), "{json}");
}

#[test]
fn another_program_on_the_port_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nup 1\n");
        }
    });
    let said = said(node_ok(&address).output().unwrap());
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("is no takt-exporter"), "{said:?}");
}

/// A process with a name that looks like a result, on a GPU without a job.
#[test]
fn a_name_of_a_process_forges_no_line() {
    let node = Node::new("");
    let program = node
        .directory
        .path()
        .join("ok\nERROR:  nhc:  Health check failed:  x");

    // The name of the file becomes the name of the process.
    fs::copy("/bin/sleep", &program).unwrap();
    let mut process = Command::new(&program).arg("60").spawn().unwrap();
    node.becomes(&format!("gpu 0 process {} 1GiB compute\n", process.id()));
    node.exporter.wait_for("the process", |page| {
        page.contains("takt_gpu_process_without_job{")
    });

    let said = node.ok(&[]);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "{said:?}");
    let expected = "WARNING:  nhc:  check_takt_gpu_processes:  GPU 0 (GPU-a): 1 processes of user ";
    assert!(lines[0].starts_with(expected), "{said:?}");
}

#[test]
fn without_a_collector_the_rest_is_judged() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let node = Node::with("gpu 1 lost\n", &["--no-collector.infiniband"]);
    let said = node.ok_until(1, &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let wrong = write("password", "no colon");
    let said = node.ok(&["--password-file", &wrong]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.stderr.ends_with("expected one line, user:password\n"),
        "{said:?}"
    );
}
