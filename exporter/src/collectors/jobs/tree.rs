//! The jobs' directories among the node's cgroups.
//!
//! Only the directories that may lead to jobs are listed: systemd's slices, Slurm's own and the
//! kubelet's.

use super::listings::{CgroupListings, directories};
use crate::job_path::{self, JobKey};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The controllers of version 1 that count something, or list a job's processes. The first that a
/// job has lists them.
pub(super) const CONTROLLERS_V1: [&str; 7] = [
    "freezer", "memory", "cpuacct", "pids", "devices", "blkio", "cpuset",
];

/// The hierarchy of version 2 in [`JobDirectory::controller`].
pub(super) const V2: &str = "";

/// One directory of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobDirectory {
    /// Controller of version 1, or [`V2`].
    pub controller: &'static str,
    pub path: PathBuf,
}

/// The cgroups of a job, found by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JobCgroups {
    pub directories: Vec<JobDirectory>,
    /// User of the job; only version 1 has it in a name.
    pub uid: Option<u32>,
}

/// The jobs below `root`, which is where cgroups are mounted.
pub(super) fn find(root: &Path, listings: &mut CgroupListings) -> BTreeMap<JobKey, JobCgroups> {
    listings.begin(Instant::now());

    let mut found = FoundJobs {
        jobs: BTreeMap::new(),
        listings,
    };

    let unified = if root.join("cgroup.controllers").exists() {
        root.to_owned()
    } else {
        root.join("unified")
    };

    found.slices(V2, &unified, DEEPEST);

    for controller in CONTROLLERS_V1 {
        found.hierarchy(controller, &root.join(controller));
    }

    let FoundJobs { jobs, listings } = found;
    listings.end();
    jobs
}

/// How many slices lie in another.
const DEEPEST: usize = 6;

struct FoundJobs<'l> {
    jobs: BTreeMap<JobKey, JobCgroups>,
    listings: &'l mut CgroupListings,
}

impl FoundJobs<'_> {
    fn add(&mut self, key: JobKey, controller: &'static str, path: PathBuf) -> &mut JobCgroups {
        let group = self.jobs.entry(key).or_default();
        group.directories.push(JobDirectory { controller, path });
        group
    }

    /// A hierarchy of version 1: Slurm's own directories, and pods in slices.
    fn hierarchy(&mut self, controller: &'static str, root: &Path) {
        for name in self.listings.directories(root).iter() {
            if job_path::is_slurm_v1(name) {
                self.slurm_v1(controller, &root.join(name));
            } else {
                self.slice(controller, root, name, DEEPEST);
            }
        }
    }

    fn slurm_v1(&mut self, controller: &'static str, directory: &Path) {
        for user in self.listings.directories(directory).iter() {
            let Some(uid) = user.strip_prefix("uid_").and_then(|uid| uid.parse().ok()) else {
                continue;
            };
            let of_user = directory.join(user);

            for name in self.listings.directories(&of_user).iter() {
                if let Some(number) = job_path::job_number(name) {
                    self.add(JobKey::Slurm(number), controller, of_user.join(name))
                        .uid = Some(uid);
                }
            }
        }
    }

    /// Slurm's scopes in version 2, and pods in both.
    fn slices(&mut self, controller: &'static str, directory: &Path, depth: usize) {
        for name in self.listings.directories(directory).iter() {
            self.slice(controller, directory, name, depth);
        }
    }

    fn slice(&mut self, controller: &'static str, directory: &Path, name: &str, depth: usize) {
        let path = directory.join(name);

        if controller == V2 && job_path::is_slurm_v2(name) {
            for name in self.listings.directories(&path).iter() {
                if let Some(key) = job_path::job_v2(name) {
                    self.add(key, controller, path.join(name));
                }
            }
        } else if job_path::is_kubepods(name) {
            self.pods(controller, &path, depth);
        } else if depth > 0 && (job_path::is_slice(name) || job_path::is_kubelet(name)) {
            self.slices(controller, &path, depth - 1);
        }
    }

    fn pods(&mut self, controller: &'static str, directory: &Path, depth: usize) {
        for name in self.listings.directories(directory).iter() {
            let path = directory.join(name);

            if let Some(key) = job_path::pod(name) {
                self.add(key, controller, path);
            } else if depth > 0
                && (job_path::is_kubepods(name)
                    || ["burstable", "besteffort"].contains(&name.as_str()))
            {
                self.pods(controller, &path, depth - 1);
            }
        }
    }
}

/// The processes of a job and the step that each is in, by the step's path below the job:
/// `step_0/user/task_1`.
pub(super) fn processes(group: &JobCgroups) -> BTreeMap<String, Vec<u32>> {
    let mut by_step = BTreeMap::new();

    // A job that several slurmds of one host have has a directory of each. The directories of other
    // controllers list the same processes again.
    let first = group.directories.first().map(|first| first.controller);
    for directory in &group.directories {
        if Some(directory.controller) == first {
            add_processes(&directory.path, "", DEEPEST, &mut by_step);
        }
    }
    by_step
}

fn add_processes(
    directory: &Path,
    below: &str,
    depth: usize,
    by_step: &mut BTreeMap<String, Vec<u32>>,
) {
    let text = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();

    // 0 is a process that our own namespace does not see.
    let pids: Vec<u32> = text
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|pid| *pid != 0)
        .collect();

    if !pids.is_empty() {
        by_step.entry(below.to_owned()).or_default().extend(pids);
    }

    if depth > 0 {
        for name in directories(directory) {
            let step = if below.is_empty() {
                name.clone()
            } else {
                format!("{below}/{name}")
            };
            add_processes(&directory.join(name), &step, depth - 1, by_step);
        }
    }
}

/// Contents of `devices.list`, the devices that a job may use in version 1. A pod's containers have
/// lists of their own.
pub(super) fn device_lists(group: &JobCgroups) -> Vec<String> {
    let mut lists = Vec::new();
    for job in &group.directories {
        if job.controller != "devices" {
            continue;
        }

        let containers = directories(&job.path).map(|name| job.path.join(name));
        for path in std::iter::once(job.path.clone()).chain(containers) {
            lists.extend(std::fs::read_to_string(path.join("devices.list")));
        }
    }
    lists
}
