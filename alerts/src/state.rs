//! The life of an alert: pending, firing, resolved, and unknown while the exporter behind it is
//! down.
//!
//! Prometheus' state machine to the letter, with one addition: a series that is missing because its
//! exporter does not answer says nothing about the condition, so the alert is held instead of
//! resolved.

use crate::fingerprint::Fingerprint;
use crate::ports::{ExporterState, Query, QueryError};
use crate::rules::{ALERT_NAME, AlertingRule, OnExporterDown};
use crate::template::{Context, NOT_WRITTEN, TemplateBudget, templates_hash};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// How long a resolved alert is remembered.
pub const RESOLVED_RETENTION: Duration = Duration::from_secs(15 * 60);

/// The longest outage of Takt after which the time spent pending still counts.
pub const OUTAGE_TOLERANCE: Duration = Duration::from_secs(3600);

/// The least time an alert stays pending after a restart, if its rule's `for` is at least as long.
pub const FOR_GRACE_PERIOD: Duration = Duration::from_secs(600);

/// Which rule: file, group, name, and where several are alike their number. Survives restarts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleKey(pub Arc<str>);

impl RuleKey {
    /// The keys of a group's rules with these names, in their order. Of several rules with one name, each after the first has
    /// a number in its key, which keeps their alerts apart over restarts and reloads.
    pub(crate) fn of_group<'n>(
        file: &str,
        group: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Vec<Self> {
        let mut alike: BTreeMap<&str, usize> = BTreeMap::new();
        let mut keys = Vec::new();

        for name in names {
            let nth = alike.entry(name).or_default();
            *nth += 1;

            let key = match *nth {
                1 => format!("{file}:{group}/{name}"),
                nth => format!("{file}:{group}/{name}#{nth}"),
            };
            keys.push(Self(key.into()));
        }
        keys
    }
}

impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The condition does not hold.
    Inactive,
    /// The condition holds, but not for as long as `for` requires.
    Pending,
    /// The condition has held for as long as `for` requires.
    Firing,
    /// The exporter behind the series is down.
    Unknown,
}

impl State {
    /// The word, as in the label `alertstate`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Unknown => "unknown",
        }
    }
}

/// Why an alert went from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The condition began to hold.
    Breached,
    /// It held for as long as `for` requires (or the rule has no `for`).
    HeldLongEnough,
    /// The condition holds no longer.
    Cleared,
    /// `for` was made longer than the condition has held.
    RuleEdited,
    /// The exporter behind the series does not answer.
    ExporterDown,
    /// The exporter answers again.
    ExporterBack,
    /// The rule gave more alerts than its group's `limit` allows; all of them were dropped.
    OverLimit,
    /// The rule is no longer in the rule files.
    RuleRemoved,
    /// An event matched the rule.
    Event,
    /// The event's `hold` has passed, or its end condition came true.
    EventOver,
    /// Closed by hand.
    Closed,
}

/// The person who closed an alert by hand, and the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// The person.
    pub by: String,
    /// The person's reason.
    pub comment: String,
}

/// One step in the life of one alert, as it goes into the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// The rule.
    pub rule: RuleKey,
    /// The alert.
    pub fingerprint: Fingerprint,
    /// Its labels.
    pub labels: Labels,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// When, by the rule's evaluation.
    pub at: Timestamp,
    /// The last value of the expression.
    #[serde(with = "crate::finite")]
    pub value: f64,
    /// Why.
    pub reason: Reason,
    /// The person and the comment, if the reason is [`Reason::Closed`].
    #[serde(default)]
    pub closing: Option<Closing>,
}

impl Transition {
    /// The end of an alert whose rule is no longer in the rule files.
    pub(crate) fn rule_removed(
        rule: &RuleKey,
        labels: &Labels,
        from: State,
        value: f64,
        at: Timestamp,
    ) -> Self {
        Self {
            rule: rule.clone(),
            fingerprint: Fingerprint::of(labels),
            labels: labels.clone(),
            from,
            to: State::Inactive,
            at,
            value,
            reason: Reason::RuleRemoved,
            closing: None,
        }
    }
}

