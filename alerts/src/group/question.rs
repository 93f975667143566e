//! A rule that is evaluated apart from its group, on any thread.

use crate::fingerprint::Fingerprint;
use crate::ports::{Query, UntilQuery};
use crate::rules::{Group, RecordingRule, Rule};
use crate::state::{EvalError, Present, Surroundings};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// A rule to evaluate: everything that its expression and its templates need, without the state of
/// its alerts. So it can be answered on any thread.
#[derive(Debug)]
pub struct RuleQuestion {
    /// Number of the evaluation.
    pub evaluation: u64,
    pub(super) group: Arc<Group>,
    pub(super) rule: usize,
    pub(super) at: Timestamp,
    pub(super) sampled_at: Timestamp,
    /// Alerts with all their texts; empty for a rule whose texts need no query.
    pub(super) written: BTreeSet<Fingerprint>,
    pub(super) limit: Option<TimeLimit>,
}

/// The answer to a [`RuleQuestion`].
#[derive(Debug)]
pub struct RuleAnswer {
    /// Number of the evaluation.
    pub evaluation: u64,
    pub(super) rule: usize,
    pub(super) found: Result<Found, EvalError>,
    pub(super) took: Duration,
}

#[derive(Debug)]
pub(super) enum Found {
    /// Series of a recording rule.
    Recorded(Vec<(Labels, f64)>),
    /// Alerts of an alerting rule.
    Present(Present),
}

/// When an evaluation runs out of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimit {
    /// For texts with queries.
    pub(super) texts: Instant,
    /// For rules.
    pub(super) rules: Instant,
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
        // Queries of texts ask for the time too, each before it begins.
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
        // As in Prometheus, two samples of one series at one time fail the rule.
        if !seen.insert(labels.clone()) {
            return Err(EvalError::SameLabels(labels));
        }
        series.push((labels, value));
    }
    Ok(series)
}
