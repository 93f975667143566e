//! What alerting says of itself: `takt_alerts_*` and `takt_notifications_*`.

use crate::Engine;
use crate::engine::Report;
use crate::outbox::{Outcome, Row};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use takt_model::Timestamp;

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Channel {
    channel: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Delivery {
    channel: String,
    outcome: &'static str,
}

/// The metrics; a copy counts with the original.
#[derive(Debug, Clone, Default)]
pub struct AlertMetrics {
    pub(super) events: Counter,
    pub(super) event_lag: Seconds,
    pub(super) commit_failures: Counter,
    pub(super) heartbeat_failures: Counter,
    evaluations: Counter,
    failures: Counter,
    missed: Counter,
    unwritten: Counter,
    duration: Seconds,
    firing: Gauge,
    notifications: Family<Delivery, Counter>,
    queued: Family<Channel, Gauge>,
    oldest: Family<Channel, Seconds>,
}

impl AlertMetrics {
    /// Adds them to the page.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let alerts = registry.sub_registry_with_prefix("takt_alerts");
        alerts.register("events", "Events read from exporters", all.events.clone());
        alerts.register(
            "event_lag_seconds",
            "Time from the last event to its being read",
            all.event_lag.clone(),
        );
        alerts.register(
            "commit_failures",
            "Commits of alert state that failed",
            all.commit_failures.clone(),
        );
        alerts.register(
            "heartbeat_failures",
            "Heartbeats that did not arrive",
            all.heartbeat_failures.clone(),
        );
        alerts.register(
            "group_evaluations",
            "Evaluations of rule groups",
            all.evaluations.clone(),
        );
        alerts.register(
            "rule_failures",
            "Evaluations of rules that gave an error",
            all.failures.clone(),
        );
        alerts.register(
            "evaluations_missed",
            "Evaluations that were due and not made",
            all.missed.clone(),
        );
        alerts.register(
            "samples_unwritten",
            "Samples of rules that could not be stored",
            all.unwritten.clone(),
        );
        alerts.register(
            "evaluation_seconds",
            "How long the last evaluation took",
            all.duration.clone(),
        );
        alerts.register("active", "Alerts that routing knows", all.firing.clone());
        let told = registry.sub_registry_with_prefix("takt_notifications");
        told.register(
            "attempts",
            "Attempts to deliver a message, by channel and outcome",
            all.notifications.clone(),
        );
        told.register("queued", "Messages that wait", all.queued.clone());
        told.register(
            "oldest_seconds",
            "Age of the oldest message that waits",
            all.oldest.clone(),
        );
        all
    }

    pub(super) fn answered(&self, row: &Row, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Sent(_) => "sent",
            Outcome::TryAgain { .. } | Outcome::NoAnswer { .. } => "try_again",
            Outcome::GiveUp { .. } => "give_up",
            Outcome::Nobody { .. } => "nobody",
        };
        self.notifications
            .get_or_create(&Delivery {
                channel: row.channel.clone(),
                outcome,
            })
            .inc();
    }

    pub(super) fn evaluated(&self, report: &Report, took: Duration) {
        self.evaluations.inc_by(report.groups as u64);
        self.failures.inc_by(report.failures.len() as u64);
        self.missed.inc_by(report.missed);
        self.unwritten.inc_by(report.unwritten as u64);
        if report.groups > 0 {
            self.duration.set(took.as_secs_f64());
        }
    }

    pub(super) fn outbox(&self, engine: &Engine, now: Timestamp) {
        let alerts = engine.router().alerts().iter();
        let firing = alerts.filter(|(_, alert)| !alert.is_resolved(now)).count();
        self.firing.set(firing as i64);
        self.queued.clear();
        self.oldest.clear();
        for row in engine.outbox().iter() {
            let channel = Channel {
                channel: row.channel.clone(),
            };
            self.queued.get_or_create(&channel).inc();
            let age = (now.0 - row.created_at.0) as f64 / 1000.0;
            let oldest = self.oldest.get_or_create(&channel);
            oldest.set(oldest.get().max(age));
        }
    }
}
