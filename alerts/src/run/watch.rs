//! Self-monitoring: alerts about alerting, and the heartbeat.
//!
//! These alerts take the same path as all others, so working channels report a failing one. They
//! are renewed while their condition holds. A check that sees it false ends them; without any check,
//! they end by themselves, also across restarts.
//!
//! The heartbeat stops when a message has been undelivered for longer than `patience_seconds`, for
//! whatever reason: then a service outside has to raise the alarm.

use crate::Engine;
use crate::alert::{Alert, Posted};
use crate::engine::Report;
use crate::group::GroupRun;
use crate::ports::StoreError;
use crate::routing::silence::SilenceState;
use crate::rules::ALERT_NAME;
use crate::state::{RuleKey, elapsed};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, Timestamp, error_chain};

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// An alert about alerting ends this long after its condition last held, if no check ends it before.
const HOLD: Duration = Duration::from_secs(120);

/// Time that samples may wait for the disk before an alert fires. A single failed write does not
/// fire one.
const STORAGE_PATIENCE: Duration = Duration::from_secs(10);

/// Shortest time between two log lines about groups that take longer than their interval.
const OVERRUN_LOG_PAUSE: Duration = Duration::from_secs(60);

/// Firing alerts from which on silences of more than half of them are reported.
const SILENCED_OF: usize = 10;

/// Alerts that a check ends once it sees that they hold no longer.
const CANNOT_STORE_SAMPLES: &str = "TaktCannotStoreSamples";
const RULE_FAILING: &str = "TaktRuleFailing";
const DELIVERY_FAILING: &str = "TaktDeliveryFailing";
const SILENCES_TOO_MUCH: &str = "TaktSilencesTooMuch";

/// A URL that is requested regularly while alerting works, so that a service outside notices when
/// the requests stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The URL.
    pub url: String,
    /// Time between two requests.
    pub interval: Duration,
}

/// Settings of self-monitoring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchConfig {
    /// The heartbeat, if configured.
    pub heartbeat: Option<Heartbeat>,
    /// Time that a channel may deliver nothing, or a rule fail, before that is an alert and the
    /// heartbeat stops.
    pub patience: Duration,
}

/// Whether to send the heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeartbeatDue {
    /// Request this URL.
    Now(String),
    /// A heartbeat is due, but messages could not be delivered.
    Withheld,
    /// No heartbeat is due.
    Later,
}

/// Time and text of a rule's failures.
struct RuleFailure {
    since: Timestamp,
    last: Timestamp,
    error: String,
}

/// Start and error of a series of failed commits.
struct CommitFailure {
    since: Timestamp,
    error: StoreError,
}

/// Start and reason of a time without writing samples.
struct StorageFailure {
    since: Timestamp,
    reason: String,
}

/// State of self-monitoring.
pub(super) struct Watch {
    pub config: WatchConfig,
    /// When the first look was.
    began_at: Option<Timestamp>,
    /// Time of the next heartbeat; `None` before the first look.
    beat_at: Option<Timestamp>,
    check_at: Timestamp,
    failing_rules: BTreeMap<RuleKey, RuleFailure>,
    failing_commits: Option<CommitFailure>,
    failing_storage: Option<StorageFailure>,
    overrun_log_at: Timestamp,
}

impl Watch {
    pub fn new(config: WatchConfig) -> Self {
        Self {
            config,
            began_at: None,
            beat_at: None,
            check_at: Timestamp(0),
            failing_rules: BTreeMap::new(),
            failing_commits: None,
            failing_storage: None,
            overrun_log_at: Timestamp(0),
        }
    }

    /// Logs the groups of rules that ran out of time in their last evaluation.
    pub fn log_overruns(&mut self, engine: &Engine, now: Timestamp) {
        if now < self.overrun_log_at {
            return;
        }
        // A pause only after a line: the first overrun after a quiet time is logged at once.
        for overrun in engine.overruns() {
            self.overrun_log_at = now.plus(OVERRUN_LOG_PAUSE);
            tracing::warn!(
                group = overrun.group,
                rule = overrun.rule,
                seconds = overrun.took.as_secs(),
                interval_seconds = overrun.interval.as_secs(),
                "a group of rules takes longer than its interval: its evaluation was cut"
            );
        }
    }

