//! Looking after ourselves: alerts about alerting, and the heartbeat.
//!
//! These alerts go the way of all others, so a channel that fails is reported by those that work. They are renewed
//! while they hold and end by themselves, over restarts too.

use super::Heartbeat;
use crate::Engine;
use crate::alert::Posted;
use crate::engine::Report;
use crate::state::RuleKey;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(30);

/// An alert about alerting ends that long after it was last true.
const HOLD: Duration = Duration::from_secs(120);

/// A rule that failed for so long is reported.
const FAILING_FOR: Duration = Duration::from_secs(300);

pub(super) struct Watch {
    heartbeat: Option<Heartbeat>,
    beat_at: Timestamp,
    look_at: Timestamp,
    /// Since when rules fail, and when they last did.
    failing: BTreeMap<RuleKey, (Timestamp, Timestamp, String)>,
}

impl Watch {
    pub fn new(heartbeat: Option<Heartbeat>) -> Self {
        Self { heartbeat, beat_at: Timestamp(0), look_at: Timestamp(0), failing: BTreeMap::new() }
    }

    /// The address to ask now.
    pub fn heartbeat_due(&mut self, now: Timestamp) -> Option<String> {
        let heartbeat = self.heartbeat.as_ref().filter(|_| now >= self.beat_at)?;
        self.beat_at = now.plus(heartbeat.interval);
        Some(heartbeat.url.clone())
    }

    /// What is wrong with alerting.
    pub fn look(&mut self, engine: &Engine, report: &Report, now: Timestamp) -> Vec<Posted> {
        for (rule, error) in &report.failures {
            let since = self.failing.get(rule).map_or(now, |(since, ..)| *since);
            self.failing.insert(rule.clone(), (since, now, error.to_string()));
        }
        self.failing.retain(|_, (_, last, _)| *last >= now.minus(HOLD));
        if now < self.look_at {
            return Vec::new();
        }
        self.look_at = now.plus(LOOK);
        let long = self.failing.iter().filter(|(_, (since, ..))| *since <= now.minus(FAILING_FOR));
        let rules = long.map(|(rule, (since, _, error))| {
            let labels =
                [("alertname", "TaktRuleFailing"), ("rule", &rule.0), ("severity", "warning"), ("scope", "takt")];
            posted(&labels, &format!("The rule {rule} cannot be evaluated: {error}"), "Correct the rule.", *since, now)
        });
        let late = engine.outbox().late(now).into_iter().map(|row| {
            let channel = row.channel.as_str();
            let labels = [
                ("alertname", "TaktDeliveryFailing"),
                ("channel", channel),
                ("severity", "critical"),
                ("scope", "takt"),
            ];
            let error = row.error.as_deref().unwrap_or("no answer");
            let summary = format!("Messages for {channel} have not been delivered since {}: {error}", row.created_at);
            posted(&labels, &summary, "Look at the channel's settings and at the other side.", row.created_at, now)
        });
        // A channel that is about its own failure would be reported again and again as older rows go.
        let mut seen = BTreeSet::new();
        rules.chain(late).filter(|one| seen.insert(one.labels.clone())).collect()
    }
}

fn posted(labels: &[(&str, &str)], summary: &str, action: &str, since: Timestamp, now: Timestamp) -> Posted {
    let words = [("summary", summary), ("action", action)];
    Posted {
        labels: labels.iter().copied().collect::<Labels>(),
        annotations: words.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        starts_at: Some(since),
        ends_at: Some(now.plus(HOLD)),
        generator_url: String::new(),
    }
}
