//! The writing side: each event is judged, numbered, written to the history, and then shown.

use super::history::{EventHistory, LogMark, LogMarks};
use super::judge::{EventSource, EventStream, EventVerdict, Judge};
use super::recognise::Recognised;
use super::shown::ShownEvents;
use super::{Events, processes};
use std::collections::BTreeMap;
use std::time::SystemTime;
use takt_model::{Event, EventKind, Labels, Timestamp};

/// Streams with events that were held back, at most.
const MAX_HELD_BACK: usize = 256;
/// Longest message of an event that is held back, in bytes.
const HELD_MESSAGE_BYTES: usize = 1024;

/// State of the writing side. One event at a time goes through it.
#[derive(Default)]
pub(super) struct EventWriter {
    pub judge: Judge,
    /// `None` without a state directory.
    pub history: Option<EventHistory>,
    pub marks: LogMarks,
    /// Id of the newest event.
    pub newest: u64,
    /// Set at the first start with a history.
    pub first: Option<FirstStart>,
    /// Events that were one too many: the newest of each stream, with the number of others.
    pub held_back: BTreeMap<EventStream, HeldBack>,
}

/// The newest event of a stream that was held back.
pub(super) struct HeldBack {
    source: EventSource,
    found: Recognised,
    at: Timestamp,
    /// Number of events that were held back before it.
    others: u64,
}

/// The first start with a history. Events that the log held before it are kept and counted, but not
/// sent as new.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstStart {
    /// Time of the start.
    pub at: Timestamp,
    /// End of the log at the start, where the log has one.
    pub end: Option<u64>,
}

impl FirstStart {
    /// Ids below the start's that are reserved for events from before it.
    const ROOM: u64 = 1_000_000;

    /// Id at which new events begin.
    pub fn id(self) -> u64 {
        u64::try_from(self.at.0).unwrap_or(0)
    }

    /// Whether the start came after an event at this position and time of the log.
    fn was_after(self, position: u64, at: Timestamp) -> bool {
        self.end.map_or(at < self.at, |end| position <= end)
    }
}

impl EventWriter {
    /// Whether the record at `mark` was read before.
    fn has_read(&self, source: EventSource, mark: Option<&LogMark>) -> bool {
        let known = self.marks.get(&source);
        let (Some(mark), Some(known)) = (mark, known) else {
            return false;
        };
        mark.log == known.log && mark.position <= known.position
    }

    /// The id of an event. Ids are times and rise, also over restarts where nothing was kept.
    /// Events from before the first start get ids before it.
    fn id(&self, source: EventSource, mark: Option<&LogMark>, at: Timestamp) -> u64 {
        if let (Some(first), Some(mark)) = (self.first, mark)
            && source == EventSource::Kernel
            && first.was_after(mark.position, at)
        {
            let own = u64::try_from(at.0).unwrap_or(0);
            let latest = first.id().saturating_sub(FirstStart::ROOM);
            return own.min(latest).max(self.newest + 1);
        }

        let newest = self.first.map_or(0, FirstStart::id).max(self.newest);
        millis(SystemTime::now()).max(newest + 1)
    }

    /// Keeps an event that is one too many, in place of the one that was kept before it.
    fn hold_back(
        &mut self,
        stream: &EventStream,
        source: EventSource,
        found: &Recognised,
        at: Timestamp,
    ) {
        let before = self.held_back.remove(stream);
        if self.held_back.len() >= MAX_HELD_BACK {
            return;
        }

        let end = found.message.floor_char_boundary(HELD_MESSAGE_BYTES);
        let found = Recognised {
            kind: found.kind,
            labels: found.labels.clone(),
            message: found.message[..end].to_owned(),
        };

        let held = HeldBack {
            source,
            found,
            at,
            others: before.map_or(0, |before| before.others + 1),
        };

        self.held_back.insert(stream.clone(), held);
    }
}

