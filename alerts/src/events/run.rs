//! The alerts of event rules: counted, raised, ended.

use super::ends::{EndAnswers, EndTask};
use super::xid::XidTable;
use super::{EndCondition, EventFile, EventPattern, EventRule, RepeatCount};
use crate::fingerprint::Fingerprint;
use crate::rules::ALERT_NAME;
use crate::state::{Closing, EvalError, Reason, RuleKey, State, Transition, elapsed};
use crate::template::{Context, templates_hash};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;
use takt_model::{Event, EventKind, Labels, METRIC_NAME, Timestamp, pci};

/// How many bursts of one alert are remembered at most; the oldest are forgotten first.
pub(super) const SEEN_MAX: usize = 64;

/// How long after an event its end condition is ignored: until then the newest samples may be older
/// than the event, and still show a GPU that has just been lost as present. Four readings and
/// scrapes at the default intervals.
const UNTIL_GRACE: Duration = Duration::from_secs(60);

/// How many lines of the kernel a message carries.
const LINES_MAX: usize = 5;

/// The annotation that carries them.
const KERNEL_LINES: &str = "kernel_lines";

/// One burst of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventBurst {
    /// When it began.
    pub at: Timestamp,
    /// The value of the rule's `distinct` label.
    pub distinct: String,
}

/// One alert of an event rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventInstance {
    /// The labels by which the rule identifies alerts, then the rule's labels, then `alertname`.
    pub labels: Labels,
    /// Annotations of the last event.
    pub annotations: Vec<(String, String)>,
    /// [`templates_hash`] of the annotations' templates; `None` if an earlier version stored them.
    #[serde(default)]
    pub templates: Option<Fingerprint>,
    /// Since when it fires; `None` while there were too few events.
    pub fired_at: Option<Timestamp>,
    /// The last event.
    pub last_at: Timestamp,
    /// The counted bursts.
    pub seen: Vec<EventBurst>,
    /// The last lines of the kernel.
    pub lines: Vec<String>,
}

impl EventInstance {
    /// The end of this alert when its rule is no longer in the rule files; `None` if it does not fire.
    pub fn rule_removed(&self, key: &RuleKey, now: Timestamp) -> Option<Transition> {
        self.fired_at?;
        // How the rule counted is not known any more.
        let events = self.seen.len() as f64;
        Some(Transition::rule_removed(
            key,
            &self.labels,
            State::Firing,
            events,
            now,
        ))
    }

    /// The number of events, as the rule counts them.
    fn count(&self, repeat: &RepeatCount, now: Timestamp) -> usize {
        let since = now.minus(repeat.within);
        let counted = self
            .seen
            .iter()
            .filter(|seen| repeat.times <= 1 || seen.at >= since);
        match repeat.distinct {
            Some(_) => counted
                .map(|seen| &seen.distinct)
                .collect::<BTreeSet<_>>()
                .len(),
            None => counted.count(),
        }
    }
}

/// Event rules with their alerts.
#[derive(Debug, Default)]
pub struct EventRun {
    rules: Vec<RuleRun>,
    xids: Option<XidTable>,
}

#[derive(Debug)]
struct RuleRun {
    key: RuleKey,
    rule: EventRule,
    instances: BTreeMap<Fingerprint, EventInstance>,
}

/// Changes by an event or by time.
#[derive(Debug, Default)]
pub struct Change {
    /// State changes.
    pub transitions: Vec<Transition>,
    /// Alerts with new counts or annotations, to be stored.
    pub touched: Vec<(RuleKey, EventInstance)>,
    /// Alerts to forget.
    pub forgotten: Vec<(RuleKey, Fingerprint)>,
    /// End conditions that could not be evaluated.
    pub failures: Vec<(RuleKey, EvalError)>,
}

impl EventRun {
    /// The rules of all files, without alerts.
    pub fn new(files: &[EventFile], xids: XidTable) -> Self {
        let groups = files
            .iter()
            .flat_map(|file| file.groups.iter().map(move |group| (&file.name, group)));

        let mut rules = Vec::new();
        for (file, group) in groups {
            let names = group.rules.iter().map(|rule| rule.name.as_str());
            let keys = RuleKey::of_group(file, &group.name, names);

            rules.extend(
                keys.into_iter()
                    .zip(&group.rules)
                    .map(|(key, rule)| RuleRun {
                        key,
                        rule: rule.clone(),
                        instances: BTreeMap::new(),
                    }),
            );
        }

        Self {
            rules,
            xids: Some(xids),
        }
    }

