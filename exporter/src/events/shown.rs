//! The events that pages and listeners see, and their counts.

use super::history::KEPT_EVENTS;
use super::writer::millis;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use takt_model::{Event, EventKind, Timestamp};

/// GPUs times XIDs that are counted. No node has more.
pub(crate) const MAX_XIDS: usize = 1024;
/// NFS servers whose state is kept. No node uses more.
pub(crate) const MAX_SERVERS: usize = 256;

/// The part of the events that pages and listeners see.
#[derive(Default)]
pub(crate) struct ShownEvents {
    /// The last events, oldest first.
    pub kept: VecDeque<Arc<Event>>,
    /// Id of the newest event that is no longer kept.
    pub forgotten: u64,
    pub counts: BTreeMap<EventKind, Count>,
    /// Counts by UUID and XID.
    pub xids: BTreeMap<(String, u32), Count>,
    /// Whether each NFS server responds, by the last event about it.
    pub servers: BTreeMap<String, bool>,
    pub log: LogState,
}

/// Events of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Count {
    /// Events since the exporter started.
    pub total: u64,
    /// Time of the last event, also before the start.
    pub last: Option<Timestamp>,
    /// Events since the start that were not sent, because there were too many.
    pub untold: u64,
}

/// State of the kernel log.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    /// Whether the log is being read.
    pub is_followed: bool,
    /// Times that the kernel overwrote lines before they were read.
    pub overruns: u64,
    /// Lines of a file that were left out because they are longer than any message of the kernel.
    pub too_long: u64,
    /// The log's path and the last error, while it cannot be read.
    pub problem: Option<(PathBuf, io::ErrorKind, String)>,
}

impl ShownEvents {
    /// The state after a start, with the kept events of the history.
    pub fn restored(events: VecDeque<Arc<Event>>, has_history: bool) -> Self {
        let mut shown = Self::default();
        for event in &events {
            shown.remember(event);
        }

        shown.forgotten = match events.front() {
            // Events before this start are unknown. Ids are times.
            _ if !has_history => millis(SystemTime::now()),
            Some(oldest) if events.len() == KEPT_EVENTS => oldest.id - 1,
            _ => 0,
        };

        shown.kept = events;
        shown
    }

    /// Counts an event. `is_sent` is false where it is one of too many.
    pub fn count(&mut self, event: &Event, is_sent: bool) {
        self.remember(event);

        let add = |count: &mut Count| {
            count.total += 1;
            count.untold += u64::from(!is_sent);
        };

        self.counts.entry(event.kind).and_modify(add);
        if let Some(xid) = xid_of(event) {
            self.xids.entry(xid).and_modify(add);
        }
    }

    /// Takes over the time of an event and the state it reports, without counting it.
    pub fn remember(&mut self, event: &Event) {
        self.counts.entry(event.kind).or_default().last = Some(event.at);
        if let Some(xid) = xid_of(event)
            && (self.xids.len() < MAX_XIDS || self.xids.contains_key(&xid))
        {
            self.xids.entry(xid).or_default().last = Some(event.at);
        }

        let responds = match event.kind {
            EventKind::NfsNotResponding => false,
            EventKind::NfsResponding => true,
            _ => return,
        };

        if let Some(server) = event.labels.get("server")
            && (self.servers.len() < MAX_SERVERS || self.servers.contains_key(server))
        {
            self.servers.insert(server.to_owned(), responds);
        }
    }

    /// Keeps an event for listeners; the oldest is forgotten.
    pub fn keep(&mut self, event: Event) {
        self.kept.push_back(Arc::new(event));
        if self.kept.len() > KEPT_EVENTS
            && let Some(oldest) = self.kept.pop_front()
        {
            self.forgotten = oldest.id;
        }
    }
}

/// The GPU of an XID event, by UUID or else by PCI bus id, and the XID.
fn xid_of(event: &Event) -> Option<(String, u32)> {
    if event.kind != EventKind::Xid {
        return None;
    }
    let xid = event.labels.get("xid")?.parse().ok()?;

    let uuid = event.labels.get("uuid");
    let gpu = uuid.or_else(|| event.labels.get("pci_bus_id"));
    let gpu = gpu.unwrap_or_default();
    Some((gpu.to_owned(), xid))
}
