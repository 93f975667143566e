//! Evaluates a group of rules: in order, at one instant. Each rule sees the samples of the rules
//! before it.

use crate::fingerprint::Fingerprint;
use crate::ports::{Query, Sample, SampleSink};
use crate::rules::{ALERT_NAME, Group, RecordingRule, Rule, RuleFile};
use crate::schedule::Schedule;
use crate::state::{
    Closing, EvalError, Instance, Instances, Reason, RuleKey, State, Surroundings, Transition,
};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, Instant};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// The series of active alerts.
pub const ALERTS: &str = "ALERTS";

/// The series with the time since when an alert is active.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// A group with the state of its rules.
#[derive(Debug)]
pub struct GroupRun {
    file: String,
    group: Group,
    query_offset: Duration,
    rules: Vec<RuleRun>,
    /// Its evaluation times.
    pub schedule: Schedule,
    last: LastRun,
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
    /// The series of the last evaluation, to end those that are missing in the next.
    written: BTreeSet<Labels>,
    last: LastRun,
}

/// The results of one evaluation of a group.
#[derive(Debug, Default)]
pub struct Evaluation {
    /// State changes, rule by rule.
    pub transitions: Vec<Transition>,
    /// Alerts to forget.
    pub forgotten: Vec<(RuleKey, Fingerprint)>,
    /// The rules that failed, and why.
    pub failures: Vec<(RuleKey, EvalError)>,
    /// Number of samples that could not be stored.
    pub unwritten: usize,
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
        let mut alike: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rules = Vec::with_capacity(group.rules.len());
        for rule in &group.rules {
            let nth = alike.entry(rule.name()).or_default();
            *nth += 1;
            let suffix = if *nth > 1 {
                format!("#{nth}")
            } else {
                String::new()
            };
            let key = RuleKey(format!("{file}:{}/{}{suffix}", group.name, rule.name()).into());
            rules.push(RuleRun {
                key,
                instances: Instances::default(),
                written: BTreeSet::new(),
                last: LastRun::default(),
            });
        }
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
            group,
            rules,
            schedule,
            last: LastRun::default(),
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
        self.schedule.go_on_from(&before.schedule);
        self.last = before.last.clone();
    }

    /// Ends all alerts of a group that no longer exists.
    pub fn retire(mut self, at: Timestamp) -> Evaluation {
        let mut evaluation = Evaluation::default();
        for run in &mut self.rules {
            let step = run.instances.clear(&run.key, at, Reason::RuleRemoved);
            evaluation.transitions.extend(step.transitions);
            evaluation.forgotten.extend(
                step.forgotten
                    .into_iter()
                    .map(|print| (run.key.clone(), print)),
            );
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

    /// Restores a stored alert; `false` where it belongs to no rule of this group.
    pub fn restore(
        &mut self,
        key: &RuleKey,
        instance: &Instance,
        down_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        for (run, rule) in self.rules.iter_mut().zip(&self.group.rules) {
            if let (true, Rule::Alerting(rule)) = (run.key == *key, rule) {
                run.instances.restore(rule, instance.clone(), down_at, now);
                return true;
            }
        }
        false
    }

    /// Evaluates all rules at the slot `at`.
    pub fn evaluate(
        &mut self,
        at: Timestamp,
        query: &dyn Query,
        sink: &dyn SampleSink,
        around: &Surroundings<'_>,
    ) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let sampled_at = at.minus(self.query_offset);
        let around = &Surroundings {
            query: Some(query),
            ..*around
        };
        let group_begun = Instant::now();
        for (run, rule) in self.rules.iter_mut().zip(&self.group.rules) {
            let begun = Instant::now();
            let result = query
                .instant(rule.expr(), sampled_at)
                .map_err(EvalError::from);
            let series = match (rule, result) {
                (_, Err(error)) => Err(error),
                (Rule::Recording(rule), Ok(result)) => recorded(rule, result, self.group.limit),
                (Rule::Alerting(rule), Ok(result)) => {
                    let step =
                        run.instances
                            .step(&run.key, rule, self.group.limit, &result, around, at);
                    step.map(|step| {
                        evaluation.transitions.extend(step.transitions);
                        evaluation.forgotten.extend(
                            step.forgotten
                                .into_iter()
                                .map(|print| (run.key.clone(), print)),
                        );
                        alert_series(&run.instances)
                    })
                }
            };
            let error = series
                .as_ref()
                .err()
                .map(|error| takt_model::error_chain(error));
            match series {
                Ok(series) => {
                    let samples = run.samples(series, sampled_at);
                    evaluation.unwritten += sink.write(&samples).map_or(samples.len(), |()| 0);
                }
                Err(error) => {
                    if let EvalError::OverLimit { .. } = error {
                        let step = run.instances.clear(&run.key, at, Reason::OverLimit);
                        evaluation.transitions.extend(step.transitions);
                        evaluation.forgotten.extend(
                            step.forgotten
                                .into_iter()
                                .map(|print| (run.key.clone(), print)),
                        );
                    }
                    evaluation.failures.push((run.key.clone(), error));
                }
            }
            run.last = LastRun {
                at: Some(at),
                took: begun.elapsed(),
                error,
            };
        }
        self.last = LastRun {
            at: Some(at),
            took: group_begun.elapsed(),
            error: None,
        };
        evaluation
    }
}

