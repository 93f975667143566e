//! Metrics of alerting: `takt_alerts_*`, `takt_notifications_*`, and `prometheus_rule_group_*` with
//! the names that Prometheus has for them.

use super::DroppedRecords;
use crate::Engine;
use crate::engine::Report;
use crate::outbox::{Outcome, Row};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use takt_model::Timestamp;

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabel {
    channel: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    channel: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    node: String,
    url: String,
}

/// A group as Prometheus names it: `FILE;GROUP`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    rule_group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    rule_group: String,
    rule: String,
}

/// Whether the events of one exporter are read. The series ends when this is dropped.
#[derive(Debug)]
pub struct StreamGauge {
    family: Family<StreamLabels, Gauge>,
    labels: StreamLabels,
}

impl StreamGauge {
    /// Sets whether the events are read.
    pub fn set(&self, is_up: bool) {
        self.family
            .get_or_create(&self.labels)
            .set(i64::from(is_up));
    }

    /// Returns whether the events are read.
    pub fn is_up(&self) -> bool {
        let gauge = self.family.get(&self.labels);
        gauge.is_some_and(|gauge| gauge.get() == 1)
    }

    /// Ends the series: the exporter has no events.
    pub fn forget(&self) {
        self.family.remove(&self.labels);
    }
}

impl Drop for StreamGauge {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The metrics; clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct AlertMetrics {
    pub(super) events: Counter,
    pub(super) event_lag: Seconds,
    pub(super) commit_failures: Counter,
    heartbeat_failures: Counter,
    pub(super) heartbeats_withheld: Counter,
    /// Without a heartbeat there is no series.
    heartbeat_up: Family<Vec<(String, String)>, Gauge>,
    pub(super) requests_refused: Counter,
    pub(super) posted_refused: Counter,
    posted: Gauge,
    posted_max: Gauge,
    pub(super) uncommitted: Counter,
    transitions_dropped: Counter,
    events_dropped: Counter,
    messages_dropped: Counter,
    event_streams: Family<StreamLabels, Gauge>,
    evaluations: Counter,
    failures: Counter,
    missed: Counter,
    unwritten: Counter,
    duration: Seconds,
    group_seconds: Family<GroupLabel, Seconds>,
    group_interval: Family<GroupLabel, Seconds>,
    group_evaluations: Family<GroupLabel, Counter>,
    group_missed: Family<GroupLabel, Counter>,
    slowest_rule: Family<RuleLabels, Seconds>,
    firing: Gauge,
    notifications: Family<AttemptLabels, Counter>,
    queued: Family<ChannelLabel, Gauge>,
    oldest: Family<ChannelLabel, Seconds>,
}

impl AlertMetrics {
    /// Creates the metrics and adds them to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        all.register_engine(registry.sub_registry_with_prefix("takt_alerts"));
        all.register_groups(registry.sub_registry_with_prefix("prometheus_rule_group"));
        all.register_notifications(registry.sub_registry_with_prefix("takt_notifications"));
        all
    }

    /// Notes whether a heartbeat arrived.
    pub(super) fn beat(&self, has_arrived: bool) {
        self.heartbeat_up
            .get_or_create(&Vec::new())
            .set(i64::from(has_arrived));
        if !has_arrived {
            self.heartbeat_failures.inc();
        }
    }

    /// Counts what was dropped while the store failed.
    pub(super) fn dropped(&self, dropped: DroppedRecords) {
        self.transitions_dropped.inc_by(dropped.transitions as u64);
        self.events_dropped.inc_by(dropped.events as u64);
        self.messages_dropped.inc_by(dropped.messages as u64);
    }

    fn register_engine(&self, alerts: &mut Registry) {
        alerts.register("events", "Events read from exporters", self.events.clone());
        alerts.register(
            "event_lag_seconds",
            "Delay between the last event and reading it",
            self.event_lag.clone(),
        );
        alerts.register(
            "event_stream_up",
            "Whether the events of an exporter are read",
            self.event_streams.clone(),
        );

        alerts.register(
            "commit_failures",
            "Failed commits of alert state",
            self.commit_failures.clone(),
        );
        alerts.register(
            "heartbeat_failures",
            "Failed heartbeats",
            self.heartbeat_failures.clone(),
        );
        alerts.register(
            "heartbeat_up",
            "Whether the last heartbeat arrived",
            self.heartbeat_up.clone(),
        );
        alerts.register(
            "heartbeats_withheld",
            "Heartbeats not sent because messages could not be delivered",
            self.heartbeats_withheld.clone(),
        );
        alerts.register(
            "requests_refused",
            "Requests refused because the engine's queue was full",
            self.requests_refused.clone(),
        );

        alerts.register(
            "posted",
            "Alerts that programs have posted and that are not over",
            self.posted.clone(),
        );
        alerts.register(
            "posted_max",
            "Alerts that programs may have posted at once",
            self.posted_max.clone(),
        );
        alerts.register(
            "posted_refused",
            "Posted alerts that were refused, because they were invalid or too many",
            self.posted_refused.clone(),
        );

        alerts.register(
            "transitions_dropped",
            "Transitions dropped while the store failed",
            self.transitions_dropped.clone(),
        );
        alerts.register(
            "events_dropped",
            "Events of exporters that are not in the log of events: dropped while the store failed",
            self.events_dropped.clone(),
        );
        alerts.register(
            "messages_dropped",
            "Messages whose delivery ended and that are not in the log of messages: dropped while the store failed",
            self.messages_dropped.clone(),
        );

        alerts.register(
            "group_evaluations",
            "Evaluations of rule groups",
            self.evaluations.clone(),
        );
        alerts.register(
            "rule_failures",
            "Failed evaluations of rules",
            self.failures.clone(),
        );
        alerts.register(
            "evaluations_missed",
            "Evaluations that were due and skipped",
            self.missed.clone(),
        );
        alerts.register(
            "samples_unwritten",
            "Samples of rules that were not stored",
            self.unwritten.clone(),
        );
        alerts.register(
            "evaluation_seconds",
            "Duration of the longest of the last evaluations of a group",
            self.duration.clone(),
        );
        alerts.register(
            "slowest_rule_seconds",
            "Duration of the slowest rule of a group that takes longer than its interval",
            self.slowest_rule.clone(),
        );
        alerts.register("active", "Alerts known to routing", self.firing.clone());
    }