    /// Notes the result of a commit. The first failure is reported with the next tick.
    pub fn committed(&mut self, result: &Result<(), StoreError>, now: Timestamp) {
        let Err(error) = result else {
            self.failing_commits = None;
            return;
        };

        let known = self.failing_commits.take();
        // The first failure is reported with the next tick, not up to 30 s later.
        if known.is_none() {
            self.check_at = now;
        }

        self.failing_commits = Some(CommitFailure {
            since: known.map_or(now, |known| known.since),
            error: error.clone(),
        });
    }

    /// Notes the reason why samples are not written, if any. A lasting one is reported as soon as
    /// it has lasted long enough.
    pub fn note_storage(&mut self, problem: Option<String>, now: Timestamp) {
        let known = self.failing_storage.take();
        let Some(reason) = problem else {
            // The end of what was reported is reported at once, too.
            if known.is_some_and(|known| known.since.plus(STORAGE_PATIENCE) <= now) {
                self.check_at = now;
            }
            return;
        };

        let since = known.map_or(now, |known| known.since);
        let due = since.plus(STORAGE_PATIENCE);
        // The regular check could come up to 30 s after the patience has ended.
        if now <= due {
            self.check_at = self.check_at.min(due);
        }
        self.failing_storage = Some(StorageFailure { since, reason });
    }

    /// Whether to send the heartbeat now.
    pub fn heartbeat_due(&mut self, engine: &Engine, now: Timestamp) -> HeartbeatDue {
        let Some(heartbeat) = self.config.heartbeat.as_ref() else {
            return HeartbeatDue::Later;
        };
        // A server that ends soon after each start watches nothing, and sends no heartbeat.
        let first = now.plus(heartbeat.interval.min(CHECK_EVERY));
        if now < *self.beat_at.get_or_insert(first) {
            return HeartbeatDue::Later;
        }

        self.beat_at = Some(now.plus(heartbeat.interval));
        let undelivered = engine.outbox().late(now.minus(self.config.patience));
        if undelivered.is_empty() {
            return HeartbeatDue::Now(heartbeat.url.clone());
        }

        let channels: Vec<_> = undelivered.iter().map(|row| row.channel.as_str()).collect();
        tracing::error!(
            channels = channels.join(", "),
            "withholding the heartbeat: messages could not be delivered"
        );
        HeartbeatDue::Withheld
    }

    /// The alerts about alerting that hold now, and those that do not hold any more, with their end.
    pub fn look(&mut self, engine: &Engine, report: &Report, now: Timestamp) -> Vec<Posted> {
        self.began_at.get_or_insert(now);
        // Each tick, as the report has only what failed since the last one.
        self.note_failures(engine, report, now);
        if now < self.check_at {
            return Vec::new();
        }

        self.check_at = now.plus(CHECK_EVERY);
        let mut alerts: Vec<Posted> = self.uncommitted(now).into_iter().collect();
        alerts.extend(self.unwritten(now));
        alerts.extend(self.broken_rules(now));
        alerts.extend(self.late_channels(engine, now));
        alerts.extend(silences(engine, now));
        // Alerts of one channel or rule may come twice, with older and newer rows.
        let mut seen = BTreeSet::new();
        alerts.retain(|one| seen.insert(one.labels.clone()));

        let over = engine.own_alerts().filter(|alert| {
            !seen.contains(&alert.labels) && self.is_known_over(alert.label(ALERT_NAME), now)
        });
        alerts.extend(over.map(|alert| ended(alert, now)));
        alerts
    }