/// One alert of one rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Labels of the series without its name, then the rule's labels, then `alertname`. Never
    /// change.
    pub labels: Labels,
    /// Annotations of the last evaluation that gave the series.
    pub annotations: Vec<(String, String)>,
    /// [`templates_hash`] of the annotations' templates; `None` if an earlier version stored them.
    #[serde(default)]
    pub templates: Option<Fingerprint>,
    /// Inactive, pending or firing; see [`Instance::shown`] for unknown.
    pub state: State,
    /// The last value of the expression.
    #[serde(with = "crate::finite")]
    pub value: f64,
    /// Since when the condition holds.
    pub active_at: Timestamp,
    /// When it fired.
    pub fired_at: Option<Timestamp>,
    /// When it resolved.
    pub resolved_at: Option<Timestamp>,
    /// Since when only `keep_firing_for` keeps it.
    pub keep_firing_since: Option<Timestamp>,
    /// Since when its exporter is down.
    pub unknown_since: Option<Timestamp>,
    /// When it was closed by hand. It stays inactive until its condition has been false.
    #[serde(default)]
    pub closed_at: Option<Timestamp>,
}

impl Instance {
    fn pending(
        labels: Labels,
        annotations: Vec<(String, String)>,
        templates: Fingerprint,
        value: f64,
        at: Timestamp,
    ) -> Self {
        Self {
            labels,
            annotations,
            templates: Some(templates),
            state: State::Pending,
            value,
            active_at: at,
            fired_at: None,
            resolved_at: None,
            keep_firing_since: None,
            unknown_since: None,
            closed_at: None,
        }
    }

    /// Takes the texts of a new evaluation. A text that was not written leaves the earlier one.
    fn reword(&mut self, fresh: &Self) {
        let before = mem::replace(&mut self.annotations, fresh.annotations.clone());
        // With all texts written, the hash of their templates holds for all of them.
        if self.is_written() {
            self.templates = fresh.templates;
            return;
        }

        // The limits of templates cut this evaluation short: an old text is better than none.
        for (name, text) in &mut self.annotations {
            let earlier = before.iter().find(|(known, _)| known == name);
            if let Some((_, earlier)) = earlier.filter(|_| text == NOT_WRITTEN) {
                text.clone_from(earlier);
            }
        }
    }

    /// Whether no text is beyond the limits of templates.
    fn is_written(&self) -> bool {
        self.annotations.iter().all(|(_, text)| text != NOT_WRITTEN)
    }

    /// The end of this alert when its rule is no longer in the rule files; `None` if it is not active.
    pub fn rule_removed(&self, key: &RuleKey, at: Timestamp) -> Option<Transition> {
        let is_active = self.state != State::Inactive;
        is_active.then(|| Transition::rule_removed(key, &self.labels, self.shown(), self.value, at))
    }

    /// The state that people see.
    pub fn shown(&self) -> State {
        if self.unknown_since.is_some() {
            State::Unknown
        } else {
            self.state
        }
    }
}

/// Why the evaluation of a rule failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression could not be evaluated.
    #[error("the query failed")]
    Query(#[from] QueryError),
    /// Two results have equal labels once the rule's labels are set. Of an alerting rule, the first counts instead.
    #[error("two series have the same labels after the rule's labels are applied: {0}")]
    SameLabels(Labels),
    /// More results than the group allows.
    #[error("{count} results, more than the limit of {limit}")]
    OverLimit {
        /// The group's limit.
        limit: usize,
        /// The number of results.
        count: usize,
    },
    /// Labels of alerts were not computed: the alerts are unknown.
    #[error("templates of labels take too long, ask too many queries or write too much text")]
    LabelTemplates,
    /// Annotations of alerts were not computed. The alerts themselves are.
    #[error(
        "texts of {count} alerts are missing or old: the rule's templates take too long, ask too many \
         queries or write too much text"
    )]
    TextTemplates {
        /// The number of alerts.
        count: usize,
    },
    /// The group had no time left for the rule.
    #[error("not evaluated: the group of rules takes longer than its interval")]
    NoTime,
    /// The evaluation ended early: a defect of Takt.
    #[error("the evaluation panicked")]
    Panicked,
}

/// The inputs of an evaluation besides the rule and the result of its expression.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Answers the queries of templates.
    pub query: Option<&'a dyn Query>,
    /// When the texts of alerts have to be written, if there is a limit.
    pub until: Option<Instant>,
    /// The labels of this server.
    pub external_labels: &'a Labels,
    /// Address of this server.
    pub external_url: &'a str,
    /// The state of the exporter behind an alert with these labels.
    pub exporter_state: &'a dyn Fn(&Labels) -> ExporterState,
}

