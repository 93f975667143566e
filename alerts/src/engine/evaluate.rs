//! Evaluation of rules: each group in its own time, and none on the thread that owns the engine.
//!
//! [`Engine::begin`] returns the first rules of the groups that are due. Each is answered on any
//! thread ([`RuleTask::run`]), and its answer gives the next rule of its group
//! ([`Engine::evaluated`]). So a group's rules are evaluated in order, a slow group delays no other
//! one, and all state stays with the owner. A group that takes most of its interval is cut: its other
//! rules fail, and the next evaluation begins in time.

use super::{Batch, Engine, Report, Server};
use crate::events::{EndAnswers, EndTask};
use crate::fingerprint::Fingerprint;
use crate::group::{Evaluation, GroupRun, RuleAnswer, RuleQuestion};
use crate::ports::{ExporterState, ExporterStates, Query, SampleSink};
use crate::state::{EvalError, Instance, State, Surroundings, Transition};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// A group whose last evaluation took more than this share of its interval is slow.
const SLOW_SHARE: u32 = 4;

/// A rule to evaluate.
pub struct RuleTask {
    question: RuleQuestion,
    at: Timestamp,
    watched_since: Timestamp,
    server: Arc<Server>,
    /// The states of exporters, once the group's first rule has asked.
    exporters: Option<ExporterStates>,
    /// Whether the group took long lately: it must not occupy threads that others need.
    pub is_slow: bool,
}

/// The result of a [`RuleTask`].
pub struct RuleOutcome {
    answer: RuleAnswer,
    at: Timestamp,
    watched_since: Timestamp,
    /// The states of exporters; `None` if the evaluation ended early.
    exporters: Option<ExporterStates>,
}

/// The next rule and the changes after a [`RuleOutcome`].
#[derive(Debug, Default)]
pub struct RuleStep {
    /// The next rule of the group.
    pub next: Option<RuleTask>,
    /// Changes to commit.
    pub batch: Batch,
    /// Failures and counts.
    pub report: Report,
}

/// A group that ran out of time in its last evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    /// File and name of the group: `FILE;GROUP`.
    pub group: String,
    /// The rule that was being evaluated then.
    pub rule: String,
    /// How long the evaluation had been under way.
    pub took: Duration,
    /// Interval of the group.
    pub interval: Duration,
}

impl RuleTask {
    /// Evaluates the rule. `exporter_states` returns the states of exporters at an instant: a
    /// group is evaluated a little in the past, when series that are back now may still have been
    /// missing. Its second argument is the time since when Takt sees its targets without a gap.
    pub fn run(
        self,
        query: &dyn Query,
        exporter_states: &dyn Fn(Timestamp, Timestamp) -> ExporterStates,
    ) -> RuleOutcome {
        let Self {
            at, watched_since, ..
        } = self;

        // All rules of a group see the same exporters, however long the group takes.
        let exporters = self
            .exporters
            .unwrap_or_else(|| exporter_states(at, watched_since));

        let around = Surroundings {
            query: None,
            until: None,
            external_labels: &self.server.external_labels,
            external_url: &self.server.settings.external_url,
            exporter_state: &*exporters,
        };

        RuleOutcome {
            answer: self.question.answer(query, &around),
            at,
            watched_since,
            exporters: Some(exporters),
        }
    }

    /// The outcome of this rule if its evaluation fails.
    pub fn failure(&self, error: EvalError) -> RuleOutcome {
        RuleOutcome {
            answer: self.question.failed(error),
            at: self.at,
            watched_since: self.watched_since,
            exporters: None,
        }
    }
}

impl fmt::Debug for RuleTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleTask").field(&self.question).finish()
    }
}

impl Engine {
    /// Begins the evaluations that are due, and counts those that are skipped. One that is still under
    /// way ends: the batch has its changes.
    pub fn begin(&mut self, now: Timestamp) -> (Vec<RuleTask>, Batch, Report) {
        let watched_since = self.watched.since(now);
        let mut report = Report::default();
        let mut batch = Batch::default();
        let mut tasks = Vec::new();

        // `conclude` needs the whole engine, so the groups are taken out of it meanwhile.
        let mut groups = mem::take(&mut self.groups);
        for group in &mut groups {
            let Some(due) = group.schedule.due(now) else {
                continue;
            };

            group.counts.missed += due.missed;
            report.missed += due.missed;

            // The next slot has come and a rule has not answered: the rest of the group's rules fail.
            if let Some(evaluation) = group.cut() {
                let cut = self.conclude(group, evaluation, now);
                batch = batch.then(cut.batch);
                report.add(cut.report);
            }

            self.evaluations += 1;
            report.groups += 1;
            let interval = Some(group.interval());
            if let Some(question) = group.begin(self.evaluations, due.at, interval) {
                tasks.push(RuleTask {
                    question,
                    at: due.at,
                    watched_since,
                    server: Arc::clone(&self.server),
                    exporters: None,
                    is_slow: is_slow(group),
                });
            }
        }

        self.groups = groups;
        (tasks, batch, report)
    }

