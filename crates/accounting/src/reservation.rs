//! Reservations: nodes that were kept for somebody, or out of use for maintenance.
//!
//! Slurm takes all of a reservation for used, whether anybody ran in it or not, maintenance for planned down time, and
//! one that ignores running jobs for nothing at all. It counts their CPUs only, since that is all that it notes of them;
//! here the GPUs of nodes that were kept whole count too.

use super::capacity::{Effect, NodeCapacity};
use std::collections::{BTreeMap, HashMap};
use takt_slurm::{Amounts, Owner, Reservation};

/// A run in a reservation, as far as the idle rest of it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedRun<'r> {
    /// The reservation's name.
    pub reservation: &'r str,
    /// UTC seconds.
    pub start: i64,
    /// UTC seconds.
    pub end: i64,
}

/// The effect of a reservation on the cluster's capacity. `None` where it only marks nodes on which jobs go on.
pub fn effect(reservation: &Reservation) -> Option<Effect> {
    if reservation.ignores_jobs() {
        None
    } else if reservation.is_maintenance() {
        Some(Effect::PlannedDown)
    } else {
        Some(Effect::Reserved)
    }
}

/// What each node has, by name.
pub fn by_name(nodes: &[NodeCapacity]) -> HashMap<&str, Amounts> {
    nodes
        .iter()
        .map(|node| (node.node.as_str(), node.amounts))
        .collect()
}

/// CPU-seconds that Slurm charges the owners of reservations for what nobody used of them in `[from, to)`: hour by hour,
/// in equal parts without remainders. It takes all of a reservation for used as long as one job runs in it.
pub fn idle_charges(
    reservations: &[Reservation],
    runs: &[ReservedRun<'_>],
    (from, to): (i64, i64),
) -> BTreeMap<Owner, u64> {
    const HOUR: i64 = 3600;
    let overlap =
        |a: (i64, i64), b: (i64, i64)| u64::try_from(a.1.min(b.1) - a.0.max(b.0)).unwrap_or(0);
    let mut charged: BTreeMap<Owner, u64> = BTreeMap::new();
    for kept in reservations.iter().filter(|kept| !kept.owners.is_empty()) {
        let inside: Vec<&ReservedRun<'_>> = runs
            .iter()
            .filter(|run| run.reservation == kept.name)
            .collect();
        let mut hour = kept.from.max(from).div_euclid(HOUR) * HOUR;
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

    fn owner(account: &str, user: &str) -> Owner {
        Owner {
            account: account.into(),
            user: Some(user)
                .filter(|user| !user.is_empty())
                .map(str::to_owned),
        }
    }

    #[test]
    fn what_a_reservation_keeps() {
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
            from: 1800,
            to: 3 * 3600,
            ..Reservation::default()
        };
        let run = |start, end| ReservedRun {
            reservation: "class",
            start,
            end,
        };
        let other = ReservedRun {
            reservation: "other",
            ..run(0, 99_999)
        };
        // Half an hour that nobody used, then half of an hour.
        let charged = idle_charges(
            std::slice::from_ref(&kept),
            &[run(5400, 9000), other],
            (0, 7200),
        );
        let idle = 2 * 1800 * 8;
        assert_eq!(charged[&owner("lab", "ann")], idle / 3);
        assert_eq!(charged.values().sum::<u64>(), idle);
        assert_eq!(charged.len(), 3);
        assert_eq!(
            idle_charges(&[kept], &[], (20_000, 30_000)),
            BTreeMap::new()
        );
    }
}
