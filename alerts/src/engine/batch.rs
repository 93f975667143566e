//! Batches of changes that are committed together, and the state that a restart loads.

use crate::alert::Alert;
use crate::events::EventInstance;
use crate::fingerprint::Fingerprint;
use crate::flapping::Flapping;
use crate::outbox::{BACKOFF_MAX, Row};
use crate::routing::dedup::LogEntry;
use crate::routing::silence::Silence;
use crate::routing::{LogKey, Logged};
use crate::state::{Instance, RuleKey, Transition};
use std::collections::{BTreeMap, BTreeSet};
use takt_model::{Event, Labels, Timestamp};

/// Changes that are committed together. Lists are upserts by identity; `forgotten_*` are deletions,
/// also of rows that do not exist.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Rows to append to the log of transitions.
    pub transitions: Vec<Transition>,
    /// Alerts of rules whose state changed.
    pub instances: Vec<(RuleKey, Instance)>,
    /// Alerts of rules to delete.
    pub forgotten_instances: Vec<(RuleKey, Fingerprint)>,
    /// Alerts of event rules that changed.
    pub event_instances: Vec<(RuleKey, EventInstance)>,
    /// Alerts of event rules to delete.
    pub forgotten_event_instances: Vec<(RuleKey, Fingerprint)>,
    /// Alerts as routing knows them.
    pub alerts: Vec<Alert>,
    /// Alerts that routing forgot.
    pub forgotten_alerts: Vec<Fingerprint>,
    /// Recent changes of alerts; `None` deletes them.
    pub flapping: Vec<(Fingerprint, Option<Flapping>)>,
    /// Silences that were set or ended.
    pub silences: Vec<Silence>,
    /// Silences that are too old to be remembered.
    pub forgotten_silences: Vec<String>,
    /// The notification log.
    pub log: Vec<Logged>,
    /// The outbox.
    pub outbox: Vec<Row>,
    /// Events of exporters to append to the log of events.
    pub events: Vec<Event>,
    /// The last event that was read from each exporter, by its address.
    pub read: Vec<(String, u64)>,
}

impl Batch {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Merges this batch with a later one. An item that the later one deletes is not stored, and
    /// one that it stores is not deleted, so the lists of one batch can be applied in any order.
    pub fn then(mut self, later: Self) -> Self {
        // An item that was stored and then deleted must not come back when deletions are applied first.
        cancel(
            &mut self.instances,
            &later.forgotten_instances,
            |(key, i)| (key.clone(), print(&i.labels)),
        );
        cancel(
            &mut self.event_instances,
            &later.forgotten_event_instances,
            |(key, i)| (key.clone(), print(&i.labels)),
        );
        cancel(
            &mut self.alerts,
            &later.forgotten_alerts,
            Alert::fingerprint,
        );
        cancel(&mut self.silences, &later.forgotten_silences, |silence| {
            silence.id.clone()
        });

        // And one that was deleted and then stored again must not vanish when deletions come last.
        revive(
            &mut self.forgotten_instances,
            &later.instances,
            |(key, i)| (key.clone(), print(&i.labels)),
        );
        revive(
            &mut self.forgotten_event_instances,
            &later.event_instances,
            |(key, i)| (key.clone(), print(&i.labels)),
        );
        revive(
            &mut self.forgotten_alerts,
            &later.alerts,
            Alert::fingerprint,
        );

        // `flapping` and `log` hold their deletions in order: the later item of an alert counts.
        self.transitions.extend(later.transitions);
        self.instances.extend(later.instances);
        self.forgotten_instances.extend(later.forgotten_instances);
        self.event_instances.extend(later.event_instances);
        self.forgotten_event_instances
            .extend(later.forgotten_event_instances);
        self.alerts.extend(later.alerts);
        self.forgotten_alerts.extend(later.forgotten_alerts);
        self.flapping.extend(later.flapping);
        self.silences.extend(later.silences);
        self.forgotten_silences.extend(later.forgotten_silences);
        self.log.extend(later.log);
        self.outbox.extend(later.outbox);
        self.events.extend(later.events);
        self.read.extend(later.read);
        self
    }
}

fn print(labels: &Labels) -> Fingerprint {
    Fingerprint::of(labels)
}

/// Removes from `stored` the items that are deleted later.
fn cancel<T, K>(stored: &mut Vec<T>, forgotten: &[K], identity: impl Fn(&T) -> K)
where
    K: Ord,
{
    // Most batches of a turn are small or empty, so the set is built only where both sides have items.
    if !forgotten.is_empty() && !stored.is_empty() {
        let gone: BTreeSet<&K> = forgotten.iter().collect();
        stored.retain(|item| !gone.contains(&identity(item)));
    }
}

/// Removes from `forgotten` the items that are stored again later.
fn revive<T, K>(forgotten: &mut Vec<K>, stored: &[T], identity: impl Fn(&T) -> K)
where
    K: Ord,
{
    if !forgotten.is_empty() && !stored.is_empty() {
        let back: BTreeSet<K> = stored.iter().map(identity).collect();
        forgotten.retain(|key| !back.contains(key));
    }
}

/// The stored state.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Alerts of rules.
    pub instances: Vec<(RuleKey, Instance)>,
    /// Alerts of event rules.
    pub event_instances: Vec<(RuleKey, EventInstance)>,
    /// Alerts as routing knew them.
    pub alerts: Vec<Alert>,
    /// Recent changes of alerts.
    pub flapping: Vec<(Fingerprint, Flapping)>,
    /// Silences.
    pub silences: Vec<Silence>,
    /// The notification log.
    pub log: Vec<(LogKey, LogEntry)>,
    /// Rows of the outbox that are not final.
    pub outbox: Vec<Row>,
    /// The last event that was read from each exporter, by its address.
    pub read: BTreeMap<String, u64>,
    /// The next number of a row of the outbox: numbers are never reused.
    pub next_row: u64,
    /// The last time at which Takt is known to have been running.
    pub down_at: Option<Timestamp>,
}

impl Snapshot {
    /// Returns the state without times that a clock ahead of `now` has stored: messages would wait
    /// for them, and so would reminders.
    #[must_use]
    pub fn without_future(mut self, now: Timestamp) -> Self {
        for row in &mut self.outbox {
            row.created_at = row.created_at.min(now);
            row.next_at = row.next_at.min(now.plus(BACKOFF_MAX));
        }

        // A reminder is due an interval after this time.
        for (_, entry) in &mut self.log {
            entry.at = entry.at.min(now);
        }
        self
    }
}
