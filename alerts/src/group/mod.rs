//! Evaluates a group of rules: in order, at one instant. Each rule sees the samples of the rules
//! before it.

mod evaluation;
mod question;

pub use evaluation::{Evaluation, Progress};
pub use question::{RuleAnswer, RuleQuestion};

use crate::fingerprint::Fingerprint;
use crate::rules::{Group, Rule, RuleFile};
use crate::schedule::Schedule;
use crate::series::WrittenSeries;
use crate::state::{Closing, Instance, Instances, Reason, RuleKey, Transition};
use evaluation::Running;
use std::sync::Arc;
use std::time::Duration;
use takt_model::Timestamp;

/// A group with the state of its rules.
#[derive(Debug)]
pub struct GroupRun {
    file: String,
    group: Arc<Group>,
    query_offset: Duration,
    rules: Vec<RuleRun>,
    /// Its evaluation times.
    pub schedule: Schedule,
    last: LastRun,
    running: Option<Running>,
    /// The rule at which the last evaluation ran out of time, and for how long it had been under way.
    cut: Option<(RuleKey, Duration)>,
    /// Evaluations since the start, and those that were due and skipped.
    pub counts: EvaluationCounts,
}

/// How often a group was evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Evaluations that began.
    pub begun: u64,
    /// Evaluations that were due and skipped: the one before was not finished.
    pub missed: u64,
}

/// The last evaluation of a group or a rule.
#[derive(Debug, Clone, Default)]
pub struct LastRun {
    /// When it was; `None` before the first.
    pub at: Option<Timestamp>,
    /// Its duration.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<String>,
}

/// One rule with its alerts, to show.
#[derive(Debug, Clone, Copy)]
pub struct RuleView<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Its alerts.
    pub instances: &'a Instances,
    /// Its last evaluation.
    pub last: &'a LastRun,
}

#[derive(Debug)]
struct RuleRun {
    key: RuleKey,
    instances: Instances,
    written: WrittenSeries,
    last: LastRun,
    /// When the log last said that results of the rule have equal labels.
    twin_logged_at: Option<Timestamp>,
}

/// The server's defaults for settings that a group leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Time from one evaluation to the next.
    pub interval: Duration,
    /// How far in the past expressions are evaluated.
    pub query_offset: Duration,
}

impl GroupRun {
    /// The groups of a file, none of them evaluated yet.
    pub fn of_file(file: &RuleFile, defaults: Defaults) -> Vec<Self> {
        file.groups
            .iter()
            .map(|group| Self::new(&file.name, group.clone(), defaults))
            .collect()
    }

    fn new(file: &str, group: Group, defaults: Defaults) -> Self {
        let names = group.rules.iter().map(Rule::name);
        let rules = RuleKey::of_group(file, &group.name, names)
            .into_iter()
            .map(|key| RuleRun {
                key,
                instances: Instances::default(),
                written: WrittenSeries::default(),
                last: LastRun::default(),
                twin_logged_at: None,
            })
            .collect();

        let schedule = Schedule::new(
            file,
            &group.name,
            group.interval.unwrap_or(defaults.interval),
        );
        let file = file.to_owned();
        let query_offset = group.query_offset.unwrap_or(defaults.query_offset);
        Self {
            file,
            query_offset,
            group: Arc::new(group),
            rules,
            schedule,
            last: LastRun::default(),
            running: None,
            cut: None,
            counts: EvaluationCounts::default(),
        }
    }

    /// The group's text in the rule file.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// File and name, as Prometheus' label `rule_group` has them.
    pub fn title(&self) -> String {
        format!("{};{}", self.file, self.group.name)
    }

    /// Time from one evaluation to the next.
    pub fn interval(&self) -> Duration {
        self.schedule.interval()
    }

    /// The rules' alerts, in the order of the rules.
    pub fn instances(&self) -> impl Iterator<Item = (&RuleKey, &Instances)> {
        self.rules.iter().map(|run| (&run.key, &run.instances))
    }

    /// The rules with their alerts and last evaluations, in their order.
    pub fn views(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.group
            .rules
            .iter()
            .zip(&self.rules)
            .map(|(rule, run)| RuleView {
                rule,
                instances: &run.instances,
                last: &run.last,
            })
    }

