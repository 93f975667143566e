//! Evaluates a group of rules: in order, at one instant. Each rule sees the samples of the rules
//! before it.

use crate::fingerprint::Fingerprint;
use crate::ports::{Query, Sample, SampleSink, UntilQuery};
use crate::rules::{ALERT_NAME, Group, RecordingRule, Rule, RuleFile};
use crate::schedule::Schedule;
use crate::state::{
    Closing, EvalError, Instance, Instances, Present, Reason, RuleKey, State, Step, Surroundings,
    Transition,
};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// The series of active alerts.
pub const ALERTS: &str = "ALERTS";

/// Changes of an evaluation are handed on together, unless it takes longer than this.
const HANDED_AFTER: Duration = Duration::from_secs(1);

/// How much longer than its interval an evaluation counts that ran out of time.
const JUST_OVER: Duration = Duration::from_millis(1);

/// The series with the time since when an alert is active.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// Shares of its interval, in tenths, after which a group writes no more texts with queries, and asks no
/// more rules: the next evaluation has to begin in time.
const TEXT_TENTHS: u32 = 8;
const RULE_TENTHS: u32 = 9;

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

/// An evaluation that is under way.
#[derive(Debug)]
struct Running {
    number: u64,
    at: Timestamp,
    begun: Instant,
    /// The rule whose answer is waited for, and since when.
    rule: usize,
    rule_begun: Instant,
    /// When changes were last handed on, and those since then.
    handed_at: Instant,
    evaluation: Evaluation,
    limit: Option<TimeLimit>,
    /// The first rule that ran out of time.
    cut: Option<(RuleKey, Duration)>,
}

/// When an evaluation runs out of time.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    /// For texts with queries.
    texts: Instant,
    /// For rules.
    rules: Instant,
}

/// How often a group was evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Evaluations that began.
    pub begun: u64,
    /// Evaluations that were due and skipped: the one before was not finished.
    pub missed: u64,
}

/// A rule to evaluate: everything that its expression and its templates need, without the state of
/// its alerts. So it can be answered on any thread.
#[derive(Debug)]
pub struct RuleQuestion {
    /// Number of the evaluation.
    pub evaluation: u64,
    group: Arc<Group>,
    rule: usize,
    at: Timestamp,
    sampled_at: Timestamp,
    /// Alerts with all their texts; empty for a rule whose texts need no query.
    written: BTreeSet<Fingerprint>,
    limit: Option<TimeLimit>,
}

/// The answer to a [`RuleQuestion`].
#[derive(Debug)]
pub struct RuleAnswer {
    /// Number of the evaluation.
    pub evaluation: u64,
    rule: usize,
    found: Result<Found, EvalError>,
    took: Duration,
}

#[derive(Debug)]
enum Found {
    /// Series of a recording rule.
    Recorded(Vec<(Labels, f64)>),
    /// Alerts of an alerting rule.
    Present(Present),
}

/// The next rule, or the finished evaluation, after a rule's answer.
#[derive(Debug, Default)]
pub struct Progress {
    /// The group's next rule; `None` if the evaluation is finished.
    pub next: Option<RuleQuestion>,
    /// Changes to hand on: at the end of the evaluation, or of a part of it that took long.
    pub evaluation: Option<Evaluation>,
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

