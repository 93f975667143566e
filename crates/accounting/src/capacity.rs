//! What a cluster had in a period, and what became of it: held, down, down as planned, wanted, idle; and GPUs that nobody
//! could have had because the CPUs or the memory of their node were taken.
//!
//! Hour by hour as Slurm's rollup does it, so that the sums are those of `sreport cluster Utilization`: what is held
//! cannot be more than there is, what waits is counted as far as there was room for it (`planned`), and the rest was
//! idle. Slurm counts waiting for CPUs only; here GPUs wait too. Suspended time is taken off CPUs only, as Slurm does,
//! and all of it from the end of a run, since nobody records when it was.

use super::Period;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_slurm::{Amounts, nodelist};

/// The resources that capacity counts, in the order of [`amount_of`].
const RESOURCES: [&str; 2] = ["cpu", "gres/gpu"];

fn amount_of(amounts: Amounts, resource: usize) -> u64 {
    [amounts.cpus, amounts.gpus][resource]
}

/// What something in the cluster's history did to its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// The cluster had so much.
    Existed,
    /// A node was down or drained.
    Down,
    /// A node was away as planned: in maintenance, powered down, not there yet.
    PlannedDown,
    /// It was kept for somebody.
    Reserved,
}

/// A reservation's name and when it was: what runs in it use is part of what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'r> {
    /// Its name.
    pub name: &'r str,
    /// UTC seconds.
    pub from: i64,
    /// UTC seconds.
    pub to: i64,
}

/// A time in which there was so much of something. Instants are UTC seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub effect: Effect,
    /// Its beginning.
    pub from: i64,
    /// Its end; `None` while it lasts.
    pub to: Option<i64>,
    /// How much.
    pub amounts: Amounts,
}

/// A run, as far as capacity looks at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CapacityRun<'r> {
    /// When nothing but a lack of resources kept it waiting.
    pub eligible: Option<i64>,
    /// When it got its nodes.
    pub start: Option<i64>,
    /// When it left them, or the queue.
    pub end: Option<i64>,
    /// Seconds of suspension.
    pub suspended: u64,
    /// What it held.
    pub held: Amounts,
    /// What it asked for.
    pub wanted: Amounts,
    /// The nodes that it held, as Slurm writes them.
    pub node_list: Option<&'r str>,
    /// The reservation that it was submitted to.
    pub reservation: Option<&'r str>,
}

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Its name.
    pub node: String,
    /// What it has.
    pub amounts: Amounts,
}

/// What became of a cluster's resources in a period. Seconds × amount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityReport {
    /// The cluster.
    pub cluster: String,
    /// The period's first instant, RFC 3339.
    pub from: String,
    /// The first instant after it, RFC 3339.
    pub to: String,
    /// The zone whose days the period is made of.
    pub timezone: String,
    /// One row a resource.
    pub rows: Vec<CapacityRow>,
}

/// What became of one resource. `allocated` to `idle` add up to `reported`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRow {
    /// `cpu` or `gres/gpu`.
    pub resource: String,
    /// All there was.
    pub reported: u64,
    /// Held by runs, or kept by a reservation.
    pub allocated: u64,
    /// Of nodes that were down or drained.
    pub down: u64,
    /// Of nodes that were away as planned.
    pub planned_down: u64,
    /// What waiting jobs wanted, as far as there was room.
    pub planned: u64,
    /// The rest.
    pub idle: u64,
    /// What waiting jobs wanted beyond that.
    pub overcommitted: u64,
    /// Part of what was allocated: kept by a reservation, and used by nobody.
    #[serde(default)]
    pub reserved_idle: u64,
    /// Part of what was idle or planned: GPUs of nodes whose CPUs or memory were taken. `None` for what is no GPU, and
    /// where no node is known.
    pub stranded: Option<u64>,
}

/// What became of a period's resources, while runs are added to it in any order.
pub struct Capacity<'n> {
    hours: Hours,
    stranded: Stranded<'n>,
    kept: &'n [Kept<'n>],
    now: i64,
}

