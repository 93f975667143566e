//! Looking after ourselves: alerts about alerting, and the heartbeat.
//!
//! These alerts go the way of all others, so a channel that fails is reported by those that work. They are renewed
//! while they hold and end by themselves, over restarts too.

use super::Vigil;
use crate::Engine;
use crate::alert::Posted;
use crate::engine::Report;
use crate::routing::silence::SilenceState;
use crate::state::RuleKey;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, Timestamp, error_chain};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(30);

/// An alert about alerting ends that long after it was last true.
const HOLD: Duration = Duration::from_secs(120);

/// A silence that covers most of what fires is told of from this many alerts on.
const SILENCED_OF: usize = 10;

pub(super) struct Watch {
    pub vigil: Vigil,
    beat_at: Timestamp,
    look_at: Timestamp,
    /// Since when rules fail, and when they last did.
    failing: BTreeMap<RuleKey, (Timestamp, Timestamp, String)>,
}

impl Watch {
    pub fn new(vigil: Vigil) -> Self {
        Self {
            vigil,
            beat_at: Timestamp(0),
            look_at: Timestamp(0),
            failing: BTreeMap::new(),
        }
    }

    /// The address to ask now.
    pub fn heartbeat_due(&mut self, now: Timestamp) -> Option<String> {
        let heartbeat = self
            .vigil
            .heartbeat
            .as_ref()
            .filter(|_| now >= self.beat_at)?;
        self.beat_at = now.plus(heartbeat.interval);
        Some(heartbeat.url.clone())
    }

    /// What is wrong with alerting.
    pub fn look(&mut self, engine: &Engine, report: &Report, now: Timestamp) -> Vec<Posted> {
        for (rule, error) in &report.failures {
            let since = self.failing.get(rule).map_or(now, |(since, ..)| *since);
            self.failing
                .insert(rule.clone(), (since, now, error_chain(error)));
        }
        self.failing
            .retain(|_, (_, last, _)| *last >= now.minus(HOLD));
        if now < self.look_at {
            return Vec::new();
        }
        self.look_at = now.plus(LOOK);
        let long = self
            .failing
            .iter()
            .filter(|(_, (since, ..))| *since <= now.minus(self.vigil.patience));
        let rules = long.map(|(rule, (since, _, error))| {
            let labels = [
                ("alertname", "TaktRuleFailing"),
                ("rule", &rule.0),
                ("severity", "critical"),
                ("scope", "takt"),
            ];
            posted(
                &labels,
                &format!("The rule {rule} cannot be evaluated: {error}"),
                "Correct the rule.",
                *since,
                now,
            )
        });
        let late = engine
            .outbox()
            .late(now.minus(self.vigil.patience))
            .into_iter()
            .map(|row| {
                let channel = row.channel.as_str();
                let labels = [
                    ("alertname", "TaktDeliveryFailing"),
                    ("channel", channel),
                    ("severity", "critical"),
                    ("scope", "takt"),
                ];
                let error = row.error.as_deref().unwrap_or("no answer");
                let summary = format!(
                    "Messages for {channel} have not been delivered since {}: {error}",
                    row.created_at
                );
                posted(
                    &labels,
                    &summary,
                    "Look at the channel's settings and at the other side.",
                    row.created_at,
                    now,
                )
            });
        let silent = silenced(engine, now).map(|(count, all)| {
            let labels = [
                ("alertname", "TaktSilencesTooMuch"),
                ("severity", "warning"),
                ("scope", "takt"),
            ];
            let summary = format!("{count} of {all} alerts that fire are silenced");
            posted(
                &labels,
                &summary,
                "Look at `takt alerts silence` for one that covers too much.",
                now,
                now,
            )
        });
        // A channel that is about its own failure would be reported again and again as older rows go.
        let mut seen = BTreeSet::new();
        rules
            .chain(late)
            .chain(silent)
            .filter(|one| seen.insert(one.labels.clone()))
            .collect()
    }
}

