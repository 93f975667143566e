//! Rules, events, routing and outbox in one value: changes go in, batches to commit come out.
//!
//! The caller commits each [`Batch`] in one transaction before it acts on it. A batch that could
//! not be committed is merged with the next one; its messages are sent nevertheless.

mod batch;
mod close;
mod context;
mod evaluate;
mod flaps;
mod gap;
mod gpu_names;
mod own;
mod posted;
mod texts;

pub use batch::{Batch, Snapshot};
pub use close::CLOSED;
pub use evaluate::{Overrun, RuleOutcome, RuleStep, RuleTask};
pub use flaps::FLAPPING_LABEL;
pub use texts::Texts;

use crate::alert::Alert;
use crate::events::{EventFile, EventRun, EventSeries, xid::XidTable};
use crate::fingerprint::Fingerprint;
use crate::flapping::Flapping;
use crate::group::{Defaults, Evaluation, GroupRun};
use crate::outbox::{BACKOFF_MAX, Fallback, Outbox, Outcome, Row, first_row};
use crate::ports::Query;
use crate::routing::config::Config;
use crate::routing::maintenance::Maintenance;
use crate::routing::silence::{Silence, SilenceError, Silences};
use crate::routing::{Changes, Logged, Router, Settings};
use crate::rules::RuleFile;
use crate::state::{EvalError, Instance, RuleKey, State, Transition};
use gap::Watched;
use gpu_names::GpuNames;
use posted::PostedAlerts;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use takt_model::{Event, Labels, Timestamp};

/// The annotation of an alert that ended because its rule was removed.
pub const RULE_REMOVED: &str = "rule_removed";

/// Settings of the server that the engine needs.
#[derive(Debug, Clone)]
pub struct Server {
    /// Labels of this server, for templates.
    pub external_labels: Labels,
    /// Defaults for groups of rules.
    pub defaults: Defaults,
    /// Settings for routing.
    pub settings: Settings,
    /// Posted alerts that may be known at once.
    pub posted_max: usize,
}

/// Failures and counts of an evaluation.
#[derive(Debug, Default)]
pub struct Report {
    /// Rules that failed, and why.
    pub failures: Vec<(RuleKey, EvalError)>,
    /// Missed evaluations, which are skipped.
    pub missed: u64,
    /// Samples of rules that could not be stored.
    pub unwritten: usize,
    /// How many evaluations of groups began.
    pub groups: usize,
    /// Duration of the longest evaluation of a group that ended.
    pub took: Duration,
}

impl Report {
    /// Adds the failures and counts of another report.
    pub fn add(&mut self, other: Self) {
        self.failures.extend(other.failures);
        self.missed += other.missed;
        self.unwritten += other.unwritten;
        self.groups += other.groups;
        self.took = self.took.max(other.took);
    }
}

/// Alerts that fire, each with the rules that raise it: usually one.
type Raisers = BTreeMap<Fingerprint, BTreeSet<RuleKey>>;

/// The alert engine.
#[derive(Debug)]
pub struct Engine {
    server: Arc<Server>,
    groups: Vec<GroupRun>,
    /// Number of the last evaluation of a group.
    evaluations: u64,
    events: EventRun,
    event_series: EventSeries,
    /// The alerts that fire by their rules, whatever was sent about them.
    firing: Raisers,
    flapping: BTreeMap<Fingerprint, Flapping>,
    router: Router,
    outbox: Outbox,
    read: BTreeMap<String, u64>,
    gpus: GpuNames,
    posted: PostedAlerts,
    /// Active alerts of the server itself.
    own: BTreeMap<Fingerprint, Alert>,
    watched: Watched,
}

impl Engine {
    /// An engine without any alert.
    pub fn new(
        server: Server,
        rules: &[RuleFile],
        events: &[EventFile],
        xids: XidTable,
        config: Config,
    ) -> Self {
        let groups = rules
            .iter()
            .flat_map(|file| GroupRun::of_file(file, server.defaults))
            .collect();

        Self {
            groups,
            evaluations: 0,
            events: EventRun::new(events, xids),
            event_series: EventSeries::default(),
            firing: Raisers::new(),
            flapping: BTreeMap::new(),
            router: Router::new(config, server.settings.clone()),
            outbox: Outbox::load([], 1),
            read: BTreeMap::new(),
            gpus: GpuNames::default(),
            posted: PostedAlerts::default(),
            own: BTreeMap::new(),
            watched: Watched::default(),
            server: Arc::new(server),
        }
    }