    /// Takes the outcome of a rule. One of an evaluation that a reload ended changes nothing.
    pub fn evaluated(
        &mut self,
        outcome: RuleOutcome,
        sink: &dyn SampleSink,
        now: Timestamp,
    ) -> RuleStep {
        let RuleOutcome {
            answer,
            at,
            watched_since,
            exporters,
        } = outcome;

        // The number is unique over all groups and reloads, so a late answer finds no group.
        let number = Some(answer.evaluation);
        let Some(index) = self
            .groups
            .iter()
            .position(|group| group.evaluation() == number)
        else {
            return RuleStep::default();
        };

        let mut groups = mem::take(&mut self.groups);
        let group = &mut groups[index];
        // Without an answer nothing is known of any exporter, and no alert may end for that.
        let unknown = |_: &Labels| ExporterState::Down;
        let exporter_state: &dyn Fn(&Labels) -> ExporterState = match &exporters {
            Some(exporters) => &**exporters,
            None => &unknown,
        };
        let progress = group.answered(answer, exporter_state, sink);
        let mut step = RuleStep::default();

        if let Some(evaluation) = progress.evaluation {
            step = self.conclude(group, evaluation, now);
        }

        // Only a whole evaluation has a duration to report, not a part that was handed on early.
        if progress.next.is_none() {
            step.report.took = group.last().took;
        }

        step.next = progress.next.map(|question| RuleTask {
            question,
            at,
            watched_since,
            server: Arc::clone(&self.server),
            // The rule asks again if the one before it ended early.
            exporters,
            is_slow: is_slow(group),
        });

        self.groups = groups;
        step
    }

    /// The groups that ran out of time in their last evaluation.
    pub fn overruns(&self) -> Vec<Overrun> {
        let overrun = |group: &GroupRun| {
            let (rule, took) = group.cut_at()?;
            Some(Overrun {
                group: group.title(),
                rule: rule.to_string(),
                took,
                interval: group.interval(),
            })
        };
        self.groups.iter().filter_map(overrun).collect()
    }

    /// The end conditions of events' alerts to ask now.
    pub fn end_conditions(&self, now: Timestamp) -> Option<EndTask> {
        self.events.end_conditions(now)
    }

    /// Ends the alerts of events whose end has come, by time or by the answers to
    /// [`Engine::end_conditions`], and the flapping of alerts. Writes the series of those that fire.
    pub fn end(
        &mut self,
        answers: EndAnswers,
        sink: &dyn SampleSink,
        now: Timestamp,
    ) -> (Batch, Report) {
        let mut change = self.events.end(answers, now);
        let failures = mem::take(&mut change.failures);
        let batch = self.event_changed(change, now);
        let settled = self.settle(now);

        // After the ends, so that an alert that has just ended gets its stale marker with this write.
        let interval = self.server.defaults.interval;
        let samples = self.event_series.samples(&self.events, interval, now);
        let unwritten = sink.write(&samples).map_or(samples.len(), |()| 0);
        let report = Report {
            failures,
            unwritten,
            ..Report::default()
        };
        (batch.then(settled), report)
    }

    /// Evaluates the groups that are due, and ends alerts of events, on the caller's thread.
    pub fn evaluate(
        &mut self,
        query: &dyn Query,
        sink: &dyn SampleSink,
        exporter_states: &dyn Fn(Timestamp, Timestamp) -> ExporterStates,
        now: Timestamp,
    ) -> (Batch, Report) {
        let (tasks, mut batch, mut report) = self.begin(now);

        // A rule sees the samples of the rules before it, so each is asked only after the last answer.
        for task in tasks {
            let mut next = Some(task);
            while let Some(task) = next {
                let step = self.evaluated(task.run(query, exporter_states), sink, now);
                batch = batch.then(step.batch);
                report.add(step.report);
                next = step.next;
            }
        }

        let asked = self.end_conditions(now).map(|task| task.run(query));
        let (ended, failures) = self.end(asked.unwrap_or_default(), sink, now);
        report.add(failures);
        (batch.then(ended), report)
    }

    /// Hands on the changes of evaluations under way, and ends these.
    pub(super) fn abandon_evaluations(&mut self, now: Timestamp) -> Batch {
        let mut groups = mem::take(&mut self.groups);
        let mut batch = Batch::default();
        for group in &mut groups {
            if let Some(evaluation) = group.abandon() {
                batch = batch.then(self.conclude(group, evaluation, now).batch);
            }
        }
        self.groups = groups;
        batch
    }

    /// Hands the changes of a group's evaluation on to routing.
    fn conclude(
        &mut self,
        group: &GroupRun,
        mut evaluation: Evaluation,
        now: Timestamp,
    ) -> RuleStep {
        let mut step = RuleStep::default();

        step.report.unwritten = evaluation.unwritten;
        step.report.failures = mem::take(&mut evaluation.failures);

        // Only changed states are stored. Values and texts of the rest come with the next evaluation.
        let mut fires = Vec::with_capacity(evaluation.transitions.len());
        for Transition {
            rule, fingerprint, ..
        } in &evaluation.transitions
        {
            let mut rules = group.instances();
            let of_rule = rules.find(|(key, _)| *key == rule).map(|(_, all)| all);
            let instance = of_rule.and_then(|all| all.get(*fingerprint));

            let changed = instance.map(|instance| (rule.clone(), instance.clone()));
            step.batch.instances.extend(changed);
            fires.push(instance.filter(|instance| instance.state == State::Firing));
        }

        // All that fire, not only what changed: their texts have new values.
        let fired: Vec<(Fingerprint, &Instance)> = group
            .instances()
            .flat_map(|(_, all)| all.iter())
            .filter(|(_, instance)| instance.state == State::Firing)
            .collect();

        let followed = self.follow(evaluation, &fires, &fired, now);
        step.batch = step.batch.then(followed);
        step
    }
}

/// Whether a group takes much of its interval, now or the last time.
fn is_slow(group: &GroupRun) -> bool {
    group.took() * SLOW_SHARE > group.interval()
}
