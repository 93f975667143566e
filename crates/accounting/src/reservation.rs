//! Reservations in accounting.
//!
//! Slurm counts all of a reservation as allocated, used or not, maintenance as planned down time,
//! and a reservation that ignores running jobs not at all. It counts CPUs only, because it records
//! only these; Takt also counts the GPUs of nodes that are reserved completely.

use super::capacity::{CapacitySpan, Effect, NodeCapacity, effect_of_event};
use std::collections::{BTreeMap, HashMap, HashSet};
use takt_jobs::{Amounts, NodeEvent, Owner, Reservation};
use takt_model::UnixTime;

/// A run in a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedRun<'r> {
    /// Reservation name.
    pub reservation: &'r str,
    /// Start.
    pub start: UnixTime,
    /// End.
    pub end: UnixTime,
}

/// Start and end.
type TimeSpan = (UnixTime, UnixTime);

/// Returns the effect of a reservation on the cluster's capacity. `None` if jobs keep running on
/// its nodes.
pub fn effect(reservation: &Reservation) -> Option<Effect> {
    if reservation.ignores_jobs() {
        None
    } else if reservation.is_maintenance() {
        Some(Effect::PlannedDown)
    } else {
        Some(Effect::Reserved)
    }
}

/// Returns the capacity of each node by name.
pub fn by_name(nodes: &[NodeCapacity]) -> HashMap<&str, Amounts> {
    nodes
        .iter()
        .map(|node| (node.node.as_str(), node.amounts))
        .collect()
}

/// A reservation with its nodes.
struct Reserved<'r> {
    reservation: &'r Reservation,
    nodes: HashSet<String>,
}

/// An event that counts, with its end.
struct Away<'e> {
    event: &'e NodeEvent,
    effect: Effect,
    to: UnixTime,
}

/// Returns what the events of a cluster and its nodes, and the reservations, add to the capacity or take
/// from it. A node that is down while it is reserved counts once, as in Slurm's rollup: as planned down
/// in maintenance, else as down and not as reserved.
pub fn spans(
    events: &[NodeEvent],
    reservations: &[Reservation],
    has: &HashMap<&str, Amounts>,
) -> Vec<CapacitySpan> {
    let reserved: Vec<Reserved<'_>> = reservations
        .iter()
        .map(|reservation| Reserved {
            reservation,
            nodes: reservation.nodes().into_iter().collect(),
        })
        .collect();
    let away: Vec<Away<'_>> = events
        .iter()
        .filter(|event| !event.node.is_empty())
        .filter_map(|event| {
            Some(Away {
                event,
                effect: effect_of_event(&event.state)?,
                to: event.to.unwrap_or(UnixTime::MAX),
            })
        })
        .collect();

    // An event without a node is of the whole cluster.
    let existed = events
        .iter()
        .filter(|event| event.node.is_empty())
        .map(|event| CapacitySpan {
            effect: Effect::Existed,
            from: event.from,
            to: event.to,
            amounts: event.has,
        });
    existed
        .chain(away.iter().flat_map(|away| away_spans(away, &reserved)))
        .chain(
            reserved
                .iter()
                .flat_map(|reserved| reserved_spans(reserved, &away, has)),
        )
        .collect()
}

/// The spans of one event: between the beginnings and ends of the node's reservations.
fn away_spans(away: &Away<'_>, reserved: &[Reserved<'_>]) -> Vec<CapacitySpan> {
    let of_node: Vec<&Reservation> = reserved
        .iter()
        .filter(|reserved| reserved.nodes.contains(&away.event.node))
        .map(|reserved| reserved.reservation)
        .collect();
    // Between two cuts, the same reservations hold the node.
    let cuts = of_node.iter().flat_map(|kept| [kept.from, kept.to]);

    pieces((away.event.from, away.to), cuts)
        .into_iter()
        .map(|(from, to)| {
            let over: Vec<_> = of_node
                .iter()
                .filter(|kept| kept.from <= from && to <= kept.to)
                .collect();
            let effect = if over.is_empty() {
                away.effect
            } else if over.iter().any(|kept| kept.is_maintenance()) {
                Effect::PlannedDown
            } else {
                Effect::Down
            };
            CapacitySpan {
                effect,
                from,
                // The largest time stands for an event that has not ended.
                to: Some(to).filter(|to| *to < UnixTime::MAX),
                amounts: away.event.has,
            }
        })
        .collect()
}

