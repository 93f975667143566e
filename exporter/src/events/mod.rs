//! Events of the node: recognised, counted, kept, and sent to listeners at once.
//!
//! ```text
//! kernel log ─► Recogniser ──────────┐
//! NVML's event thread ───────────────┼─► Judge ─► History (disk) ─► Shown ─► /events, collector `events`
//! BMC's log ─► the collector `ipmi` ─┘
//! ```
//!
//! One writer at a time goes through this. Pages and listeners read only [`ShownEvents`], so a disk that
//! hangs delays neither. docs/events.md describes the format.

mod follow;
mod gpus;
mod history;
mod judge;
mod kernel_log;
mod listeners;
mod processes;
mod recognise;
mod shown;
mod writer;

pub(crate) use self::history::LogMark;
pub(crate) use self::judge::EventSource;
pub(crate) use self::listeners::{ListenerKind, ListenerPlace};
pub(crate) use self::shown::{MAX_SERVERS, MAX_XIDS};

use self::gpus::GpuNames;
use self::history::{EventHistory, HistoryContents};
use self::judge::Judge;
use self::listeners::Listeners;
use self::recognise::Recognised;
use self::shown::ShownEvents;
use self::writer::{EventWriter, FirstStart};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use takt_model::{Event, EventKind, Labels, Timestamp, pci};
use tokio::sync::watch;

/// How long an event of NVML's waits for the kernel's line about it, which also names the process
/// and the fault.
const KERNEL_FIRST: Duration = Duration::from_millis(250);

/// Returns the kind and the labels of the event that one line of the kernel log reports; `None` for
/// other lines, and for events that take several lines.
pub fn recognise(line: &str) -> Option<(EventKind, Labels)> {
    let found = recognise::Recogniser::new(Path::new("/sys")).read(line, None)?;
    Some((found.kind, found.labels))
}

/// The events of one node. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub struct Events(Arc<Inner>);

#[derive(Default)]
struct Inner {
    writer: Mutex<EventWriter>,
    shown: Mutex<ShownEvents>,
    gpus: GpuNames,
    procfs: PathBuf,
    /// Numbers of the node's jobs by SLUID, where the cgroups are named by that.
    jobs_by_sluid: Mutex<BTreeMap<String, String>>,
    /// Id of the machine's boot; `None` where the kernel has none.
    boot_id: Option<String>,
    newest: watch::Sender<u64>,
    listeners: Listeners,
    /// Wakes the thread that syncs the history to disk.
    unsynced: Option<SyncSender<()>>,
}

/// The next event after an id.
#[derive(Debug, PartialEq)]
pub(crate) enum NextEvent {
    Event(Arc<Event>),
    /// Events in between are no longer kept, or the node never gave this id.
    Gap,
    Nothing,
}

impl Events {
    /// Opens the events, with a history in `state_directory`; without one a restart forgets them.
    ///
    /// # Errors
    /// When the state directory cannot be used, or the system gives no thread.
    pub(crate) fn open(procfs: &Path, state_directory: Option<&Path>) -> io::Result<Self> {
        let (mut history, found) = state_directory.map(EventHistory::open).transpose()?.unzip();
        let has_history = history.is_some();

        let found = found.unwrap_or_default();
        // The history knows nothing, not even a position in the log.
        let is_first = has_history
            && found.begin == 0
            && found.events.is_empty()
            && !found.marks.contains_key(&EventSource::Kernel);
        let first = is_first.then(|| FirstStart {
            at: Timestamp::from(SystemTime::now()),
            end: None,
        });

        if let (Some(history), Some(first)) = (&mut history, first) {
            history.begin_at(first.id());
        }

        let shown = ShownEvents::restored(found.events, has_history);

        // Ids never go back, or listeners would miss events.
        let newest = shown.kept.back().map_or(shown.forgotten, |event| event.id);
        let newest = newest.max(found.begin);

        let (unsynced, to_sync) = sync_channel(1);
        let inner = Inner {
            writer: Mutex::new(EventWriter {
                judge: Judge::default(),
                history,
                marks: found.marks,
                newest,
                first,
                ..EventWriter::default()
            }),
            shown: Mutex::new(shown),
            gpus: GpuNames::new(procfs),
            procfs: procfs.to_owned(),
            jobs_by_sluid: Mutex::default(),
            boot_id: crate::sysfs::text(&procfs.join("sys/kernel/random/boot_id")),
            newest: watch::Sender::new(first.map_or(newest, FirstStart::id)),
            listeners: Listeners::default(),
            unsynced: Some(unsynced),
        };

        let events = Self(Arc::new(inner));
        if has_history {
            // A handle in the thread would keep the state directory locked.
            let events = Arc::downgrade(&events.0);
            let thread = std::thread::Builder::new()
                .name("events' disk".to_owned())
                .stack_size(256 << 10);
            thread.spawn(move || sync_on(&events, &to_sync))?;
        }
        Ok(events)
    }

    /// Records an XID reported by NVML. Waits a moment for the kernel's line about it, which counts
    /// instead.
    pub fn xid_by_nvml(&self, bus_id: &str, xid: u64) {
        let labels = [("pci_bus_id", bus_id), ("xid", &xid.to_string())];
        let message = format!("NVML: Xid ({bus_id}): {xid}");
        self.by_nvml(EventKind::Xid, &labels, message);
    }

    /// Records a GPU that NVML reports as lost, unless the kernel log has reported it.
    pub fn gpu_lost_by_nvml(&self, bus_id: &str) {
        let message = format!("NVML: GPU {bus_id} is lost");
        self.by_nvml(EventKind::GpuLost, &[("pci_bus_id", bus_id)], message);
    }

