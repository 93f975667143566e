//! What jobs hold together, and the limits on it.

use crate::input::{Limit, LimitScope, SimulatedJob};
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    jobs: u64,
    cpus: u64,
    gpus: u64,
}

/// Use of each limit.
#[derive(Debug)]
pub(crate) struct LimitBook<'i> {
    limits: &'i [Limit],
    held: HashMap<(usize, &'i str), Held>,
}

impl<'i> LimitBook<'i> {
    pub(crate) fn new(limits: &'i [Limit]) -> Self {
        Self {
            limits,
            held: HashMap::new(),
        }
    }

    /// Whether the job may start.
    pub(crate) fn allows(&self, job: &'i SimulatedJob) -> bool {
        let wants = wanted(job);
        self.applying(job).all(|(at, name)| {
            let held = self.held.get(&(at, name)).copied().unwrap_or_default();
            is_within(&self.limits[at], held, wants)
        })
    }

    /// Whether the job could start if no other ran.
    pub(crate) fn ever_allows(&self, job: &'i SimulatedJob) -> bool {
        let wants = wanted(job);
        self.applying(job)
            .all(|(at, _)| is_within(&self.limits[at], Held::default(), wants))
    }

    pub(crate) fn start(&mut self, job: &'i SimulatedJob) {
        let wants = wanted(job);
        let applying: Vec<_> = self.applying(job).collect();
        for key in applying {
            let held = self.held.entry(key).or_default();
            held.jobs += 1;
            held.cpus += wants.cpus;
            held.gpus += wants.gpus;
        }
    }

    pub(crate) fn end(&mut self, job: &'i SimulatedJob) {
        let wants = wanted(job);
        let applying: Vec<_> = self.applying(job).collect();
        for key in applying {
            let held = self.held.entry(key).or_default();
            held.jobs -= 1;
            held.cpus -= wants.cpus;
            held.gpus -= wants.gpus;
        }
    }

    fn applying(&self, job: &'i SimulatedJob) -> impl Iterator<Item = (usize, &'i str)> {
        self.limits.iter().enumerate().filter_map(|(at, limit)| {
            let name: &str = match limit.scope {
                LimitScope::User => &job.user,
                LimitScope::Account => &job.account,
                LimitScope::Partition => &job.partition,
                LimitScope::Qos => job.qos.as_deref()?,
            };
            let applies = limit.name.as_deref().is_none_or(|one| one == name);
            applies.then_some((at, name))
        })
    }
}

fn wanted(job: &SimulatedJob) -> Held {
    Held {
        jobs: 1,
        cpus: job.per_node.cpus * u64::from(job.nodes),
        gpus: job.per_node.gpus * u64::from(job.nodes),
    }
}

fn is_within(limit: &Limit, held: Held, wants: Held) -> bool {
    let is_below = |most: Option<u64>, held: u64, wants: u64| {
        // A job that wants none of it is not held back by a limit that others have passed.
        wants == 0 || most.is_none_or(|most| held + wants <= most)
    };
    is_below(limit.jobs, held.jobs, wants.jobs)
        && is_below(limit.cpus, held.cpus, wants.cpus)
        && is_below(limit.gpus, held.gpus, wants.gpus)
}