/// What one evaluation of a rule found: the alerts whose condition holds, as if they began now.
#[derive(Debug, Default)]
pub struct Present {
    alerts: BTreeMap<Fingerprint, Instance>,
    /// Alerts with texts beyond the limits of templates.
    unwritten: usize,
    /// Labels of results that were left out, because an earlier result has the same.
    twin: Option<Labels>,
}

/// All alerts of one rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instances(BTreeMap<Fingerprint, Instance>);

/// The changes of one evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// In the order of the alerts' fingerprints.
    pub transitions: Vec<Transition>,
    /// Resolved alerts that were forgotten, for the store to forget them too.
    pub forgotten: Vec<Fingerprint>,
}

impl Instances {
    /// One evaluation: the alerts whose condition holds and the clock are arguments. `exporter_state`
    /// is that of [`Surroundings`].
    ///
    /// # Errors
    /// Where there are more than `limit` (0 is no limit): the caller has to drop all alerts with
    /// [`Instances::clear`].
    pub fn step(
        &mut self,
        key: &RuleKey,
        rule: &AlertingRule,
        limit: usize,
        present: &Present,
        exporter_state: &dyn Fn(&Labels) -> ExporterState,
        at: Timestamp,
    ) -> Result<Step, EvalError> {
        let present = &present.alerts;

        let is_awaited = |labels: &Labels| exporter_state(labels) == ExporterState::Awaited;

        let mut step = Step::default();
        let mut begun = BTreeSet::new();
        for (fingerprint, fresh) in present {
            match self.0.entry(*fingerprint) {
                // An alert that was closed by hand stays closed while its condition holds.
                Entry::Occupied(mut known)
                    if known.get().state != State::Inactive || known.get().closed_at.is_some() =>
                {
                    let known = known.get_mut();
                    known.value = fresh.value;
                    known.reword(fresh);
                }
                // No alert begins by a sample from before a gap: its source is asked first.
                _ if is_awaited(&fresh.labels) => {}
                // A resolved alert is remembered for a while, and begins again here.
                Entry::Occupied(mut known) => {
                    known.insert(fresh.clone());
                    begun.insert(*fingerprint);
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(fresh.clone());
                    begun.insert(*fingerprint);
                }
            }
        }

        let mut active = 0;
        self.0.retain(|fingerprint, instance| {
            // Samples from before a gap neither end an alert nor let it fire, and neither does their absence.
            if is_awaited(&instance.labels) {
                active += usize::from(instance.state != State::Inactive);
                return true;
            }

            // An alert that begins now was inactive, whatever its new state is.
            let before = if begun.contains(fingerprint) {
                State::Inactive
            } else {
                instance.shown()
            };

            // A series that is here shows that its exporter answers; only a missing one is in doubt.
            let is_present = present.contains_key(fingerprint);
            let is_down = !is_present
                && rule.on_exporter_down == OnExporterDown::Hold
                && (instance.state != State::Inactive || instance.closed_at.is_some())
                && exporter_state(&instance.labels) == ExporterState::Down;

            let keep = instance.advance(rule, is_present, is_down, at);
            let after = if keep {
                instance.shown()
            } else {
                State::Inactive
            };

            if before != after {
                step.transitions.push(Transition {
                    rule: key.clone(),
                    fingerprint: *fingerprint,
                    labels: instance.labels.clone(),
                    from: before,
                    to: after,
                    at,
                    value: instance.value,
                    reason: reason(before, after),
                    closing: None,
                });
            }
            if !keep {
                step.forgotten.push(*fingerprint);
            }
            // Resolved alerts are remembered, but do not count towards the limit.
            active += usize::from(keep && instance.state != State::Inactive);
            keep
        });

        if limit > 0 && active > limit {
            return Err(EvalError::OverLimit {
                limit,
                count: active,
            });
        }
        Ok(step)
    }

    /// Drops all alerts, such as those of a rule that is gone or gave too many.
    pub fn clear(&mut self, key: &RuleKey, at: Timestamp, reason: Reason) -> Step {
        let mut step = Step::default();
        for (fingerprint, instance) in mem::take(&mut self.0) {
            step.forgotten.push(fingerprint);
            if instance.state != State::Inactive {
                step.transitions.push(Transition {
                    rule: key.clone(),
                    fingerprint,
                    from: instance.shown(),
                    to: State::Inactive,
                    at,
                    value: instance.value,
                    reason,
                    closing: None,
                    labels: instance.labels,
                });
            }
        }
        step
    }