    /// Whether an alert of this name is over that no check has found now. After a start, it takes a while until what
    /// went on before is seen again.
    fn is_known_over(&self, name: &str, now: Timestamp) -> bool {
        let watched = self.began_at.map(|began| elapsed(began, now));
        let watched = watched.unwrap_or_default();
        match name {
            // Samples are committed each second.
            CANNOT_STORE_SAMPLES => watched >= CHECK_EVERY,
            // The rule has to fail for as long again.
            RULE_FAILING => watched >= self.config.patience + CHECK_EVERY,
            // The outbox and the silences are stored.
            DELIVERY_FAILING | SILENCES_TOO_MUCH => true,
            // One commit between failing ones is no end: it ends after `HOLD`.
            _ => false,
        }
    }

    fn note_failures(&mut self, engine: &Engine, report: &Report, now: Timestamp) {
        for (rule, error) in &report.failures {
            let known = self.failing_rules.get(rule);
            let failure = RuleFailure {
                since: known.map_or(now, |known| known.since),
                last: now,
                error: error_chain(error),
            };
            self.failing_rules.insert(rule.clone(), failure);
        }

        if self.failing_rules.is_empty() {
            return;
        }

        // A rule that has not failed for two minutes counts as working again, unless it was not evaluated since then:
        // groups may have intervals of hours.
        let failing: BTreeSet<&RuleKey> =
            engine.groups().iter().flat_map(GroupRun::failing).collect();
        self.failing_rules
            .retain(|rule, failure| failure.last >= now.minus(HOLD) || failing.contains(rule));
    }

    fn uncommitted(&self, now: Timestamp) -> Option<Posted> {
        let failure = self.failing_commits.as_ref()?;
        Some(store_failure(failure.since, &failure.error, now))
    }

    /// Samples cannot be stored: a crash would lose those that wait.
    fn unwritten(&self, now: Timestamp) -> Option<Posted> {
        let failure = self.failing_storage.as_ref()?;
        if now < failure.since.plus(STORAGE_PATIENCE) {
            return None;
        }

        let labels = [
            (ALERT_NAME, CANNOT_STORE_SAMPLES),
            ("severity", "critical"),
            ("scope", "takt"),
        ];
        let summary = format!("Takt does not store samples: {}", failure.reason);
        let action = "Free space on the disk of the data directory, or repair it. Samples wait in \
                      memory meanwhile; a restart loses them.";
        Some(posted(&labels, &summary, action, failure.since, now))
    }

    fn broken_rules(&self, now: Timestamp) -> impl Iterator<Item = Posted> {
        let since_max = now.minus(self.config.patience);
        self.failing_rules
            .iter()
            // One failure does not last, however long the next evaluation is away.
            .filter(move |(_, failure)| failure.since <= since_max && failure.since < failure.last)
            .map(move |(rule, failure)| {
                let labels = [
                    (ALERT_NAME, RULE_FAILING),
                    ("rule", &rule.0),
                    ("severity", "critical"),
                    ("scope", "takt"),
                ];
                let summary = format!("The rule {rule} cannot be evaluated: {}", failure.error);
                posted(&labels, &summary, "Correct the rule.", failure.since, now)
            })
    }

    fn late_channels(&self, engine: &Engine, now: Timestamp) -> Vec<Posted> {
        engine
            .outbox()
            .late(now.minus(self.config.patience))
            .into_iter()
            .map(|row| {
                let labels = [
                    (ALERT_NAME, DELIVERY_FAILING),
                    ("channel", row.channel.as_str()),
                    ("severity", "critical"),
                    ("scope", "takt"),
                ];
                let summary = format!(
                    "Messages for {} have not been delivered since {}: {}",
                    row.channel,
                    row.created_at,
                    row.error.as_deref().unwrap_or("no answer")
                );
                let action = "Look at the channel's settings and at the other side.";
                posted(&labels, &summary, action, row.created_at, now)
            })
            .collect()
    }
}

/// The alert that says since when alert state cannot be stored: after a crash messages would come
/// twice, and silences and acknowledgements would be lost.
pub fn store_failure(since: Timestamp, error: &StoreError, now: Timestamp) -> Posted {
    let labels = [
        ("alertname", "TaktCannotStoreAlerts"),
        ("severity", "critical"),
        ("scope", "takt"),
    ];
    let summary = format!("Takt cannot store alert state: {error}");
    let action = "Look at the disk of the data directory. Messages are still sent; after a \
                  restart some may come twice.";
    posted(&labels, &summary, action, since, now)
}