    /// Restores a stored alert; `false` where it belongs to no rule.
    pub fn restore(&mut self, key: &RuleKey, instance: EventInstance) -> bool {
        let Some(run) = self.rules.iter_mut().find(|run| run.key == *key) else {
            return false;
        };
        run.instances
            .insert(Fingerprint::of(&instance.labels), instance);
        true
    }

    /// All alerts, including those with too few events.
    pub fn iter(&self) -> impl Iterator<Item = (&RuleKey, Fingerprint, &EventInstance)> {
        self.rules.iter().flat_map(|run| {
            run.instances
                .iter()
                .map(|(print, instance)| (&run.key, *print, instance))
        })
    }

    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = &EventRule> {
        self.rules.iter().map(|run| &run.rule)
    }

    /// All alerts with their rules.
    pub fn with_rules(&self) -> impl Iterator<Item = (&EventRule, Fingerprint, &EventInstance)> {
        self.rules.iter().flat_map(|run| {
            let instances = run.instances.iter();
            instances.map(|(print, instance)| (&run.rule, *print, instance))
        })
    }

    /// One alert.
    pub fn get(&self, key: &RuleKey, fingerprint: Fingerprint) -> Option<&EventInstance> {
        self.rules
            .iter()
            .find(|run| run.key == *key)?
            .instances
            .get(&fingerprint)
    }

    /// Counts an event. Its labels name the place. `jobs` are the jobs there, each with `jobid`, `user`
    /// and `job_name`: a rule that identifies alerts by job or user counts the event for each job.
    pub fn event(
        &mut self,
        event: &Event,
        jobs: &[Labels],
        external_labels: &Labels,
        external_url: &str,
        now: Timestamp,
    ) -> Change {
        let mut change = Change::default();

        let whole = [self.described(with_jobs(event, jobs))];
        let by_job = jobs
            .iter()
            .map(|job| self.described(with_jobs(event, slice::from_ref(job))))
            .collect::<Vec<_>>();

        let class = &whole[0].class;
        for run in &mut self.rules {
            let whens = &run.rule.when;
            let Some(when) = whens.iter().find(|w| w.accepts(&whole[0].event, class)) else {
                continue;
            };
            // Some events of a rule repeat more slowly than others, so each pattern may have its own burst.
            let burst = when.burst.unwrap_or(run.rule.repeat.burst);
            let counted = if run.rule.is_by_job() && !by_job.is_empty() {
                &by_job[..]
            } else {
                &whole
            };
            for described in counted {
                run.happened(
                    described,
                    burst,
                    (external_labels, external_url),
                    now,
                    &mut change,
                );
            }
        }
        change
    }

    /// The end conditions of firing alerts, to ask at `now`; `None` without any.
    pub fn end_conditions(&self, now: Timestamp) -> Option<EndTask> {
        let is_firing = |run: &RuleRun| run.instances.values().any(|one| one.fired_at.is_some());
        let conditions: Vec<_> = self
            .rules
            .iter()
            .filter(|run| is_firing(run))
            .filter_map(|run| match &run.rule.ends {
                EndCondition::Until(expr) => Some((run.key.clone(), expr.clone())),
                EndCondition::After(_) => None,
            })
            .collect();
        (!conditions.is_empty()).then(|| EndTask::new(conditions, now))
    }

    /// Ends the alerts whose end has come, by time or by these answers.
    pub fn end(&mut self, answers: EndAnswers, now: Timestamp) -> Change {
        let mut change = Change::default();
        // An event after this time is not judged by the answers.
        let asked_at = answers.asked_at.unwrap_or(now);
        let mut answers = answers.by_rule;

        for run in &mut self.rules {
            let until = match answers.remove(&run.key) {
                // A condition that could not be asked ends nothing.
                Some(Err(error)) => {
                    change.failures.push((run.key.clone(), error.into()));
                    continue;
                }
                Some(Ok(result)) => result,
                None => Vec::new(),
            };
            let key = &run.key;
            let rule = &run.rule;
            run.instances.retain(|fingerprint, instance| {
                let is_over = match (&rule.ends, instance.fired_at) {
                    (EndCondition::Until(_), Some(fired))
                        if is_recent(instance.last_at, asked_at) || is_recent(fired, asked_at) =>
                    {
                        false
                    }
                    (EndCondition::Until(_), Some(_)) => until
                        .iter()
                        .any(|(labels, _)| agree(labels, &instance.labels)),
                    // An event that was read late, for instance after an outage, is held from then
                    // on.
                    (EndCondition::After(hold), Some(fired)) => {
                        elapsed(instance.last_at.max(fired), now) >= *hold
                    }
                    (_, None) => false,
                };

                if is_over {
                    let at = now;
                    change.transitions.push(transition(
                        key,
                        *fingerprint,
                        instance,
                        rule,
                        State::Firing,
                        State::Inactive,
                        at,
                    ));
                    instance.fired_at = None;
                    change.touched.push((key.clone(), instance.clone()));
                }
                // Alerts that do not fire yet are kept while their events count.
                let keep = instance.fired_at.is_some()
                    || (rule.repeat.times > 1
                        && elapsed(instance.last_at, now) <= rule.repeat.within);
                if !keep {
                    change.forgotten.push((key.clone(), *fingerprint));
                }
                keep
            });
        }
        change
    }

