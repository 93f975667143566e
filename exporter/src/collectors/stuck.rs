//! Processes that hang in the kernel, and zombies.
//!
//! Source: `/proc/*/stat`, and `status` of the few that sleep where no signal reaches them (state
//! D). A process that waits for much I/O is seen in that state again and again; one that hangs has
//! not run once in between, which its context switches show; the kernel's own detector of hung
//! tasks judges alike. Only the first thread of a process is looked at; the kernel log reports the
//! others (the event `hung_task`).

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

/// A node has thousands of processes, and what hangs does so for minutes: they are looked through
/// seldom.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The kernel's own threads (`PF_KTHREAD`). Some of other people's drivers sleep like that for
/// good.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Prefix of the names of the GPU driver's programs and threads.
const DRIVER: &str = "nvidia";

const TASK: Metric = Metric::gauge(
    "takt_stuck_task_seconds",
    "Longest time that a process has hung in the kernel without running once; 0 if no process \
     hangs. Kernel threads are left out.",
    &[],
);
const DRIVER_TASK: Metric = Metric::gauge(
    "takt_stuck_driver_task_seconds",
    "Longest time that a program or thread of the GPU driver (nvidia…) has hung in the kernel.",
    &[],
);
const ZOMBIES: Metric = Metric::gauge(
    "takt_zombie_processes",
    "Processes that ended and whose parent has not collected their exit status.",
    &[],
);
const METRICS: &[Metric] = &[TASK, DRIVER_TASK, ZOMBIES];

struct Stuck {
    procfs: PathBuf,
    /// Time of the last look; `None` before the first.
    looked: Option<Instant>,
    sleeping: HashMap<Identity, Sleep>,
    zombies: u32,
}

/// Process id, and start time in ticks since boot: ids are reused.
type Identity = (u32, u64);

/// A process in state D.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sleep {
    /// Context switches since the process began, from `status`.
    switches: u64,
    /// Time of the first look that found this number of switches.
    since: Instant,
    is_driver: bool,
    is_kernel_thread: bool,
}

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Stuck::new(paths.procfs.clone()))
}

impl Collector for Stuck {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let now = Instant::now();
        if self.looked.is_none_or(|at| now - at >= LOOK_AGAIN) {
            self.look(now)
                .map_err(|source| CollectError::read(&self.procfs, source))?;
            self.looked = Some(now);
        }

        let longest_task = self.longest(now, |sleep| !sleep.is_kernel_thread);
        let longest_driver_task = self.longest(now, |sleep| sleep.is_driver);
        out.push::<&str>(&TASK, &[], longest_task);
        out.push::<&str>(&DRIVER_TASK, &[], longest_driver_task);
        out.push::<&str>(&ZOMBIES, &[], f64::from(self.zombies));

        Ok(())
    }
}

impl Stuck {
    fn new(procfs: PathBuf) -> Self {
        Self {
            procfs,
            looked: None,
            sleeping: HashMap::new(),
            zombies: 0,
        }
    }

