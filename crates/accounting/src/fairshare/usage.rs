//! Usage: what runs were charged, faded, of each association and all above it.
//!
//! Sums are whole numbers of very small units, so no order of the runs changes them, children add up to their account
//! to the last bit, and two users who did the same are tied as they are in Slurm.

use super::decay::DecayTable;
use super::tree::{AssociationId, AssociationTree};
use serde::Serialize;
use std::collections::BTreeMap;
use takt_slurm::Rates;
use takt_slurm::billing::Tres;

/// One run of a job, as far as fair share looks at it, borrowed from wherever it lies. Instants are UTC seconds since
/// 1970. A job's runs before and after a requeue or a resize are runs of their own.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What it is charged to.
    pub account: &'a str,
    /// Who submitted it.
    pub user: &'a str,
    /// Where it ran.
    pub partition: &'a str,
    /// Its quality of service.
    pub qos: Option<&'a str>,
    /// When it got its nodes; `None` if never, or not yet.
    pub start: Option<i64>,
    /// When it left them; `None` while it runs. Suspension is no end: Slurm goes on charging.
    pub end: Option<i64>,
    /// Seconds it may run; `None` where that is not known or without limit.
    pub timelimit_seconds: Option<u64>,
    /// What it holds (`AllocTRES`); `None` where nobody saw it.
    pub tres: Option<&'a Tres>,
}

/// Usage of a cluster at one instant.
#[derive(Debug, Clone)]
pub struct Usage {
    as_of: i64,
    last_tick: Option<i64>,
    at_last_tick: Vec<Units>,
    now: Vec<Units>,
    tres_run_seconds: Vec<BTreeMap<String, f64>>,
    recent: Vec<Units>,
    recent_from: i64,
    qos: BTreeMap<String, Units>,
    left_out: LeftOut,
}

/// Runs that were charged to nobody, by reason. More than none means that usage is too low.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Their account is not in the tree.
    pub account_unknown: u64,
    /// Nobody saw what they held.
    pub tres_unknown: u64,
}

/// Usage while runs are added, in any order.
#[derive(Debug)]
pub struct Accumulator<'a> {
    tree: &'a AssociationTree,
    table: &'a DecayTable,
    /// For what a QOS with `NoDecay` keeps.
    undecayed: Option<DecayTable>,
    rates: &'a Rates,
    usage: Usage,
}

impl<'a> Accumulator<'a> {
    /// Nothing used yet. What was charged from `recent_from` on makes the recent rates, which predictions go by.
    pub fn new(
        tree: &'a AssociationTree,
        table: &'a DecayTable,
        rates: &'a Rates,
        recent_from: i64,
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
        if let Some(name) = run.qos {
            let undecayed = self
                .undecayed
                .as_ref()
                .filter(|_| self.rates.qos.get(name).is_some_and(|qos| qos.no_decay));
            let worth = undecayed.map_or(worth, |table| table.seconds(start, run.end));
            add_to(&mut self.usage.qos, name, |usage| {
                usage.add(worth.total() * per_second)
            });
        }
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

    /// Seconds of running in the recent time.
    fn recent_seconds(&self, start: i64, end: Option<i64>) -> f64 {
        let until = end.map_or(self.usage.as_of, |end| end.min(self.usage.as_of));
        until
            .saturating_sub(start.max(self.usage.recent_from))
            .max(0) as f64
    }

    /// Seconds that a running job may still be charged, as Slurm knew at the last tick.
    fn seconds_left(&self, start: i64, timelimit: Option<u64>) -> f64 {
        let Some(limit) = timelimit.and_then(|limit| i64::try_from(limit).ok()) else {
            return 0.0;
        };
        let counted_to = self.usage.last_tick.map_or(start, |tick| tick.max(start));
        start
            .saturating_add(limit)
            .saturating_sub(counted_to)
            .max(0) as f64
    }

    /// The usage of what was added, accounts and the root included.
    pub fn finish(self) -> Usage {
        let mut usage = self.usage;
        for id in self.tree.top_down().iter().rev() {
            let Some(parent) = self.tree.parent(*id) else {
                continue;
            };
            let (of, above) = (id.index(), parent.index());
            usage.at_last_tick[above] = usage.at_last_tick[above].plus(usage.at_last_tick[of]);
            usage.now[above] = usage.now[above].plus(usage.now[of]);
            for (name, seconds) in usage.tres_run_seconds[of].clone() {
                *usage.tres_run_seconds[above].entry(name).or_default() += seconds;
            }
        }
        usage
    }
}

/// The usage of many runs.
pub fn usage<'r>(
    tree: &AssociationTree,
    table: &DecayTable,
    rates: &Rates,
    recent_from: i64,
    runs: impl IntoIterator<Item = Run<'r>>,
) -> Usage {
    let mut usage = Accumulator::new(tree, table, rates, recent_from);
    for run in runs {
        usage.add(&run);
    }
    usage.finish()
}