    /// Closes one alert by hand; `None` where it is not active.
    pub fn close(
        &mut self,
        key: &RuleKey,
        fingerprint: Fingerprint,
        closing: &Closing,
        at: Timestamp,
    ) -> Option<(Instance, Transition)> {
        let instance = self.0.get_mut(&fingerprint)?;
        // A pending alert can be closed, too: it would fire later.
        if instance.state == State::Inactive {
            return None;
        }

        let transition = Transition {
            rule: key.clone(),
            fingerprint,
            labels: instance.labels.clone(),
            from: instance.shown(),
            to: State::Inactive,
            at,
            value: instance.value,
            reason: Reason::Closed,
            closing: Some(closing.clone()),
        };

        instance.state = State::Inactive;
        instance.resolved_at = Some(at);
        instance.closed_at = Some(at);
        instance.unknown_since = None;
        instance.keep_firing_since = None;
        Some((instance.clone(), transition))
    }

    /// Restores a stored alert. Takt went down at `down_at`; it is `now`. Returns whether the alert is kept: one that was
    /// pending before a long outage is not.
    pub fn restore(
        &mut self,
        rule: &AlertingRule,
        instance: Instance,
        down_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let Some(instance) = restored(instance, rule.hold, down_at, now) else {
            return false;
        };
        self.0.insert(Fingerprint::of(&instance.labels), instance);
        true
    }

    /// The alert of this identity.
    pub fn get(&self, fingerprint: Fingerprint) -> Option<&Instance> {
        self.0.get(&fingerprint)
    }

    /// The alerts with all their texts.
    pub fn written(&self) -> BTreeSet<Fingerprint> {
        let written = self.0.iter().filter(|(_, instance)| instance.is_written());
        written.map(|(fingerprint, _)| *fingerprint).collect()
    }

    /// All alerts, resolved ones that are still remembered among them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Fingerprint, &Instance)> {
        self.0
            .iter()
            .map(|(fingerprint, instance)| (*fingerprint, instance))
    }
}

impl Instance {
    /// One evaluation of one alert. Returns whether it is still worth remembering.
    fn advance(
        &mut self,
        rule: &AlertingRule,
        is_present: bool,
        is_down: bool,
        at: Timestamp,
    ) -> bool {
        if self.closed_at.is_some() {
            return is_present || is_down;
        }
        // The condition is unknown: neither its end nor the time of `for` counts.
        if is_down {
            self.unknown_since.get_or_insert(at);
            return true;
        }

        if let Some(since) = self.unknown_since.take() {
            self.shift_by(elapsed(since, at));
        }

        if is_present {
            self.keep_firing_since = None;
        } else if !self.is_kept_firing(rule.keep_firing_for, at) {
            return match self.state {
                // Firing alerts are remembered as resolved, so that the end can be shown for a while.
                State::Firing => {
                    (self.state, self.resolved_at) = (State::Inactive, Some(at));
                    true
                }
                State::Inactive => self
                    .resolved_at
                    .is_some_and(|since| elapsed(since, at) <= RESOLVED_RETENTION),
                // A pending alert that ends leaves nothing: it was never sent.
                _ => false,
            };
        }
        if self.state == State::Pending {
            // After the clock was set back, the time begins anew: it must not last until the clock
            // has come as far again.
            self.active_at = self.active_at.min(at);
        }

        let held = elapsed(self.active_at, at) >= rule.hold;
        // A clock before the beginning of the alert does not show that `for` was made longer.
        let is_later = self.fired_at.is_none_or(|fired| fired <= at);
        match self.state {
            State::Pending if held => (self.state, self.fired_at) = (State::Firing, Some(at)),
            // The rule was reloaded with a longer `for`.
            State::Firing if !held && is_later => {
                (self.state, self.fired_at) = (State::Pending, None);
            }
            _ => {}
        }
        true
    }

    fn is_kept_firing(&mut self, keep_firing_for: Duration, at: Timestamp) -> bool {
        if self.state != State::Firing || keep_firing_for.is_zero() {
            return false;
        }

        let since = self.keep_firing_since.get_or_insert(at);
        // As for `active_at` after the clock was set back.
        *since = (*since).min(at);
        elapsed(*since, at) < keep_firing_for
    }

