//! Decayed usage of each association, with the usage of its children.
//!
//! Sums are whole numbers of very small units, so they do not depend on the order of the runs,
//! children add up exactly to their account, and two users with equal usage are tied as in Slurm.

use super::decay::DecayTable;
use super::tree::{AssociationId, AssociationTree};
use serde::Serialize;
use std::collections::BTreeMap;
use takt_jobs::BillingRates;
use takt_jobs::billing::TresAmounts;
use takt_model::UnixTime;

/// The fields of a job run that fair share reads, borrowed. The runs before and after a requeue or
/// a resize are separate runs.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Account that is charged.
    pub account: &'a str,
    /// Unix user.
    pub user: &'a str,
    /// Partition.
    pub partition: &'a str,
    /// Quality of service.
    pub qos: Option<&'a str>,
    /// Start time. `None` if the run has not started.
    pub start: Option<UnixTime>,
    /// End time. `None` while the run lasts. Suspension does not end it: Slurm continues to charge.
    pub end: Option<UnixTime>,
    /// Time limit in seconds. `None` if it is unknown or unlimited.
    pub timelimit_seconds: Option<u64>,
    /// Allocated TRES (`AllocTRES`). `None` if unknown.
    pub tres: Option<&'a TresAmounts>,
}

/// Usage of a cluster at one instant.
#[derive(Debug, Clone)]
pub struct Usage {
    as_of: UnixTime,
    last_tick: Option<UnixTime>,
    at_last_tick: Vec<Units>,
    now: Vec<Units>,
    tres_run_seconds: Vec<BTreeMap<String, f64>>,
    recent: Vec<Units>,
    recent_from: UnixTime,
    qos: BTreeMap<String, Units>,
    left_out: LeftOut,
}

/// Number of runs that were not charged, by reason. If it is above 0, usage is too low.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The account is not in the tree.
    pub account_unknown: u64,
    /// The allocated TRES are unknown.
    pub tres_unknown: u64,
}

/// Usage while runs are added, in any order.
#[derive(Debug)]
pub struct Accumulator<'a> {
    tree: &'a AssociationTree,
    table: &'a DecayTable,
    /// Table for QOS with `NoDecay`.
    undecayed: Option<DecayTable>,
    rates: &'a BillingRates,
    usage: Usage,
}

impl<'a> Accumulator<'a> {
    /// Starts without runs. Charges from `recent_from` on make the recent rates, the basis of
    /// predictions.
    pub fn new(
        tree: &'a AssociationTree,
        table: &'a DecayTable,
        rates: &'a BillingRates,
        recent_from: UnixTime,
    ) -> Self {
        let usage = Usage {
            as_of: table.as_of(),
            last_tick: table.last_tick(),
            at_last_tick: vec![Units::default(); tree.len()],
            now: vec![Units::default(); tree.len()],
            tres_run_seconds: vec![BTreeMap::new(); tree.len()],
            recent: vec![Units::default(); tree.len()],
            recent_from: recent_from.min(table.as_of()),
            qos: BTreeMap::new(),
            left_out: LeftOut::default(),
        };

        // Built only if a QOS needs it: the table has a value for each tick.
        let undecayed = rates
            .qos
            .values()
            .any(|qos| qos.no_decay)
            .then(|| table.undecayed());

        Self {
            tree,
            table,
            undecayed,
            rates,
            usage,
        }
    }

    /// Charges a run.
    pub fn add(&mut self, run: &Run<'_>) {
        // A run that starts after the instant is not known to Slurm yet.
        let Some(start) = run.start.filter(|start| *start <= self.usage.as_of) else {
            return;
        };
        let Some(tres) = run.tres else {
            self.usage.left_out.tres_unknown += 1;
            return;
        };
        let Some(id) = self.tree.charged(run.account, run.user, run.partition) else {
            self.usage.left_out.account_unknown += 1;
            return;
        };

        let per_second = self.rates.per_second(run.partition, run.qos, tres);
        let worth = self.table.seconds(start, run.end);
        self.usage.at_last_tick[id.index()].add(worth.at_last_tick * per_second);
        self.usage.now[id.index()].add(worth.total() * per_second);

        let recent = self.recent_seconds(start, run.end);
        self.usage.recent[id.index()].add(recent * per_second);

        // The usage of a QOS may not decay, while that of its association does.
        if let Some(name) = run.qos {
            let worth = self
                .undecayed
                .as_ref()
                .filter(|_| self.rates.qos.get(name).is_some_and(|qos| qos.no_decay))
                .map_or(worth, |table| table.seconds(start, run.end));
            add_to(&mut self.usage.qos, name, |usage| {
                usage.add(worth.total() * per_second)
            });
        }

        // A run that ends after the instant is still running at it.
        if run.end.is_none_or(|end| end > self.usage.as_of) {
            let left = self.seconds_left(start, run.timelimit_seconds);
            for (name, amount) in tres.iter().filter(|_| left > 0.0) {
                add_to(
                    &mut self.usage.tres_run_seconds[id.index()],
                    name,
                    |seconds| *seconds += amount * left,
                );
            }
        }
    }

    /// Returns the run time within the recent period, in seconds.
    fn recent_seconds(&self, start: UnixTime, end: Option<UnixTime>) -> f64 {
        let until = end.map_or(self.usage.as_of, |end| end.min(self.usage.as_of));
        until.since(start.max(self.usage.recent_from)) as f64
    }