    /// Restores the stored state. Alerts of rules that no longer exist end now.
    pub fn restore(&mut self, stored: Snapshot, now: Timestamp) -> Batch {
        let stored = stored.without_future(now);
        let mut batch = Batch::default();
        // By the clock of then: it may have been ahead, as the ends of the alerts were.
        let stopped_at = stored.down_at.unwrap_or(now);
        let down_at = stopped_at.min(now);

        let mut wanted = Raisers::new();
        for (key, instance) in &stored.instances {
            let fingerprint = Fingerprint::of(&instance.labels);
            let mut groups = self.groups.iter_mut();
            let is_kept = groups.find_map(|group| group.restore(key, instance, down_at, now));

            // A rule that was removed while Takt was down: its alerts must not come back with the next start. Nor must one
            // that was pending long ago: it would fire at once.
            if is_kept != Some(true) {
                batch.forgotten_instances.push((key.clone(), fingerprint));
            }
            match is_kept {
                None => batch.transitions.extend(instance.rule_removed(key, now)),
                Some(true) if instance.state == State::Firing => {
                    let raisers = wanted.entry(fingerprint).or_default();
                    raisers.insert(key.clone());
                }
                Some(_) => {}
            }
        }

        for (key, instance) in stored.event_instances {
            let fingerprint = Fingerprint::of(&instance.labels);
            let is_firing = instance.fired_at.is_some();
            let end = instance.rule_removed(&key, now);
            if !self.events.restore(&key, instance) {
                batch.transitions.extend(end);
                batch.forgotten_event_instances.push((key, fingerprint));
            } else if is_firing {
                wanted.entry(fingerprint).or_default().insert(key);
            }
        }

        self.flapping = stored.flapping.into_iter().collect();
        // An alert that lost its only rule does not flap any more.
        for Transition { fingerprint, .. } in &batch.transitions {
            if !wanted.contains_key(fingerprint) {
                self.flapping.remove(fingerprint);
                batch.flapping.push((*fingerprint, None));
            }
        }

        // After the clock was set back, no message waits until the clock has come as far again.
        let latest = now.plus(BACKOFF_MAX);
        let rows = stored.outbox.into_iter().map(|row| Row {
            next_at: row.next_at.min(latest),
            ..row
        });
        self.outbox = Outbox::load(rows, first_row(stored.next_row, now));
        self.read = stored.read;

        // Before anything is routed: an alert that looks resolved there sends its end at once.
        let alerts: Vec<_> = stored
            .alerts
            .into_iter()
            .map(|alert| {
                let back = self.is_wanted(&alert, &wanted);
                let timeout = self.router.config().resolve_timeout;
                let known = after_gap(alert.clone(), back, stopped_at, now, timeout);
                // The next start compares with a time after this one.
                if known != alert {
                    batch.alerts.push(known.clone());
                }
                known
            })
            .collect();

        // GPU indexes are not stored, so they are looked up again.
        for alert in &alerts {
            let print = alert.fingerprint();
            if wanted.contains_key(&print) {
                self.gpus.name(print, &alert.labels, &[]);
            } else if is_posted(alert, now) {
                self.posted.restore(alert);
            } else if alert.ends_at.is_some_and(|end| end > now) && own::is_own(alert) {
                self.own.insert(print, alert.clone());
            }
        }

        let changes = self
            .router
            .restore(alerts, stored.log, Silences::load(stored.silences), now);
        self.firing = wanted;
        batch.then(self.routed(changes, now))
    }

    /// Replaces the server's settings; call [`Engine::reload`] next, which applies them to the
    /// groups.
    pub fn set_server(&mut self, server: Server) {
        self.router.set_settings(server.settings.clone());
        self.server = Arc::new(server);
    }

