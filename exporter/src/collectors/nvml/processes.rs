//! Whose a process on a GPU is: its user and its Slurm job.
//!
//! Sources: `/proc/PID/cgroup`, where Slurm's directories name the job, `/proc/PID/status` and the system's users.

use nix::unistd::{Uid, User};
use std::collections::HashMap;
use std::fs::read_to_string;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process's owner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub user: String,
    pub jobid: Option<String>,
}

pub(super) struct Processes {
    procfs: PathBuf,
    users: HashMap<u32, String>,
    users_since: Instant,
}

/// The X server and Wayland compositors: they are on a workstation's GPU and are nobody's work. The kernel cuts names
/// after 15 bytes.
const DESKTOP: [&str; 24] = [
    "Hyprland",
    "X",
    "Xorg",
    "Xwayland",
    "cinnamon",
    "compiz",
    "cosmic-comp",
    "gamescope",
    "gnome-remote-de",
    "gnome-shell",
    "kwin_wayland",
    "kwin_x11",
    "labwc",
    "marco",
    "muffin",
    "mutter",
    "picom",
    "plasmashell",
    "river",
    "sddm-greeter",
    "sway",
    "wayfire",
    "weston",
    "xfwm4",
];

/// Users may be renamed, and a directory service may not have answered.
const USERS_KEPT: Duration = Duration::from_secs(3600);

impl Processes {
    pub fn new(procfs: PathBuf) -> Self {
        Self { procfs, users: HashMap::new(), users_since: Instant::now() }
    }

    /// `None` for a process that has ended, or is part of the desktop.
    pub fn owner(&mut self, pid: u32) -> Option<Owner> {
        let process = self.procfs.join(pid.to_string());
        let status = read_to_string(process.join("status")).ok()?;
        let (name, uid) = parse_status(&status)?;
        if DESKTOP.contains(&name) {
            return None;
        }
        let cgroup = read_to_string(process.join("cgroup")).unwrap_or_default();
        Some(Owner { user: self.user(uid), jobid: parse_jobid(&cgroup).map(str::to_owned) })
    }

    /// The user's name, or the number of one without.
    fn user(&mut self, uid: u32) -> String {
        if self.users_since.elapsed() > USERS_KEPT {
            self.users.clear();
            self.users_since = Instant::now();
        }
        let ask =
            || User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        self.users.entry(uid).or_insert_with(ask).clone()
    }
}

/// The name and the real user.
fn parse_status(text: &str) -> Option<(&str, u32)> {
    let value = |key: &str| text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_ascii()));
    Some((value("Name:")?, value("Uid:")?.split_ascii_whitespace().next()?.parse().ok()?))
}

/// The job's number, from a directory `job_7` below one of Slurm's: `slurm`, `slurm_NODE` (version 1),
/// `slurmstepd.scope`, `NODE_slurmstepd.scope` (version 2).
fn parse_jobid(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let mut below_slurm = path.split('/').skip_while(|name| !name.contains("slurm")).skip(1);
        below_slurm.find_map(|name| {
            let number = name.strip_prefix("job_")?;
            (!number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())).then_some(number)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_in_every_layout() {
        for (cgroup, jobid) in [
            ("0::/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0\n", Some("123")),
            ("0::/system.slice/g01_slurmstepd.scope/job_5/step_0/slurm\n", Some("5")),
            ("9:memory:/slurm/uid_1000/job_42/step_0/task_0\n8:pids:/\n", Some("42")),
            ("9:cpuset:/\n8:devices:/slurm_g01/uid_1000/job_43/step_batch\n", Some("43")),
            ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
            ("0::/user.slice/job_7/slurm\n", None),
            ("0::/system.slice/slurmstepd.scope/system\n", None),
            ("0::/system.slice/slurmstepd.scope/job_x\n", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(parse_jobid(cgroup), jobid, "{cgroup}");
        }
    }

    #[test]
    fn status() {
        assert_eq!(parse_status("Name:\tpython3\nUmask:\t0022\nUid:\t1000\t0\t0\t0\n"), Some(("python3", 1000)));
        assert_eq!(parse_status("Name:\tpython3\n"), None);
        assert_eq!(parse_status("Name:\tx\nUid:\t\n"), None);
    }

    #[test]
    fn we_are_somebody() {
        let mut processes = Processes::new("/proc".into());
        let owner = processes.owner(std::process::id()).unwrap();
        assert_eq!(owner.user, User::from_uid(Uid::current()).unwrap().unwrap().name);
        assert_eq!(processes.owner(u32::MAX), None);
    }
}