impl Events {
    /// Records one event. `mark` is its position in the log that reported it.
    pub(super) fn record(
        &self,
        source: EventSource,
        found: Recognised,
        at: Timestamp,
        mark: Option<LogMark>,
    ) {
        let mut writer = self.writer();
        // The kernel log is read from its beginning after a restart, so that the judge knows what
        // came before; records that were read then are not recorded again.
        let verdict = writer.judge.verdict(source, found.kind, &found.labels, at);
        if writer.has_read(source, mark.as_ref()) {
            return;
        }

        let stream = EventStream::of(found.kind, &found.labels);
        if verdict == EventVerdict::Flood {
            writer.hold_back(&stream, source, &found, at);
        }

        let is_news = verdict == EventVerdict::News;
        let others = if is_news {
            writer.held_back.remove(&stream)
        } else {
            None
        };

        let event = Event {
            id: writer.id(source, mark.as_ref(), at),
            at,
            kind: found.kind,
            labels: self.completed(found.kind, found.labels, at),
            message: with_others(found.message, others.map_or(0, |held| held.others + 1)),
        };

        if let Some(history) = &mut writer.history
            && verdict != EventVerdict::Flood
            && (is_news || mark.is_some())
        {
            history.append(mark.as_ref(), is_news.then_some(&event));
        }
        if let Some(mark) = mark {
            writer.marks.insert(source, mark);
        }

        match verdict {
            EventVerdict::Known => {}
            EventVerdict::Flood => self.shown().count(&event, false),
            EventVerdict::News => {
                writer.newest = event.id;
                self.show(event);
            }
        }
    }

    /// Sends the newest event of each stream that was held back and has room again, so that its
    /// listeners learn how many there were.
    pub(super) fn send_held_back(&self, now: Timestamp) {
        let writer = &mut *self.writer();
        if writer.held_back.is_empty() {
            return;
        }
        let judge = &mut writer.judge;
        let sendable: Vec<_> = writer
            .held_back
            .extract_if(.., |stream, _| judge.allows(stream, now))
            .collect();

        for (_, held) in sendable {
            let event = Event {
                id: writer.id(held.source, None, held.at),
                at: held.at,
                kind: held.found.kind,
                labels: self.completed(held.found.kind, held.found.labels, held.at),
                message: with_others(held.found.message, held.others),
            };
            if let Some(history) = &mut writer.history {
                history.append(None, Some(&event));
            }
            writer.newest = event.id;
            self.publish(event, |shown, event| shown.remember(event));
        }

        self.sync();
    }

    /// The labels with the job of an XID's process, the GPU's UUID and the number of a job that only its
    /// SLUID names, where they are known; and the boot of an XID: a fault that comes back after each restart of the machine
    /// is another matter than one that comes often.
    fn completed(&self, kind: EventKind, mut labels: Labels, at: Timestamp) -> Labels {
        if kind == EventKind::Xid {
            let now = Timestamp::from(SystemTime::now());
            processes::add_job(&mut labels, &self.0.procfs, at, now);
        }

        let bus_id = labels.get("pci_bus_id");
        let uuid = bus_id.and_then(|bus_id| self.0.gpus.uuid(bus_id));
        if let Some(uuid) = uuid {
            labels.set("uuid", &uuid);
        }

        let sluid = labels.get("sluid");
        let job = sluid.and_then(|sluid| self.known_jobs().get(sluid).cloned());
        if let Some(job) = job {
            labels.set("jobid", &job);
        }

        if let Some(boot_id) = &self.0.boot_id
            && kind == EventKind::Xid
        {
            labels.set("boot_id", boot_id);
        }
        labels
    }

    /// Counts and keeps a new event, and wakes the listeners.
    fn show(&self, event: Event) {
        self.publish(event, |shown, event| shown.count(event, true));
    }

    fn publish(&self, event: Event, note: impl FnOnce(&mut ShownEvents, &Event)) {
        let id = event.id;
        let mut shown = self.shown();
        note(&mut shown, &event);
        shown.keep(event);
        drop(shown);

        // After the event is kept: a listener that is woken looks at once.
        self.0.newest.send_if_modified(|newest| {
            let is_newer = id > *newest;
            *newest = id.max(*newest);
            is_newer
        });
    }
}

/// The message, with the number of events like it that were not sent.
fn with_others(message: String, others: u64) -> String {
    match others {
        0 => message,
        _ => format!("{message} (and {others} more like it, not sent one by one)"),
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(at: SystemTime) -> u64 {
    u64::try_from(Timestamp::from(at).0).unwrap_or(0)
}