/// The spans of one reservation, without the nodes that are away.
fn reserved_spans(
    reserved: &Reserved<'_>,
    away: &[Away<'_>],
    has: &HashMap<&str, Amounts>,
) -> Vec<CapacitySpan> {
    let kept = reserved.reservation;
    let Some(effect) = effect(kept) else {
        return Vec::new();
    };
    let all = kept.amounts(has);
    let inside: Vec<&Away<'_>> = away
        .iter()
        .filter(|away| reserved.nodes.contains(&away.event.node))
        .collect();
    let cuts = inside.iter().flat_map(|away| [away.event.from, away.to]);

    pieces((kept.from, kept.to), cuts)
        .into_iter()
        .map(|(from, to)| {
            // By name, so that a node with two events at once is taken off once.
            let gone: HashMap<&str, Amounts> = inside
                .iter()
                .filter(|away| away.event.from <= from && to <= away.to)
                .map(|away| (away.event.node.as_str(), away.event.has))
                .collect();
            let mut amounts = all;
            for node in gone.values() {
                amounts.cpus = amounts.cpus.saturating_sub(node.cpus);
                amounts.gpus = amounts.gpus.saturating_sub(node.gpus);
            }
            CapacitySpan {
                effect,
                from,
                to: Some(to),
                amounts,
            }
        })
        .collect()
}

/// Cuts a time span at these instants.
fn pieces((from, to): TimeSpan, cuts: impl Iterator<Item = UnixTime>) -> Vec<TimeSpan> {
    // A cut at an end would make an empty piece.
    let mut ends: Vec<UnixTime> = cuts.filter(|cut| from < *cut && *cut < to).collect();
    ends.push(to);
    ends.sort_unstable();
    ends.dedup();
    let begins = [from].into_iter().chain(ends.iter().copied());
    begins
        .zip(ends.iter().copied())
        .filter(|(from, to)| from < to)
        .collect()
}

/// Returns the CPU-seconds of unused reservations in `[from, to)` that Slurm charges to their
/// owners: hour by hour, in equal parts, rounded down. While one job runs in a reservation, all of
/// it counts as used; jobs that run at the same time use it once each, as in Slurm's rollup, which
/// thus charges less idle time than there was, but never less than none.
pub fn idle_charges(
    reservations: &[Reservation],
    runs: &[ReservedRun<'_>],
    (from, to): TimeSpan,
) -> BTreeMap<Owner, u64> {
    const HOUR: i64 = 3600;
    let overlap = |a: TimeSpan, b: TimeSpan| a.1.min(b.1).since(a.0.max(b.0));
    let mut charged: BTreeMap<Owner, u64> = BTreeMap::new();

    for kept in reservations.iter().filter(|kept| !kept.owners.is_empty()) {
        let inside: Vec<&ReservedRun<'_>> = runs
            .iter()
            .filter(|run| run.reservation == kept.name)
            .collect();

        let mut hour = kept.from.max(from).round_down(HOUR);
        while hour < kept.to.min(to) {
            // The first hour and the last may be shorter.
            let span = (hour.max(kept.from), (hour + HOUR).min(kept.to));
            let used: u64 = inside
                .iter()
                .map(|run| overlap((run.start, run.end), span))
                .sum();

            let idle = overlap(span, (from, to)).saturating_sub(used) * kept.cpus;
            for owner in &kept.owners {
                *charged.entry(owner.clone()).or_default() += idle / kept.owners.len() as u64;
            }

            hour += HOUR;
        }
    }

    charged.retain(|_, seconds| *seconds > 0);
    charged
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    fn owner(account: &str, user: &str) -> Owner {
        Owner {
            account: account.into(),
            user: Some(user)
                .filter(|user| !user.is_empty())
                .map(str::to_owned),
        }
    }

    #[test]
    fn a_reservation_keeps_its_nodes() {
        let node = |name: &str| NodeCapacity {
            node: name.into(),
            amounts: Amounts {
                cpus: 8,
                gpus: 2,
                mem_bytes: 64 << 30,
            },
        };
        let nodes = [node("g1"), node("g2")];
        let kept = |flags: &str, list: &str, cpus, gpus| {
            let kept = Reservation {
                flags: flags.into(),
                node_list: Some(list.into()),
                cpus,
                gpus,
                ..Reservation::default()
            };
            let amounts = kept.amounts(&by_name(&nodes));
            (effect(&kept), amounts.cpus, amounts.gpus)
        };
        assert_eq!(
            kept("SPEC_NODES", "g[1-2]", 16, None),
            (Some(Effect::Reserved), 16, 4)
        );
        assert_eq!(
            kept("", "g1", 4, None),
            (Some(Effect::Reserved), 4, 0),
            "half a node says nothing of its GPUs"
        );
        assert_eq!(kept("", "g1", 4, Some(1)), (Some(Effect::Reserved), 4, 1));
        assert_eq!(
            kept("MAINT,SPEC_NODES", "g1", 8, None),
            (Some(Effect::PlannedDown), 8, 2)
        );
        assert_eq!(kept("MAINT,IGNORE_JOBS", "g1", 8, None), (None, 8, 2));
        assert_eq!(
            kept("", "gone[1-2]", 0, None),
            (Some(Effect::Reserved), 0, 0)
        );
    }

    #[test]
    fn a_node_that_is_down_while_it_is_reserved_counts_once() {
        let amounts = |cpus, gpus| Amounts {
            cpus,
            gpus,
            mem_bytes: 0,
        };
        let has: HashMap<&str, Amounts> = [("g1", amounts(8, 2)), ("g2", amounts(8, 2))].into();
        let kept = |flags: &str| Reservation {
            flags: flags.into(),
            node_list: Some("g[1-2]".into()),
            cpus: 16,
            from: UnixTime(200),
            to: UnixTime(400),
            ..Reservation::default()
        };
        let event = |state: &str| NodeEvent {
            node: "g1".into(),
            state: state.into(),
            reason: None,
            has: amounts(8, 2),
            from: UnixTime(100),
            to: Some(UnixTime(300)),
        };
        let found = |state: &str, flags: &str| -> Vec<String> {
            spans(&[event(state)], &[kept(flags)], &has)
                .iter()
                .map(|span| {
                    format!(
                        "{:?} {}-{} {}+{}",
                        span.effect,
                        span.from,
                        span.to.unwrap(),
                        span.amounts.cpus,
                        span.amounts.gpus
                    )
                })
                .collect()
        };
        assert_eq!(
            found("DRAIN", "MAINT"),
            [
                "Down 100-200 8+2",
                "PlannedDown 200-300 8+2",
                "PlannedDown 200-300 8+2",
                "PlannedDown 300-400 16+4",
            ]
        );
        assert_eq!(
            found("IDLE~", ""),
            [
                "PlannedDown 100-200 8+2",
                "Down 200-300 8+2",
                "Reserved 200-300 8+2",
                "Reserved 300-400 16+4",
            ]
        );
        // The state says maintenance: the reservation counts the node.
        assert_eq!(found("DRAIN$", "MAINT"), ["PlannedDown 200-400 16+4"]);
        // An event without an end has a span without one.
        let lasting = NodeEvent {
            to: None,
            ..event("DOWN*")
        };
        let lasting = spans(&[lasting], &[], &has);
        assert_eq!((lasting.len(), lasting[0].to), (1, None));
    }

    #[test]
    fn the_idle_rest_is_charged_to_its_owners() {
        let kept = Reservation {
            name: "class".into(),
            cpus: 8,
            owners: vec![owner("lab", "ann"), owner("lab", "bob"), owner("bio", "")],
            from: UnixTime(1800),
            to: UnixTime(3 * 3600),
            ..Reservation::default()
        };
        let run = |start, end| ReservedRun {
            reservation: "class",
            start: UnixTime(start),
            end: UnixTime(end),
        };
        let other = ReservedRun {
            reservation: "other",
            ..run(0, 99_999)
        };
        // Half an hour unused, then half of another hour.
        let charged = idle_charges(
            slice::from_ref(&kept),
            &[run(5400, 9000), other],
            (UnixTime(0), UnixTime(7200)),
        );
        let idle = 2 * 1800 * 8;
        assert_eq!(charged[&owner("lab", "ann")], idle / 3);
        assert_eq!(charged.values().sum::<u64>(), idle);
        assert_eq!(charged.len(), 3);

        // Slurm adds up the jobs of an hour: two half hours at once are a full one, three are no more.
        let hour = (UnixTime(3600), UnixTime(7200));
        let half = run(3600, 5400);
        let of = |runs: &[ReservedRun<'_>]| -> u64 {
            idle_charges(slice::from_ref(&kept), runs, hour)
                .values()
                .sum()
        };
        assert_eq!(of(&[half]), 1800 * 8);
        assert_eq!(of(&[half, half]), 0);
        assert_eq!(of(&[half, half, half]), 0);

        assert_eq!(
            idle_charges(&[kept], &[], (UnixTime(20_000), UnixTime(30_000))),
            BTreeMap::new()
        );
    }
}