    /// Evaluates all rules at the slot `at`, on the caller's thread.
    pub fn evaluate(
        &mut self,
        at: Timestamp,
        query: &dyn Query,
        sink: &dyn SampleSink,
        around: &Surroundings<'_>,
    ) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let mut next = self.begin(0, at, None);
        while let Some(question) = next {
            let answer = question.answer(query, around);
            let progress = self.answered(answer, around.exporter_down, sink);
            evaluation.then(progress.evaluation.unwrap_or_default());
            next = progress.next;
        }
        evaluation
    }

    /// The number of the evaluation under way.
    pub fn evaluation(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.number)
    }

    /// The rule at which the last evaluation ran out of time, and for how long it had been under way.
    pub fn cut_at(&self) -> Option<(&RuleKey, Duration)> {
        self.cut.as_ref().map(|(rule, took)| (rule, *took))
    }

    /// Duration of the last evaluation, or of the one under way if it takes longer already.
    pub fn took(&self) -> Duration {
        let so_far = self.running.as_ref().map(|running| running.begun.elapsed());
        so_far.unwrap_or_default().max(self.last.took)
    }

    /// Whether the group takes longer than its interval.
    pub fn overruns(&self) -> bool {
        self.took() > self.interval()
    }

    /// The rule that took longest in its last evaluation, or takes longest now.
    pub fn slowest(&self) -> Option<(&RuleKey, Duration)> {
        let waited = self.running.as_ref().and_then(|running| {
            let run = self.rules.get(running.rule)?;
            Some((&run.key, running.rule_begun.elapsed()))
        });
        let last = self.rules.iter().map(|run| (&run.key, run.last.took));
        last.chain(waited).max_by_key(|(_, took)| *took)
    }

    /// Begins the evaluation with this number at the slot `at`; with an `interval`, it ends before that
    /// is over. The changes of an evaluation that was under way have to be taken first: see
    /// [`GroupRun::abandon`] and [`GroupRun::cut`].
    pub fn begin(
        &mut self,
        number: u64,
        at: Timestamp,
        interval: Option<Duration>,
    ) -> Option<RuleQuestion> {
        let begun = Instant::now();
        let limit = interval.map(|interval| TimeLimit {
            texts: begun + interval * TEXT_TENTHS / 10,
            rules: begun + interval * RULE_TENTHS / 10,
        });
        self.counts.begun += 1;
        self.running = Some(Running {
            number,
            at,
            begun,
            rule: 0,
            rule_begun: begun,
            handed_at: begun,
            evaluation: Evaluation::default(),
            limit,
            cut: None,
        });
        let first = self.question();
        if first.is_none() {
            // A group without rules is finished at once.
            self.running = None;
        }
        first
    }

    /// Ends the evaluation under way, and returns its changes so far.
    pub fn abandon(&mut self) -> Option<Evaluation> {
        self.running.take().map(|running| running.evaluation)
    }

    /// Ends the evaluation under way, because the group has no time left. The rules that were not
    /// evaluated keep their alerts, and fail.
    pub fn cut(&mut self) -> Option<Evaluation> {
        let running = self.running.as_mut()?;
        let rule_took = running.rule_begun.elapsed();
        for (nth, run) in self.rules.iter_mut().enumerate().skip(running.rule) {
            let error = EvalError::NoTime;
            run.last = LastRun {
                at: Some(running.at),
                took: if nth == running.rule {
                    rule_took
                } else {
                    Duration::ZERO
                },
                error: Some(error.to_string()),
            };
            running.evaluation.failures.push((run.key.clone(), error));
        }
        if let Some(run) = self.rules.get(running.rule) {
            let at = (run.key.clone(), running.begun.elapsed());
            running.cut.get_or_insert(at);
        }
        self.finish()
    }

    /// Ends the evaluation under way, and returns its changes.
    fn finish(&mut self) -> Option<Evaluation> {
        let running = self.running.take()?;
        // One that ran out of time counts as longer than the interval, however early it gave up.
        let least = running.cut.as_ref().map(|_| self.interval() + JUST_OVER);
        self.last = LastRun {
            at: Some(running.at),
            took: running.begun.elapsed().max(least.unwrap_or_default()),
            error: None,
        };
        self.cut = running.cut;
        Some(running.evaluation)
    }

    fn question(&self) -> Option<RuleQuestion> {
        let running = self.running.as_ref()?;
        let rule = self.group.rules.get(running.rule)?;
        let asks = match rule {
            Rule::Alerting(rule) => rule.asks(),
            Rule::Recording(_) => false,
        };
        let written = asks.then(|| self.rules[running.rule].instances.written());
        Some(RuleQuestion {
            evaluation: running.number,
            group: Arc::clone(&self.group),
            rule: running.rule,
            at: running.at,
            sampled_at: running.at.minus(self.query_offset),
            written: written.unwrap_or_default(),
            limit: running.limit,
        })
    }

    /// Takes the answer of the rule that is waited for. Does nothing with any other answer.
    pub fn answered(
        &mut self,
        answer: RuleAnswer,
        exporter_down: &dyn Fn(&Labels) -> bool,
        sink: &dyn SampleSink,
    ) -> Progress {
        let Some(running) = &mut self.running else {
            return Progress::default();
        };
        if (answer.evaluation, answer.rule) != (running.number, running.rule) {
            return Progress::default();
        }

        let run = &mut self.rules[running.rule];
        let rule = &self.group.rules[running.rule];
        let evaluation = &mut running.evaluation;
        let at = running.at;
        let series = answer.found.and_then(|found| match (rule, found) {
            (Rule::Alerting(rule), Found::Present(present)) => {
                let limit = self.group.limit;
                let step =
                    run.instances
                        .step(&run.key, rule, limit, &present, exporter_down, at)?;
                evaluation.follow(&run.key, step);
                let unwritten = present.unwritten();
                Ok((alert_series(&run.instances), unwritten))
            }
            (_, Found::Recorded(series)) => Ok((series, None)),
            (Rule::Recording(_), Found::Present(_)) => Ok((Vec::new(), None)),
        });
        let error = match series {
            Ok((series, unwritten)) => {
                let samples = run.samples(series, at.minus(self.query_offset));
                evaluation.unwritten += sink.write(&samples).map_or(samples.len(), |()| 0);
                unwritten
            }
            Err(error) => {
                if let EvalError::OverLimit { .. } = error {
                    let step = run.instances.clear(&run.key, at, Reason::OverLimit);
                    evaluation.follow(&run.key, step);
                }
                Some(error)
            }
        };
        run.last = LastRun {
            at: Some(at),
            took: answer.took,
            error: error.as_ref().map(|error| takt_model::error_chain(error)),
        };
        let is_over = running
            .limit
            .is_some_and(|limit| limit.texts <= Instant::now());
        if error.is_some() && is_over {
            let at = (run.key.clone(), running.begun.elapsed());
            running.cut.get_or_insert(at);
        }
        evaluation
            .failures
            .extend(error.map(|error| (run.key.clone(), error)));

        running.rule += 1;
        running.rule_begun = Instant::now();
        self.progress()
    }

    /// The next question, and the changes that are to be handed on.
    fn progress(&mut self) -> Progress {
        let limit = self.running.as_ref().and_then(|running| running.limit);
        let is_over = limit.is_some_and(|limit| limit.rules <= Instant::now());
        if is_over && self.question().is_some() {
            return Progress {
                next: None,
                evaluation: self.cut(),
            };
        }
        if let Some(next) = self.question() {
            let long = self
                .running
                .as_mut()
                .filter(|running| running.handed_at.elapsed() > HANDED_AFTER);
            let evaluation = long.map(|running| {
                running.handed_at = Instant::now();
                mem::take(&mut running.evaluation)
            });
            return Progress {
                next: Some(next),
                evaluation,
            };
        }

        Progress {
            next: None,
            evaluation: self.finish(),
        }
    }
}

