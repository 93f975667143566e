//! Capacity: the use of a cluster's resources in a period, as allocated, down, planned down,
//! planned and idle time, and the GPUs that were stranded because the CPUs or the memory of their
//! node were allocated.
//!
//! The sums are formed hour by hour as in Slurm's rollup, so they equal `sreport cluster
//! Utilization`: allocations cannot exceed the total, waiting jobs count as `planned` as far as
//! resources were free, and the rest is idle. Slurm counts waiting for CPUs only; here GPUs count
//! too. As in Slurm, suspended time is subtracted from CPUs only, and from the end of a run,
//! because its real times are not recorded.

use super::Period;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_jobs::{Amounts, NodeCondition, NodeState, NodeWord, nodelist};
use takt_model::UnixTime;

/// Resources that capacity counts, in the order of [`amount_of`].
const RESOURCES: [&str; 2] = ["cpu", "gres/gpu"];

fn amount_of(amounts: Amounts, resource: usize) -> u64 {
    [amounts.cpus, amounts.gpus][resource]
}

/// Effect of an event in the cluster's history on its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Resources that the cluster had.
    Existed,
    /// A node was down or drained.
    Down,
    /// A node was planned to be away: in maintenance, powered down, or not installed yet.
    PlannedDown,
    /// Resources were reserved.
    Reserved,
}

/// Name and time of a reservation. Usage of its jobs is part of the reserved amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedPeriod<'r> {
    /// Reservation name.
    pub name: &'r str,
    /// Start.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

/// An interval in which an effect applied to some amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacitySpan {
    /// Effect.
    pub effect: Effect,
    /// Start.
    pub from: UnixTime,
    /// End. `None` while the interval lasts.
    pub to: Option<UnixTime>,
    /// Amounts of each resource.
    pub amounts: Amounts,
}

/// The fields of a run that capacity reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CapacityRun<'r> {
    /// Time from which only a lack of resources delayed the run.
    pub eligible: Option<UnixTime>,
    /// Start time.
    pub start: Option<UnixTime>,
    /// End time.
    pub end: Option<UnixTime>,
    /// Time of suspension, in seconds.
    pub suspended: u64,
    /// Allocated amounts.
    pub held: Amounts,
    /// Requested amounts.
    pub wanted: Amounts,
    /// Allocated nodes, as Slurm writes them.
    pub node_list: Option<&'r str>,
    /// Reservation that the job was submitted to.
    pub reservation: Option<&'r str>,
}

/// Capacity of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Node name.
    pub node: String,
    /// CPUs, GPUs and memory of the node.
    pub amounts: Amounts,
}

/// Use of a cluster's resources in a period, in seconds × amount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityReport {
    /// Cluster name.
    pub cluster: String,
    /// First instant of the period, RFC 3339.
    pub from: String,
    /// First instant after the period, RFC 3339.
    pub to: String,
    /// Time zone of the period's days.
    pub timezone: String,
    /// One row per resource.
    pub rows: Vec<CapacityRow>,
}

/// Use of one resource. `allocated`, `down`, `planned_down`, `planned` and `idle` add up to
/// `reported`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRow {
    /// `cpu` or `gres/gpu`.
    pub resource: String,
    /// Total.
    pub reported: u64,
    /// Allocated to runs, or reserved.
    pub allocated: u64,
    /// On nodes that were down or drained.
    pub down: u64,
    /// On nodes that were planned to be away.
    pub planned_down: u64,
    /// Requested by waiting jobs, as far as resources were free.
    pub planned: u64,
    /// The rest.
    pub idle: u64,
    /// Part of `idle`: before the job records begin. What ran then is unknown.
    #[serde(default)]
    pub unrecorded: u64,
    /// Requested by waiting jobs beyond the free resources. Not part of `reported`.
    pub overcommitted: u64,
    /// Part of `allocated`: reserved but unused.
    #[serde(default)]
    pub reserved_idle: u64,
    /// Part of `planned` and `idle`: GPUs of nodes whose CPUs or memory were allocated. `None` for
    /// other resources, and if no node is known.
    pub stranded: Option<u64>,
}

