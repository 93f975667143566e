//! User and job of a process.
//!
//! Sources: `/proc/PID/stat`, `status` and `cgroup`, and the system's users. Where Slurm runs
//! without cgroups, the `slurmstepd` among a process's ancestors names the job.

use super::environment::StepEnvironment;
use crate::job_path::{self, JobKey};
use nix::unistd::{Uid, User};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, read_to_string};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The user and the job that a process runs for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessOwner {
    pub user: String,
    pub job: Option<JobKey>,
    /// The kernel's name of its program (`comm`): at most 15 bytes.
    pub command: String,
    /// Whether the process is part of the desktop, which counts as no work.
    pub is_desktop: bool,
}

/// Fields 2, 4 and 22 of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub name: String,
    pub parent: u32,
    /// When it began, in ticks since the machine's start. Id and start time together identify a
    /// process, since ids are reused.
    pub began: u64,
}

pub(super) struct Processes {
    procfs: PathBuf,
    /// Name and group id by user id; `None` for users that the system does not know.
    users: HashMap<u32, Option<(String, u32)>>,
    users_since: Instant,
    /// Owners by process id and start time.
    owners: HashMap<(u32, u64), ProcessOwner>,
}

/// The X server and Wayland compositors: they use a workstation's GPU and count as no work. The
/// kernel cuts names after 15 bytes.
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

/// The kernel reports times in hundredths of a second, whatever its own tick is.
const TICKS: f64 = 100.0;

/// No process has more ancestors.
const MOST_ANCESTORS: usize = 64;

/// The program that runs a step; its title is `slurmstepd: [7.batch]`.
pub(super) const STEPD: &str = "slurmstepd";

/// Longest environment that is read, in bytes: the kernel's default limit for arguments and environment together. A process may
/// point its environment at any of its memory (prctl(2), PR_SET_MM_MAP), however much that is.
const MOST_ENVIRONMENT: u64 = 2 << 20;

/// Bytes of a title that are read; it may be as long.
const TITLE_BYTES: u64 = 4096;

/// Longest other file of a process, in bytes. The kernel writes them; the longest lists the groups of its user.
const MOST_TEXT: u64 = 1 << 20;

/// Slurm's daemon of a node.
pub(super) const SLURMD: &str = "slurmd";