    /// Closes one alert by hand; the change is empty where it does not fire.
    pub fn close(&mut self, fingerprint: Fingerprint, closing: &Closing, now: Timestamp) -> Change {
        let mut change = Change::default();
        for run in &mut self.rules {
            let Some(instance) = run.instances.get_mut(&fingerprint) else {
                continue;
            };
            if instance.fired_at.is_none() {
                continue;
            }
            let closed = Transition {
                reason: Reason::Closed,
                closing: Some(closing.clone()),
                ..transition(
                    &run.key,
                    fingerprint,
                    instance,
                    &run.rule,
                    State::Firing,
                    State::Inactive,
                    now,
                )
            };

            change.transitions.push(closed);
            instance.fired_at = None;
            // Its events count no longer: the next one begins a new episode.
            instance.seen.clear();
            change.touched.push((run.key.clone(), instance.clone()));
        }
        change
    }

    /// Adds the XID's entry in the table.
    fn described(&self, event: Event) -> DescribedEvent {
        let mut labels = event.labels.clone();
        let xid = labels
            .get("xid")
            .and_then(|xid| xid.parse().ok())
            .filter(|_| event.kind == EventKind::Xid);

        let Some(xid) = xid.and_then(|xid: u32| Some(self.xids.as_ref()?.get(xid))) else {
            return DescribedEvent {
                event,
                labels,
                class: String::new(),
            };
        };

        labels.set("xid_class", &xid.class);
        labels.set("xid_severity", &xid.severity);
        labels.set("xid_meaning", &xid.meaning);
        labels.set("xid_action", &sentence(&xid.action));
        DescribedEvent {
            event,
            labels,
            class: xid.class,
        }
    }
}

/// The text as a sentence: the table has no capitals and full stops.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let end = if text.ends_with('.') { "" } else { "." };
    first.chain(chars).collect::<String>() + end
}

/// An event with what the XID table says about it.
struct DescribedEvent {
    event: Event,
    /// The event's labels and those of the table.
    labels: Labels,
    /// Class of the XID; empty if the event is no XID, or one that the table lacks.
    class: String,
}

/// Returns the event with the labels of its jobs that it lacks. Values of several jobs are joined
/// with commas; the name of a job is added only if the event has one job.
pub fn with_jobs(event: &Event, jobs: &[Labels]) -> Event {
    let mut event = event.clone();

    let names: &[&str] = if jobs.len() == 1 {
        &["jobid", "user", "job_name"]
    } else {
        &["jobid", "user"]
    };

    for name in names {
        // A set: two jobs of one user name the user once.
        let values: BTreeSet<&str> = jobs
            .iter()
            .filter_map(|job| job.get(name))
            .filter(|value| !value.is_empty())
            .collect();
        if !values.is_empty() && event.labels.get(name).is_none() {
            let values: Vec<&str> = values.into_iter().collect();
            event.labels.set(name, &values.join(","));
        }
    }
    event
}

impl EventPattern {
    fn accepts(&self, event: &Event, class: &str) -> bool {
        let xid: Option<u32> = event.labels.get("xid").and_then(|xid| xid.parse().ok());
        self.kind == event.kind
            && (self.xid.is_empty()
                || xid.is_some_and(|xid| self.xid.iter().any(|range| range.contains(&xid))))
            && (self.class.is_empty() || self.class.iter().any(|own| own == class))
            && self.matchers.accept(&event.labels)
    }
}

