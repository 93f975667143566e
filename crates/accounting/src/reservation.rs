//! Reservations in accounting.
//!
//! Slurm counts all of a reservation as allocated, used or not, maintenance as planned down time,
//! and a reservation that ignores running jobs not at all. It counts CPUs only, because it records
//! only these; Takt also counts the GPUs of nodes that are reserved completely.

use super::capacity::{Effect, NodeCapacity};
use std::collections::{BTreeMap, HashMap};
use takt_model::UnixTime;
use takt_slurm::{Amounts, Owner, Reservation};

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

/// Returns the CPU-seconds of unused reservations in `[from, to)` that Slurm charges to their
/// owners: hour by hour, in equal parts, rounded down. While one job runs in a reservation, all of
/// it counts as used.
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
        assert_eq!(
            idle_charges(&[kept], &[], (UnixTime(20_000), UnixTime(30_000))),
            BTreeMap::new()
        );
    }
}