impl<'n> Capacity<'n> {
    /// Nothing held yet. Runs that go on hold until `now`.
    pub fn new(
        period: &Period,
        spans: &[Span],
        kept: &'n [Kept<'n>],
        nodes: &'n [NodeCapacity],
        now: i64,
    ) -> Self {
        let to = period.to().min(now);
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
            let running = end.saturating_sub(run.suspended.cast_signed()).max(start);
            hours.add(0, Part::Allocated, start, running, run.held.cpus);
            hours.add(1, Part::Allocated, start, end, run.held.gpus);
            stranded.add(run, start, end);
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
        // What waits for a reservation of its own waits for no room elsewhere.
        if let Some(eligible) = run.eligible.filter(|_| run.reservation.is_none()) {
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

    /// One row a resource.
    pub fn rows(self) -> Vec<CapacityRow> {
        let mut rows: Vec<CapacityRow> = (0..RESOURCES.len())
            .map(|resource| self.hours.row(resource))
            .collect();
        rows[1].stranded = self.stranded.seconds();
        rows
    }
}

/// The report of a period as of `now`, in which running runs hold until then.
pub fn capacity<'r>(
    cluster: &str,
    period: &Period,
    spans: &[Span],
    kept: &[Kept<'_>],
    nodes: &[NodeCapacity],
    runs: impl IntoIterator<Item = CapacityRun<'r>>,
    now: i64,
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

/// Seconds × amount of each resource and part in each hour.
struct Hours {
    from: i64,
    to: i64,
    sums: Vec<[[u128; PARTS]; 2]>,
}

const PARTS: usize = Part::InReservation as usize + 1;

impl Hours {
    fn new(from: i64, to: i64) -> Self {
        let hours = usize::try_from((to - from + HOUR - 1).max(0) / HOUR).unwrap_or(0);
        Self {
            from,
            to,
            sums: vec![[[0; PARTS]; 2]; hours],
        }
    }

    fn add(&mut self, resource: usize, part: Part, from: i64, to: i64, amount: u64) {
        let (from, to) = (from.max(self.from), to.min(self.to));
        let mut at = from;
        while at < to && amount > 0 {
            let hour = (at - self.from) / HOUR;
            let until = (self.from + (hour + 1) * HOUR).min(to);
            let seconds = u128::from(until.abs_diff(at));
            if let Some(sums) = self
                .sums
                .get_mut(usize::try_from(hour).unwrap_or(usize::MAX))
            {
                sums[resource][part as usize] += seconds * u128::from(amount);
            }
            at = until;
        }
    }

    /// Hour by hour what there was room for, as Slurm's rollup settles it.
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
            let held = held.min(total);
            let reserved_idle = reserved.saturating_sub(in_reservation).min(total - held);
            let allocated = held + reserved_idle;
            let down = down.min(total - allocated);
            let planned_down = planned_down.min(total - allocated - down);
            let free = total - allocated - down - planned_down;
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
            overcommitted,
            reserved_idle,
            stranded: None,
        }
    }
}

/// Less free memory than this on a node, and no job gets in.
const LEAST_MEMORY_BYTES: u64 = 1 << 30;

/// What is taken (or, where false, given back) of a node, and when.
type Change = (i64, bool, Amounts);

/// When what was taken of each node.
struct Stranded<'n> {
    from: i64,
    to: i64,
    nodes: HashMap<&'n str, (Amounts, Vec<Change>)>,
    lists: HashMap<String, Vec<String>>,
}