impl Usage {
    /// The instant.
    pub fn as_of(&self) -> i64 {
        self.as_of
    }

    /// When Slurm last computed shares of usage and factors.
    pub fn last_tick(&self) -> Option<i64> {
        self.last_tick
    }

    /// Raw usage (`RawUsage`): billing units × seconds, faded, all below included.
    pub fn raw_usage(&self, id: AssociationId) -> f64 {
        self.now[id.index()].value()
    }

    /// Raw usage when factors were last computed.
    pub fn raw_usage_at_last_tick(&self, id: AssociationId) -> f64 {
        self.at_last_tick[id.index()].value()
    }

    /// Raw usage of all associations when factors were last computed, by index.
    pub fn all_at_last_tick(&self) -> Vec<f64> {
        self.at_last_tick
            .iter()
            .map(|units| units.value())
            .collect()
    }

    /// Raw usage of a QOS. That of one with `NoDecay` is not faded.
    pub fn raw_usage_of_qos(&self, qos: &str) -> f64 {
        self.qos.get(qos).map_or(0.0, |units| units.value())
    }

    /// What the running jobs may still use (`TRESRunMins`), in TRES × minutes, where their limits are known.
    pub fn tres_run_minutes(&self, id: AssociationId) -> BTreeMap<String, f64> {
        self.tres_run_seconds[id.index()]
            .iter()
            .map(|(name, seconds)| (name.clone(), seconds / 60.0))
            .collect()
    }

    /// What this association itself was charged a second, on average over the recent time; nothing below it.
    pub fn recent_rate(&self, id: AssociationId) -> f64 {
        self.recent[id.index()].value() / self.as_of.saturating_sub(self.recent_from).max(1) as f64
    }

    /// Where the recent time begins.
    pub fn recent_from(&self) -> i64 {
        self.recent_from
    }

    /// Runs that were charged to nobody.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Usage after more seconds in which each association is charged a constant rate. Ticks are taken for infinitely
    /// short, which is off by the seconds of one period at most.
    pub fn projected(
        &self,
        tree: &AssociationTree,
        table: &DecayTable,
        seconds: i64,
        rate: impl Fn(AssociationId) -> f64,
    ) -> Vec<f64> {
        let (left, sum) = (table.decay().over(seconds), table.decay().sum_over(seconds));
        let mut usage: Vec<f64> = vec![0.0; tree.len()];
        for id in tree.top_down().iter().rev() {
            let below: f64 = tree
                .children(*id)
                .iter()
                .map(|child| self.raw_usage(*child))
                .sum();
            let own = (self.raw_usage(*id) - below).max(0.0);
            usage[id.index()] += own * left + rate(*id) * sum;
            if let Some(parent) = tree.parent(*id) {
                usage[parent.index()] += usage[id.index()];
            }
        }
        usage
    }
}

/// Changes a value by name; a million runs have few names, and only a new one is copied.
fn add_to<T: Default>(values: &mut BTreeMap<String, T>, name: &str, change: impl FnOnce(&mut T)) {
    match values.get_mut(name) {
        Some(value) => change(value),
        None => change(values.entry(name.to_owned()).or_default()),
    }
}

/// A sum that no order changes: 2⁻⁷² of a billing unit-second each. Numbers of this size are exact from a billionth of
/// a unit-second up, and 10¹⁶ fit.
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
mod tests {
    use super::super::decay::{Decay, Ticks};
    use super::super::tree::tests::tree;
    use super::*;
    use takt_slurm::Qos;

    const HOUR: i64 = 3600;