    fn register_groups(&self, groups: &mut Registry) {
        groups.register(
            "last_duration_seconds",
            "Duration of the group's last evaluation, or of the one under way if it is longer",
            self.group_seconds.clone(),
        );
        groups.register(
            "interval_seconds",
            "Interval of the group",
            self.group_interval.clone(),
        );
        groups.register(
            "iterations",
            "Evaluations of the group that began",
            self.group_evaluations.clone(),
        );
        groups.register(
            "iterations_missed",
            "Evaluations of the group that were skipped: the one before was not finished",
            self.group_missed.clone(),
        );
    }

    fn register_notifications(&self, notifications: &mut Registry) {
        notifications.register(
            "attempts",
            "Attempts to deliver a message, by channel and outcome",
            self.notifications.clone(),
        );
        notifications.register("queued", "Waiting messages", self.queued.clone());
        notifications.register(
            "uncommitted",
            "Messages sent although their state could not be stored",
            self.uncommitted.clone(),
        );
        notifications.register(
            "oldest_seconds",
            "Age of the oldest waiting message",
            self.oldest.clone(),
        );
    }

    pub(super) fn event_stream(&self, node: &str, url: &str) -> StreamGauge {
        StreamGauge {
            family: self.event_streams.clone(),
            labels: StreamLabels {
                node: node.to_owned(),
                url: url.to_owned(),
            },
        }
    }

    pub(super) fn answered(&self, row: &Row, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Sent(_) => "sent",
            Outcome::TryAgain { .. } | Outcome::NoAnswer { .. } => "try_again",
            Outcome::GiveUp { .. } | Outcome::NoChannel => "give_up",
            Outcome::NoRecipient { .. } => "nobody",
        };
        self.notifications
            .get_or_create(&AttemptLabels {
                channel: row.channel.clone(),
                outcome,
            })
            .inc();
    }

    pub(super) fn evaluated(&self, report: &Report) {
        self.evaluations.inc_by(report.groups as u64);
        self.failures.inc_by(report.failures.len() as u64);
        self.missed.inc_by(report.missed);
        self.unwritten.inc_by(report.unwritten as u64);
        // A tick in which no evaluation ended leaves the last duration.
        if !report.took.is_zero() {
            self.duration.set(report.took.as_secs_f64());
        }
    }

    /// Sets the series of each group. Those of groups that no longer exist end.
    pub(super) fn groups(&self, engine: &Engine) {
        self.group_seconds.clear();
        self.group_interval.clear();
        self.group_evaluations.clear();
        self.group_missed.clear();
        self.slowest_rule.clear();

        for group in engine.groups() {
            let label = GroupLabel {
                rule_group: group.title(),
            };
            let seconds = group.took().as_secs_f64();
            let interval = group.interval().as_secs_f64();
            self.group_seconds.get_or_create(&label).set(seconds);
            self.group_interval.get_or_create(&label).set(interval);

            let begun = group.counts.begun;
            let missed = group.counts.missed;
            self.group_evaluations.get_or_create(&label).inc_by(begun);
            self.group_missed.get_or_create(&label).inc_by(missed);

            if let Some((rule, took)) = group.slowest().filter(|_| group.overruns()) {
                let labels = RuleLabels {
                    rule_group: label.rule_group,
                    rule: rule.to_string(),
                };
                self.slowest_rule
                    .get_or_create(&labels)
                    .set(took.as_secs_f64());
            }
        }
    }

    pub(super) fn outbox(&self, engine: &Engine, now: Timestamp) {
        let firing = engine
            .router()
            .alerts()
            .iter()
            .filter(|(_, alert)| !alert.is_resolved(now))
            .count();
        self.firing.set(firing as i64);
        self.posted.set(engine.posted_count() as i64);
        self.posted_max.set(engine.posted_max() as i64);

        // Channels without waiting messages have no series, and removed channels leave none behind.
        self.queued.clear();
        self.oldest.clear();
        for row in engine.outbox().iter() {
            let channel = ChannelLabel {
                channel: row.channel.clone(),
            };
            self.queued.get_or_create(&channel).inc();
            let age = (now - row.created_at) as f64 / 1e3;
            let oldest = self.oldest.get_or_create(&channel);
            oldest.set(oldest.get().max(age));
        }
    }
}
