//! Jobs of a Slurm that uses no cgroups (`proctrack/linuxproc`, `proctrack/pgid`): each step has a
//! `slurmstepd`, whose title names job and step and whose descendants are the job's processes.

use super::processes::{Processes, SLURMD, STEPD};
use crate::job_path::JobKey;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often a node that has a `slurmd`, and has shown no `slurmstepd`, is looked through.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How often a node without `slurmd` is looked through. To list all processes costs a fifth of a
/// scrape.
const LOOK_FOR_SLURMD: Duration = Duration::from_secs(60);

/// A `slurmstepd` begins as a copy of slurmd, so its name is looked at several times.
const LOOKS: u8 = 3;

/// More processes of one step are not followed.
const MOST_PROCESSES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct StepDaemons {
    /// How often each process was looked at.
    looked: HashMap<u32, u8>,
    stepds: HashSet<u32>,
    slurmds: HashSet<u32>,
    last: Option<Instant>,
}

impl StepDaemons {
    /// The processes by job and step, as [`super::tree::processes`] has them.
    pub fn jobs(&mut self, processes: &Processes) -> BTreeMap<JobKey, BTreeMap<String, Vec<u32>>> {
        let pause = if self.slurmds.is_empty() {
            LOOK_FOR_SLURMD
        } else {
            LOOK_AGAIN
        };
        if !self.stepds.is_empty() || self.last.is_none_or(|last| last.elapsed() > pause) {
            self.last = Some(Instant::now());
            self.look(processes);
        }

        let mut jobs: BTreeMap<JobKey, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
        self.stepds.retain(|pid| {
            let Some((job, step)) = processes.step_of_stepd(*pid) else {
                return false;
            };
            let steps = jobs.entry(job).or_default();
            let pids = steps.entry(step).or_default();
            pids.extend(descendants(*pid, processes));
            true
        });
        jobs
    }

    fn look(&mut self, processes: &Processes) {
        let mut looked = HashMap::new();
        for pid in processes.all() {
            let times = self.looked.get(&pid).copied().unwrap_or(0);
            if times < LOOKS {
                let program = processes.program(pid).unwrap_or_default();
                if program == STEPD && processes.titled_step(pid).is_some() {
                    self.stepds.insert(pid);
                } else if program == SLURMD {
                    self.slurmds.insert(pid);
                }
            }
            looked.insert(pid, times.saturating_add(1).min(LOOKS));
        }

        self.slurmds.retain(|pid| looked.contains_key(pid));
        self.looked = looked;
    }
}

fn descendants(pid: u32, processes: &Processes) -> Vec<u32> {
    let mut found = processes.children(pid);
    let mut at = 0;
    while at < found.len() && found.len() < MOST_PROCESSES {
        found.extend(processes.children(found[at]));
        at += 1;
    }
    found
}