    fn look(&mut self, now: Instant) -> std::io::Result<()> {
        let before = std::mem::take(&mut self.sleeping);
        self.zombies = 0;

        for (name, _) in sysfs::numbered(&self.procfs, "")? {
            let directory = self.procfs.join(&name);
            // It may have ended meanwhile.
            let Some(text) = sysfs::text(&directory.join("stat")) else {
                continue;
            };
            let Some(process) = Process::parse(&text) else {
                continue;
            };

            match process.state {
                "Z" => self.zombies += 1,
                "D" => {
                    let known = before.get(&process.identity);
                    if let Some(sleep) = Sleep::of(&process, &directory, known, now) {
                        self.sleeping.insert(process.identity, sleep);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Seconds since the longest of the chosen sleeps began; 0 without one.
    fn longest(&self, now: Instant, is_chosen: impl Fn(&Sleep) -> bool) -> f64 {
        // One that was seen once only has most likely just begun to wait.
        let looked = self.looked.unwrap_or(now);

        let hanging = self.sleeping.values();
        let hanging = hanging.filter(|sleep| is_chosen(sleep) && sleep.since < looked);
        let longest = hanging.map(|sleep| now - sleep.since).max();
        longest.unwrap_or_default().as_secs_f64()
    }
}

impl Sleep {
    /// Sleep of a process that is in state D now. It began when the process was `known` first,
    /// unless the process has run in between.
    fn of(
        process: &Process<'_>,
        directory: &Path,
        known: Option<&Self>,
        now: Instant,
    ) -> Option<Self> {
        let switches = switches(directory)?;
        let since = match known {
            Some(known) if known.switches == switches => known.since,
            _ => now,
        };

        Some(Self {
            switches,
            since,
            is_driver: process.is_driver,
            is_kernel_thread: process.is_kernel_thread,
        })
    }
}

#[derive(Debug, PartialEq)]
struct Process<'t> {
    identity: Identity,
    state: &'t str,
    is_driver: bool,
    is_kernel_thread: bool,
}

impl<'t> Process<'t> {
    /// `26231 (vim) R 5392 …`: the name may hold anything, so what follows begins behind the last
    /// parenthesis.
    fn parse(text: &'t str) -> Option<Self> {
        let (before, after) = text.rsplit_once(") ")?;
        let (pid, name) = before.split_once(" (")?;

        // Fields 3, 9 and 22 of the file.
        let mut words = after.split_ascii_whitespace();
        let state = words.next()?;
        let flags: u64 = words.nth(5)?.parse().ok()?;
        let start: u64 = words.nth(12)?.parse().ok()?;

        Some(Self {
            identity: (pid.parse().ok()?, start),
            state,
            is_driver: name.starts_with(DRIVER),
            is_kernel_thread: flags & KERNEL_THREAD != 0,
        })
    }
}

/// How often the process was switched away from, of its own accord or not.
fn switches(directory: &Path) -> Option<u64> {
    let status = sysfs::text(&directory.join("status"))?;
    let counts = status.lines().filter_map(|line| {
        let (_, count) = line.split_once("voluntary_ctxt_switches:")?;
        count.trim().parse::<u64>().ok()
    });
    counts.reduce(|one, other| one + other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "33 (a) R b) D 1 33 33 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 7 0 4711 0 0";
        let process = Process::parse(text).unwrap();
        assert_eq!(
            (process.identity, process.state, process.is_kernel_thread),
            ((33, 4711), "D", true)
        );
        assert!(!process.is_driver);
        assert!(
            Process::parse("33 (nvidia-smi) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0")
                .unwrap()
                .is_driver
        );
        assert_eq!(
            (Process::parse("33 (a"), Process::parse("33 (a) S 1")),
            (None, None)
        );
    }

    /// A process of a made-up node: number, name, state, flags, and how often it was switched away
    /// from.
    fn process(procfs: &Path, pid: u32, name: &str, state: &str, flags: u64, switches: u64) {
        let directory = procfs.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!(
            "{pid} ({name}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n",
            100 + pid
        );
        std::fs::write(directory.join("stat"), stat).unwrap();
        let status = format!(
            "Name:\t{name}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t2\n"
        );
        std::fs::write(directory.join("status"), status).unwrap();
    }

    #[test]
    fn a_hung_task_differs_from_one_that_waits_often() {
        let procfs = tempfile::tempdir().unwrap();
        let path = procfs.path();
        let mut stuck = Stuck::new(path.to_owned());
        let begin = Instant::now();
        let mut seen = Vec::new();
        for round in 0..4_u32 {
            process(path, 7, "cp", "D", 0, 50);
            process(path, 8, "dd", "D", 0, u64::from(round) * 100);
            process(
                path,
                9,
                "nvidia-smi",
                if round < 2 { "S" } else { "D" },
                0,
                10,
            );
            process(path, 10, "kworker/0:1", "D", KERNEL_THREAD, 1);
            process(path, 11, "sh", "Z", 0, 1);
            let now = begin + LOOK_AGAIN * round;
            stuck.look(now).unwrap();
            stuck.looked = Some(now);
            seen.push((
                stuck.longest(now, |one| !one.is_kernel_thread),
                stuck.longest(now, |one| one.is_driver),
            ));
        }
        assert_eq!(seen, [(0.0, 0.0), (15.0, 0.0), (30.0, 0.0), (45.0, 15.0)]);
        assert_eq!(stuck.zombies, 1);
        // The task continues after all; another process gets its id.
        std::fs::remove_dir_all(path.join("9")).unwrap();
        process(path, 7, "cp", "D", 0, 51);
        process(path, 8, "dd", "D", 0, 400);
        let now = begin + LOOK_AGAIN * 4;
        stuck.look(now).unwrap();
        stuck.looked = Some(now);
        assert_eq!(
            stuck.longest(now, |_| true),
            60.0,
            "the kernel's own thread, where anybody asks for it"
        );
        assert_eq!(stuck.longest(now, |one| !one.is_kernel_thread), 0.0);
    }

    #[test]
    fn a_node_without_processes_is_an_error_and_hidden_ones_are_not_judged() {
        let procfs = tempfile::tempdir().unwrap();
        assert!(
            Stuck::new(procfs.path().join("none"))
                .collect(&mut Samples::new())
                .is_err()
        );
        process(procfs.path(), 7, "cp", "D", 0, 50);
        std::fs::remove_file(procfs.path().join("7/status")).unwrap();
        let mut stuck = Stuck::new(procfs.path().to_owned());
        stuck.look(Instant::now()).unwrap();
        assert!(stuck.sleeping.is_empty());
    }
}