/// An alert if silences cover most of the firing alerts.
fn silences(engine: &Engine, now: Timestamp) -> Option<Posted> {
    let (count, all) = silenced(engine, now)?;
    let labels = [
        (ALERT_NAME, SILENCES_TOO_MUCH),
        ("severity", "warning"),
        ("scope", "takt"),
    ];
    let summary = format!("{count} of {all} alerts that fire are silenced");
    let action = "Look at `takt alerts silence` for one that covers too much.";
    Some(posted(&labels, &summary, action, now, now))
}

/// The number of silenced alerts and of firing alerts, if most of many are silenced.
fn silenced(engine: &Engine, now: Timestamp) -> Option<(usize, usize)> {
    // Usually no silence is active, and no alert has to be looked at.
    let router = engine.router();
    if !router
        .silences
        .list(now)
        .iter()
        .any(|silence| silence.state(now) == SilenceState::Active)
    {
        return None;
    }

    // Takt's own alerts do not count: this one would change its own condition.
    let firing = router
        .alerts()
        .iter()
        .filter(|(_, alert)| !alert.is_resolved(now) && alert.label("scope") != "takt");

    let mut all = 0;
    let mut count = 0;
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

/// The alert with its end.
fn ended(alert: &Alert, now: Timestamp) -> Posted {
    Posted {
        labels: alert.labels.clone(),
        annotations: alert.annotations.clone(),
        starts_at: Some(alert.starts_at),
        // The clock may have been set back.
        ends_at: Some(now.max(alert.starts_at)),
        generator_url: alert.generator_url.clone(),
    }
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
    use crate::rules::RuleFile;
    use crate::state::{EvalError, State};
    use crate::testing::Memory;
    use crate::{
        Batch, Snapshot,
        ports::{ExporterState, ExporterStates, QueryError},
    };
    use std::sync::Arc;

    const ROUTES: &str = "
route: {receiver: ops, group_by: [alertname], group_wait: 0s, group_interval: 1s}
receivers:
- name: ops
  slack_configs: [{api_url: 'http://127.0.0.1:1/x', send_resolved: true}]
  webhook_configs: [{url: 'http://127.0.0.1:1/y'}]
";

    const CONFIG: WatchConfig = WatchConfig {
        heartbeat: None,
        patience: Duration::from_secs(300),
    };

    fn engine() -> Engine {
        engine_with(&[])
    }

    fn engine_with(rules: &[RuleFile]) -> Engine {
        let defaults = Defaults {
            interval: Duration::from_secs(15),
            query_offset: Duration::ZERO,
        };
        let settings = Settings {
            external_url: "http://takt".to_owned(),
            timezone: None,
            pages: None,
        };
        let server = Server {
            external_labels: Labels::new(),
            defaults,
            settings,
            posted_max: 1000,
        };
        Engine::new(
            server,
            rules,
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

    /// Returns the messages to channels at `now`; `slack` accepts no message.
    fn sent(engine: &mut Engine, now: Timestamp) -> Vec<(String, String)> {
        let _: Batch = engine.flush(&Memory::default(), now);

        let mut sent = Vec::new();
        loop {
            let (rows, _) = engine.send_due(now);
            if rows.is_empty() {
                return sent;
            }
            for row in rows {
                let outcome = if row.channel.contains("slack") {
                    Outcome::TryAgain {
                        after: Some(Duration::from_secs(10)),
                        error: "503".to_owned(),
                    }
                } else {
                    let names = row
                        .message
                        .alerts
                        .iter()
                        .filter_map(|alert| alert.labels.get("alertname"));
                    sent.push((row.channel.clone(), names.collect::<Vec<_>>().join(" ")));
                    Outcome::Sent(None)
                };
                engine.answered(row.id, &outcome, &|_| None, now);
            }
        }
    }

    #[test]
    fn a_channel_that_takes_nothing_is_reported_over_the_others_and_its_end_too() {
        let mut engine = engine();
        let mut watch = Watch::new(CONFIG);
        engine.post(vec![fault()], at(0));

        let mut seen = Vec::new();
        for second in (0..400).step_by(10) {
            let now = at(second);
            let posted = watch.look(&engine, &Report::default(), now);
            engine.post(posted, now);
            seen.extend(
                sent(&mut engine, now)
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
    fn a_silence_over_most_alerts_is_reported() {
        let mut engine = engine();
        let mut watch = Watch::new(CONFIG);

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

        // Ten of twenty alerts, g10 to g19, are exactly half.
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
        let engine = engine();
        let mut watch = Watch::new(CONFIG);
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

        // Five minutes of patience, and up to 30 s to the check.
        assert!((300..=330).contains(&first.unwrap()), "{first:?}");
        let quiet = watch.look(&engine, &Report::default(), at(2_000));
        assert!(quiet.is_empty(), "it works again");
    }

    /// A rule that was evaluated each ten minutes counted as working two minutes after each failure.
    #[test]
    fn a_failing_rule_is_reported_however_long_its_interval_is() {
        let text = "groups: [{name: g, interval: 10m, rules: [{alert: A, expr: hot > 1}]}]";
        let mut engine = engine_with(&[RuleFile::read("r.yml", text).unwrap()]);
        let mut watch = Watch::new(CONFIG);
        let samples = Memory::default();

        let mut reported = |seconds: std::ops::Range<i64>, is_broken: bool| {
            samples.break_queries(is_broken);
            let mut reported = Vec::new();
            for second in seconds.step_by(10) {
                let none_down =
                    |_, _| -> ExporterStates { Box::new(|_: &Labels| ExporterState::Answers) };
                let report = engine
                    .evaluate(&samples, &samples, &none_down, at(second))
                    .1;
                if !watch.look(&engine, &report, at(second)).is_empty() {
                    reported.push(second);
                }
            }
            reported
        };

        // After the second failure, and then with each check.
        let first = reported(0..1_800, true);
        let begin = *first.first().unwrap();
        assert!((300..=1_230).contains(&begin), "{first:?}");
        assert_eq!(first, (begin..1_800).step_by(30).collect::<Vec<_>>());
        let later = reported(1_800..3_600, false);
        assert!(later.iter().all(|second| *second < 2_600), "{later:?}");
    }

    #[test]
    fn the_heartbeat_stops_while_a_message_cannot_be_delivered() {
        let mut engine = engine();
        let url = "http://127.0.0.1:1/beat".to_owned();
        let mut watch = Watch::new(WatchConfig {
            heartbeat: Some(Heartbeat {
                url: url.clone(),
                interval: Duration::from_secs(60),
            }),
            ..CONFIG
        });

        engine.post(vec![fault()], at(0));
        let _: Batch = engine.flush(&Memory::default(), at(0));
        let (rows, _) = engine.send_due(at(0));
        assert_eq!(rows.len(), 2, "Slack and the webhook");

        let beats = |watch: &mut Watch, engine: &Engine, from: i64, to: i64| {
            let due = (from..to).map(|second| watch.heartbeat_due(engine, at(second)));
            due.filter(|due| *due != HeartbeatDue::Later)
                .collect::<Vec<_>>()
        };
        let sent = HeartbeatDue::Now(url);

        // The first comes after 30 s, not at the start.
        assert_eq!(beats(&mut watch, &engine, 0, 30), []);
        assert_eq!(beats(&mut watch, &engine, 30, 300), vec![sent.clone(); 5]);
        // No channel has answered: not even an error.
        assert_eq!(
            beats(&mut watch, &engine, 301, 421),
            vec![HeartbeatDue::Withheld; 2]
        );

        for row in rows {
            engine.answered(row.id, &Outcome::Sent(None), &|_| None, at(421));
        }
        assert_eq!(beats(&mut watch, &engine, 421, 481), [sent]);
    }

    #[test]
    fn a_failed_commit_is_reported_at_once_and_ends() {
        let engine = engine();
        let mut watch = Watch::new(CONFIG);
        let report = Report::default();
        assert!(watch.look(&engine, &report, at(0)).is_empty());
        let full = Err(StoreError("No space left on device".to_owned()));
        watch.committed(&full, at(1));
        watch.committed(&full, at(2));
        let alerts = watch.look(&engine, &report, at(2));
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!(
            alerts[0].labels.get("alertname"),
            Some("TaktCannotStoreAlerts")
        );
        assert_eq!(alerts[0].starts_at, Some(at(1)));
        assert!(alerts[0].annotations["summary"].contains("No space left"));

        watch.committed(&Ok(()), at(3));
        assert!(watch.look(&engine, &report, at(60)).is_empty());
    }

    #[test]
    fn samples_that_cannot_be_stored_are_reported_after_seconds() {
        let engine = engine();
        let mut watch = Watch::new(CONFIG);
        let mut at_second = |second, problem: Option<&str>| {
            watch.note_storage(problem.map(str::to_owned), at(second));
            watch.look(&engine, &Report::default(), at(second))
        };
        assert!(at_second(0, None).is_empty());
        // One failed write.
        assert!(at_second(31, Some("Input/output error")).is_empty());
        assert!(at_second(32, None).is_empty());
        // Ten seconds of patience.
        for second in 40..50 {
            assert!(
                at_second(second, Some("12 bytes free")).is_empty(),
                "{second}"
            );
        }

        let alerts = at_second(50, Some("12 bytes free"));
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!(
            alerts[0].labels.get("alertname"),
            Some("TaktCannotStoreSamples")
        );
        assert_eq!(alerts[0].starts_at, Some(at(40)));
        assert!(alerts[0].annotations["summary"].contains("12 bytes free"));
        assert!(at_second(120, None).is_empty());
    }

    /// Ten minutes after the disk had room again, and after a restart, the alert was still there, with a wrong end.
    #[test]
    fn the_end_of_an_alert_of_takt_is_told_at_once_and_the_history_has_it() {
        let mut engine = engine();
        let mut watch = Watch::new(CONFIG);
        let mut tick = |engine: &mut Engine, second, problem: Option<&str>| {
            watch.note_storage(problem.map(str::to_owned), at(second));
            let posted = watch.look(engine, &Report::default(), at(second));
            let batch = engine.post(posted, at(second)).0;
            batch.then(engine.flush(&Memory::default(), at(second)))
        };
        let steps = |batch: &Batch| -> Vec<(State, i64)> {
            let all = batch.transitions.iter();
            all.map(|one| (one.to, (one.at - at(0)) / 1000)).collect()
        };

        let mut stored = Vec::new();
        let mut changes = Vec::new();
        for second in 0..100 {
            let batch = tick(
                &mut engine,
                second,
                (5..80).contains(&second).then_some("full"),
            );
            changes.extend(steps(&batch));
            stored.extend(batch.alerts);
        }
        assert_eq!(changes, [(State::Firing, 5), (State::Inactive, 80)]);
        assert_eq!(engine.own_alerts().count(), 0);

        // Takt ends while the disk is full, and has room after the restart.
        let full = stored
            .iter()
            .find(|alert| !alert.is_resolved(at(60)))
            .unwrap();
        let mut engine = engine_with(&[]);
        let snapshot = Snapshot {
            alerts: vec![full.clone()],
            down_at: Some(at(60)),
            ..Snapshot::default()
        };
        let _: Batch = engine.restore(snapshot, at(70));

        let mut watch = Watch::new(CONFIG);
        let mut changes = Vec::new();
        for second in 70..200 {
            watch.note_storage(None, at(second));
            let posted = watch.look(&engine, &Report::default(), at(second));
            changes.extend(steps(&engine.post(posted, at(second)).0));
        }
        // The first check that knows of commits.
        assert_eq!(changes, [(State::Inactive, 100)]);
    }
}
