//! Routing in one value: alerts go in, messages come out, the clock is an argument.

use super::config::{Config, Integration, Receiver};
use super::dedup::{LogEntry, NotifiedAlert, Reason};
use super::group::{AlertArrival, GroupId, Groups};
use super::inhibit::{Inhibitor, LINGER, SourceAlert};
use super::maintenance::Maintenance;
use super::matcher::Matchers;
use super::plan::{GroupMember, plan};
use super::routes::Route;
use super::silence::Silences;
use crate::alert::{Alert, AlertBook};
use crate::fingerprint::Fingerprint;
use crate::message::{Message, MessageAlert, Status};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Time intervals begin and end at full minutes.
const MINUTE_MS: i64 = 60_000;

/// How soon people are told that what they were told to do is no longer right.
const CORRECTED_WITHIN: Duration = Duration::from_secs(30);

/// The key of a log entry: one channel and one group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogKey {
    /// The group.
    pub group_key: String,
    /// The channel.
    pub channel: String,
}

/// A change of the notification log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// The entry's key.
    pub key: LogKey,
    /// The new entry; `None` deletes it.
    pub entry: Option<LogEntry>,
}

/// The results of routing, to be committed together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Messages to send.
    pub messages: Vec<Message>,
    /// Changes of the notification log.
    pub log: Vec<Logged>,
    /// Alerts to forget.
    pub forgotten: Vec<Fingerprint>,
}

/// Settings of the server that routing needs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of this server for links in messages.
    pub external_url: String,
    /// Time zone (IANA name) of the times in Takt's own texts; `None` is UTC.
    pub timezone: Option<String>,
    /// Pages: alerts whose beginning and end are sent without waiting.
    pub pages: Option<Matchers>,
}

/// Reasons why no message is sent about an alert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// Silences that cover it.
    pub silenced_by: Vec<String>,
    /// The alert that inhibits it.
    pub inhibited_by: Option<Fingerprint>,
    /// Time intervals that mute its routes, and the maintenance of its node.
    pub muted_by: Vec<String>,
}

/// Routes, alerts, groups, silences and the notification log.
#[derive(Debug)]
pub struct Router {
    config: Config,
    settings: Settings,
    alerts: AlertBook,
    groups: Groups,
    /// All silences.
    pub silences: Silences,
    /// Present and future maintenance of nodes.
    maintenance: Vec<Maintenance>,
    log: BTreeMap<LogKey, LogEntry>,
    /// When resolved alerts that may still inhibit others can be forgotten; `None` without such
    /// alerts.
    forget_at: Option<Timestamp>,
}

impl Router {
    /// Routing without any alert.
    pub fn new(config: Config, settings: Settings) -> Self {
        Self {
            config,
            settings,
            alerts: AlertBook::default(),
            groups: Groups::default(),
            silences: Silences::default(),
            maintenance: Vec::new(),
            log: BTreeMap::new(),
            forget_at: None,
        }
    }

    /// Restores the stored state. Alerts that channels know as firing and that are not among
    /// `alerts` have resolved.
    pub fn restore(
        &mut self,
        alerts: impl IntoIterator<Item = Alert>,
        log: impl IntoIterator<Item = (LogKey, LogEntry)>,
        silences: Silences,
        now: Timestamp,
    ) -> Changes {
        self.silences = silences;

        self.log = log.into_iter().collect();
        for alert in alerts {
            self.alerts.take(alert);
        }

        // Resolved alerts that belong to no group are forgotten with the first flush.
        self.forget_at = Some(now);
        self.regroup(now)
    }

    /// Replaces the server's settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Continues with another configuration. Groups that exist in both keep their timers, and the
    /// notification log stays.
    pub fn reconfigure(&mut self, config: Config, now: Timestamp) -> Changes {
        let config_before = mem::replace(&mut self.config, config);
        let groups_before = mem::take(&mut self.groups);
        // All alerts are grouped again before timers are compared: groups may have split or moved.
        let changes = self.regroup(now);
        self.groups.keep_timers(
            &groups_before,
            &config_before.routes,
            &self.config.routes,
            now,
        );
        changes
    }