    /// Replaces rules and configuration. Alerts of rules that no longer exist end now.
    pub fn reload(
        &mut self,
        rules: &[RuleFile],
        events: &[EventFile],
        xids: XidTable,
        config: Config,
        now: Timestamp,
    ) -> Batch {
        let mut fresh: Vec<_> = rules
            .iter()
            .flat_map(|file| GroupRun::of_file(file, self.server.defaults))
            .collect();

        // Answers under way are for groups that are replaced below; what they have changed is kept.
        let mut batch = self.abandon_evaluations(now);

        let changes = self.router.reconfigure(config, now);

        // The new routes first: the ends of removed rules go where the new configuration sends them.
        batch = batch.then(self.routed(changes, now));

        for mut old in mem::take(&mut self.groups) {
            fresh.iter_mut().for_each(|group| group.take_over(&mut old));
            let evaluation = old.retire(now);
            batch = batch.then(self.retired(evaluation, now));
        }
        self.groups = fresh;

        let mut run = EventRun::new(events, xids);
        let old = mem::take(&mut self.events);

        // Event rules keep an alert by the key of its rule. An alert without a rule could never end.
        for (key, fingerprint, instance) in old.iter() {
            if !run.restore(key, instance.clone()) {
                let evaluation = Evaluation {
                    transitions: instance.rule_removed(key, now).into_iter().collect(),
                    ..Evaluation::default()
                };
                batch = batch.then(self.retired(evaluation, now));
                batch
                    .forgotten_event_instances
                    .push((key.clone(), fingerprint));
            }
        }

        self.events = run;
        batch
    }

    /// Takes an event of a node. Its labels name the place; `jobs` are the labels of the jobs there.
    pub fn event(&mut self, event: &Event, jobs: &[Labels], now: Timestamp) -> Batch {
        let url = self.server.settings.external_url.clone();
        let external_labels = &self.server.external_labels;
        let change = self.events.event(event, jobs, external_labels, &url, now);
        self.event_changed(change, now)
    }

    /// Takes an event of the exporter at `address`; the place up to which it was read is committed
    /// with the changes.
    pub fn event_of(
        &mut self,
        address: &str,
        event: &Event,
        jobs: &[Labels],
        now: Timestamp,
    ) -> Batch {
        let mut batch = self.event(event, jobs, now);

        // Committed together, so that a crash repeats no event and skips none.
        self.read.insert(address.to_owned(), event.id);
        batch.read.push((address.to_owned(), event.id));
        batch
    }

    /// Begins to read the exporter at `address` after the event `id`.
    pub fn begin_reading(&mut self, address: &str, id: u64) -> Batch {
        self.read.insert(address.to_owned(), id);
        Batch {
            read: vec![(address.to_owned(), id)],
            ..Batch::default()
        }
    }

    /// The last event that was read from the exporter at `address`.
    pub fn read_until(&self, address: &str) -> Option<u64> {
        self.read.get(address).copied()
    }

    /// Sets a silence: see [`Silences::set`].
    ///
    /// # Errors
    /// Where the silence is refused.
    pub fn silence(
        &mut self,
        wanted: Silence,
        new_id: &str,
        now: Timestamp,
    ) -> Result<(String, Batch), SilenceError> {
        let set = self.router.silences.set(wanted, new_id, now)?;
        for silence in &set.changed {
            let is_covered = |alert: &Alert| silence.accepts(&alert.labels);

            // Alerts that still fire when the silence ends are sent then, not after the rest of the interval.
            let end = silence.ends_at.max(now);
            self.router.flush_by(&is_covered, end);
        }

        Ok((
            set.id,
            Batch {
                silences: set.changed,
                ..Batch::default()
            },
        ))
    }

    /// Ends a silence.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn expire_silence(&mut self, id: &str, now: Timestamp) -> Result<Batch, SilenceError> {
        let changed = self.router.silences.expire(id, now)?;
        if let Some(silence) = &changed {
            let is_covered = |alert: &Alert| silence.accepts(&alert.labels);
            self.router.flush_by(&is_covered, now);
        }