    /// Takes over the UUIDs of GPUs by PCI bus id. GPUs that are not among them stay known: they
    /// may be lost.
    pub fn gpus(&self, uuids_by_bus_id: impl IntoIterator<Item = (String, String)>) {
        for (bus_id, uuid) in uuids_by_bus_id {
            self.0.gpus.learn(&bus_id, uuid);
        }
    }

    /// Takes over the numbers of the jobs that are on the node, by SLUID.
    pub(crate) fn jobs_by_sluid(&self, jobs: BTreeMap<String, String>) {
        *self.known_jobs() = jobs;
    }

    fn known_jobs(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        let jobs = &self.0.jobs_by_sluid;
        jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_nvml(&self, kind: EventKind, labels: &[(&str, &str)], message: String) {
        let at = Timestamp::from(SystemTime::now());
        let mut labels: Labels = labels.iter().copied().collect();
        if let Some(bus_id) = labels.get("pci_bus_id").and_then(pci::bus_id) {
            labels.set("pci_bus_id", &bus_id);
        }

        // Without the kernel log, there is nothing to wait for.
        if self.shown().log.is_followed {
            std::thread::sleep(KERNEL_FIRST);
        }

        let found = Recognised {
            kind,
            labels,
            message,
        };
        self.record(EventSource::Nvml, found, at, None);
        self.sync();
    }

    /// The position in the BMC's log, from before a restart where there is a history.
    pub(crate) fn bmc_mark(&self) -> Option<LogMark> {
        self.writer().marks.get(&EventSource::Bmc).cloned()
    }

    /// Records an event of the BMC's log.
    pub(crate) fn hardware_log(
        &self,
        labels: Labels,
        message: String,
        at: Timestamp,
        mark: LogMark,
    ) {
        let found = Recognised {
            kind: EventKind::HardwareLog,
            labels,
            message,
        };
        self.record(EventSource::Bmc, found, at, Some(mark));
        self.sync();
    }

    /// Moves the position in the BMC's log to `mark`; the records before it were no events.
    pub(crate) fn bmc_log_was_read(&self, mark: LogMark) {
        let mut writer = self.writer();
        if writer.marks.get(&EventSource::Bmc) == Some(&mark) {
            return;
        }

        if let Some(history) = &mut writer.history {
            history.append(Some(&mark), None);
        }
        writer.marks.insert(EventSource::Bmc, mark);

        // The thread that syncs needs this lock.
        drop(writer);
        self.sync();
    }

    /// Wakes the thread that syncs the history to disk. Listeners do not wait for the disk.
    fn sync(&self) {
        // A wake-up that is already queued serves this event too.
        if let Some(unsynced) = &self.0.unsynced {
            let _ = unsynced.try_send(());
        }
    }

    fn file_to_sync(&self) -> Option<io::Result<File>> {
        let writer = &mut *self.writer();
        let kept = || HistoryContents {
            events: self.shown().kept.clone(),
            marks: writer.marks.clone(),
            begin: 0,
        };

        writer.history.as_mut().map(|history| history.shorten(kept))
    }

    fn synced(&self, result: io::Result<()>) {
        if let Some(history) = &mut self.writer().history {
            history.wrote(result);
        }
    }

    /// The next event for a reader that has seen `id`.
    pub(crate) fn after(&self, id: u64) -> NextEvent {
        let shown = self.shown();
        // An event is kept a moment before its id is published.
        let kept = shown.kept.back().map_or(0, |event| event.id);
        let newest = kept.max(*self.0.newest.borrow());
        if id < shown.forgotten || id > newest {
            return NextEvent::Gap;
        }

        let place = shown.kept.partition_point(|event| event.id <= id);
        match shown.kept.get(place) {
            Some(event) => NextEvent::Event(Arc::clone(event)),
            None => NextEvent::Nothing,
        }
    }

    /// The id from which all kept events follow.
    pub(crate) fn oldest(&self) -> u64 {
        self.shown().forgotten
    }

    /// The id before the first kept event that was recorded at `millis` since 1970 or later. Ids
    /// are the times at which events were recorded.
    pub(crate) fn before(&self, millis: u64) -> u64 {
        let newest = *self.0.newest.borrow();
        let oldest = self.oldest();
        millis.saturating_sub(1).clamp(oldest, newest.max(oldest))
    }

    /// A receiver of the newest event's id.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// The known UUIDs of the node's GPUs.
    pub(crate) fn uuids(&self) -> Vec<String> {
        self.0.gpus.uuids()
    }

    /// The last XID of a GPU since the start; 0 without one.
    pub(crate) fn last_xid(&self, uuid: &str) -> u32 {
        let shown = self.shown();
        let counts = shown.xids.iter();
        let of_gpu = counts.filter(|((gpu, _), count)| gpu == uuid && count.total > 0);
        let last = of_gpu.max_by_key(|(_, count)| count.last);
        last.map_or(0, |((_, xid), _)| *xid)
    }

    /// Connections that wait for events.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.0.listeners
    }

    pub(crate) fn shown(&self) -> MutexGuard<'_, ShownEvents> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, EventWriter> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that syncs the history to disk. It holds no handle while it waits, so that the state
/// directory is free as soon as the last handle is dropped.
fn sync_on(events: &Weak<Inner>, to_sync: &Receiver<()>) {
    while to_sync.recv().is_ok() {
        let inner = events.upgrade();
        let Some(file) = inner.and_then(|inner| Events(inner).file_to_sync()) else {
            return;
        };

        // No lock is held meanwhile: the disk may hang.
        let result = file.and_then(|file| file.sync_data());
        let Some(inner) = events.upgrade() else {
            return;
        };
        Events(inner).synced(result);
    }
}

#[cfg(test)]
mod tests;