    /// The time without data counts neither towards `for` nor towards `keep_firing_for`.
    fn shift_by(&mut self, gap: Duration) {
        if self.state == State::Pending {
            self.active_at = self.active_at.plus(gap);
        }
        self.keep_firing_since = self.keep_firing_since.map(|since| since.plus(gap));
    }
}

fn reason(from: State, to: State) -> Reason {
    // The order counts: an alert whose exporter is down is unknown from any state.
    match (from, to) {
        (_, State::Unknown) => Reason::ExporterDown,
        (State::Inactive, _) => Reason::Breached,
        (State::Firing, State::Pending) => Reason::RuleEdited,
        (State::Unknown, State::Pending | State::Firing) => Reason::ExporterBack,
        (_, State::Firing) => Reason::HeldLongEnough,
        _ => Reason::Cleared,
    }
}

pub(crate) fn elapsed(since: Timestamp, at: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(at.0.saturating_sub(since.0)).unwrap_or(0))
}

impl Present {
    /// The results of a rule's expression as alerts. Of results with equal labels, the first counts: a series that someone
    /// adds must neither end the rule's other alerts nor make the rule fail, as it does in Prometheus. `written` are the
    /// known alerts with all their texts: when the limits of templates do not suffice for all, the others come first.
    ///
    /// # Errors
    /// Where labels are beyond the limits of templates.
    pub fn of(
        rule: &AlertingRule,
        result: &[(Labels, f64)],
        around: &Surroundings<'_>,
        written: &BTreeSet<Fingerprint>,
        at: Timestamp,
    ) -> Result<Self, EvalError> {
        // One budget for all alerts of the rule: thousands of alerts share its time.
        let budget = TemplateBudget::new(around.query, around.until);
        let context = |series, value| Context {
            labels: series,
            external_labels: around.external_labels,
            external_url: around.external_url,
            value,
            query: None,
            at,
        };

        let templates = templates_hash(&rule.annotations);

        let mut present = Self::default();
        let mut found = Vec::with_capacity(result.len());
        for (series, value) in result {
            let mut labels = series.clone();
            // As in Prometheus: the name of the metric is no label of the alert.
            labels.remove(METRIC_NAME);
            for (name, template) in &rule.labels {
                let text = budget.expand(template, &context(series, *value));
                labels.set(name, &text.ok_or(EvalError::LabelTemplates)?);
            }
            // Last, so that neither the series nor the rule's labels can change it.
            labels.set(ALERT_NAME, &rule.name);

            let fingerprint = Fingerprint::of(&labels);
            if present.alerts.contains_key(&fingerprint) {
                present.twin = Some(labels);
                continue;
            }
            let instance = Instance::pending(labels, Vec::new(), templates, *value, at);
            present.alerts.insert(fingerprint, instance);
            found.push((written.contains(&fingerprint), fingerprint, series, *value));
        }

        // Alerts without a text come first, so that all get one over several evaluations.
        found.sort_by_key(|(is_written, ..)| *is_written);
        for (_, fingerprint, series, value) in found {
            let context = context(series, value);
            let texts = rule.annotations.iter().map(|(name, template)| {
                let text = budget.expand(template, &context);
                let text = text.unwrap_or(Cow::Borrowed(NOT_WRITTEN));
                (name.clone(), text.into_owned())
            });
            if let Some(instance) = present.alerts.get_mut(&fingerprint) {
                instance.annotations = texts.collect();
                present.unwritten += usize::from(!instance.is_written());
            }
        }
        Ok(present)
    }

    /// The error to report beside the alerts, if texts are beyond the limits of templates.
    pub fn failure(&self) -> Option<EvalError> {
        let count = self.unwritten;
        (count > 0).then_some(EvalError::TextTemplates { count })
    }

    /// The labels of a result that was left out, because an earlier one has the same.
    pub fn twin(&self) -> Option<&Labels> {
        self.twin.as_ref()
    }
}