    /// The rules whose last evaluation failed.
    pub fn failing(&self) -> impl Iterator<Item = &RuleKey> {
        let failing = self.rules.iter().filter(|run| run.last.error.is_some());
        failing.map(|run| &run.key)
    }

    /// Its last evaluation.
    pub fn last(&self) -> &LastRun {
        &self.last
    }

    /// Takes over the state of this group from before a reload, rule by rule of the same key. The
    /// rest of `before` belongs to rules that no longer exist.
    pub fn take_over(&mut self, before: &mut GroupRun) {
        for run in &mut self.rules {
            if let Some(at) = before.rules.iter().position(|old| old.key == run.key) {
                let old = before.rules.swap_remove(at);
                (run.instances, run.written, run.last) = (old.instances, old.written, old.last);
            }
        }

        if (&self.file, &self.group.name) == (&before.file, &before.group.name) {
            self.schedule.go_on_from(&before.schedule);

            self.last = before.last.clone();
            self.counts = before.counts;
        }
    }

    /// Ends all alerts of a group that no longer exists.
    pub fn retire(mut self, at: Timestamp) -> Evaluation {
        let mut evaluation = Evaluation::default();
        for run in &mut self.rules {
            let step = run.instances.clear(&run.key, at, Reason::RuleRemoved);
            evaluation.follow(&run.key, step);
        }
        evaluation
    }

    /// Closes one alert by hand; `None` where no rule of this group has it active.
    pub fn close(
        &mut self,
        fingerprint: Fingerprint,
        closing: &Closing,
        at: Timestamp,
    ) -> Option<(Instance, Transition)> {
        self.rules
            .iter_mut()
            .find_map(|run| run.instances.close(&run.key, fingerprint, closing, at))
    }

