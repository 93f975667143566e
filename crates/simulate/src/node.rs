//! A node's free resources, now and as planned.

use crate::input::{Closure, SimulatedNode};
use std::sync::Arc;
use takt_jobs::Amounts;

/// Resources of a node that a job holds, or that are planned for one.
#[derive(Debug, Clone, Copy)]
struct Planned {
    from: i64,
    to: i64,
    amounts: Amounts,
}

/// A node while jobs come and go. Times are seconds since 1970.
#[derive(Debug, Clone)]
pub(crate) struct NodeBook {
    pub has: Amounts,
    pub free: Amounts,
    /// Running jobs: number of the job, end by its limit, amounts.
    running: Vec<(u32, i64, Amounts)>,
    planned: Vec<Planned>,
    closed: Vec<Closure>,
}

impl NodeBook {
    pub(crate) fn new(node: &SimulatedNode) -> Self {
        Self {
            has: node.has,
            free: node.has,
            running: Vec::new(),
            planned: Vec::new(),
            closed: node.closed.clone(),
        }
    }

    /// Begins a job. `ends` is the end by its limit. A job of the records may hold more than there is.
    pub(crate) fn start(&mut self, job: u32, ends: i64, amounts: Amounts) {
        let amounts = Amounts {
            cpus: amounts.cpus.min(self.free.cpus),
            gpus: amounts.gpus.min(self.free.gpus),
            mem_bytes: amounts.mem_bytes.min(self.free.mem_bytes),
        };
        self.free.cpus -= amounts.cpus;
        self.free.gpus -= amounts.gpus;
        self.free.mem_bytes -= amounts.mem_bytes;
        self.running.push((job, ends, amounts));
    }

    pub(crate) fn end(&mut self, job: u32) {
        if let Some(at) = self.running.iter().position(|(one, ..)| *one == job) {
            let (_, _, amounts) = self.running.swap_remove(at);
            self.free = sum(self.free, amounts);
        }
    }

    pub(crate) fn plan(&mut self, from: i64, to: i64, amounts: Amounts) {
        self.planned.push(Planned { from, to, amounts });
    }

    pub(crate) fn forget_plans(&mut self) {
        self.planned.clear();
    }

    /// Whether a job can hold `needs` from `from` to `to`, as far as is known at `now`.
    pub(crate) fn fits(
        &self,
        needs: Amounts,
        (from, to): (i64, i64),
        now: i64,
        reservation: Option<&Arc<str>>,
    ) -> bool {
        if from <= now && self.planned.is_empty() && !covers(self.free, needs) {
            return false;
        }

        let is_open = self.closed.iter().all(|closed| {
            let is_owner =
                closed.reservation.is_some() && closed.reservation.as_ref() == reservation;
            let is_known = closed.is_foreseen || closed.from.0 <= now;
            is_owner || !is_known || closed.to.0 <= from || closed.from.0 >= to
        });

        // Running jobs only end, so what is free falls only where a planned job begins.
        let falls = self.planned.iter().map(|planned| planned.from);
        is_open
            && self.covers_at(needs, from, now)
            && falls
                .filter(|at| *at > from && *at < to)
                .all(|at| self.covers_at(needs, at, now))
    }

    /// The first time from `after` at which a job of `length` seconds fits. `None` if it is not before `until`.
    pub(crate) fn earliest(
        &self,
        needs: Amounts,
        (after, until): (i64, i64),
        length: i64,
        now: i64,
        reservation: Option<&Arc<str>>,
    ) -> Option<i64> {
        if !covers(self.has, needs) {
            return None;
        }

        let fits = |at: i64| self.fits(needs, (at, at.saturating_add(length)), now, reservation);
        if fits(after) {
            return Some(after);
        }

        let mut times: Vec<i64> = self.running.iter().map(|(_, ends, _)| *ends).collect();
        times.extend(self.planned.iter().map(|planned| planned.to));
        times.extend(self.closed.iter().map(|closed| closed.to.0));
        times.retain(|at| *at > after && *at < until);
        times.sort_unstable();
        times.dedup();
        times.into_iter().find(|at| fits(*at))
    }

    fn covers_at(&self, needs: Amounts, at: i64, now: i64) -> bool {
        let mut free = self.free;
        if at > now {
            for (_, ends, amounts) in &self.running {
                if *ends <= at {
                    free = sum(free, *amounts);
                }
            }
        }
        let mut wanted = needs;
        for planned in &self.planned {
            if planned.from <= at && planned.to > at {
                wanted = sum(wanted, planned.amounts);
            }
        }
        covers(free, wanted)
    }
}

fn sum(a: Amounts, b: Amounts) -> Amounts {
    Amounts {
        cpus: a.cpus + b.cpus,
        gpus: a.gpus + b.gpus,
        mem_bytes: a.mem_bytes + b.mem_bytes,
    }
}

/// Whether there is enough of each.
pub(crate) fn covers(has: Amounts, needs: Amounts) -> bool {
    has.cpus >= needs.cpus && has.gpus >= needs.gpus && has.mem_bytes >= needs.mem_bytes
}