impl Processes {
    pub fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            users: HashMap::new(),
            users_since: Instant::now(),
            owners: HashMap::new(),
        }
    }

    /// `None` for a process that has ended, or began after `seen_at` (in seconds since the
    /// machine's start): then another process has got the number of the one that was seen.
    pub fn owner(&mut self, pid: u32, seen_at: f64) -> Option<ProcessOwner> {
        let stat = self.stat(pid)?;
        if stat.began as f64 / TICKS > seen_at {
            return None;
        }

        if let Some(owner) = self.owners.get(&(pid, stat.began)) {
            return Some(owner.clone());
        }

        let user = self.uid(pid).map(|uid| self.user(uid))?;
        let cgroup = self.text(pid, "cgroup").unwrap_or_default();
        let job = job_path::job_of_process(&cgroup).or_else(|| self.job_of_ancestor(&stat));

        let owner = ProcessOwner {
            user,
            job,
            is_desktop: DESKTOP.contains(&stat.name.as_str()),
            command: stat.name,
        };

        self.owners.insert((pid, stat.began), owner.clone());
        Some(owner)
    }

    /// Forgets all owners when there are too many.
    pub fn forget(&mut self) {
        const MOST_OWNERS: usize = 4096;
        if self.owners.len() > MOST_OWNERS {
            self.owners.clear();
        }
    }

    pub fn stat(&self, pid: u32) -> Option<ProcessStat> {
        parse_stat(&self.read(pid, "stat", MOST_TEXT).ok()?)
    }

    /// The real user.
    pub fn uid(&self, pid: u32) -> Option<u32> {
        parse_uids(&self.text(pid, "status")?).map(|uids| uids[0])
    }

    /// A file of the process. Names of processes and of cgroups may be no UTF-8: that must hide
    /// neither the user nor the job.
    fn text(&self, pid: u32, file: &str) -> Option<String> {
        let bytes = self.read(pid, file, MOST_TEXT).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first `most` bytes of a file of the process.
    fn read(&self, pid: u32, file: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.procfs.join(pid.to_string()).join(file))?
            .take(most)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// # Errors
    /// If the environment cannot be read, or is longer than one that a process can be started with by default.
    pub fn environment(&self, pid: u32) -> io::Result<StepEnvironment> {
        let bytes = self.read(pid, "environ", MOST_ENVIRONMENT + 1)?;
        if bytes.len() as u64 > MOST_ENVIRONMENT {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(StepEnvironment::parse(&bytes))
    }

    /// The minors of the GPUs that the process holds open: `/dev/nvidia0` and so on.
    pub fn open_gpus(&self, pid: u32) -> Vec<u32> {
        /// Processes with more open files are read up to this number.
        const MOST_FILES: usize = 1024;

        let files = std::fs::read_dir(self.procfs.join(format!("{pid}/fd")))
            .into_iter()
            .flatten()
            .flatten();

        let minor = |file: std::fs::DirEntry| {
            let target = std::fs::read_link(file.path()).ok()?;
            target.to_str()?.strip_prefix("/dev/nvidia")?.parse().ok()
        };

        files.take(MOST_FILES).filter_map(minor).collect()
    }

    /// The user's name, or the number of one without.
    pub fn user(&mut self, uid: u32) -> String {
        self.account(uid)
            .map_or_else(|| uid.to_string(), |(name, _)| name.clone())
    }

    /// The number of the user's group, of one who is known here.
    pub fn gid(&mut self, uid: u32) -> Option<u32> {
        self.account(uid).map(|(_, gid)| *gid)
    }

    fn account(&mut self, uid: u32) -> Option<&(String, u32)> {
        if self.users_since.elapsed() > USERS_KEPT {
            self.users.clear();
            self.users_since = Instant::now();
        }

        // A look-up may ask a directory service, so its result is kept, also for an unknown user.
        let account = self.users.entry(uid).or_insert_with(|| {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
            Some((user.name, user.gid.as_raw()))
        });
        account.as_ref()
    }

    /// Returns the ids of all processes.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        std::fs::read_dir(&self.procfs)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// A process's children; none on kernels without CONFIG_PROC_CHILDREN.
    pub fn children(&self, pid: u32) -> Vec<u32> {
        // Each thread has a list of the processes that it started.
        let threads = std::fs::read_dir(self.procfs.join(format!("{pid}/task")));
        let threads = threads.into_iter().flatten().flatten();

        threads
            .filter_map(|thread| read_to_string(thread.path().join("children")).ok())
            .flat_map(|list| parse_children(&list))
            .collect()
    }

    /// The job and the step that a `slurmstepd` runs.
    pub fn step_of_stepd(&self, pid: u32) -> Option<(JobKey, String)> {
        if self.program(pid)? == STEPD {
            self.titled_step(pid)
        } else {
            None
        }
    }

    /// The same for a process that is called `slurmstepd`.
    ///
    /// Any user can start a program under this name and title, also one of root's: `ln -s /usr/bin/passwd slurmstepd`, which
    /// waits for a password as root. So the program itself has to be `slurmstepd`, and nobody else may have started it.
    pub fn titled_step(&self, pid: u32) -> Option<(JobKey, String)> {
        let uids = parse_uids(&self.text(pid, "status")?)?;
        let program = std::fs::read_link(self.procfs.join(format!("{pid}/exe"))).ok()?;
        if uids != [0; 4] || !is_stepd(&program) {
            return None;
        }

        let title = self.read(pid, "cmdline", TITLE_BYTES).ok()?;
        parse_title(&String::from_utf8_lossy(&title))
    }

    /// The name of a process's program, at most 15 bytes.
    pub fn program(&self, pid: u32) -> Option<String> {
        let mut name = self.text(pid, "comm")?;
        name.truncate(name.trim_ascii_end().len());
        Some(name)
    }

    // The nearest `slurmstepd` above the process runs its step.
    fn job_of_ancestor(&self, process: &ProcessStat) -> Option<JobKey> {
        let mut parent = process.parent;
        for _ in 0..MOST_ANCESTORS {
            if parent <= 1 {
                return None;
            }

            if let Some((job, _)) = self.step_of_stepd(parent) {
                return Some(job);
            }

            parent = self.stat(parent)?.parent;
        }
        None
    }
}

/// The name is in parentheses and may have any byte in it.
fn parse_stat(bytes: &[u8]) -> Option<ProcessStat> {
    let text = String::from_utf8_lossy(bytes);
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;

    // Behind the name, the state is the first field, the parent the second, and the start the twentieth.
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    Some(ProcessStat {
        name: name.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
    })
}

/// The real, effective, saved, and file system's user.
fn parse_uids(status: &str) -> Option<[u32; 4]> {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut uids = uids
        .split_ascii_whitespace()
        .filter_map(|uid| uid.parse().ok());
    Some([uids.next()?, uids.next()?, uids.next()?, uids.next()?])
}

/// Whether a link `/proc/PID/exe` leads to a `slurmstepd`, or to one that an update has replaced. Debian's has an ending:
/// `slurmstepd-wlm`.
fn is_stepd(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str);
    let ending = name.and_then(|name| name.strip_prefix(STEPD));
    ending.is_some_and(|ending| ending.is_empty() || ending.starts_with(['-', ' ']))
}