        Ok(Batch {
            silences: changed.into_iter().collect(),
            ..Batch::default()
        })
    }

    /// Replaces the present and future maintenance of nodes.
    pub fn set_maintenance(&mut self, maintenance: Vec<Maintenance>, now: Timestamp) {
        self.router.set_maintenance(maintenance, now);
    }

    /// Flushes the groups that are due: puts their messages into the outbox.
    pub fn flush(&mut self, query: &dyn Query, now: Timestamp) -> Batch {
        // Before an end is sent and forgotten.
        let ended = self.end_own(now);
        // Before the decision, so that the first message has the index already.
        self.name_gpus(query, now);
        let mut changes = self.router.flush(now);

        // Only in the messages, not in the alert: each later message asks for its own last hour.
        self.add_context(&mut changes.messages, query, now);

        let mut batch = ended.then(self.routed(changes, now));
        batch.forgotten_silences = self.router.silences.forget_old(now);
        batch
    }

    /// The messages to hand to their channels once the batch is committed, which marks them as
    /// being sent.
    pub fn send_due(&mut self, now: Timestamp) -> (Vec<Row>, Batch) {
        let router = &self.router;
        let is_open = |row: &Row, print| router.is_open(&row.message, print);
        let mut changed = self.outbox.renew(&is_open, now);

        // Rows of this turn may have been superseded by `renew`, so what is due is asked afterwards.
        let rows = self.outbox.due(now);
        changed.extend(rows.iter().cloned());

        let batch = Batch {
            outbox: changed,
            ..Batch::default()
        };
        (rows, batch)
    }

    /// A channel has answered.
    pub fn answered(
        &mut self,
        id: u64,
        outcome: &Outcome,
        fallback: Fallback<'_>,
        now: Timestamp,
    ) -> Batch {
        Batch {
            outbox: self.outbox.answered(id, outcome, fallback, now),
            ..Batch::default()
        }
    }

    /// Notes a message to a channel that limits its rate: see [`Outbox::pace`].
    pub fn pace(&mut self, channel: &str, pause: Duration, now: Timestamp) {
        self.outbox.pace(channel, pause, now);
    }

    /// When the next work is due.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.groups
            .iter()
            .map(|group| group.schedule.next(now))
            .chain(self.router.next_due())
            .chain(self.outbox.next_due())
            .min()
    }

    /// Routing: alerts, groups, silences, configuration.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The outbox.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Rules with their alerts.
    pub fn groups(&self) -> &[GroupRun] {
        &self.groups
    }

    /// Event rules with their alerts.
    pub fn events(&self) -> &EventRun {
        &self.events
    }

    /// Puts the messages into the outbox; the batch has all changes of the routing.
    fn routed(&mut self, changes: Changes, now: Timestamp) -> Batch {
        // Each posted alert that routing forgets makes room for another one.
        for fingerprint in &changes.forgotten {
            self.posted.forget(*fingerprint);
        }

        let router = &self.router;
        let is_open = |row: &Row, print| router.is_open(&row.message, print);
        let mut outbox = self.outbox.add(changes.messages, &is_open, now);

        // No alert is open at these channels any more: a page that still waits would be
        // about an alert that has ended.
        let ended = changes.log.iter().filter(|logged| {
            let entry = logged.entry.as_ref();
            entry.is_some_and(|entry| entry.open.is_empty())
        });
        for Logged { key, .. } in ended {
            outbox.extend(self.outbox.withdraw(&key.channel, &key.group_key, now));
        }

        Batch {
            log: changes.log,
            forgotten_alerts: changes.forgotten,
            outbox,
            ..Batch::default()
        }
    }

    /// Applies the ends of alerts whose rules no longer exist, and says so in their last messages.
    fn retired(&mut self, evaluation: Evaluation, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        for transition in &evaluation.transitions {
            let Transition {
                rule, fingerprint, ..
            } = transition;

            // An alert that is pending never fired, and one that another rule raises goes on.
            let is_firing = self.firing.contains_key(fingerprint);
            if is_firing && !self.is_raised_besides(rule, *fingerprint) {
                batch = batch.then(self.forget_flapping(*fingerprint, now));

                let known = self.router.alerts().get(*fingerprint);
                if let Some(alert) = known.filter(|alert| !alert.is_resolved(now)) {
                    let ended = rule_removed(resolved(alert.clone(), now));
                    batch.alerts.push(self.router.take(ended, now).clone());
                }
            }
            batch = batch.then(self.changed(rule, *fingerprint, None, now));
        }

        batch.transitions = evaluation.transitions;
        batch.forgotten_instances = evaluation.forgotten;
        batch
    }

    /// Applies an evaluation. `fires` has for each transition the alert of its rule, if it fires; `fired` all alerts of the
    /// group that fire.
    fn follow(
        &mut self,
        evaluation: Evaluation,
        fires: &[Option<&Instance>],
        fired: &[(Fingerprint, &Instance)],
        now: Timestamp,
    ) -> Batch {
        let mut batch = Batch::default();
        for (transition, fires) in evaluation.transitions.iter().zip(fires) {
            let fires = fires.map(|instance| {
                let since = instance.fired_at.unwrap_or(transition.at);
                let alert = self.alert(&instance.labels, &instance.annotations, since, now);
                Alert {
                    began_at: Some(instance.active_at),
                    ..alert
                }
            });
            let Transition {
                rule, fingerprint, ..
            } = transition;
            batch = batch.then(self.changed(rule, *fingerprint, fires, transition.at));
        }

        // The values in texts change with each evaluation, also of alerts that fired before.
        for (fingerprint, instance) in fired {
            let words = &instance.annotations;
            let words = self.gpus.name(*fingerprint, &instance.labels, words);
            self.router.reword(*fingerprint, &words, now);
        }

        batch.transitions = evaluation.transitions;
        batch.forgotten_instances = evaluation.forgotten;
        batch
    }

    fn event_changed(&mut self, change: crate::events::Change, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        for transition in &change.transitions {
            let instance = self.events.get(&transition.rule, transition.fingerprint);
            let fires = instance.and_then(|instance| {
                // An event that only counts towards its rule has an alert that has not fired yet.
                let since = instance.fired_at?;
                Some(self.alert(&instance.labels, &instance.annotations, since, now))
            });
            let Transition {
                rule, fingerprint, ..
            } = transition;
            batch = batch.then(self.changed(rule, *fingerprint, fires, transition.at));
        }

        for (_, instance) in &change.touched {
            let fingerprint = Fingerprint::of(&instance.labels);
            let words = &instance.annotations;
            let words = self.gpus.name(fingerprint, &instance.labels, words);
            self.router.reword(fingerprint, &words, now);
        }

        batch.transitions.extend(change.transitions);
        batch.event_instances = change.touched;
        batch.forgotten_event_instances = change.forgotten;
        batch
    }

    fn alert(
        &self,
        labels: &Labels,
        words: &[(String, String)],
        since: Timestamp,
        now: Timestamp,
    ) -> Alert {
        Alert {
            labels: labels.clone(),
            annotations: words.iter().cloned().collect(),
            starts_at: since,
            began_at: None,
            ends_at: None,
            updated_at: now,
            generator_url: format!(
                "{}/alerts#{}",
                self.server.settings.external_url,
                Fingerprint::of(labels)
            ),
            is_timeout: false,
        }
    }
}

