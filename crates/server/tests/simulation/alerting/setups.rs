//! The configurations between which the simulation changes.

use std::time::Duration;
use takt_alerts::Batch;
use takt_alerts::Engine;
use takt_alerts::engine::Server;
use takt_alerts::events::EventFile;
use takt_alerts::events::xid::XidTable;
use takt_alerts::group::Defaults;
use takt_alerts::routing::Settings;
use takt_alerts::routing::config::Config;
use takt_alerts::routing::matcher::{Matchers, parse_matchers};
use takt_alerts::rules::RuleFile;
use takt_model::{Labels, Timestamp};

const RULES: &str = "
groups:
- name: gpu
  interval: 15s
  rules:
  - {alert: Hot, expr: hot > 90, for: HOLD, labels: {severity: warning}}
  - {alert: Lost, expr: gpu_present == 0, labels: {severity: critical}}
- name: node
  interval: 15s
  rules:
  - {alert: NodeDown, expr: up == 0, for: 30s, labels: {severity: critical}}
";

const MORE_RULES: &str = "
groups:
- name: slow
  interval: 30s
  rules:
  - {alert: Slow, expr: slow > 0, keep_firing_for: 2m, labels: {severity: warning}}
";

const EVENTS: &str = "
groups:
- name: gpu
  rules:
  - alert: Xid
    when: [{kind: xid, xid: [79]}]
    by: [node, uuid, xid]
    until: gpu_present == 1
    labels: {severity: critical}
";

const PAGER: &str = "
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 30s
  group_interval: 1m
  repeat_interval: 1h
  routes:
  - {matchers: [severity=critical], receiver: pager, continue: true}
  - {matchers: [severity=critical], receiver: ops}
receivers:
- name: ops
  slack_configs: [{channel: '#ops', send_resolved: true}]
  email_configs: [{to: ops@lab}]
- name: pager
  webhook_configs: [{url: 'http://pager/'}]
inhibit_rules:
- {source_matchers: [alertname=NodeDown], target_matchers: [alertname=Hot], equal: [node]}
";

const NIGHT: &str = "
route:
  receiver: ops
  group_by: [alertname, node]
  group_wait: 10s
  group_interval: 2m
  repeat_interval: 30m
  routes:
  - {matchers: [severity=warning], receiver: ops, mute_time_intervals: [night]}
  - {matchers: [severity=critical], receiver: nurse}
receivers:
- name: ops
  slack_configs: [{channel: '#ops', send_resolved: true}]
- name: nurse
  ntfy_configs: [{url: 'http://ntfy/nurse'}]
time_intervals:
- name: night
  time_intervals: [{times: [{start_time: '02:00', end_time: '03:00'}], location: Europe/Oslo}]
";

/// Rules, routes, and what follows from them.
pub struct Setup {
    rules: Vec<RuleFile>,
    events: EventFile,
    config: Config,
    /// Names of the channels, and whether they get ends.
    pub channels: &'static [(&'static str, bool)],
    /// The `for` of the rule that has one.
    pub hold_seconds: u64,
    /// The channels of pages.
    pub pages: &'static [&'static str],
    /// Whether warnings are muted from 2 to 3 o'clock in Oslo.
    pub is_night: bool,
}

const PAGER_CHANNELS: &[(&str, bool)] = &[
    ("ops/slack/0", true),
    ("ops/email/0", false),
    ("pager/webhook/0", true),
];

const NIGHT_CHANNELS: &[(&str, bool)] = &[("ops/slack/0", true), ("nurse/ntfy/0", true)];

impl Setup {
    fn new(hold_seconds: u64, has_more: bool, routes: &str) -> Self {
        let text = RULES.replace("HOLD", &format!("{hold_seconds}s"));
        let mut rules = vec![RuleFile::read("r.yml", &text).unwrap()];
        if has_more {
            rules.push(RuleFile::read("more.yml", MORE_RULES).unwrap());
        }

        let is_night = routes == NIGHT;
        Self {
            rules,
            events: EventFile::read("e.events.yml", EVENTS, XidTable::shipped()).unwrap(),
            config: Config::read("am.yml", routes).unwrap(),
            hold_seconds,
            is_night,
            channels: if is_night {
                NIGHT_CHANNELS
            } else {
                PAGER_CHANNELS
            },
            pages: if is_night {
                &["nurse/ntfy/0"]
            } else {
                &["pager/webhook/0", "ops/slack/0"]
            },
        }
    }

    /// All of them; the first is the one at the start.
    pub fn all() -> Vec<Self> {
        // They differ in routes, in the `for` of a rule, and in a rule that is gone.
        vec![
            Self::new(60, true, PAGER),
            Self::new(60, true, NIGHT),
            Self::new(120, true, PAGER),
            Self::new(60, false, PAGER),
        ]
    }

    pub fn engine(&self) -> Engine {
        let settings = Settings {
            external_url: "http://takt".to_owned(),
            timezone: Some("Europe/Oslo".to_owned()),
            pages: Some(Matchers(parse_matchers("severity=critical").unwrap())),
        };

        let server = Server {
            external_labels: Labels::new(),
            defaults: Defaults {
                interval: Duration::from_secs(15),
                query_offset: Duration::ZERO,
            },
            settings,
            posted_max: 10_000,
        };
        Engine::new(
            server,
            &self.rules,
            std::slice::from_ref(&self.events),
            XidTable::shipped().clone(),
            self.config.clone(),
        )
    }

    pub fn reload(&self, engine: &mut Engine, now: Timestamp) -> Batch {
        let xids = XidTable::shipped().clone();
        let events = std::slice::from_ref(&self.events);
        engine.reload(&self.rules, events, xids, self.config.clone(), now)
    }

    /// The channel that gets what another refused for good, as in `Channels::fallback`: one of
    /// another kind, preferably of the same receiver.
    pub fn fallback(&self, failed: &str) -> Option<String> {
        let has = |name: &str| self.channels.iter().any(|(channel, _)| *channel == name);
        let wanted = ["ops/email/0", "ops/slack/0"];
        let found = wanted.into_iter().find(|name| *name != failed && has(name));
        found.map(str::to_owned)
    }

    pub fn has(&self, channel: &str) -> bool {
        self.channels.iter().any(|(name, _)| *name == channel)
    }
}
