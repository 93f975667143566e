//! The evaluation of a group that is under way: its rules in order, and the end of its time.

use super::question::{Found, RuleAnswer, RuleQuestion, TimeLimit};
use super::{GroupRun, LastRun};
use crate::fingerprint::Fingerprint;
use crate::notify::shortened;
use crate::ports::{ExporterState, Query, SampleSink};
use crate::rules::Rule;
use crate::series::alert_series;
use crate::state::{EvalError, Reason, RuleKey, Step, Surroundings, Transition};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::{Labels, Timestamp};

/// Changes of an evaluation are handed on together, unless it takes longer than this.
const HANDED_AFTER: Duration = Duration::from_secs(1);

/// Shortest time between two log lines about results of a rule that have equal labels.
const TWIN_LOG_PAUSE: Duration = Duration::from_secs(3600);

/// Longest name of a node in the log, in characters.
const NODE_MAX: usize = 100;

/// How much longer than its interval an evaluation counts that ran out of time.
const JUST_OVER: Duration = Duration::from_millis(1);

/// Shares of its interval, in tenths, after which a group writes no more texts with queries, and asks no
/// more rules: the next evaluation has to begin in time.
const TEXT_TENTHS: u32 = 8;
const RULE_TENTHS: u32 = 9;

/// An evaluation that is under way.
#[derive(Debug)]
pub(super) struct Running {
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

/// The next rule, or the finished evaluation, after a rule's answer.
#[derive(Debug, Default)]
pub struct Progress {
    /// The group's next rule; `None` if the evaluation is finished.
    pub next: Option<RuleQuestion>,
    /// Changes to hand on: at the end of the evaluation, or of a part of it that took long.
    pub evaluation: Option<Evaluation>,
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
    /// Labels of results that were left out, because another result of their rule has the same. The rule works for all
    /// others, so this is no failure.
    pub twins: Vec<(RuleKey, Labels)>,
    /// Number of samples that could not be stored.
    pub unwritten: usize,
}

impl GroupRun {
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
            // The rules before have written their samples by now, so this one sees them.
            let answer = question.answer(query, around);
            let progress = self.answered(answer, around.exporter_state, sink);
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
        // In Instants: the clock of the machine may jump, and the time of a group must not.
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
        // The rule that is under way took the time; the others after it had none.
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
            // A rule that ran out of time before stays the one to report.
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

        // The order of texts matters only where they ask queries, which take time.
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
        exporter_state: &dyn Fn(&Labels) -> ExporterState,
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

        // The state first: its samples show what this evaluation decided.
        let series = answer.found.and_then(|found| match (rule, found) {
            (Rule::Alerting(rule), Found::Present(present)) => {
                if let Some(twin) = present.twin() {
                    log_twin(&run.key, twin, &mut run.twin_logged_at, at);
                    evaluation.twins.push((run.key.clone(), twin.clone()));
                }
                let limit = self.group.limit;
                let step =
                    run.instances
                        .step(&run.key, rule, limit, &present, exporter_state, at)?;
                evaluation.follow(&run.key, step);
                Ok((alert_series(&run.instances), present.failure()))
            }
            (_, Found::Recorded(series)) => Ok((series, None)),
            (Rule::Recording(_), Found::Present(_)) => Ok((Vec::new(), None)),
        });

        let error = match series {
            Ok((series, failure)) => {
                let samples = run.written.samples(series, at.minus(self.query_offset));
                // A store that refuses samples does not stop the rule: its alerts are sent all the same.
                evaluation.unwritten += sink.write(&samples).map_or(samples.len(), |()| 0);
                failure
            }
            Err(error) => {
                // As in Prometheus: with more alerts than the limit allows, the rule has none.
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
        // With its time used up, an error means that the time was too short.
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
            // The alerts of the first rules must not wait until a long evaluation has ended.
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

/// Logs that two results of a rule are one alert, at most once an hour. Of the labels, only the node is named: others name
/// users and jobs, and who reads the log may not see those.
fn log_twin(rule: &RuleKey, twin: &Labels, logged_at: &mut Option<Timestamp>, at: Timestamp) {
    if logged_at.is_some_and(|last| last <= at && at < last.plus(TWIN_LOG_PAUSE)) {
        return;
    }
    *logged_at = Some(at);
    let node = twin.get("node").or(twin.get("instance"));
    tracing::warn!(
        %rule,
        node = shortened(node.unwrap_or_default(), NODE_MAX),
        "series differ only in labels that the rule sets: they are one alert, and the first counts"
    );
}

impl Evaluation {
    pub(super) fn follow(&mut self, key: &RuleKey, step: Step) {
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
        self.twins.extend(later.twins);
        self.unwritten += later.unwritten;
    }
}