impl<'n> Stranded<'n> {
    fn new(from: i64, to: i64, nodes: &'n [NodeCapacity]) -> Self {
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

    /// What a run held is split over its nodes as evenly as whole units allow.
    fn add(&mut self, run: &CapacityRun<'_>, start: i64, end: i64) {
        let (start, end) = (start.max(self.from), end.min(self.to));
        let Some(list) = run
            .node_list
            .filter(|_| start < end && !self.nodes.is_empty())
        else {
            return;
        };
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

    /// GPUs × seconds; `None` where no node with GPUs is known.
    fn seconds(self) -> Option<u64> {
        if self.nodes.is_empty() {
            return None;
        }
        let mut sum = 0_u128;
        for (has, mut changes) in self.nodes.into_values() {
            // What ends makes room before something else begins.
            changes.sort_unstable_by_key(|(at, begins, _)| (*at, *begins));
            let (mut cpus, mut gpus, mut memory) = (0_u64, 0_u64, 0_u64);
            let mut since = self.from;
            for (at, begins, held) in changes {
                let full =
                    cpus >= has.cpus || memory.saturating_add(LEAST_MEMORY_BYTES) > has.mem_bytes;
                if full {
                    sum +=
                        u128::from(has.gpus.saturating_sub(gpus)) * u128::from(at.abs_diff(since));
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

/// What a state of a node adds to the history of the cluster's capacity. What happens to a node in maintenance is its
/// reservation's doing, and is counted there.
pub fn history_of(state: &str) -> Option<Effect> {
    let says_maintenance = state
        .to_uppercase()
        .split(['+', ' ', ','])
        .any(|word| word.starts_with("MAINT"));
    if says_maintenance {
        None
    } else {
        effect_of(state)
    }
}

/// How a state of a node, in Slurm's words (`DOWN*`, `IDLE+DRAIN`, `MAINT`), takes it away; `None` where it does not.
pub fn effect_of(state: &str) -> Option<Effect> {
    let words: Vec<String> = state
        .split(['+', ' ', ','])
        .map(|word| {
            word.trim_end_matches(['*', '~', '#', '%', '$', '@', '^', '-', '!'])
                .to_uppercase()
        })
        .collect();
    let says = |any: &[&str]| words.iter().any(|word| any.contains(&word.as_str()));
    if says(&[
        "MAINT",
        "MAINTENANCE",
        "POWERED_DOWN",
        "POWER_DOWN",
        "FUTURE",
        "PLANNED_DOWN",
    ]) {
        Some(Effect::PlannedDown)
    } else if says(&[
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "DRNG",
        "FAIL",
        "FAILING",
        "ERROR",
        "UNKNOWN",
        "NOT_RESPONDING",
    ]) {
        Some(Effect::Down)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    fn day() -> Period {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        Period::days("2026-10-01", "2026-10-02", &TimeZone::UTC, now).unwrap()
    }

    const DAY: u64 = 86_400;

    fn amounts(cpus: u64, gpus: u64) -> Amounts {
        Amounts {
            cpus,
            gpus,
            mem_bytes: 0,
        }
    }

    fn existed(cpus: u64, gpus: u64) -> Span {
        Span {
            effect: Effect::Existed,
            from: 0,
            to: None,
            amounts: amounts(cpus, gpus),
        }
    }

    fn report(
        spans: &[Span],
        nodes: &[NodeCapacity],
        runs: &[CapacityRun<'_>],
    ) -> Vec<CapacityRow> {
        let period = day();
        capacity(
            "lab",
            &period,
            spans,
            &[],
            nodes,
            runs.iter().copied(),
            period.to() + 1000,
        )
        .rows
    }

    #[test]
    fn a_day_of_a_small_cluster() {
        let from = day().from();
        let down = Span {
            effect: Effect::Down,
            from: from + HOUR,
            to: Some(from + 2 * HOUR),
            amounts: amounts(8, 2),
        };
        // Waits an hour, runs two of them, half an hour suspended.
        let run = CapacityRun {
            eligible: Some(from + 2 * HOUR),
            start: Some(from + 3 * HOUR),
            end: Some(from + 5 * HOUR),
            suspended: 1800,
            held: amounts(4, 1),
            wanted: amounts(4, 1),
            node_list: Some("g1"),
            reservation: None,
        };
        let rows = report(&[existed(16, 4), down], &[], &[run]);
        let hour = HOUR as u64;
        assert_eq!(
            rows[0],
            CapacityRow {
                resource: "cpu".into(),
                reported: 16 * DAY,
                allocated: 4 * (2 * hour - 1800),
                down: 8 * hour,
                planned: 4 * hour,
                idle: 16 * DAY - 4 * (2 * hour - 1800) - 8 * hour - 4 * hour,
                ..CapacityRow::default()
            }
        );
        // Suspension keeps the GPU, and GPUs wait too.
        assert_eq!(
            (rows[1].allocated, rows[1].planned, rows[1].down),
            (2 * hour, hour, 2 * hour)
        );
        assert_eq!(rows[1].stranded, None, "no node is known");
    }

    #[test]
    fn a_reservation_is_allocated_whether_it_is_used_or_not() {
        let from = day().from();
        let kept = Kept {
            name: "class",
            from: from + HOUR,
            to: from + 3 * HOUR,
        };
        let span = |effect| Span {
            effect,
            from: kept.from,
            to: Some(kept.to),
            amounts: amounts(8, 2),
        };
        let run = |reservation, hours: i64| CapacityRun {
            eligible: Some(from),
            start: Some(from + HOUR),
            end: Some(from + (1 + hours) * HOUR),
            held: amounts(4, 1),
            wanted: amounts(4, 1),
            reservation,
            ..CapacityRun::default()
        };
        let period = day();
        let rows = |effect, runs: &[CapacityRun<'_>]| {
            let spans = [existed(16, 4), span(effect)];
            capacity(
                "lab",
                &period,
                &spans,
                &[kept],
                &[],
                runs.iter().copied(),
                period.to() + 1000,
            )
            .rows
        };
        let hour = HOUR as u64;
        // A run in it for an hour, another beside it for two, which waited for an hour.
        let found = rows(Effect::Reserved, &[run(Some("class"), 1), run(None, 2)]);
        assert_eq!(
            (found[0].allocated, found[0].reserved_idle),
            (16 * hour + 4 * 2 * hour, 12 * hour)
        );
        assert_eq!(
            (found[1].allocated, found[1].reserved_idle),
            (4 * hour + 2 * hour, 3 * hour)
        );
        assert_eq!(
            found[0].planned,
            4 * hour,
            "what waits for the reservation is not counted"
        );
        let found = rows(Effect::PlannedDown, &[]);
        assert_eq!(
            (
                found[0].planned_down,
                found[0].allocated,
                found[1].planned_down
            ),
            (16 * hour, 0, 4 * hour)
        );
    }

    #[test]
    fn what_waits_beyond_the_room_is_overcommitted() {
        let from = day().from();
        let waits = CapacityRun {
            eligible: Some(from),
            end: Some(from + HOUR),
            wanted: amounts(100, 0),
            ..CapacityRun::default()
        };
        let rows = report(&[existed(16, 0)], &[], &[waits]);
        assert_eq!(
            (rows[0].planned, rows[0].overcommitted),
            (16 * 3600, 84 * 3600)
        );
        assert_eq!(rows[0].idle, 16 * (DAY - 3600));
    }

    #[test]
    fn gpus_are_stranded_where_the_cpus_or_the_memory_are_taken() {
        let from = day().from();
        let gib = |n: u64| n << 30;
        let node = |node: &str| NodeCapacity {
            node: node.into(),
            amounts: Amounts {
                cpus: 8,
                gpus: 2,
                mem_bytes: gib(64),
            },
        };
        let run = |list, hours: i64, cpus, gpus, mem_bytes| CapacityRun {
            start: Some(from),
            end: Some(from + hours * HOUR),
            held: Amounts {
                cpus,
                gpus,
                mem_bytes,
            },
            node_list: Some(list),
            ..CapacityRun::default()
        };
        let nodes = [node("g1"), node("g2")];
        let stranded =
            |runs: &[CapacityRun<'_>]| report(&[existed(16, 4)], &nodes, runs)[1].stranded;
        assert_eq!(stranded(&[]), Some(0));
        assert_eq!(
            stranded(&[run("g1", 2, 8, 0, gib(8))]),
            Some(2 * 2 * 3600),
            "all CPUs"
        );
        assert_eq!(
            stranded(&[run("g1", 2, 1, 1, gib(64))]),
            Some(2 * 3600),
            "all memory, one GPU in use"
        );
        assert_eq!(
            stranded(&[run("g[1-2]", 1, 16, 4, gib(8))]),
            Some(0),
            "nothing is left to strand"
        );
        assert_eq!(
            stranded(&[run("g1", 1, 4, 0, gib(8)), run("g1", 1, 4, 0, gib(8))]),
            Some(2 * 3600)
        );
    }

    #[test]
    fn states_of_nodes() {
        for (state, effect) in [
            ("IDLE", None),
            ("MIXED+CLOUD", None),
            ("DOWN*", Some(Effect::Down)),
            ("IDLE+DRAIN", Some(Effect::Down)),
            ("drained*", Some(Effect::Down)),
            ("IDLE+POWERED_DOWN", Some(Effect::PlannedDown)),
            ("DOWN+MAINT", Some(Effect::PlannedDown)),
            ("FUTURE", Some(Effect::PlannedDown)),
            ("", None),
        ] {
            assert_eq!(effect_of(state), effect, "{state}");
            let history = if state.contains("MAINT") {
                None
            } else {
                effect
            };
            assert_eq!(history_of(state), history, "{state}");
        }
    }

    proptest! {
        /// Whatever happens, the parts add up to the whole, and nothing is more than there is.
        #[test]
        fn parts_add_up(
            runs in proptest::collection::vec((-50_000..90_000_i64, 0..50_000_i64, 0..90_000_i64, 0..40_u64, 0..9_u64), 0..20),
            down in proptest::collection::vec((-9000..90_000_i64, 0..20_000_i64, 0..20_u64, 0..5_u64, any::<bool>()), 0..6),
        ) {
            let from = day().from();
            let runs: Vec<_> = runs.into_iter().map(|(at, wait, ran, cpus, gpus)| CapacityRun {
                eligible: Some(from + at),
                start: Some(from + at + wait),
                end: Some(from + at + wait + ran),
                held: amounts(cpus, gpus),
                wanted: amounts(cpus, gpus),
                ..CapacityRun::default()
            }).collect();
            let spans: Vec<_> = down.into_iter().map(|(at, lasted, cpus, gpus, planned)| Span {
                effect: if planned { Effect::PlannedDown } else { Effect::Down },
                from: from + at,
                to: Some(from + at + lasted),
                amounts: amounts(cpus, gpus),
            }).chain([existed(16, 4)]).collect();
            for row in report(&spans, &[], &runs) {
                let parts = row.allocated + row.down + row.planned_down + row.planned + row.idle;
                prop_assert_eq!(parts, row.reported);
                prop_assert_eq!(row.reported, if row.resource == "cpu" { 16 * DAY } else { 4 * DAY });
            }
        }
    }
}
