//! The tables of committed batches. A commit may fail, or succeed and report an error.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use takt_alerts::alert::Alert;
use takt_alerts::events::EventInstance;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::flapping::Flapping;
use takt_alerts::outbox::Row;
use takt_alerts::ports::{AlertStore, StoreError};
use takt_alerts::routing::dedup::LogEntry;
use takt_alerts::routing::silence::Silence;
use takt_alerts::routing::{LogKey, Logged};
use takt_alerts::state::{Instance, RuleKey};
use takt_alerts::{Batch, Snapshot};
use takt_model::Timestamp;

/// What happens to commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    None,
    /// Nothing is stored.
    Fails,
    /// The batch is stored, but the answer is an error.
    AnswerLost,
}

#[derive(Debug, Default, Clone)]
pub struct Tables {
    instances: BTreeMap<(RuleKey, Fingerprint), Instance>,
    event_instances: BTreeMap<(RuleKey, Fingerprint), EventInstance>,
    alerts: BTreeMap<Fingerprint, Alert>,
    flapping: BTreeMap<Fingerprint, Flapping>,
    silences: BTreeMap<String, Silence>,
    pub log: BTreeMap<LogKey, LogEntry>,
    /// Rows whose delivery has not ended.
    pub outbox: BTreeMap<u64, Row>,
    /// Numbers of rows whose delivery has ended, and whether the channel has the message.
    pub ended: BTreeMap<u64, bool>,
    pub read: BTreeMap<String, u64>,
    down_at: Option<Timestamp>,
}

#[derive(Debug)]
pub struct Disk {
    pub tables: RefCell<Tables>,
    pub fault: Cell<CommitFault>,
}

impl Disk {
    pub fn new() -> Self {
        Self {
            tables: RefCell::default(),
            fault: Cell::new(CommitFault::None),
        }
    }
}

impl AlertStore for Disk {
    fn load(&self) -> Result<Snapshot, StoreError> {
        let tables = self.tables.borrow().clone();
        let keyed = |((key, _), instance)| (key, instance);
        Ok(Snapshot {
            next_row: tables.last_row() + 1,
            instances: tables.instances.into_iter().map(keyed).collect(),
            event_instances: tables
                .event_instances
                .into_iter()
                .map(|((key, _), instance)| (key, instance))
                .collect(),
            alerts: tables.alerts.into_values().collect(),
            flapping: tables.flapping.into_iter().collect(),
            silences: tables.silences.into_values().collect(),
            log: tables.log.into_iter().collect(),
            outbox: tables.outbox.into_values().collect(),
            read: tables.read,
            down_at: tables.down_at,
        })
    }

    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError> {
        let fault = self.fault.get();
        // A batch whose answer is lost is stored all the same.
        if fault != CommitFault::Fails {
            self.tables.borrow_mut().apply(batch.clone(), at);
        }
        match fault {
            CommitFault::None => Ok(()),
            CommitFault::Fails => Err(StoreError("No space left on device".to_owned())),
            CommitFault::AnswerLost => Err(StoreError("Input/output error".to_owned())),
        }
    }
}

impl Tables {
    /// The highest number of a row; 0 without any.
    pub fn last_row(&self) -> u64 {
        let ids = self.outbox.keys().chain(self.ended.keys());
        ids.max().copied().unwrap_or(0)
    }

    /// Deletions come first, as in the store: a batch stores no item that it deletes.
    fn apply(&mut self, batch: Batch, at: Timestamp) {
        self.down_at = Some(at);
        self.read.extend(batch.read);
        for gone in &batch.forgotten_instances {
            self.instances.remove(gone);
        }
        for gone in &batch.forgotten_event_instances {
            self.event_instances.remove(gone);
        }
        for gone in &batch.forgotten_alerts {
            self.alerts.remove(gone);
        }
        for gone in &batch.forgotten_silences {
            self.silences.remove(gone);
        }

        for (key, instance) in batch.instances {
            let print = Fingerprint::of(&instance.labels);
            self.instances.insert((key, print), instance);
        }
        for (key, instance) in batch.event_instances {
            let print = Fingerprint::of(&instance.labels);
            self.event_instances.insert((key, print), instance);
        }
        for alert in batch.alerts {
            self.alerts.insert(alert.fingerprint(), alert);
        }
        for silence in batch.silences {
            self.silences.insert(silence.id.clone(), silence);
        }

        for (print, flapping) in batch.flapping {
            put(&mut self.flapping, print, flapping);
        }
        for Logged { key, entry } in batch.log {
            put(&mut self.log, key, entry);
        }
        // Rows that have ended leave the outbox, and their numbers must never be used again.
        for row in batch.outbox {
            if row.state.is_final() {
                let has_it = row.state == takt_alerts::outbox::RowState::Sent;
                self.outbox.remove(&row.id);
                self.ended.insert(row.id, has_it);
            } else {
                self.outbox.insert(row.id, row);
            }
        }
    }
}

fn put<K, V>(table: &mut BTreeMap<K, V>, key: K, value: Option<V>)
where
    K: Ord,
{
    match value {
        Some(value) => drop(table.insert(key, value)),
        None => drop(table.remove(&key)),
    }
}