impl CapacityRow {
    /// Returns the parts that add up to `reported`, with their names for people. Every report
    /// shows these parts, so that their sums agree.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        let held = self.allocated.saturating_sub(self.reserved_idle);
        [
            ("held by runs", held),
            ("reserved but unused", self.reserved_idle),
            ("down", self.down),
            ("planned down", self.planned_down),
            ("planned for waiting jobs", self.planned),
            ("idle", self.idle.saturating_sub(self.unrecorded)),
            (UNRECORDED, self.unrecorded),
        ]
    }

    /// Returns a part as a fraction of what was recorded. `None` if that is unknown, or nothing.
    pub fn ratio(&self, (name, part): (&str, u64)) -> Option<f64> {
        let recorded = self.reported.saturating_sub(self.unrecorded);
        (recorded > 0 && name != UNRECORDED).then(|| part as f64 / recorded as f64)
    }
}

/// Use of a period's resources while runs are added, in any order.
pub struct Capacity<'n> {
    hours: Hours,
    stranded: Stranded<'n>,
    kept: &'n [ReservedPeriod<'n>],
    now: UnixTime,
}

impl<'n> Capacity<'n> {
    /// Starts without runs. Running jobs count until `now`.
    pub fn new(
        period: &Period,
        spans: &[CapacitySpan],
        kept: &'n [ReservedPeriod<'n>],
        nodes: &'n [NodeCapacity],
        now: UnixTime,
    ) -> Self {
        let to = period.to().min(now);
        // A running month ends now: hours to come are not idle.
        let mut hours = Hours::new(period.from(), to);

        for span in spans {
            let end = span.to.unwrap_or(now);
            for (resource, _) in RESOURCES.iter().enumerate() {
                let of = match span.effect {
                    Effect::Existed => Part::Total,
                    Effect::Down => Part::Down,
                    Effect::PlannedDown => Part::PlannedDown,
                    Effect::Reserved => Part::Reserved,
                };
                hours.add(
                    resource,
                    of,
                    span.from,
                    end,
                    amount_of(span.amounts, resource),
                );
            }
        }

        Self {
            hours,
            stranded: Stranded::new(period.from(), to, nodes),
            kept,
            now,
        }
    }

    /// Adds a run.
    pub fn add(&mut self, run: &CapacityRun<'_>) {
        let Self {
            hours,
            stranded,
            kept,
            now,
        } = self;
        let end = run.end.unwrap_or(*now);

        if let Some(start) = run.start {
            // The times of the suspension are not recorded, so they are taken from the end.
            let running = (end - run.suspended.cast_signed()).max(start);
            hours.add(0, Part::Allocated, start, running, run.held.cpus);
            // Suspension stops the processes; their GPUs stay allocated.
            hours.add(1, Part::Allocated, start, end, run.held.gpus);
            stranded.add(run, start, end);

            // The part of the reserved amount that is in use, in the time of the reservation only.
            for kept in kept
                .iter()
                .filter(|kept| run.reservation == Some(kept.name))
            {
                hours.add(
                    0,
                    Part::InReservation,
                    start.max(kept.from),
                    running.min(kept.to),
                    run.held.cpus,
                );
                hours.add(
                    1,
                    Part::InReservation,
                    start.max(kept.from),
                    end.min(kept.to),
                    run.held.gpus,
                );
            }
        }

        // A job that waits for its reservation does not wait for free resources.
        if let Some(eligible) = run.eligible.filter(|_| run.reservation.is_none()) {
            // A job that was cancelled while it waited has an end and no start.
            let until = run.start.unwrap_or(end);

            for (resource, _) in RESOURCES.iter().enumerate() {
                hours.add(
                    resource,
                    Part::Planned,
                    eligible,
                    until,
                    amount_of(run.wanted, resource),
                );
            }
        }
    }

    /// Returns one row per resource.
    pub fn rows(self) -> Vec<CapacityRow> {
        let mut rows: Vec<CapacityRow> = (0..RESOURCES.len())
            .map(|resource| self.hours.row(resource))
            .collect();
        rows[1].stranded = self.stranded.seconds();
        rows
    }
}

/// Returns the report of a period as of `now`. Running jobs count until then.
pub fn capacity<'r>(
    cluster: &str,
    period: &Period,
    spans: &[CapacitySpan],
    kept: &[ReservedPeriod<'_>],
    nodes: &[NodeCapacity],
    runs: impl IntoIterator<Item = CapacityRun<'r>>,
    now: UnixTime,
) -> CapacityReport {
    let mut capacity = Capacity::new(period, spans, kept, nodes, now);
    runs.into_iter().for_each(|run| capacity.add(&run));
    CapacityReport {
        cluster: cluster.to_owned(),
        from: period.from_text(),
        to: period.to_text(),
        timezone: period.zone_name(),
        rows: capacity.rows(),
    }
}