    /// Restores a stored alert, and returns whether it is kept: see [`Instances::restore`]. `None` where it belongs to no
    /// rule of this group.
    pub fn restore(
        &mut self,
        key: &RuleKey,
        instance: &Instance,
        down_at: Timestamp,
        now: Timestamp,
    ) -> Option<bool> {
        for (run, rule) in self.rules.iter_mut().zip(&self.group.rules) {
            // A recording rule of that key has no alerts to restore.
            if let (true, Rule::Alerting(rule)) = (run.key == *key, rule) {
                return Some(run.instances.restore(rule, instance.clone(), down_at, now));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{ExporterState, Query};
    use crate::state::{State, Surroundings};
    use crate::testing::{Memory, parse_series};
    use takt_model::Labels;

    fn group(text: &str) -> GroupRun {
        let file = RuleFile::read("r.yml", text).unwrap();
        let defaults = Defaults {
            interval: Duration::from_secs(60),
            query_offset: Duration::ZERO,
        };
        GroupRun::of_file(&file, defaults).remove(0)
    }

    fn evaluate(group: &mut GroupRun, store: &Memory, minute: i64) -> Evaluation {
        let nothing = Labels::new();
        let around = Surroundings {
            query: None,
            until: None,
            external_labels: &nothing,
            external_url: "",
            exporter_state: &|_| ExporterState::Answers,
        };
        group.evaluate(Timestamp::from_seconds(minute * 60), store, store, &around)
    }

    fn minute() -> Duration {
        Duration::from_secs(60)
    }

    #[test]
    fn a_rule_sees_what_the_rule_before_it_wrote() {
        let store = Memory::default();

        store.load(minute(), "m{a=\"1\"}", "5x3");
        let mut group = group(
            "groups: [{name: g, labels: {team: gpu}, rules: [{record: double, expr: m}, {alert: A, \
             expr: double > 1}, {alert: B, expr: 'ALERTS{alertname=\"A\"}'}]}]",
        );

        let evaluation = evaluate(&mut group, &store, 0);
        let firing: Vec<_> = evaluation
            .transitions
            .iter()
            .map(|t| (t.rule.to_string(), t.labels.to_string()))
            .collect();

        assert_eq!(
            firing,
            [
                (
                    "r.yml:g/A".to_owned(),
                    r#"{a="1", alertname="A", team="gpu"}"#.to_owned()
                ),
                (
                    "r.yml:g/B".to_owned(),
                    r#"{a="1", alertname="B", alertstate="firing", team="gpu"}"#.to_owned()
                ),
            ]
        );

        assert_eq!(
            store
                .instant("ALERTS_FOR_STATE{alertname=\"A\"}", Timestamp(0))
                .unwrap()[0]
                .1,
            0.0
        );
    }

    #[test]
    fn a_series_that_is_gone_gets_an_end() {
        let store = Memory::default();
        store.load(minute(), "m", "5 5 stale");

        let mut group = group(
            "groups: [{name: g, rules: [{record: r, expr: m}, {alert: A, expr: m > 1, for: 1m}]}]",
        );
        evaluate(&mut group, &store, 0);

        let states = |minute: i64| {
            let at = Timestamp::from_seconds(minute * 60);
            let alerts = store.instant("ALERTS", at).unwrap();
            let words = alerts
                .iter()
                .filter_map(|(labels, _)| labels.get("alertstate").map(str::to_owned));
            (
                words.collect::<Vec<_>>(),
                store.instant("r", at).unwrap().len(),
            )
        };

        // The rule waits for a minute, then fires, then its series ends.
        assert_eq!(states(0), (vec!["pending".to_owned()], 1));
        evaluate(&mut group, &store, 1);
        assert_eq!(
            states(1),
            (vec!["firing".to_owned()], 1),
            "the pending series ended"
        );

        evaluate(&mut group, &store, 2);
        assert_eq!(states(2), (vec![], 0));
    }

    #[test]
    fn of_two_results_that_become_one_the_first_counts() {
        let store = Memory::default();

        store.load(minute(), "m{a=\"1\"}", "5x9");
        let mut group = group("groups: [{name: g, rules: [{alert: A, expr: m, labels: {a: x}}]}]");
        evaluate(&mut group, &store, 0);
        // Both get the label `a` of the rule, so their alerts are one.
        store.load(minute(), "m{a=\"2\"}", "_ 5");
        store.load(minute(), "m{b=\"3\"}", "_ 5");

        let evaluation = evaluate(&mut group, &store, 1);
        let twin = parse_series("{a=\"x\",alertname=\"A\"}");
        assert_eq!(evaluation.twins[0].1, twin);
        // The rule works for all others, so it is not in error.
        assert!(evaluation.failures.is_empty(), "{:?}", evaluation.failures);
        assert_eq!(group.failing().count(), 0);
        assert_eq!(
            group.rules[0].twin_logged_at,
            Some(Timestamp::from_seconds(60))
        );
        // The alert of another series begins all the same.
        let [begun] = &evaluation.transitions[..] else {
            panic!("{:?}", evaluation.transitions)
        };
        assert_eq!(begun.labels.get("b"), Some("3"));

        assert_eq!(
            group
                .instances()
                .next()
                .unwrap()
                .1
                .iter()
                .next()
                .unwrap()
                .1
                .state,
            State::Firing
        );
    }

    #[test]
    fn rules_of_one_name_keep_their_own_state_over_a_reload() {
        let text = "groups: [{name: g, rules: [{alert: A, expr: m > 1}, {alert: A, expr: m > 2}, \
             {alert: B, expr: m}]}]";
        let store = Memory::default();

        store.load(minute(), "m", "2x9");
        let mut before = group(text);
        evaluate(&mut before, &store, 0);

        // The two alike stay, the third rule is removed.
        let mut after =
            group("groups: [{name: g, rules: [{alert: A, expr: m > 1}, {alert: A, expr: m > 2}]}]");
        after.take_over(&mut before);

        let states: Vec<_> = after
            .instances()
            .map(|(key, all)| (key.to_string(), all.iter().len()))
            .collect();
        assert_eq!(
            states,
            [("r.yml:g/A".to_owned(), 1), ("r.yml:g/A#2".to_owned(), 0)]
        );

        let retired = before.retire(Timestamp(1));
        assert_eq!(retired.transitions.len(), 1, "B fired and is gone");
        assert_eq!(retired.transitions[0].reason, Reason::RuleRemoved);
    }
}