    fn charged(
        tree: &AssociationTree,
        half_life: u32,
        runs: &[(&str, &str, i64, Option<i64>)],
    ) -> (DecayTable, Usage) {
        let table = DecayTable::new(
            Decay::new(half_life),
            &Ticks::every(60, 0, 0, 10 * HOUR),
            &[],
            10 * HOUR,
        );
        let keep = Qos {
            usage_factor: 1.0,
            no_decay: true,
        };
        let rates = Rates {
            partitions: [("p".into(), None)].into(),
            qos: [("keep".into(), keep)].into(),
            ..Rates::default()
        };
        let tres = Tres::parse("cpu=2").unwrap();
        let run = |&(account, user, start, end)| Run {
            account,
            user,
            partition: "p",
            qos: Some("keep"),
            start: Some(start),
            end,
            timelimit_seconds: Some(11 * 3600),
            tres: (user != "unseen").then_some(&tres),
        };
        let usage = usage(tree, &table, &rates, 5 * HOUR, runs.iter().map(run));
        (table, usage)
    }

    #[test]
    fn usage_climbs_and_what_cannot_be_charged_is_told() {
        let tree = tree("lab 1\n  @ann 1\n  @bob 1");
        let runs = [
            ("lab", "ann", 0, Some(HOUR)),
            ("lab", "gone", 0, Some(2 * HOUR)),
            ("lab", "bob", 9 * HOUR, None),
            ("lab", "bob", 11 * HOUR, None),
            ("lab", "unseen", 0, Some(HOUR)),
            ("closed", "ann", 0, Some(HOUR)),
        ];
        let (_, usage) = charged(&tree, 0, &runs);
        let [ann, bob] = ["ann", "bob"].map(|user| tree.of_user(user)[0]);
        let lab = tree.account("lab").unwrap();
        let hours = |id| usage.raw_usage(id) / 2.0 / HOUR as f64;
        assert_eq!(
            [ann, bob, lab, tree.root()].map(hours),
            [1.0, 1.0, 4.0, 4.0]
        );
        assert_eq!(
            usage.left_out(),
            LeftOut {
                account_unknown: 1,
                tres_unknown: 1
            }
        );
        assert_eq!(
            [ann, bob, lab].map(|id| usage.recent_rate(id)),
            [0.0, 2.0 / 5.0, 0.0]
        );
        assert_eq!(
            usage.tres_run_minutes(lab),
            [("cpu".to_owned(), 2.0 * 600.0)].into()
        );
    }

    #[test]
    fn a_qos_without_decay_keeps_what_its_associations_lose() {
        let tree = tree("lab 1\n  @ann 1");
        let (table, usage) = charged(&tree, 3600, &[("lab", "ann", 0, Some(HOUR))]);
        assert_eq!(usage.raw_usage_of_qos("keep"), 7200.0);
        assert_eq!(usage.raw_usage_of_qos("other"), 0.0);
        let left = usage.raw_usage(tree.root());
        assert!(left > 0.0 && left < 7200.0 / 500.0, "{left}");
        assert!(table.undecayed().decay() == Decay::new(0));
    }

    #[test]
    fn projected_usage_meets_what_the_runs_then_make() {
        let tree = tree("lab 1\n  @ann 1\n  @bob 1");
        let half_life = 8 * 3600;
        let (table, now) = charged(
            &tree,
            half_life,
            &[("lab", "ann", 0, Some(4 * HOUR)), ("lab", "bob", 0, None)],
        );
        let bob = tree.of_user("bob")[0];
        let projected = now.projected(
            &tree,
            &table,
            6 * HOUR,
            |id| if id == bob { 2.0 } else { 0.0 },
        );
        let decay = Decay::new(half_life);
        let later = DecayTable::new(decay, &Ticks::every(60, 0, 0, 16 * HOUR), &[], 16 * HOUR);
        let (ann, bob_then) = (
            2.0 * later.seconds(0, Some(4 * HOUR)).total(),
            2.0 * later.seconds(0, None).total(),
        );
        let close = |left: f64, right: f64| (left - right).abs() < 1e-3 * right;
        assert!(
            close(projected[tree.of_user("ann")[0].index()], ann),
            "{projected:?} {ann}"
        );
        assert!(
            close(projected[bob.index()], bob_then),
            "{projected:?} {bob_then}"
        );
        assert!(close(projected[tree.root().index()], ann + bob_then));
    }
}