const HOUR: i64 = 3600;

/// Name of the part of a row whose use is unknown.
const UNRECORDED: &str = "unknown, before the job records begin";

#[derive(Clone, Copy)]
enum Part {
    Total,
    Allocated,
    Down,
    PlannedDown,
    Planned,
    Reserved,
    InReservation,
}

/// Seconds × amount of each resource and part, by hour.
struct Hours {
    from: UnixTime,
    to: UnixTime,
    sums: Vec<[[u128; PARTS]; 2]>,
}

const PARTS: usize = Part::InReservation as usize + 1;

impl Hours {
    fn new(from: UnixTime, to: UnixTime) -> Self {
        // The last hour of a period may be cut.
        let hours = usize::try_from((to - from + HOUR - 1).max(0) / HOUR).unwrap_or(0);
        Self {
            from,
            to,
            sums: vec![[[0; PARTS]; 2]; hours],
        }
    }

    fn add(&mut self, resource: usize, part: Part, from: UnixTime, to: UnixTime, amount: u64) {
        // Runs from outside the period count with the part inside.
        let from = from.max(self.from);
        let to = to.min(self.to);

        let mut at = from;
        while at < to && amount > 0 {
            let hour = (at - self.from) / HOUR;
            let until = (self.from + (hour + 1) * HOUR).min(to);
            // 128 bits: GPUs or CPUs × seconds of a large cluster over years.
            let seconds = u128::from(until.since(at));
            if let Some(sums) = self
                .sums
                .get_mut(usize::try_from(hour).unwrap_or(usize::MAX))
            {
                sums[resource][part as usize] += seconds * u128::from(amount);
            }

            at = until;
        }
    }

    /// Adds up the hours. Each hour is limited to the resources that were free, as in Slurm's
    /// rollup.
    fn row(&self, resource: usize) -> CapacityRow {
        let mut sums = [0_u128; 8];
        for hour in &self.sums {
            let [
                total,
                held,
                down,
                planned_down,
                planned,
                reserved,
                in_reservation,
            ] = hour[resource];

            // The order is that of Slurm's rollup: what is allocated is neither down nor planned.
            let held = held.min(total);
            let reserved_idle = reserved.saturating_sub(in_reservation).min(total - held);
            let allocated = held + reserved_idle;
            let down = down.min(total - allocated);
            let planned_down = planned_down.min(total - allocated - down);
            let free = total - allocated - down - planned_down;
            // Waiting jobs are planned as far as resources were free; the rest is overcommitted.
            let room = planned.min(free);

            let parts = [
                total,
                allocated,
                down,
                planned_down,
                room,
                free - room,
                planned - room,
                reserved_idle,
            ];

            sums.iter_mut()
                .zip(parts)
                .for_each(|(sum, part)| *sum += part);
        }

        let [
            reported,
            allocated,
            down,
            planned_down,
            planned,
            idle,
            overcommitted,
            reserved_idle,
        ] = sums.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX));

        CapacityRow {
            resource: RESOURCES[resource].to_owned(),
            reported,
            allocated,
            down,
            planned_down,
            planned,
            idle,
            unrecorded: 0,
            overcommitted,
            reserved_idle,
            stranded: None,
        }
    }
}

/// A node with less free memory than this accepts no job.
const LEAST_MEMORY_BYTES: u64 = 1 << 30;

/// Time of a change, whether it begins (or ends) an allocation, and the amounts.
type Change = (UnixTime, bool, Amounts);

/// Allocations on each node over time.
struct Stranded<'n> {
    from: UnixTime,
    to: UnixTime,
    nodes: HashMap<&'n str, (Amounts, Vec<Change>)>,
    lists: HashMap<String, Vec<String>>,
}

impl<'n> Stranded<'n> {
    fn new(from: UnixTime, to: UnixTime, nodes: &'n [NodeCapacity]) -> Self {
        // A node without GPUs has nothing to strand.
        let with_gpus = nodes.iter().filter(|node| node.amounts.gpus > 0);
        let nodes = with_gpus
            .map(|node| (node.node.as_str(), (node.amounts, Vec::new())))
            .collect();
        Self {
            from,
            to,
            nodes,
            lists: HashMap::new(),
        }
    }