fn parse_children(text: &str) -> Vec<u32> {
    text.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// `slurmstepd: [7.batch]`, `[7.0]`, `[7.extern]`; the step as cgroups call it.
fn parse_title(title: &str) -> Option<(JobKey, String)> {
    let name = title.strip_prefix("slurmstepd: [")?.split(']').next()?;
    let (job, step) = name.split_once('.')?;

    // `7+1` is a part of a heterogeneous job.
    let number = job.split('+').next()?.parse().ok().map(JobKey::Slurm);
    let job = match number {
        Some(number) => number,
        None if job_path::is_sluid(job) => JobKey::Sluid(job.to_owned()),
        None => return None,
    };

    Some((job, format!("step_{step}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat() {
        let fields = "S 7 12 12 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 1 0 4711 1000 20";
        let read = |text: &str| parse_stat(text.as_bytes());
        let expected = |name: &str| {
            Some(ProcessStat {
                name: name.into(),
                parent: 7,
                began: 4711,
            })
        };
        assert_eq!(read(&format!("12 (python3) {fields}")), expected("python3"));
        assert_eq!(read(&format!("12 (a) (b c) {fields}")), expected("a) (b c"));
        assert_eq!(read("12 (python3) S 7"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn status() {
        assert_eq!(
            parse_uids("Name:\tpython3\nUmask:\t0022\nUid:\t1000\t0\t0\t0\n"),
            Some([1000, 0, 0, 0])
        );
        assert_eq!(parse_uids("Name:\tpython3\n"), None);
        assert_eq!(parse_uids("Name:\tx\nUid:\t\n"), None);
    }

    #[test]
    fn titles_of_slurmstepd() {
        let step = |job, step: &str| Some((job, step.to_owned()));
        assert_eq!(
            parse_title("slurmstepd: [123.batch]\0"),
            step(JobKey::Slurm(123), "step_batch")
        );
        assert_eq!(
            parse_title("slurmstepd: [123.0]"),
            step(JobKey::Slurm(123), "step_0")
        );
        assert_eq!(
            parse_title("slurmstepd: [123+1.0]"),
            step(JobKey::Slurm(123), "step_0")
        );
        let sluid = JobKey::Sluid("sEKNKTV3WPV500".into());
        assert_eq!(
            parse_title("slurmstepd: [sEKNKTV3WPV500.extern]"),
            step(sluid, "step_extern")
        );
        assert_eq!(parse_title("slurmstepd"), None);
        assert_eq!(parse_title("slurmstepd: [x.0]"), None);
    }

    /// A folder of processes, in which a test writes files.
    struct Procfs(tempfile::TempDir);

    impl Procfs {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn processes(&self) -> Processes {
            Processes::new(self.0.path().into())
        }

        fn file(&self, name: &str, bytes: &[u8]) {
            let path = self.0.path().join("12").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    #[test]
    fn only_slurms_own_program_of_root_has_a_step() {
        let root = "Uid:\t0\t0\t0\t0\n";
        let step = Some((JobKey::Slurm(4242), "step_0".to_owned()));
        for (program, status, expected) in [
            ("/usr/sbin/slurmstepd", root, step.clone()),
            ("/opt/slurm/sbin/slurmstepd (deleted)", root, step.clone()),
            ("/usr/sbin/slurmstepd-wlm", root, step),
            // A link of this name to a program that runs as root for anybody.
            ("/usr/bin/passwd", "Uid:\t1000\t0\t0\t0\n", None),
            ("/usr/bin/sudo", root, None),
            (
                "/home/mallory/slurmstepd",
                "Uid:\t1000\t1000\t1000\t1000\n",
                None,
            ),
        ] {
            let procfs = Procfs::new();
            procfs.file("comm", b"slurmstepd\n");
            procfs.file("status", status.as_bytes());
            procfs.file("cmdline", b"slurmstepd: [4242.0]\0");
            std::os::unix::fs::symlink(program, procfs.0.path().join("12/exe")).unwrap();
            assert_eq!(procfs.processes().step_of_stepd(12), expected, "{program}");
        }
    }

    #[test]
    fn an_endless_environment_is_not_read() {
        let procfs = Procfs::new();
        let whole = "x".repeat(MOST_ENVIRONMENT as usize - 17) + "\0SLURM_JOB_ID=42\0";
        procfs.file("environ", whole.as_bytes());
        let environment = procfs.processes().environment(12).unwrap();
        assert_eq!(environment.jobid, Some(42));

        // A file without an end, but for its size, which the kernel does not tell either.
        procfs.file("environ", b"");
        let environ = File::create(procfs.0.path().join("12/environ")).unwrap();
        environ.set_len(1 << 40).unwrap();
        let error = procfs.processes().environment(12).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }

    /// A user may name processes and cgroups with any bytes.
    #[test]
    fn names_that_are_no_utf8_hide_neither_user_nor_job() {
        let procfs = Procfs::new();
        let file = |name: &str, bytes: &[u8]| procfs.file(name, bytes);
        let stat = b"12 (x\xff) S 1 12 12 0 -1 0 100 0 0 0 5 6 0 0 20 0 1 0 4711 1000 20";
        file("stat", stat);
        file("comm", b"x\xff\n");
        file("status", b"Name:\tx\xff\nUid:\t4294967000\t0\t0\t0\n");
        let cgroup = b"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0/\xff\n";
        file("cgroup", cgroup);
        let mut processes = procfs.processes();
        let owner = processes.owner(12, f64::INFINITY).unwrap();
        assert_eq!(
            (owner.user.as_str(), owner.job),
            ("4294967000", Some(JobKey::Slurm(77)))
        );
        assert_eq!(processes.program(12).as_deref(), Some("x\u{fffd}"));
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let mut processes = Processes::new("/proc".into());
        let pid = std::process::id();
        let owner = processes.owner(pid, f64::INFINITY).unwrap();
        assert_eq!(
            owner.user,
            User::from_uid(Uid::current()).unwrap().unwrap().name
        );
        assert_eq!(processes.owner(u32::MAX, f64::INFINITY), None);
        let began = processes.stat(pid).unwrap().began as f64 / TICKS;
        assert_eq!(
            processes.owner(pid, began - 1.0),
            None,
            "began after it was seen"
        );
        assert!(processes.owner(pid, began + 1.0).is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "(\\(|\\)|[0-9]{0,4}| |Uid:|slurmstepd: \\[|\\PC){0,40}") {
            let _ = (parse_stat(&bytes), parse_stat(text.as_bytes()), parse_uids(&text), parse_title(&text), parse_children(&text));
        }
    }
}