impl RuleRun {
    /// The samples to write, with an end mark for each series of the last evaluation that is
    /// missing now.
    fn samples(&mut self, series: Vec<(Labels, f64)>, at: Timestamp) -> Vec<Sample> {
        let now: BTreeSet<Labels> = series.iter().map(|(labels, _)| labels.clone()).collect();
        let before = mem::replace(&mut self.written, now);
        let ended = before
            .difference(&self.written)
            .map(|labels| Sample {
                labels: labels.clone(),
                at,
                value: None,
            })
            .collect::<Vec<_>>();
        series
            .into_iter()
            .map(|(labels, value)| Sample {
                labels,
                at,
                value: Some(value),
            })
            .chain(ended)
            .collect()
    }
}

fn recorded(
    rule: &RecordingRule,
    result: Vec<(Labels, f64)>,
    limit: usize,
) -> Result<Vec<(Labels, f64)>, EvalError> {
    if limit > 0 && result.len() > limit {
        return Err(EvalError::OverLimit {
            limit,
            count: result.len(),
        });
    }
    let mut seen = BTreeSet::new();
    let mut series = Vec::with_capacity(result.len());
    for (mut labels, value) in result {
        labels.set(METRIC_NAME, &rule.name);
        rule.labels
            .iter()
            .for_each(|(name, value)| labels.set(name, value));
        if !seen.insert(labels.clone()) {
            return Err(EvalError::SameLabels(labels));
        }
        series.push((labels, value));
    }
    Ok(series)
}

/// `ALERTS` and `ALERTS_FOR_STATE` of all active alerts. An unknown alert keeps its state.
fn alert_series(instances: &Instances) -> Vec<(Labels, f64)> {
    instances
        .iter()
        .filter(|(_, instance)| instance.state != State::Inactive)
        .flat_map(|(_, instance)| {
            let mut alerts = instance.labels.clone();
            alerts.set(METRIC_NAME, ALERTS);
            alerts.set("alertstate", instance.state.as_str());
            let mut since = instance.labels.clone();
            since.set(METRIC_NAME, ALERTS_FOR_STATE);
            debug_assert!(since.get(ALERT_NAME).is_some());
            [
                (alerts, 1.0),
                (since, instance.active_at.whole_seconds().0 as f64),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Memory, parse_series};

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
            external_labels: &nothing,
            external_url: "",
            exporter_down: &|_| false,
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
    fn two_results_that_become_one_leave_the_state_alone() {
        let store = Memory::default();
        store.load(minute(), "m{a=\"1\"}", "5x9");
        let mut group = group("groups: [{name: g, rules: [{alert: A, expr: m, labels: {a: x}}]}]");
        evaluate(&mut group, &store, 0);
        store.load(minute(), "m{a=\"2\"}", "_ 5");
        let evaluation = evaluate(&mut group, &store, 1);
        assert_eq!(
            evaluation.failures[0].1,
            EvalError::SameLabels(parse_series("{a=\"x\",alertname=\"A\"}"))
        );
        assert!(evaluation.transitions.is_empty());
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