    /// Splits the allocation of a run over its nodes, as evenly as whole units allow.
    fn add(&mut self, run: &CapacityRun<'_>, start: UnixTime, end: UnixTime) {
        let start = start.max(self.from);
        let end = end.min(self.to);

        let Some(list) = run
            .node_list
            .filter(|_| start < end && !self.nodes.is_empty())
        else {
            return;
        };

        // Many runs have the same list, and expanding it costs more than a look-up.
        let names = match self.lists.get(list) {
            Some(names) => names,
            None => {
                let names = nodelist::expand(list).unwrap_or_default();
                self.lists.entry(list.to_owned()).or_insert(names)
            }
        };

        let count = names.len() as u128;
        for (position, name) in names.iter().enumerate() {
            let position = position as u128;
            // Shares are cut at whole units, so that they add up to the amount.
            let share = |amount: u64| {
                let until = |position: u128| u128::from(amount) * position / count;
                u64::try_from(until(position + 1) - until(position)).unwrap_or(0)
            };

            if let Some((_, changes)) = self.nodes.get_mut(name.as_str()) {
                let held = Amounts {
                    cpus: share(run.held.cpus),
                    gpus: share(run.held.gpus),
                    mem_bytes: share(run.held.mem_bytes),
                };
                changes.extend([(start, true, held), (end, false, held)]);
            }
        }
    }

    /// Returns GPUs × seconds. `None` if no node with GPUs is known.
    fn seconds(self) -> Option<u64> {
        if self.nodes.is_empty() {
            return None;
        }

        let mut sum = 0_u128;
        for (has, mut changes) in self.nodes.into_values() {
            // An end frees resources before an allocation at the same instant.
            changes.sort_unstable_by_key(|(at, begins, _)| (*at, *begins));
            let mut cpus = 0_u64;
            let mut gpus = 0_u64;
            let mut memory = 0_u64;
            let mut since = self.from;

            for (at, begins, held) in changes {
                // Free GPUs cannot be used without a CPU and some memory. Slurm names no CPUs or memory of
                // nodes where it does not allot them (RealMemory is 1 MB then).
                let no_cpu = has.cpus > 0 && cpus >= has.cpus;
                let no_memory = has.mem_bytes >= LEAST_MEMORY_BYTES
                    && memory.saturating_add(LEAST_MEMORY_BYTES) > has.mem_bytes;
                if no_cpu || no_memory {
                    sum += u128::from(has.gpus.saturating_sub(gpus)) * u128::from(at.since(since));
                }

                since = at;
                let apply = |now: u64, change: u64| {
                    if begins {
                        now.saturating_add(change)
                    } else {
                        now.saturating_sub(change)
                    }
                };

                (cpus, gpus, memory) = (
                    apply(cpus, held.cpus),
                    apply(gpus, held.gpus),
                    apply(memory, held.mem_bytes),
                );
            }
        }

        u64::try_from(sum).ok()
    }
}

/// Returns the effect of an event of slurmdbd about a node, by its state. As in Slurm's rollup, the node
/// was down in every event, whatever its state, unless it was powered down or not installed yet.
/// Maintenance is counted by its reservation.
pub fn effect_of_event(state: &str) -> Option<Effect> {
    let state = NodeState::parse(state);
    if state.has(NodeWord::Maintenance) {
        None
    } else if state.has(NodeWord::Future) || state.has(NodeWord::PoweredDown) {
        Some(Effect::PlannedDown)
    } else {
        Some(Effect::Down)
    }
}

/// Returns the effect of a node's current state: that of the event which slurmdbd would record for it.
/// `None` if slurmdbd would record no event.
pub fn effect_of_state(state: &str) -> Option<Effect> {
    let parsed = NodeState::parse(state);
    let condition = parsed.condition();
    let is_away = condition.is_unavailable()
        || matches!(
            condition,
            NodeCondition::PoweredDown | NodeCondition::Future
        )
        || parsed.has(NodeWord::RebootIssued);
    effect_of_event(state).filter(|_| is_away)
}

#[cfg(test)]
mod tests;