/// How many of the alerts that fire are silenced, and how many there are, where that is most of many.
fn silenced(engine: &Engine, now: Timestamp) -> Option<(usize, usize)> {
    let router = engine.router();
    if !router
        .silences
        .list(now)
        .iter()
        .any(|silence| silence.state(now) == SilenceState::Active)
    {
        return None;
    }
    let firing = router
        .alerts()
        .iter()
        .filter(|(_, alert)| !alert.is_resolved(now) && alert.label("scope") != "takt");
    let (mut all, mut count) = (0, 0);
    for (_, alert) in firing {
        all += 1;
        count += usize::from(
            router
                .silences
                .covering(&alert.labels, now)
                .next()
                .is_some(),
        );
    }
    (all >= SILENCED_OF && 2 * count > all).then_some((count, all))
}

fn posted(
    labels: &[(&str, &str)],
    summary: &str,
    action: &str,
    since: Timestamp,
    now: Timestamp,
) -> Posted {
    let words = [("summary", summary), ("action", action)];
    Posted {
        labels: labels.iter().copied().collect::<Labels>(),
        annotations: words
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into(),
        starts_at: Some(since),
        ends_at: Some(now.plus(HOLD)),
        generator_url: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Server;
    use crate::events::xid::XidTable;
    use crate::group::Defaults;
    use crate::outbox::Outcome;
    use crate::routing::Settings;
    use crate::routing::config::Config;
    use crate::routing::matcher::{Matchers, parse_matchers};
    use crate::routing::silence::Silence;
    use crate::state::EvalError;
    use crate::testing::Memory;
    use crate::{Batch, ports::QueryError};
    use std::sync::Arc;

    const ROUTES: &str = "
route: {receiver: ops, group_by: [alertname], group_wait: 0s, group_interval: 1s}
receivers:
- name: ops
  slack_configs: [{api_url: 'http://127.0.0.1:1/x', send_resolved: true}]
  webhook_configs: [{url: 'http://127.0.0.1:1/y'}]
";

    const VIGIL: Vigil = Vigil {
        heartbeat: None,
        patience: Duration::from_secs(300),
    };

    fn engine() -> Engine {
        let defaults = Defaults {
            interval: Duration::from_secs(15),
            query_offset: Duration::ZERO,
        };
        let settings = Settings {
            external_url: "http://takt".to_owned(),
            pages: None,
        };
        let server = Server {
            external_labels: Labels::new(),
            defaults,
            settings,
        };
        Engine::new(
            server,
            &[],
            &[],
            XidTable::shipped().clone(),
            Config::read("am.yml", ROUTES).unwrap(),
        )
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn fault() -> Posted {
        let labels = [("alertname", "GpuHot"), ("node", "g01")]
            .into_iter()
            .collect();
        Posted {
            labels,
            starts_at: Some(at(0)),
            ends_at: Some(at(100_000)),
            ..Posted::default()
        }
    }

    /// What the channels are told at `now`; `slack` takes nothing.
    fn told(engine: &mut Engine, now: Timestamp) -> Vec<(String, String)> {
        let _: Batch = engine.flush(&Memory::default(), now);
        let mut told = Vec::new();
        loop {
            let (rows, _) = engine.send_due(now);
            if rows.is_empty() {
                return told;
            }
            for row in rows {
                let outcome = match row.channel.contains("slack") {
                    true => Outcome::TryAgain {
                        after: Some(Duration::from_secs(10)),
                        error: "503".to_owned(),
                    },
                    false => {
                        let names = row
                            .message
                            .alerts
                            .iter()
                            .filter_map(|alert| alert.labels.get("alertname"));
                        told.push((row.channel.clone(), names.collect::<Vec<_>>().join(" ")));
                        Outcome::Sent(None)
                    }
                };
                engine.answered(row.id, &outcome, &|_| None, now);
            }
        }
    }

    #[test]
    fn a_channel_that_takes_nothing_is_reported_over_the_others_and_its_end_too() {
        let (mut engine, mut watch) = (engine(), Watch::new(VIGIL));
        engine.post(vec![fault()], at(0));
        let mut seen = Vec::new();
        for second in (0..400).step_by(10) {
            let now = at(second);
            let posted = watch.look(&engine, &Report::default(), now);
            engine.post(posted, now);
            seen.extend(
                told(&mut engine, now)
                    .into_iter()
                    .map(|(channel, names)| (second, channel, names)),
            );
        }
        let failing: Vec<_> = seen
            .iter()
            .filter(|(_, _, names)| names == "TaktDeliveryFailing")
            .collect();
        assert_eq!(failing.len(), 1, "{seen:?}");
        assert!(
            failing[0].0 > 300 && failing[0].1 == "ops/webhook/0",
            "{failing:?}"
        );
        // The channel is repaired: what it owes is taken, and the alert about it ends by itself.
        for row in engine.outbox().iter().map(|row| row.id).collect::<Vec<_>>() {
            engine.answered(row, &Outcome::Sent(None), &|_| None, at(400));
        }
        let mut ends = Vec::new();
        for second in (400..700).step_by(10) {
            let now = at(second);
            let posted = watch.look(&engine, &Report::default(), now);
            engine.post(posted, now);
            let _: Batch = engine.flush(&Memory::default(), now);
            let rows = engine.send_due(now).0;
            for row in rows {
                ends.push((row.channel.clone(), row.message.reason));
                engine.answered(row.id, &Outcome::Sent(None), &|_| None, now);
            }
        }
        let webhook: Vec<_> = ends
            .iter()
            .filter(|(channel, _)| channel == "ops/webhook/0")
            .collect();
        assert_eq!(webhook.len(), 1, "{ends:?}");
        assert_eq!(webhook[0].1, crate::routing::dedup::Reason::Resolved);
    }

    #[test]
    fn a_silence_that_covers_most_of_what_fires_is_told_of() {
        let (mut engine, mut watch) = (engine(), Watch::new(VIGIL));
        let node = |n: usize| Posted {
            labels: [
                ("alertname", "GpuHot".to_owned()),
                ("node", format!("g{n}")),
            ]
            .into_iter()
            .collect(),
            ends_at: Some(at(100_000)),
            ..Posted::default()
        };
        let silence = |matchers: &str, id: &str| Silence {
            id: String::new(),
            matchers: vec![Matchers(parse_matchers(matchers).unwrap())],
            starts_at: at(0),
            ends_at: at(50_000),
            updated_at: at(0),
            created_by: "ada".to_owned(),
            comment: id.to_owned(),
            annotations: BTreeMap::new(),
        };
        let names = |posted: Vec<Posted>| -> Vec<String> {
            posted
                .iter()
                .filter_map(|one| Some(one.labels.get("alertname")?.to_owned()))
                .collect()
        };
        engine.post((0..20).map(node).collect(), at(0));
        engine
            .silence(silence("node=~\"g1.\"", "ten of them"), "a", at(0))
            .unwrap();
        assert!(
            names(watch.look(&engine, &Report::default(), at(0))).is_empty(),
            "half of them are silenced"
        );
        engine
            .silence(silence("node=g2", "one more"), "b", at(1))
            .unwrap();
        assert_eq!(
            names(watch.look(&engine, &Report::default(), at(60))),
            ["TaktSilencesTooMuch"]
        );
        engine.expire_silence("a", at(70)).unwrap();
        assert!(names(watch.look(&engine, &Report::default(), at(120))).is_empty());
    }

    #[test]
    fn a_rule_that_fails_for_long_is_reported_and_one_that_failed_once_is_not() {
        let (engine, mut watch) = (engine(), Watch::new(VIGIL));
        let failing = |name: &str| {
            (
                RuleKey(Arc::from(name)),
                EvalError::from(QueryError("many-to-many matching not allowed".to_owned())),
            )
        };
        let mut first = None;
        for second in (0..900).step_by(15) {
            let mut report = Report {
                failures: vec![failing("r.yml:g/A")],
                ..Report::default()
            };
            if second == 0 {
                report.failures.push(failing("r.yml:g/Once"));
            }
            let posted = watch.look(&engine, &report, at(second));
            let names: Vec<_> = posted
                .iter()
                .map(|one| one.labels.get("rule").unwrap_or_default().to_owned())
                .collect();
            assert!(names.iter().all(|name| name == "r.yml:g/A"), "{names:?}");
            if let Some(one) = posted.first() {
                first.get_or_insert(second);
                assert!(
                    one.annotations["summary"].contains("many-to-many matching"),
                    "{one:?}"
                );
                assert_eq!(one.starts_at, Some(at(0)));
            }
        }
        assert!((300..=330).contains(&first.unwrap()), "{first:?}");
        let quiet = watch.look(&engine, &Report::default(), at(2_000));
        assert!(quiet.is_empty(), "it works again");
    }
}