    /// Takes an alert in its present state and returns the merged alert for the store.
    pub fn take(&mut self, alert: Alert, now: Timestamp) -> &Alert {
        let fingerprint = alert.fingerprint();
        // A rule is evaluated a little in the past: after a restart, before the time at which what only a channel knew
        // was taken for resolved.
        let at = now.max(alert.updated_at);
        let was_firing = self
            .alerts
            .get(fingerprint)
            .is_some_and(|known| !known.is_resolved(at));

        let alert = self.alerts.take(alert);

        // The end of a page is as urgent as its beginning: an operator may be on the way.
        let is_turn = was_firing == alert.is_resolved(at);
        let pages = self.settings.pages.as_ref();
        let is_page = is_turn && pages.is_some_and(|pages| pages.accept(&alert.labels));
        self.groups.take(
            &self.config.routes,
            alert,
            is_page,
            AlertArrival::Fresh,
            now,
        );
        alert
    }

    /// Flushes the groups of the alerts that `concerns` accepts no later than `at`.
    pub fn flush_by(&mut self, concerns: &dyn Fn(&Alert) -> bool, at: Timestamp) {
        let alerts = &self.alerts;
        let is_concerned = |fingerprint: Fingerprint| alerts.get(fingerprint).is_some_and(concerns);
        self.groups.look_at(&is_concerned, at);
    }

    /// Replaces the maintenance of nodes. Alerts that it covers no longer are sent without waiting.
    pub fn set_maintenance(&mut self, maintenance: Vec<Maintenance>, now: Timestamp) {
        let before = mem::replace(&mut self.maintenance, maintenance);
        // A reservation that was made longer counts as ended, and its groups are looked at for nothing.
        let kept = self.maintenance.clone();
        let ended: Vec<_> = before
            .into_iter()
            .filter(|one| !kept.contains(one))
            .collect();

        if !ended.is_empty() {
            let is_covered = |alert: &Alert| ended.iter().any(|one| one.covers(&alert.labels, now));
            self.flush_by(&is_covered, now);
        }
    }

    /// Replaces the annotations of an active alert. Who was told to do something else is corrected soon.
    pub fn reword(&mut self, fingerprint: Fingerprint, words: &[(String, String)], now: Timestamp) {
        let is_told = |entry: &LogEntry| entry.open.contains_key(&fingerprint);
        if self.alerts.reword(fingerprint, words) && self.log.values().any(is_told) {
            let soon = now.plus(CORRECTED_WITHIN);
            self.groups.look_at(&|one| one == fingerprint, soon);
        }
    }

