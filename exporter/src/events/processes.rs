//! The job of a process that the kernel log names, looked up while the process is there.
//!
//! Source: `/proc/PID/cgroup`, `comm` and `status`. Who held the GPU at the last scrape may have ended
//! since; the cgroup of the process is right at the moment of the event.

use crate::job_path::{JobKey, job_of_process};
use std::fs;
use std::path::Path;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Age of a line up to which its process is looked up. An older process may have ended, and its number
/// may be another's.
const FRESH: Duration = Duration::from_secs(5);

/// Whose a process is, by its cgroup.
#[derive(Debug, PartialEq)]
enum ProcessOwner {
    Job(JobKey, Option<u32>),
    /// Path of the cgroup of a process that belongs to no job.
    NoJob(String),
}

/// Adds `jobid` or `sluid`, and `uid`, of the process with the labels `pid` and `process`. One that belongs
/// to no job gets `cgroup` instead: the job that holds the GPU did not cause what this process did.
pub(super) fn add_job(labels: &mut Labels, procfs: &Path, at: Timestamp, now: Timestamp) {
    let is_fresh = now.0.abs_diff(at.0) <= FRESH.as_millis() as u64;
    let is_known = labels.get("jobid").or(labels.get("sluid")).is_some();
    if !is_fresh || is_known {
        return;
    }
    let (Some(pid), Some(process)) = (labels.get("pid"), labels.get("process")) else {
        return;
    };
    let uid = match owner_of(procfs, pid, process) {
        None => return,
        Some(ProcessOwner::NoJob(cgroup)) => return labels.set("cgroup", &cgroup),
        Some(ProcessOwner::Job(JobKey::Sluid(sluid), uid)) => {
            labels.set("sluid", &sluid);
            uid
        }
        Some(ProcessOwner::Job(job, uid)) => {
            labels.set("jobid", &job.name());
            uid
        }
    };
    if let Some(uid) = uid {
        labels.set("uid", &uid.to_string());
    }
}

/// The owner of a process, if it is there and has this name.
fn owner_of(procfs: &Path, pid: &str, process: &str) -> Option<ProcessOwner> {
    let pid: u32 = pid.parse().ok()?;
    let directory = procfs.join(pid.to_string());
    let read = |file: &str| fs::read(directory.join(file)).ok();
    let text = |file: &str| Some(String::from_utf8_lossy(&read(file)?).into_owned());
    let name = text("comm")?;
    if name.strip_suffix('\n').unwrap_or(&name) != process {
        return None;
    }

    let cgroup = text("cgroup")?;
    let Some(job) = job_of_process(&cgroup) else {
        return Some(ProcessOwner::NoJob(deepest_path(&cgroup)?.to_owned()));
    };
    let status = text("status").unwrap_or_default();
    let mut lines = status.lines();
    let uid = lines.find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    let uid = uid.and_then(|uid| uid.parse().ok());
    Some(ProcessOwner::Job(job, uid))
}

/// The longest path in `/proc/PID/cgroup`, whose lines are `NUMBER:CONTROLLERS:PATH`.
fn deepest_path(cgroup: &str) -> Option<&str> {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.max_by_key(|path| path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_the_job_of_its_process_by_its_cgroup() {
        let procfs = tempfile::tempdir().unwrap();
        let write = |pid: &str, name: &str, cgroup: &str| {
            let directory = procfs.path().join(pid);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
            fs::write(directory.join("cgroup"), cgroup).unwrap();
            let status = "Name:\tpython\nUid:\t1003\t1003\t1003\t1003\n";
            fs::write(directory.join("status"), status).unwrap();
        };
        write(
            "7",
            "python",
            "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n",
        );
        write("8", "python", "0::/user.slice/user-1003.slice/job_42\n");
        write(
            "9",
            "R",
            "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0\n",
        );

        let now = Timestamp::from_seconds(1_000);
        let labels = |pid: &str, process: &str, seconds: i64| {
            let mut labels: Labels = [("pid", pid), ("process", process)].into_iter().collect();
            add_job(
                &mut labels,
                procfs.path(),
                Timestamp::from_seconds(seconds),
                now,
            );
            labels.to_string()
        };
        let known = r#"{jobid="42", pid="7", process="python", uid="1003"}"#;
        assert_eq!(labels("7", "python", 999), known);
        let sluid = r#"{pid="9", process="R", sluid="s5K1KKYAYG5D00", uid="1003"}"#;
        assert_eq!(labels("9", "R", 1_000), sluid);
        // A user's directory with the name of a job's is no job.
        let outside = r#"{cgroup="/user.slice/user-1003.slice/job_42", pid="8", process="python"}"#;
        assert_eq!(labels("8", "python", 999), outside);
        // An old line, another process of that number, no process, no number.
        for (pid, process, seconds) in [
            ("7", "python", 900),
            ("7", "perl", 999),
            ("10", "python", 999),
            ("../7", "python", 999),
        ] {
            let unknown = labels(pid, process, seconds);
            assert!(
                !unknown.contains("42") && !unknown.contains("cgroup"),
                "{pid} {process}"
            );
        }
    }
}
