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

/// A job that runs on a node.
#[derive(Debug, Clone, Copy)]
struct RunsHere {
    /// End by its time limit.
    ends: i64,
    job: u32,
    amounts: Amounts,
}

/// A node while jobs come and go. Times are seconds since 1970.
#[derive(Debug, Clone)]
pub(crate) struct NodeBook {
    pub has: Amounts,
    pub free: Amounts,
    /// Running jobs, by their end.
    running: Vec<RunsHere>,
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
        let at = self.running.partition_point(|one| one.ends <= ends);
        self.running.insert(at, RunsHere { ends, job, amounts });
    }

    pub(crate) fn end(&mut self, job: u32) {
        if let Some(at) = self.running.iter().position(|one| one.job == job) {
            let ended = self.running.remove(at);
            self.free = sum(self.free, ended.amounts);
        }
    }

    pub(crate) fn plan(&mut self, from: i64, to: i64, amounts: Amounts) {
        self.planned.push(Planned { from, to, amounts });
    }

    pub(crate) fn forget_plans(&mut self) {
        self.planned.clear();
    }

    /// Whether a job may find room now, if it ends before anything else is planned here.
    pub(crate) fn has_room(
        &self,
        needs: Amounts,
        now: i64,
        reservation: Option<&Arc<str>>,
    ) -> bool {
        covers(self.free, needs) && self.is_open((now, now + 1), now, reservation)
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

        // Running jobs only end, so what is free falls only where a planned job begins.
        let falls = self.planned.iter().map(|planned| planned.from);
        self.is_open((from, to), now, reservation)
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

        if self.planned.is_empty() && self.closed.is_empty() {
            return self
                .earliest_end(needs, after, now)
                .filter(|at| *at < until);
        }

        let fits = |at: i64| self.fits(needs, (at, at.saturating_add(length)), now, reservation);
        if fits(after) {
            return Some(after);
        }

        let mut times: Vec<i64> = self.running.iter().map(|one| one.ends).collect();
        times.extend(self.planned.iter().map(|planned| planned.to));
        times.extend(self.closed.iter().map(|closed| closed.to.0));
        times.retain(|at| *at > after && *at < until);
        times.sort_unstable();
        times.dedup();
        times.into_iter().find(|at| fits(*at))
    }

    /// The first time from `after` at which enough is free, where nothing is planned: from then on it stays free.
    fn earliest_end(&self, needs: Amounts, after: i64, now: i64) -> Option<i64> {
        let mut free = self.free;
        if covers(free, needs) {
            return Some(after);
        }
        let enough = self.running.iter().find(|one| {
            free = sum(free, one.amounts);
            covers(free, needs)
        })?;
        // A job that runs past its limit holds what it has at least until the next second.
        Some(enough.ends.max(after).max(now + 1))
    }

    fn is_open(&self, (from, to): (i64, i64), now: i64, reservation: Option<&Arc<str>>) -> bool {
        self.closed.iter().all(|closed| {
            let is_owner =
                closed.reservation.is_some() && closed.reservation.as_ref() == reservation;
            let is_known = closed.is_foreseen || closed.from.0 <= now;
            is_owner || !is_known || closed.to.0 <= from || closed.from.0 >= to
        })
    }

    fn covers_at(&self, needs: Amounts, at: i64, now: i64) -> bool {
        let mut free = self.free;
        if at > now {
            for ended in self.running.iter().take_while(|one| one.ends <= at) {
                free = sum(free, ended.amounts);
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