    /// When a group has to be flushed next.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.groups
            .next_due()
            .into_iter()
            .chain(self.forget_at)
            .min()
    }

    /// Flushes the groups that are due: decides on their messages.
    pub fn flush(&mut self, now: Timestamp) -> Changes {
        let due = self.groups.due(&self.config.routes, now);
        if due.is_empty() && self.forget_at.is_none_or(|at| at > now) {
            return Changes::default();
        }

        let mut changes = Changes::default();
        // One for all groups: it is built from all alerts.
        let inhibitor = self.inhibitor(now);
        let decided: Vec<_> = due
            .iter()
            .map(|id| self.decide(id, &inhibitor, now))
            .collect();

        for (id, decided) in due.iter().zip(decided) {
            changes.messages.extend(decided.messages);
            for Logged { key, entry } in &decided.log {
                self.set_log(key, entry.clone());
            }
            changes.log.extend(decided.log);

            if let Some(at) = decided.look_again {
                self.groups.look_by(id, at);
            }
            // After the log is set: only what every channel has as ended is forgotten.
            self.forget_resolved(id, &mut changes, now);
        }
        changes.forgotten = self.forget(now);
        changes
    }

    /// Forgets resolved alerts that neither a group nor the inhibition of others needs, and returns
    /// them.
    fn forget(&mut self, now: Timestamp) -> Vec<Fingerprint> {
        let groups = &self.groups;
        let held: BTreeSet<_> = groups.iter().flat_map(|id| groups.members(id)).collect();

        let rules = &self.config.inhibit_rules;

        // A source of inhibition is kept for a while after its end.
        let lingers_until = |alert: &Alert| {
            let until = alert.ends_at?.plus(LINGER);
            let is_source = rules.iter().any(|rule| rule.source.accept(&alert.labels));
            (is_source && until > now).then_some(until)
        };

        let forgotten = self.alerts.forget_resolved(now, |fingerprint, alert| {
            held.contains(&fingerprint) || lingers_until(alert).is_some()
        });

        self.forget_at = self
            .alerts
            .iter()
            .map(|(_, alert)| alert)
            .filter(|alert| alert.is_resolved(now))
            .filter_map(lingers_until)
            .min();
        forgotten
    }

    /// All alerts that are known.
    pub fn alerts(&self) -> &AlertBook {
        &self.alerts
    }

    /// Whether the channel of a message counts as knowing that an alert fires.
    pub fn is_open(&self, message: &Message, fingerprint: Fingerprint) -> bool {
        let key = LogKey {
            group_key: message.group_key.clone(),
            channel: message.channel.clone(),
        };
        let entry = self.log.get(&key);
        entry.is_some_and(|entry| entry.open.contains_key(&fingerprint))
    }

    /// The server's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The groups: route, shared labels, alerts.
    pub fn groups(&self) -> impl Iterator<Item = (&Route, &Labels, Vec<&Alert>)> {
        self.groups.iter().map(|id| {
            let alerts = self
                .groups
                .members(id)
                .filter_map(|fingerprint| self.alerts.get(fingerprint));
            (
                self.config.routes.get(id.route),
                &id.labels,
                alerts.collect(),
            )
        })
    }

    /// Returns a function that gives the reasons why no message is sent about an alert; one call
    /// serves many alerts.
    pub fn suppressed<'a>(&'a self, now: Timestamp) -> impl Fn(&Alert) -> Suppressed + use<'a> {
        let inhibitor = self.inhibitor(now);

        move |alert| {
            let muted = self
                .config
                .routes
                .matching(&alert.labels)
                .into_iter()
                .flat_map(|at| self.muting_intervals(self.config.routes.get(at), now));
            let work = self
                .maintenance
                .iter()
                .filter(|work| work.covers(&alert.labels, now));
            let work = work.map(|work| format!("reservation {}", work.name));

            Suppressed {
                silenced_by: self
                    .silences
                    .covering(&alert.labels, now)
                    .map(|silence| silence.id.clone())
                    .collect(),
                inhibited_by: inhibitor
                    .inhibits(&alert.labels, fires_since(alert, now))
                    .map(|inhibition| inhibition.by),
                muted_by: muted.map(str::to_owned).chain(work).collect(),
            }
        }
    }

    fn inhibitor(&self, now: Timestamp) -> Inhibitor<'_> {
        let sources = self
            .alerts
            .iter()
            .map(|(fingerprint, alert)| SourceAlert {
                fingerprint,
                labels: &alert.labels,
                ended_at: alert.ends_at.filter(|end| *end <= now),
            })
            // A source that has ended still inhibits for a while what fired before its end.
            .filter(|source| {
                let until = source.ended_at.map(|end| end.plus(LINGER));
                until.is_none_or(|until| until > now)
            });
        Inhibitor::new(&self.config.inhibit_rules, sources)
    }

    /// The time intervals that mute a route now.
    fn muting_intervals<'a>(&'a self, route: &'a Route, now: Timestamp) -> Vec<&'a str> {
        let is_inside = |name: &String| {
            self.config
                .time_intervals
                .get(name)
                .is_some_and(|all| all.iter().any(|interval| interval.contains(now)))
        };

        // Outside of all active intervals the route is muted, and each of them is a reason.
        let active = &route.active_time_intervals;

        let outside = active.iter().filter(|_| !active.iter().any(is_inside));
        let inside = route
            .mute_time_intervals
            .iter()
            .filter(|name| is_inside(name));
        inside.chain(outside).map(String::as_str).collect()
    }

    fn decide(&self, id: &GroupId, inhibitor: &Inhibitor<'_>, now: Timestamp) -> Decided {
        let route = self.config.routes.get(id.route);
        let is_mute = !self.muting_intervals(route, now).is_empty();
        let alerts = self
            .groups
            .members(id)
            .filter_map(|print| Some((print, self.alerts.get(print)?)));

        let mut look_again = None;
        let members: Vec<_> = alerts
            .map(|(fingerprint, alert)| {
                let inhibition = inhibitor.inhibits(&alert.labels, fires_since(alert, now));
                look_again = inhibition
                    .and_then(|inhibition| inhibition.until)
                    .into_iter()
                    .chain(look_again)
                    .min();

                let silences = self.silences.covering(&alert.labels, now);
                let work = self.maintenance.iter();
                let work = work.filter(|work| work.covers(&alert.labels, now));
                let until = silences
                    .map(|silence| silence.ends_at)
                    .chain(work.map(|work| work.to))
                    .min();
                // What still fires when the mute ends waits no longer.
                if !alert.is_resolved(now) {
                    look_again = until.into_iter().chain(look_again).min();
                }

                GroupMember {
                    fingerprint,
                    alert,
                    is_muted: is_mute || inhibition.is_some() || until.is_some(),
                    is_route_muted: is_mute,
                }
            })
            .collect();
        if is_mute {
            // With the next full minute the interval may have ended, and what was held back is sent.
            let next_minute = Timestamp(now.0 - now.0.rem_euclid(MINUTE_MS) + MINUTE_MS);
            look_again = look_again.into_iter().chain([next_minute]).min();
        }

        let group_key = id.key(&self.config.routes);
        let mut messages = Vec::new();
        let mut log = Vec::new();
        for (receiver, integration) in self.channels(route) {
            let key = LogKey {
                group_key: group_key.clone(),
                channel: receiver.channel(integration),
            };
            let entry = self.log.get(&key);
            let plan = plan(
                entry,
                &members,
                integration.send_resolved,
                route.repeat_interval,
                now,
            );

            if !plan.alerts.is_empty() {
                let alerts = plan
                    .alerts
                    .iter()
                    .filter_map(|print| self.alerts.get(*print))
                    .map(|alert| MessageAlert::new(alert, now))
                    .collect();
                let mut message = self.message(
                    &key,
                    receiver,
                    plan.reason,
                    &id.labels,
                    &route.labels,
                    alerts,
                );
                message.route_labels = self.config.shared.route_labels(&message, now);
                messages.push(message);
            }

            log.extend(plan.entry.map(|entry| Logged {
                key,
                entry: Some(entry),
            }));
        }
        Decided {
            messages,
            log,
            look_again,
        }
    }

    fn message(
        &self,
        key: &LogKey,
        receiver: &Receiver,
        reason: Reason,
        group_labels: &Labels,
        route_labels: &Labels,
        alerts: Vec<MessageAlert>,
    ) -> Message {
        Message {
            channel: key.channel.clone(),
            receiver: receiver.name.clone(),
            group_key: key.group_key.clone(),
            reason,
            status: Status::Firing,
            group_labels: group_labels.clone(),
            common_labels: Labels::new(),
            common_annotations: BTreeMap::new(),
            route_labels: route_labels.clone(),
            external_url: self.settings.external_url.clone(),
            timezone: self.settings.timezone.clone(),
            acknowledge_url: None,
            alerts,
        }
        .arranged()
    }

    /// The labels of a group's route, as its messages show them.
    pub fn route_labels(
        &self,
        route: &Route,
        group_labels: &Labels,
        alerts: &[&Alert],
        now: Timestamp,
    ) -> Labels {
        let Some(receiver) = self.config.receiver(&route.receiver) else {
            return route.labels.clone();
        };

        let key = LogKey {
            group_key: String::new(),
            channel: String::new(),
        };

        // The templates of labels see the alerts as a message would show them.
        let alerts = alerts
            .iter()
            .map(|alert| MessageAlert::new(alert, now))
            .collect();
        let message = self.message(
            &key,
            receiver,
            Reason::Nothing,
            group_labels,
            &route.labels,
            alerts,
        );
        self.config.shared.route_labels(&message, now)
    }

    fn channels<'a>(
        &'a self,
        route: &Route,
    ) -> impl Iterator<Item = (&'a Receiver, &'a Integration)> + use<'a> {
        let receiver = self.config.receiver(&route.receiver);
        receiver
            .into_iter()
            .flat_map(|receiver| receiver.integrations.iter().map(move |way| (receiver, way)))
    }

    /// Drops the resolved alerts of a group whose end every channel has.
    fn forget_resolved(&mut self, id: &GroupId, changes: &mut Changes, now: Timestamp) {
        let group_key = id.key(&self.config.routes);
        let keys: Vec<_> = self
            .channels(self.config.routes.get(id.route))
            .map(|(receiver, way)| {
                let key = LogKey {
                    group_key: group_key.clone(),
                    channel: receiver.channel(way),
                };
                (key, way.send_resolved)
            })
            .collect();

        let alerts = &self.alerts;
        let log = &self.log;
        let is_over = |fingerprint| {
            alerts
                .get(fingerprint)
                .is_none_or(|alert| alert.is_resolved(now))
        };

        // A channel without ends never closes an alert, so it holds none back.
        let is_awaited = |fingerprint| {
            let waits = |key: &LogKey| {
                log.get(key)
                    .is_some_and(|entry| entry.open.contains_key(&fingerprint))
            };
            keys.iter()
                .any(|(key, send_resolved)| *send_resolved && waits(key))
        };

        if self.groups.retain(id, |fingerprint| {
            !is_over(fingerprint) || is_awaited(fingerprint)
        }) {
            // With its last alert the group's entries end, and the next alert is a first one again.
            for (key, _) in keys {
                if self.log.remove(&key).is_some() {
                    changes.log.push(Logged { key, entry: None });
                }
            }
        }
    }

    fn set_log(&mut self, key: &LogKey, entry: Option<LogEntry>) {
        match entry {
            Some(entry) => drop(self.log.insert(key.clone(), entry)),
            None => drop(self.log.remove(key)),
        }
    }

    /// Groups all alerts again and adapts the log to the new groups.
    fn regroup(&mut self, now: Timestamp) -> Changes {
        // A channel knows them as firing and must get their end, though nothing else is known of them.
        let lost: Vec<_> = self
            .log
            .values()
            .flat_map(|entry| &entry.open)
            .filter(|(print, _)| self.alerts.get(**print).is_none())
            .map(|(_, notified)| resolved(notified, now))
            .collect();

        for alert in lost {
            self.alerts.take(alert);
        }

        for (_, alert) in self.alerts.iter() {
            self.groups.take(
                &self.config.routes,
                alert,
                false,
                AlertArrival::Restored,
                now,
            );
        }
        self.close_strays(now)
    }

    /// Log entries of groups that no longer exist: an alert moves to its new group's entry if the
    /// same channel serves that group; otherwise the channel gets its end.
    fn close_strays(&mut self, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        let mut known: BTreeMap<LogKey, BTreeSet<Fingerprint>> = BTreeMap::new();
        for id in self.groups.iter() {
            let group_key = id.key(&self.config.routes);
            for (receiver, way) in self.channels(self.config.routes.get(id.route)) {
                let key = LogKey {
                    group_key: group_key.clone(),
                    channel: receiver.channel(way),
                };
                known.insert(key, self.groups.members(id).collect());
            }
        }

        let strays: Vec<_> = self
            .log
            .keys()
            .filter(|key| !known.contains_key(key))
            .cloned()
            .collect();
        for key in strays {
            let Some(entry) = self.log.remove(&key) else {
                continue;
            };

            let mut ended = Vec::new();
            for (fingerprint, notified) in entry.open {
                // The same channel serves the alert in its new group: it stays open there, without a message.
                let here = known.iter().find(|(new, members)| {
                    new.channel == key.channel && members.contains(&fingerprint)
                });
                match here {
                    Some((new, _)) => {
                        let at = entry.at;
                        let entry = self.log.entry(new.clone()).or_insert_with(|| LogEntry {
                            at,
                            ..LogEntry::default()
                        });
                        entry.open.insert(fingerprint, notified);
                        changes.log.push(Logged {
                            key: new.clone(),
                            entry: Some(entry.clone()),
                        });
                    }
                    None => ended.push(MessageAlert::new(&resolved(&notified, now), now)),
                }
            }

            changes.messages.extend(self.closing(&key, ended));
            changes.log.push(Logged { key, entry: None });
        }
        changes
    }

    /// The last message to a channel about a group that no longer exists, if the channel still
    /// exists and wants ends.
    fn closing(&self, key: &LogKey, ended: Vec<MessageAlert>) -> Option<Message> {
        let (receiver, way) = self
            .config
            .receivers
            .iter()
            .flat_map(|receiver| receiver.integrations.iter().map(move |way| (receiver, way)))
            .find(|(receiver, way)| receiver.channel(way) == key.channel)?;

        let is_wanted = way.send_resolved && !ended.is_empty();
        is_wanted.then(|| {
            self.message(
                key,
                receiver,
                Reason::Resolved,
                &Labels::new(),
                &Labels::new(),
                ended,
            )
        })
    }
}