impl RuleRun {
    fn happened(
        &mut self,
        DescribedEvent {
            event,
            labels: described,
            ..
        }: &DescribedEvent,
        burst: Duration,
        (external_labels, external_url): (&Labels, &str),
        now: Timestamp,
        change: &mut Change,
    ) {
        let rule = &self.rule;

        let context = |value| Context {
            labels: described,
            external_labels,
            external_url,
            value,
            query: None,
            at: event.at,
        };

        let mut labels: Labels = event
            .labels
            .iter()
            .filter(|(name, _)| rule.by.is_empty() || rule.by.iter().any(|by| by == name))
            .collect();

        for (name, template) in &rule.labels {
            labels.set(name, &template.expand_or_explain(&context(1.0)));
        }
        labels.set(ALERT_NAME, &rule.name);
        let fingerprint = Fingerprint::of(&labels);
        // Events with the same labels count for one alert.
        let instance = self
            .instances
            .entry(fingerprint)
            .or_insert_with(|| EventInstance {
                labels,
                annotations: Vec::new(),
                templates: None,
                fired_at: None,
                last_at: event.at,
                seen: Vec::new(),
                lines: Vec::new(),
            });

        let distinct = rule
            .repeat
            .distinct
            .as_ref()
            .and_then(|name| event.labels.get(name))
            .unwrap_or_default();
        // A burst counts once: one fault may write hundreds of lines.
        let is_same_burst = instance.seen.last().is_some_and(|seen| {
            let is_near = elapsed(instance.last_at, event.at) <= burst && !burst.is_zero();
            is_near && seen.distinct == distinct
        });
        if !is_same_burst {
            instance.seen.push(EventBurst {
                at: event.at,
                distinct: distinct.to_owned(),
            });
            let surplus = instance.seen.len().saturating_sub(SEEN_MAX);
            instance.seen.drain(..surplus);
        }

        // Events of a node may arrive late, so the last one is not always the newest.
        instance.last_at = instance.last_at.max(event.at);
        instance.lines.push(event.message.clone());
        let surplus = instance.lines.len().saturating_sub(LINES_MAX);
        instance.lines.drain(..surplus);

        // After the count, so that texts can say how many events there were.
        let count = instance.count(&rule.repeat, event.at);
        instance.annotations = rule
            .annotations
            .iter()
            .map(|(name, template)| {
                (
                    name.clone(),
                    template
                        .expand_or_explain(&context(count as f64))
                        .into_owned(),
                )
            })
            .chain([(KERNEL_LINES.to_owned(), instance.lines.join("\n"))])
            .collect();

        instance.templates = Some(templates_hash(&rule.annotations));

        if instance.fired_at.is_none() && count >= rule.repeat.times {
            instance.fired_at = Some(now);
            change.transitions.push(transition(
                &self.key,
                fingerprint,
                instance,
                rule,
                State::Inactive,
                State::Firing,
                now,
            ));
        }

        change.touched.push((self.key.clone(), instance.clone()));
    }
}

fn transition(
    key: &RuleKey,
    fingerprint: Fingerprint,
    instance: &EventInstance,
    rule: &EventRule,
    from: State,
    to: State,
    at: Timestamp,
) -> Transition {
    Transition {
        rule: key.clone(),
        fingerprint,
        labels: instance.labels.clone(),
        from,
        to,
        at,
        value: instance.count(&rule.repeat, at) as f64,
        reason: if to == State::Firing {
            Reason::Event
        } else {
            Reason::EventOver
        },
        closing: None,
    }
}

/// Whether the end condition is ignored after an event, or after the beginning of its alert: the node's
/// clock may be behind. What is later than the clock counts for nothing: the node's clock is ahead, or
/// the server's was set back.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    at <= now && elapsed(at, now) < UNTIL_GRACE
}

/// Whether the labels that a series and an alert share have equal values, and they share at least
/// one. A series without labels agrees with every alert. PCI addresses are equal in every spelling:
/// exporters of earlier versions publish NVML's.
fn agree(series: &Labels, alert: &Labels) -> bool {
    let is_equal = |name: &str, value: &str, other: &str| {
        if name == pci::BUS_ID {
            pci::is_same(value, other)
        } else {
            value == other
        }
    };

    let mut shared = series
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME)
        .filter_map(|(name, value)| Some(is_equal(name, value, alert.get(name)?)));

    let mut any = false;
    let all = shared.all(|equal| {
        any = true;
        equal
    });
    all && (any || series.iter().all(|(name, _)| name == METRIC_NAME))
}

#[cfg(test)]
mod tests;