impl Evaluation {
    fn follow(&mut self, key: &RuleKey, step: Step) {
        self.transitions.extend(step.transitions);
        let forgotten = step.forgotten.into_iter();
        self.forgotten
            .extend(forgotten.map(|print| (key.clone(), print)));
    }

    /// Adds the changes of a later part of the evaluation.
    fn then(&mut self, later: Self) {
        self.transitions.extend(later.transitions);
        self.forgotten.extend(later.forgotten);
        self.failures.extend(later.failures);
        self.unwritten += later.unwritten;
    }
}

impl RuleQuestion {
    /// Evaluates the rule.
    pub fn answer(&self, query: &dyn Query, around: &Surroundings<'_>) -> RuleAnswer {
        let begun = Instant::now();
        let found = self.found(query, around);
        RuleAnswer {
            evaluation: self.evaluation,
            rule: self.rule,
            found,
            took: begun.elapsed(),
        }
    }

    /// The answer that the evaluation failed.
    pub fn failed(&self, error: EvalError) -> RuleAnswer {
        RuleAnswer {
            evaluation: self.evaluation,
            rule: self.rule,
            found: Err(error),
            took: Duration::ZERO,
        }
    }

    fn found(&self, query: &dyn Query, around: &Surroundings<'_>) -> Result<Found, EvalError> {
        let rule = &self.group.rules[self.rule];
        let limited = self.limit.map(|limit| UntilQuery {
            query,
            until: limit.rules,
        });
        let query = limited
            .as_ref()
            .map_or(query, |limited| limited as &dyn Query);
        if self
            .limit
            .is_some_and(|limit| limit.rules <= Instant::now())
        {
            return Err(EvalError::NoTime);
        }
        let result = query.instant(rule.expr(), self.sampled_at)?;
        match rule {
            Rule::Recording(rule) => recorded(rule, result, self.group.limit).map(Found::Recorded),
            Rule::Alerting(rule) => {
                let around = Surroundings {
                    query: Some(query),
                    until: self.limit.map(|limit| limit.texts),
                    ..*around
                };
                Present::of(rule, &result, &around, &self.written, self.at).map(Found::Present)
            }
        }
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
            until: None,
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