    /// Returns the seconds that a running job may still be charged, as Slurm knew at the last tick.
    fn seconds_left(&self, start: UnixTime, timelimit: Option<u64>) -> f64 {
        let Some(limit) = timelimit.and_then(|limit| i64::try_from(limit).ok()) else {
            return 0.0;
        };
        // Seconds up to the last tick are charged already.
        let counted_to = self.usage.last_tick.map_or(start, |tick| tick.max(start));
        (start + limit).since(counted_to) as f64
    }

    /// Returns the usage, with accounts and the root.
    pub fn finish(self) -> Usage {
        let mut usage = self.usage;
        // Children before parents, so that each sum is complete when it is added.
        for id in self.tree.top_down().iter().rev() {
            let Some(parent) = self.tree.parent(*id) else {
                continue;
            };
            let of = id.index();
            let above = parent.index();
            usage.at_last_tick[above] = usage.at_last_tick[above].plus(usage.at_last_tick[of]);
            usage.now[above] = usage.now[above].plus(usage.now[of]);
            for (name, seconds) in usage.tres_run_seconds[of].clone() {
                *usage.tres_run_seconds[above].entry(name).or_default() += seconds;
            }
        }
        usage
    }
}

/// Returns the usage of many runs.
pub fn usage<'r>(
    tree: &AssociationTree,
    table: &DecayTable,
    rates: &BillingRates,
    recent_from: UnixTime,
    runs: impl IntoIterator<Item = Run<'r>>,
) -> Usage {
    let mut usage = Accumulator::new(tree, table, rates, recent_from);
    for run in runs {
        usage.add(&run);
    }
    usage.finish()
}

impl Usage {
    /// Returns the instant of the usage.
    pub fn as_of(&self) -> UnixTime {
        self.as_of
    }

    /// Returns the last time at which Slurm computed normalized usage and factors.
    pub fn last_tick(&self) -> Option<UnixTime> {
        self.last_tick
    }

    /// Returns raw usage (`RawUsage`): decayed billing units × seconds, with the usage below.
    pub fn raw_usage(&self, id: AssociationId) -> f64 {
        self.now[id.index()].value()
    }

    /// Returns raw usage at the last tick.
    pub fn raw_usage_at_last_tick(&self, id: AssociationId) -> f64 {
        self.at_last_tick[id.index()].value()
    }

    /// Returns raw usage at the last tick of all associations, by index.
    pub fn all_at_last_tick(&self) -> Vec<f64> {
        self.at_last_tick
            .iter()
            .map(|units| units.value())
            .collect()
    }

    /// Returns raw usage of a QOS. With `NoDecay` it is not decayed.
    pub fn raw_usage_of_qos(&self, qos: &str) -> f64 {
        self.qos.get(qos).map_or(0.0, |units| units.value())
    }

    /// Returns TRES × minutes that running jobs may still use (`TRESRunMins`), if their limits are
    /// known.
    pub fn tres_run_minutes(&self, id: AssociationId) -> BTreeMap<String, f64> {
        self.tres_run_seconds[id.index()]
            .iter()
            .map(|(name, seconds)| (name.clone(), seconds / 60.0))
            .collect()
    }

    /// Returns the mean charge per second of this association in the recent period, without the
    /// usage below.
    pub fn recent_rate(&self, id: AssociationId) -> f64 {
        // At least a second, or a period without length would divide by 0.
        self.recent[id.index()].value() / self.as_of.since(self.recent_from).max(1) as f64
    }

    /// Returns the start of the recent period.
    pub fn recent_from(&self) -> UnixTime {
        self.recent_from
    }

    /// Returns the number of runs that were not charged.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Returns the usage after more seconds in which each association is charged a constant rate.
    /// Ticks are assumed to be infinitely short; the error is at most one period.
    pub fn projected(
        &self,
        tree: &AssociationTree,
        table: &DecayTable,
        seconds: i64,
        rate: impl Fn(AssociationId) -> f64,
    ) -> Vec<f64> {
        let left = table.decay().over(seconds);
        let sum = table.decay().sum_over(seconds);
        let mut usage: Vec<f64> = vec![0.0; tree.len()];

        for id in tree.top_down().iter().rev() {
            let below: f64 = tree
                .children(*id)
                .iter()
                .map(|child| self.raw_usage(*child))
                .sum();

            // The conversion to floats may leave a tiny negative difference.
            let own = (self.raw_usage(*id) - below).max(0.0);
            usage[id.index()] += own * left + rate(*id) * sum;
            if let Some(parent) = tree.parent(*id) {
                usage[parent.index()] += usage[id.index()];
            }
        }

        usage
    }
}

/// Changes a value by name. Only a new name is copied, since a million runs have few names.
fn add_to<T>(values: &mut BTreeMap<String, T>, name: &str, change: impl FnOnce(&mut T))
where
    T: Default,
{
    match values.get_mut(name) {
        Some(value) => change(value),
        None => change(values.entry(name.to_owned()).or_default()),
    }
}

/// An exact sum in units of 2⁻⁷² billing unit-seconds, so that the order does not matter. It is
/// exact from a billionth of a unit-second up, and holds up to 10¹⁶.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Units(u128);

impl Units {
    const PER_ONE: f64 = (1_u128 << 72) as f64;

    fn add(&mut self, value: f64) {
        self.0 = self
            .0
            .saturating_add((value.max(0.0) * Self::PER_ONE) as u128);
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn value(self) -> f64 {
        self.0 as f64 / Self::PER_ONE
    }
}

#[cfg(test)]
mod tests;