/// An alert after an outage of Takt: one of Takt's rules continues as its rule does, a posted one
/// gets time to be posted again.
fn after_gap(
    alert: Alert,
    is_ours: bool,
    stopped_at: Timestamp,
    now: Timestamp,
    resolve_timeout: Duration,
) -> Alert {
    // After the clock was set back, no alert begins or changes later than now.
    let alert = Alert {
        starts_at: alert.starts_at.min(now),
        updated_at: alert.updated_at.min(now),
        ..alert
    };
    match alert.ends_at {
        Some(end) if end > stopped_at => Alert {
            ends_at: Some(end.max(now.plus(resolve_timeout))),
            ..alert
        },
        Some(end) => Alert {
            ends_at: Some(end.min(now)),
            ..alert
        },
        None if is_ours => alert,
        // Alerts of rules have no end in advance, so this one's rule was removed meanwhile.
        None => rule_removed(resolved(alert, now)),
    }
}

/// The alert with a text that says why it has ended.
fn rule_removed(mut alert: Alert) -> Alert {
    let words =
        "its rule is no longer in the rule files; whether the condition still holds is unknown";
    alert
        .annotations
        .insert(RULE_REMOVED.to_owned(), words.to_owned());
    alert
}

/// Whether a program has posted this alert. Alerts of rules have no end that is still to come, and Takt's alerts
/// about itself have names of their own.
fn is_posted(alert: &Alert, now: Timestamp) -> bool {
    alert.ends_at.is_some_and(|end| end > now) && !own::is_own(alert)
}

fn resolved(alert: Alert, at: Timestamp) -> Alert {
    Alert {
        ends_at: Some(at),
        updated_at: at,
        is_timeout: false,
        ..alert
    }
}

#[cfg(test)]
mod tests;
