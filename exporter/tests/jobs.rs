//! Jobs on the node: cgroup trees of Slurm and Kubernetes as fixtures, and real cgroups with real
//! processes.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use rustix::process::Pid;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use support::{Running, fixtures, stand_in};
use tempfile::TempDir;

#[test]
fn slurm_26_05_on_version_2() {
    check("slurm-26.05_cgroup-v2");
}

#[test]
fn slurm_22_05_on_version_1() {
    check("slurm-22.05_cgroup-v1");
}

#[test]
fn kubernetes_on_version_2() {
    check("kubernetes_cgroup-v2");
}

#[test]
fn kubernetes_on_version_1() {
    check("kubernetes_cgroup-v1");
}

/// Returns the job metrics of the page over a fixture tree.
fn check(name: &str) {
    let directory = fixtures().join("made-up/jobs");
    let read = |extension: &str| fs::read_to_string(directory.join(format!("{name}.{extension}")));
    let node = TempDir::new().unwrap();
    unpack(&read("tree").unwrap(), node.path());
    let script = node.path().join("gpus");
    fs::write(&script, read("gpus").unwrap()).unwrap();
    let path =
        |flag: &str, name: &str| format!("--path.{flag}={}", node.path().join(name).display());
    let procfs = path("procfs", "proc");
    let sysfs = path("sysfs", "sys");
    let library = stand_in();
    let rootfs = format!("--path.rootfs={}", node.path().display());
    let exporter = Running::takt(
        &[&procfs, &sysfs, &rootfs, &library],
        &[("NVML_STAND_IN_SCRIPT", &script)],
    );

    let page = |page: &str| {
        let is_of_jobs =
            |line: &&str| line.starts_with("takt_job") || line.starts_with("takt_gpu_job_");
        page.lines()
            .filter(|line| is_of_jobs(line) || line.starts_with("takt_gpu_process_without_job"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let golden = directory.join(format!("{name}.page"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, page(&exporter.page(""))).unwrap();
    }
    let expected = read("page").unwrap();
    // On a busy machine the next reading of NVML may bring the GPUs' processes.
    let found = exporter.wait_for("as in the fixture", |found| page(found) == expected);
    assert_eq!(page(&found), expected);
    assert!(found.contains(r#"node_scrape_collector_success{collector="jobs"} 1"#));
}

/// `== PATH` begins a file.
fn unpack(tree: &str, node: &Path) {
    let files = tree.split("\n== ").skip(1);
    for file in files {
        let (path, content) = file.split_once('\n').unwrap_or((file, ""));
        // Comments are for readers of the fixture.
        let content: String = content
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        // The kernel ends each variable with a zero byte.
        let content = if path.ends_with("/environ") {
            content.replace('\n', "\0")
        } else {
            content
        };
        let path = node.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A job in real cgroups; dropping it removes them.
struct LiveJob {
    directories: Vec<PathBuf>,
    child: Child,
}

impl LiveJob {
    /// Runs `script` in a step's cgroup, created below each of `hierarchies`. Returns `None`
    /// without the right to create one.
    fn start(
        hierarchies: &[&str],
        job: &str,
        script: &str,
        environment: &[(&str, &str)],
    ) -> Option<Self> {
        let mut directories = Vec::new();
        for hierarchy in hierarchies {
            let job = Path::new(hierarchy).join(job);
            if let Err(error) = fs::create_dir_all(job.join("step_batch/task_0")) {
                eprintln!("SKIPPED: cannot make a cgroup in {hierarchy}: {error}");
                return None;
            }
            directories.push(job);
        }
        directories
            .iter()
            .map(|job| job.join("memory.limit_in_bytes"))
            .find(|file| file.exists())
            .into_iter()
            .for_each(|file| fs::write(file, "33554432").unwrap());
        let mut command = Command::new("/bin/sh");
        // The script waits until its process has been moved.
        command
            .args(["-c", &format!("read go; {script}")])
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        let child = command
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut job = Self { directories, child };
        for directory in &job.directories {
            fs::write(
                directory.join("step_batch/task_0/cgroup.procs"),
                job.child.id().to_string(),
            )
            .unwrap();
        }
        // From now on all that it uses counts for the job.
        io::Write::write_all(&mut job.child.stdin.take().unwrap(), b"go\n").unwrap();
        Some(job)
    }
}

impl Drop for LiveJob {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for job in &self.directories {
            // The kernel frees a cgroup some time after its last process.
            for _ in 0..200 {
                let pids = fs::read_to_string(job.join("step_batch/task_0/cgroup.procs"))
                    .unwrap_or_default();
                for pid in pids
                    .lines()
                    .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                let below = ["step_batch/task_0", "step_batch", ""];
                if below
                    .map(|name| fs::remove_dir(job.join(name)))
                    .iter()
                    .all(Result::is_ok)
                    || !job.exists()
                {
                    break;
                }
                thread::sleep(std::time::Duration::from_millis(20));
            }
            job.ancestors()
                .skip(1)
                .take(2)
                .for_each(|parent| drop(fs::remove_dir(parent)));
        }
    }
}

const V1: [&str; 4] = ["cpuacct", "memory", "pids", "devices"];

/// Job ids that no job of this machine has.
fn number(offset: u32) -> u32 {
    3_000_000_000 + process::id() + offset
}

#[test]
fn a_live_job_in_version_1_is_measured_and_its_idle_gpu_known() {
    let hierarchies = V1.map(|controller| format!("/sys/fs/cgroup/{controller}"));
    let hierarchies: Vec<_> = hierarchies.iter().map(String::as_str).collect();
    let id = number(0).to_string();
    let job = format!("slurm_takt-test-{}/uid_0/job_{id}", process::id());
    let environment = [("SLURM_JOB_ID", id.as_str()), ("SLURM_JOB_GPUS", "1")];
    // 100 MB do not fit into 32 MB: the kernel kills one process, and the job continues.
    let script = "sh -c 'x=$(head -c 100000000 /dev/zero | tr \"\\0\" a)'; i=0; while [ $i -lt \
         100000 ]; do i=$((i+1)); done; sleep 300";
    let Some(live) = LiveJob::start(&hierarchies, &job, script, &environment) else {
        return;
    };
    let directory = TempDir::new().unwrap();
    let gpus = directory.path().join("gpus");
    fs::write(&gpus, "profile rtx5090 2\ngpu 1 uuid GPU-idle\n").unwrap();
    let exporter = Running::takt(&[&stand_in()], &[("NVML_STAND_IN_SCRIPT", &gpus)]);

    let holds = format!("takt_gpu_job_info{{uuid=\"GPU-idle\",jobid=\"{id}\",user=\"root\"}} 1\n");
    let killed = format!("takt_job_oom_kills_total{{jobid=\"{id}\"}} 1\n");
    let asleep = format!("takt_job_processes{{jobid=\"{id}\"}} 2\n");
    exporter.wait_for("as it shall be", |page| {
        [&holds, &killed, &asleep]
            .iter()
            .all(|line| page.contains(line.as_str()))
    });
    let series = of_job(&exporter, &id);
    assert!(series["takt_job_cpu_seconds_total"] > 0.01, "{series:?}");
    assert!(
        (1.0..33_554_433.0).contains(&series["takt_job_memory_current_bytes"]),
        "{series:?}"
    );
    assert!(series["takt_job_memory_peak_bytes"] > 16e6, "{series:?}");
    assert_eq!(series["takt_job_memory_limit_bytes"], 33_554_432.0);
    assert!(series["takt_job_threads"] >= 2.0, "{series:?}");

    // Without its cgroup, the job must leave the page.
    drop(live);
    exporter.wait_for("gone", |page| !page.contains(&format!("jobid=\"{id}\"")));
}

#[test]
fn a_live_job_in_version_2_is_measured() {
    let root = Path::new("/sys/fs/cgroup");
    // Systemd's hybrid layout has version 2 beside version 1.
    let unified = if root.join("cgroup.controllers").exists() {
        root.to_owned()
    } else {
        root.join("unified")
    };
    if !unified.join("cgroup.procs").exists() {
        eprintln!("SKIPPED: no hierarchy of version 2");
        return;
    }
    let id = number(1).to_string();
    let job = format!(
        "takt-test-{}.slice/takt_slurmstepd.scope/job_{id}",
        process::id()
    );
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 300";
    let Some(live) = LiveJob::start(
        &[unified.to_str().unwrap()],
        &job,
        script,
        &[("SLURM_JOB_ID", &id)],
    ) else {
        return;
    };
    let exporter = Running::takt(&["--nvml.library=/nonexistent"], &[]);
    exporter.wait_for("asleep", |page| {
        page.contains(&format!("takt_job_processes{{jobid=\"{id}\"}} 2\n"))
    });
    let series = of_job(&exporter, &id);
    assert!(series["takt_job_cpu_seconds_total"] > 0.01, "{series:?}");
    drop(live);
    exporter.wait_for("gone", |page| !page.contains(&format!("jobid=\"{id}\"")));
}

/// The series of one job that have no other label.
fn of_job(exporter: &Running, id: &str) -> BTreeMap<String, f64> {
    let series = exporter.series("?collect[]=jobs").into_iter();
    let label = format!("{{jobid=\"{id}\"}}");
    series
        .filter_map(|(name, value)| Some((name.strip_suffix(&label)?.to_owned(), value)))
        .collect()
}