/// The decisions about one group.
struct Decided {
    messages: Vec<Message>,
    log: Vec<Logged>,
    /// When the inhibition by a resolved alert ends, and the group must be flushed again.
    look_again: Option<Timestamp>,
}

/// When the alert began to fire; `None` if it has resolved.
fn fires_since(alert: &Alert, now: Timestamp) -> Option<Timestamp> {
    (!alert.is_resolved(now)).then_some(alert.starts_at)
}

/// Returns a resolved alert from its log entry alone.
fn resolved(notified: &NotifiedAlert, now: Timestamp) -> Alert {
    Alert {
        labels: notified.labels.clone(),
        annotations: BTreeMap::new(),
        starts_at: notified.starts_at,
        ends_at: Some(now),
        updated_at: now,
        generator_url: String::new(),
        began_at: None,
        is_timeout: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::matcher::parse_matchers;
    use super::*;

    const ROUTES: &str = "
route: {receiver: ops, group_by: [alertname], group_wait: 30s}
receivers:
- name: ops
  slack_configs: [{channel: '#ops'}]
  email_configs: [{to: ops@lab}]
";

    /// A channel without `send_resolved` still counts an alert as open that ended before a restart. The alert fires again
    /// at an evaluation whose instant is before the restart.
    #[test]
    fn a_page_after_a_restart_is_sent_at_once_beside_a_channel_without_ends() {
        let at = Timestamp::from_seconds;
        let alert = Alert {
            labels: [("alertname", "Lost"), ("severity", "critical")]
                .into_iter()
                .collect(),
            annotations: BTreeMap::new(),
            starts_at: at(990),
            began_at: None,
            ends_at: None,
            updated_at: at(1001),
            generator_url: String::new(),
            is_timeout: false,
        };
        let config = Config::read("am.yml", ROUTES).unwrap();
        let settings = Settings {
            external_url: String::new(),
            timezone: None,
            pages: Some(Matchers(parse_matchers("severity=critical").unwrap())),
        };

        // The e-mail channel has it as open since 100 s; it ended without a message.
        let mut router = Router::new(config, settings);
        let key = LogKey {
            group_key: r#"{}:{alertname="Lost"}"#.to_owned(),
            channel: "ops/email/0".to_owned(),
        };

        let before = Alert {
            starts_at: at(100),
            ..alert.clone()
        };
        let entry = LogEntry {
            at: at(100),
            open: [(before.fingerprint(), NotifiedAlert::new(&before))].into(),
            resolved: BTreeSet::new(),
        };
        // The restart: no alert is known, so the one of the log is taken for resolved.
        router.restore([], [(key, entry)], Silences::default(), at(1000));

        // The evaluation is of an instant ten seconds before the restart.
        router.take(alert, at(990));

        let channels: Vec<_> = router
            .flush(at(1001))
            .messages
            .into_iter()
            .map(|message| message.channel)
            .collect();
        assert_eq!(channels, ["ops/slack/0"]);
    }
}