/// The state of an alert after an outage of Takt.
fn restored(
    mut instance: Instance,
    hold: Duration,
    down_at: Timestamp,
    now: Timestamp,
) -> Option<Instance> {
    let gap = elapsed(down_at, now);
    match instance.state {
        // As in Prometheus: after a long outage the condition may have been false in between.
        State::Pending if gap > OUTAGE_TOLERANCE => return None,
        State::Pending => {
            let remaining = hold.saturating_sub(elapsed(instance.active_at, down_at));
            if remaining.is_zero() {
                // It would have fired at the next evaluation, and will.
            } else if hold >= FOR_GRACE_PERIOD && remaining < FOR_GRACE_PERIOD {
                // As in Prometheus: it waits ten minutes, in which exporters are scraped again.
                instance.active_at = now.plus(FOR_GRACE_PERIOD).minus(hold);
            } else {
                instance.active_at = instance.active_at.plus(gap);
            }
        }
        _ => instance.keep_firing_since = instance.keep_firing_since.map(|since| since.plus(gap)),
    }

    instance.unknown_since = instance.unknown_since.map(|since| since.plus(gap));
    Some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Rule, RuleFile};

    const RULES: &str = "
groups:
- name: g
  rules:
  - {alert: Hot, expr: hot > 90, for: 1m}
";

    /// Steps at these seconds, with the condition true, and returns the states.
    fn states(seconds: &[i64]) -> Vec<State> {
        let file = RuleFile::read("r.yml", RULES).unwrap();
        let Rule::Alerting(rule) = &file.groups[0].rules[0] else {
            unreachable!("an alerting rule")
        };
        let around = Surroundings {
            query: None,
            until: None,
            external_labels: &Labels::new(),
            external_url: "",
            exporter_state: &|_| ExporterState::Answers,
        };

        let key = RuleKey("hot".into());
        let result = [(Labels::from_iter([("node", "g01")]), 95.0)];

        let mut instances = Instances::default();
        let state = |seconds: &i64| {
            let at = Timestamp::from_seconds(*seconds);
            let present = Present::of(rule, &result, &around, &BTreeSet::new(), at).unwrap();
            instances
                .step(&key, rule, 0, &present, around.exporter_state, at)
                .unwrap();
            instances.iter().next().unwrap().1.state
        };
        seconds.iter().map(state).collect()
    }

    /// A page said that slurmctld was down after it had come back: a restart had lost the samples that said so.
    #[test]
    fn samples_from_before_a_gap_neither_begin_an_alert_nor_let_an_unknown_one_fire_nor_end_one() {
        use ExporterState::{Answers, Awaited, Down};
        use State::{Firing, Inactive, Unknown};
        let file = RuleFile::read("r.yml", RULES).unwrap();
        let Rule::Alerting(rule) = &file.groups[0].rules[0] else {
            unreachable!("an alerting rule")
        };
        let key = RuleKey("hot".into());
        let labels: Labels = [("node", "g01"), (ALERT_NAME, "Hot")].into_iter().collect();

        let mut instances = Instances::default();
        let mut step = |second: i64, is_hot: bool, exporter: ExporterState| {
            let at = Timestamp::from_seconds(second);
            let mut present = Present::default();
            if is_hot {
                let fresh = Instance::pending(labels.clone(), vec![], Fingerprint(0), 95.0, at);
                present.alerts.insert(Fingerprint::of(&labels), fresh);
            }
            let exporter_state = |_: &Labels| exporter;
            instances
                .step(&key, rule, 0, &present, &exporter_state, at)
                .unwrap();
            let known = instances.get(Fingerprint::of(&labels));
            known.map_or(Inactive, Instance::shown)
        };

        assert_eq!(step(0, true, Awaited), Inactive);
        step(60, true, Answers);
        assert_eq!(step(120, true, Answers), Firing);
        assert_eq!(step(180, false, Awaited), Firing);
        assert_eq!(step(240, false, Down), Unknown);
        assert_eq!(step(300, true, Awaited), Unknown);
        assert_eq!(step(360, false, Answers), Inactive);
        assert_eq!(step(420, true, Awaited), Inactive);
        assert_eq!(step(480, true, Awaited), Inactive);
    }

    #[test]
    fn a_firing_alert_fires_on_although_the_clock_was_set_back() {
        use State::{Firing, Pending};
        // The clock is set back by more than an hour, and comes forward again.
        assert_eq!(
            states(&[5000, 5060, 1000, 1015, 5075]),
            [Pending, Firing, Firing, Firing, Firing]
        );
    }

    #[test]
    fn a_pending_alert_waits_no_longer_than_its_for_after_the_clock_was_set_back() {
        use State::{Firing, Pending};
        // From the new time of the clock on, the minute of `for` counts again.
        assert_eq!(
            states(&[5000, 5030, 1000, 1030, 1060]),
            [Pending, Pending, Pending, Pending, Firing]
        );
    }
}
