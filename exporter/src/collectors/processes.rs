//! How many processes and threads there are, by state, and how many there may be.
//!
//! Source: `/proc/*/stat` and `/proc/*/task/*/stat`. A node has thousands, so this collector has a
//! thread.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Processes {
    procfs: PathBuf,
}

const THREADS: Metric = Metric::gauge("node_processes_threads", "Allocated threads in system", &[]);
const MAX_THREADS: Metric = Metric::gauge(
    "node_processes_max_threads",
    "Limit of threads in the system",
    &[],
);
const THREADS_STATE: Metric = Metric::gauge(
    "node_processes_threads_state",
    "Number of threads in each state.",
    &["thread_state"],
);
const STATE: Metric = Metric::gauge(
    "node_processes_state",
    "Number of processes in each state.",
    &["state"],
);
const PIDS: Metric = Metric::gauge("node_processes_pids", "Number of PIDs", &[]);
const MAX_PROCESSES: Metric = Metric::gauge(
    "node_processes_max_processes",
    "Number of max PIDs limit",
    &[],
);
const METRICS: &[Metric] = &[
    THREADS,
    MAX_THREADS,
    THREADS_STATE,
    STATE,
    PIDS,
    MAX_PROCESSES,
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Processes {
        procfs: paths.procfs.clone(),
    })
}

impl Collector for Processes {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        64
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let pids = sysfs::numbered(&self.procfs, "")
            .map_err(|source| CollectError::read(&self.procfs, source))?;

        let mut processes = Counts::default();
        let mut threads = Counts::default();

        let mut allocated = 0.0;
        for (pid, _) in pids {
            let directory = self.procfs.join(&pid);
            // It may have ended meanwhile.
            let Some((state, count)) = read(&directory) else {
                continue;
            };

            processes.add(&state);

            allocated += count;
            for (thread, _) in sysfs::numbered(&directory.join("task"), "").unwrap_or_default() {
                // The first thread's state is the process's, which is read already.
                if thread == pid {
                    threads.add(&state)
                } else if let Some((state, _)) = read(&directory.join("task").join(thread)) {
                    threads.add(&state)
                }
            }
        }

        out.push::<&str>(&THREADS, &[], allocated);
        out.push::<&str>(&PIDS, &[], processes.0.values().sum());
        for (state, count) in &processes.0 {
            out.push(&STATE, &[state], *count);
        }
        for (state, count) in &threads.0 {
            out.push(&THREADS_STATE, &[state], *count);
        }

        for (metric, file) in [(&MAX_THREADS, "threads-max"), (&MAX_PROCESSES, "pid_max")] {
            let limit = self.procfs.join("sys/kernel").join(file);
            if let Some(limit) = sysfs::number::<f64>(&limit) {
                out.push::<&str>(metric, &[], limit);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Counts(BTreeMap<String, f64>);

impl Counts {
    fn add(&mut self, state: &str) {
        match self.0.get_mut(state) {
            Some(count) => *count += 1.0,
            None => drop(self.0.insert(state.to_owned(), 1.0)),
        }
    }
}

/// The state, and how many threads there are.
fn read(directory: &Path) -> Option<(String, f64)> {
    let text = sysfs::text(&directory.join("stat"))?;
    parse(&text).map(|(state, threads)| (state.to_owned(), threads))
}

/// `26231 (vim) R 5392 …`: the name may hold anything, so what follows begins behind the last
/// parenthesis.
fn parse(text: &str) -> Option<(&str, f64)> {
    const THREADS_BEHIND_STATE: usize = 16;
    let (_, behind) = text.rsplit_once(") ")?;
    let mut words = behind.split_ascii_whitespace();
    let state = words.next()?;
    let threads = words.nth(THREADS_BEHIND_STATE)?.parse().ok()?;
    Some((state, threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "33 (a) R b) S 1 33 33 0 -1 69238848 0 0 0 0 0 0 0 0 20 0 7 0 123 0 0";
        assert_eq!(parse(text), Some(("S", 7.0)));
        assert_eq!((parse("33 (a"), parse("33 (a) S 1")), (None, None));
    }
}
