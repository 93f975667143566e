//! What happens on the node at an instant: recognised, counted, kept, and told at once to whoever listens.
//!
//! ```text
//! kernel log ─► Recogniser ──────────┐
//! NVML's event thread ───────────────┼─► Judge ─► History (disk) ─► Shown ─► /events, the collector `events`
//! BMC's log ─► the collector `ipmi` ─┘
//! ```
//!
//! One writer at a time goes through this; pages and listeners look only at [`Shown`], so a disk that hangs delays
//! neither. docs/events.md has the form in which events go out.

mod gpus;
mod history;
mod judge;
mod kernel_log;
mod recognise;
mod stream;

pub(crate) use self::history::Mark;
pub(crate) use self::judge::Source;
pub(crate) use self::stream::events;

use self::gpus::Gpus;
use self::history::{Found, History, KEPT_EVENTS, Marks};
use self::judge::{Judge, Verdict};
use self::kernel_log::{KernelLog, Next, Record};
use self::recognise::{Recognised, Recogniser};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use takt_model::{Event, EventKind, Labels, Timestamp, pci};
use tokio::sync::watch;

/// How long NVML's word waits for the kernel's, which says more: the process, and what exactly happened.
const KERNEL_FIRST: Duration = Duration::from_millis(250);
/// How often the thread that follows the log looks whether it is still needed.
const LOOK_UP: Duration = Duration::from_secs(1);
/// How often a log that cannot be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// No node has more GPUs times XIDs, nor talks to more NFS servers.
pub(crate) const MAX_XIDS: usize = 1024;
pub(crate) const MAX_SERVERS: usize = 256;

/// Everything that happens on one node. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub struct Events(Arc<Inner>);

#[derive(Default)]
struct Inner {
    writer: Mutex<Writer>,
    shown: Mutex<Shown>,
    gpus: Gpus,
    /// Which start of the machine this is; `None` where the kernel does not say.
    boot_id: Option<String>,
    newest: watch::Sender<u64>,
    /// To the thread that waits for the disk, where there is a history.
    unsynced: Option<SyncSender<()>>,
}

/// The way of an event from whoever told it to the disk.
#[derive(Default)]
struct Writer {
    judge: Judge,
    history: Option<History>,
    marks: Marks,
    newest: u64,
    /// Of the first start with a history: where news begins.
    first: Option<First>,
}

/// The first start with a history. What the log held then is kept and counted, but is news to nobody.
#[derive(Debug, Clone, Copy)]
struct First {
    at: Timestamp,
    /// The log's end then, where it has one.
    end: Option<u64>,
}

impl First {
    /// The ids of what was before lie before that of the start, however much it is.
    const ROOM: u64 = 1_000_000;

    fn id(self) -> u64 {
        u64::try_from(self.at.0).unwrap_or(0)
    }

    fn was_after(self, position: u64, at: Timestamp) -> bool {
        self.end.map_or(at < self.at, |end| position <= end)
    }
}

/// What pages and listeners see.
#[derive(Default)]
pub(crate) struct Shown {
    /// The last events, the oldest first.
    pub kept: VecDeque<Arc<Event>>,
    /// Of the newest event that is not kept any more.
    forgotten: u64,
    pub counts: BTreeMap<EventKind, Count>,
    /// By UUID and XID.
    pub xids: BTreeMap<(String, u32), Count>,
    /// Whether an NFS server answered when the kernel last spoke of it.
    pub servers: BTreeMap<String, bool>,
    pub log: LogState,
}

/// How often something happened since the exporter started, and when last, also before.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Count {
    pub total: u64,
    pub last: Option<Timestamp>,
    /// How many of them were too many to be told one by one.
    pub untold: u64,
}

/// Whether the kernel log is followed.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    pub is_followed: bool,
    pub overruns: u64,
    pub problem: Option<(PathBuf, io::ErrorKind, String)>,
}

/// What comes after an event that a reader has seen.
#[derive(Debug, PartialEq)]
pub(crate) enum After {
    Event(Arc<Event>),
    /// There were some that are not kept any more, or the reader knows ids that this node never gave.
    Gap,
    Nothing,
}

impl Events {
    /// Events whose history is in `state_directory`, if that is given; else a restart forgets them.
    pub(crate) fn open(procfs: &Path, state_directory: Option<&Path>) -> io::Result<Self> {
        let (history, found) = match state_directory {
            Some(directory) => {
                History::open(directory).map(|(history, found)| (Some(history), found))?
            }
            None => (None, Found::default()),
        };
        let mut shown = Shown::default();
        for event in &found.events {
            shown.remember(event);
        }
        shown.forgotten = match (&history, found.events.front()) {
            (Some(_), Some(oldest)) if found.events.len() == KEPT_EVENTS => oldest.id - 1,
            (Some(_), _) => 0,
            // What happened before this start is not known, and ids tell the time.
            (None, _) => millis(SystemTime::now()),
        };
        let newest = found
            .events
            .back()
            .map_or(shown.forgotten, |event| event.id);
        let is_first = history.is_some()
            && found.events.is_empty()
            && !found.marks.contains_key(&Source::Kernel);
        let first = is_first.then(|| First {
            at: Timestamp::from(SystemTime::now()),
            end: None,
        });
        shown.kept = found.events;
        let (unsynced, to_sync) = sync_channel(1);
        let writer = Writer {
            judge: Judge::default(),
            history,
            marks: found.marks,
            newest,
            first,
        };
        let inner = Inner {
            writer: Mutex::new(writer),
            shown: Mutex::new(shown),
            gpus: Gpus::new(procfs),
            boot_id: crate::sysfs::text(&procfs.join("sys/kernel/random/boot_id")),
            newest: watch::Sender::new(first.map_or(newest, First::id)),
            unsynced: Some(unsynced),
        };
        let events = Self(Arc::new(inner));
        if state_directory.is_some() {
            let events = Arc::downgrade(&events.0);
            let thread = std::thread::Builder::new()
                .name("events' disk".to_owned())
                .stack_size(256 << 10);
            thread.spawn(move || sync_on(&events, &to_sync))?;
        }
        Ok(events)
    }

    /// Starts the thread that follows the kernel log. It ends when nobody has these events any more.
    pub(crate) fn follow(&self, path: &Path) -> io::Result<()> {
        let log = self.open_log(path, true);
        let (events, path) = (Arc::downgrade(&self.0), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("kernel log".to_owned())
            .stack_size(256 << 10);
        thread.spawn(move || follow(&events, &path, log)).map(drop)
    }

    /// NVML's event thread reports an XID. If the kernel log tells of it too, that counts, and this is forgotten; so
    /// this may wait for a moment.
    pub fn xid_by_nvml(&self, bus_id: &str, xid: u64) {
        let labels = [("pci_bus_id", bus_id), ("xid", &xid.to_string())];
        self.by_nvml(
            EventKind::Xid,
            &labels,
            format!("NVML: Xid ({bus_id}): {xid}"),
        );
    }

    /// NVML says that a GPU is lost. Known already if the kernel log has told.
    pub fn gpu_lost_by_nvml(&self, bus_id: &str) {
        self.by_nvml(
            EventKind::GpuLost,
            &[("pci_bus_id", bus_id)],
            format!("NVML: GPU {bus_id} is lost"),
        );
    }

    /// NVML knows which GPU is at which place. Those that it does not name stay known: they may be lost.
    pub fn gpus(&self, uuids_by_bus_id: impl IntoIterator<Item = (String, String)>) {
        for (bus_id, uuid) in uuids_by_bus_id {
            self.0.gpus.learn(&bus_id, uuid);
        }
    }

    fn by_nvml(&self, kind: EventKind, labels: &[(&str, &str)], message: String) {
        let at = Timestamp::from(SystemTime::now());
        let mut labels: Labels = labels.iter().copied().collect();
        if let Some(bus_id) = labels.get("pci_bus_id").and_then(pci::bus_id) {
            labels.set("pci_bus_id", &bus_id);
        }
        if self.shown().log.is_followed {
            std::thread::sleep(KERNEL_FIRST);
        }
        self.record(
            Source::Nvml,
            Recognised {
                kind,
                labels,
                message,
            },
            at,
            None,
        );
        self.sync();
    }

    /// How far the BMC's log was read, also before a restart where there is a history.
    pub(crate) fn bmc_mark(&self) -> Option<Mark> {
        self.writer().marks.get(&Source::Bmc).cloned()
    }

    /// The BMC's log tells of something that matters.
    pub(crate) fn hardware_log(&self, labels: Labels, message: String, at: Timestamp, mark: Mark) {
        self.record(
            Source::Bmc,
            Recognised {
                kind: EventKind::HardwareLog,
                labels,
                message,
            },
            at,
            Some(mark),
        );
        self.sync();
    }

    /// The BMC's log was read so far, and there was nothing to tell at its end.
    pub(crate) fn bmc_log_was_read(&self, mark: Mark) {
        let mut writer = self.writer();
        if writer.marks.get(&Source::Bmc) == Some(&mark) {
            return;
        }
        if let Some(history) = &mut writer.history {
            history.append(Some(&mark), None);
        }
        writer.marks.insert(Source::Bmc, mark);
        drop(writer);
        self.sync();
    }

    /// The way of one event. `mark` is its place in the log that told it.
    fn record(&self, source: Source, told: Recognised, at: Timestamp, mark: Option<Mark>) {
        let mut writer = self.writer();
        let verdict = writer.judge.verdict(source, told.kind, &told.labels, at);
        // The kernel's log is read from its beginning after a restart, so that the judge knows what came before.
        let is_behind = |known: &Mark| {
            mark.as_ref()
                .is_some_and(|mark| mark.log == known.log && mark.position <= known.position)
        };
        if writer.marks.get(&source).is_some_and(is_behind) {
            return;
        }
        let mut labels = told.labels;
        if let Some(uuid) = labels
            .get("pci_bus_id")
            .and_then(|bus_id| self.0.gpus.uuid(bus_id))
        {
            labels.set("uuid", &uuid);
        }
        // A fault that comes back after each restart of the machine is another matter than one that comes often.
        if let Some(boot_id) = self
            .0
            .boot_id
            .as_ref()
            .filter(|_| told.kind == EventKind::Xid)
        {
            labels.set("boot_id", boot_id);
        }
        // Over restarts ids rise with the clock, even where nothing was kept.
        let id = match (writer.first, &mark) {
            (Some(first), Some(mark))
                if source == Source::Kernel && first.was_after(mark.position, at) =>
            {
                let own = u64::try_from(at.0)
                    .unwrap_or(0)
                    .min(first.id().saturating_sub(First::ROOM));
                own.max(writer.newest + 1)
            }
            (first, _) => {
                let newest = first.map_or(0, First::id).max(writer.newest);
                millis(SystemTime::now()).max(newest + 1)
            }
        };
        let event = Event {
            id,
            at,
            kind: told.kind,
            labels,
            message: told.message,
        };
        let is_news = verdict == Verdict::News;
        if let Some(history) = &mut writer.history
            && verdict != Verdict::Flood
            && (is_news || mark.is_some())
        {
            history.append(mark.as_ref(), is_news.then_some(&event));
        }
        writer.marks.extend(mark.map(|mark| (source, mark)));
        match verdict {
            Verdict::Known => {}
            Verdict::Flood => self.shown().count(&event, false),
            Verdict::News => {
                writer.newest = id;
                let mut shown = self.shown();
                shown.count(&event, true);
                shown.keep(event);
                drop(shown);
                self.0.newest.send_if_modified(|newest| {
                    let is_newer = id > *newest;
                    *newest = id.max(*newest);
                    is_newer
                });
            }
        }
    }

    /// Has what was recorded made safe from a power cut. Whoever listens is not kept waiting for the disk.
    fn sync(&self) {
        // If one is to come anyway, it will do for this too.
        let _ = self
            .0
            .unsynced
            .as_ref()
            .map(|unsynced| unsynced.try_send(()));
    }

    fn file_to_sync(&self) -> Option<io::Result<File>> {
        let writer = &mut *self.writer();
        let kept = || Found {
            events: self.shown().kept.clone(),
            marks: writer.marks.clone(),
        };
        writer.history.as_mut().map(|history| history.shorten(kept))
    }

    fn synced(&self, result: io::Result<()>) {
        if let Some(history) = &mut self.writer().history {
            history.told(result);
        }
    }

    /// What a reader that has seen `id` is to see next.
    pub(crate) fn after(&self, id: u64) -> After {
        let shown = self.shown();
        // The event may be kept already and its id not yet told.
        let newest = shown
            .kept
            .back()
            .map_or(0, |event| event.id)
            .max(*self.0.newest.borrow());
        if id < shown.forgotten || id > newest {
            return After::Gap;
        }
        let place = shown.kept.partition_point(|event| event.id <= id);
        shown
            .kept
            .get(place)
            .map_or(After::Nothing, |event| After::Event(Arc::clone(event)))
    }

    /// From where a reader starts that accepts a gap.
    pub(crate) fn oldest(&self) -> u64 {
        self.shown().forgotten
    }

    /// Tells of each event that is recorded.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// The UUIDs of the node's GPUs, as far as they are known.
    pub(crate) fn uuids(&self) -> Vec<String> {
        self.0.gpus.uuids()
    }

    /// The last XID of a GPU since the start; 0 where there was none.
    pub(crate) fn last_xid(&self, uuid: &str) -> u32 {
        let shown = self.shown();
        let of_gpu = shown
            .xids
            .iter()
            .filter(|((gpu, _), count)| gpu == uuid && count.total > 0);
        of_gpu
            .max_by_key(|(_, count)| count.last)
            .map_or(0, |((_, xid), _)| *xid)
    }

    pub(crate) fn listeners(&self) -> usize {
        self.0.newest.receiver_count()
    }

    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    fn count(&mut self, event: &Event, is_told: bool) {
        self.remember(event);
        let add = |count: &mut Count| {
            count.total += 1;
            count.untold += u64::from(!is_told);
        };
        self.counts.entry(event.kind).and_modify(add);
        if let Some(xid) = xid_of(event) {
            self.xids.entry(xid).and_modify(add);
        }
    }

    /// When it happened, and what it means for what is shown as it is now.
    fn remember(&mut self, event: &Event) {
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

    fn keep(&mut self, event: Event) {
        self.kept.push_back(Arc::new(event));
        if self.kept.len() > KEPT_EVENTS
            && let Some(oldest) = self.kept.pop_front()
        {
            self.forgotten = oldest.id;
        }
    }
}

/// The GPU, by its UUID or, where that is not known, its place on the bus; and the XID.
fn xid_of(event: &Event) -> Option<(String, u32)> {
    let xid = event
        .labels
        .get("xid")
        .filter(|_| event.kind == EventKind::Xid)?
        .parse()
        .ok()?;
    let gpu = event
        .labels
        .get("uuid")
        .or_else(|| event.labels.get("pci_bus_id"))
        .unwrap_or_default();
    Some((gpu.to_owned(), xid))
}

fn millis(at: SystemTime) -> u64 {
    u64::try_from(Timestamp::from(at).0).unwrap_or(0)
}

/// The life of the thread that waits for the disk. It holds nobody's events meanwhile: whoever ends gives back the
/// state directory at once.
fn sync_on(events: &Weak<Inner>, to_sync: &Receiver<()>) {
    while to_sync.recv().is_ok() {
        let Some(file) = events
            .upgrade()
            .and_then(|inner| Events(inner).file_to_sync())
        else {
            return;
        };
        let result = file.and_then(|file| file.sync_data());
        let Some(inner) = events.upgrade() else {
            return;
        };
        Events(inner).synced(result);
    }
}

/// The thread's life: read on, and where that fails open the log again.
fn follow(events: &Weak<Inner>, path: &Path, mut log: Option<KernelLog>) {
    loop {
        if let Some(log) = log.take() {
            let Some(error) = read_on(events, log) else {
                return;
            };
            let Some(inner) = events.upgrade() else {
                return;
            };
            Events(inner).cannot_follow(path, &error);
        }
        std::thread::sleep(TRY_AGAIN);
        let Some(inner) = events.upgrade() else {
            return;
        };
        // A log that comes later is new as a whole.
        log = Events(inner).open_log(path, false);
    }
}

impl Events {
    fn open_log(&self, path: &Path, is_first: bool) -> Option<KernelLog> {
        let log = KernelLog::open(path).and_then(|log| self.begin(log, is_first));
        log.map_err(|error| self.cannot_follow(path, &error)).ok()
    }

    /// With a history the log is read from its beginning, and what the history has is not news. Without one nothing
    /// tells what an exporter before this one told, so this one begins with what comes.
    fn begin(&self, mut log: KernelLog, is_first: bool) -> io::Result<KernelLog> {
        let mut writer = self.writer();
        match writer.history.is_some() {
            false if is_first => log.skip_to_end()?,
            false => {}
            true => {
                let is_cut = |mark: &Mark| {
                    mark.log == log.identity() && log.end().is_some_and(|end| end < mark.position)
                };
                writer
                    .marks
                    .retain(|source, mark| *source != Source::Kernel || !is_cut(mark));
                let end = log.end().filter(|_| is_first);
                writer.first = writer.first.map(|first| First {
                    end: end.or(first.end),
                    ..first
                });
            }
        }
        drop(writer);
        let mut shown = self.shown();
        shown.log.is_followed = true;
        if shown.log.problem.take().is_some() {
            tracing::info!("following the kernel log");
        }
        Ok(log)
    }

    fn cannot_follow(&self, path: &Path, error: &io::Error) {
        let log = &mut self.shown().log;
        log.is_followed = false;
        log.problem = Some((path.to_owned(), error.kind(), error.to_string()));
    }
}

/// Reads until the log fails, which is returned, or nobody has the events any more.
fn read_on(events: &Weak<Inner>, mut log: KernelLog) -> Option<io::Error> {
    let mut recogniser = Recogniser::new();
    let mut identity = log.identity();
    loop {
        let next = log.next(LOOK_UP);
        let events = Events(events.upgrade()?);
        match next {
            Ok(Next::Record(Record {
                position,
                at,
                message,
            })) => {
                if let Some(told) = recogniser.read(&message) {
                    let mark = Mark {
                        source: Source::Kernel,
                        log: identity.clone(),
                        position,
                    };
                    events.record(Source::Kernel, told, at, Some(mark));
                    events.sync();
                }
            }
            Ok(Next::Nothing) => {}
            Ok(Next::Overrun) => {
                tracing::warn!(
                    "the kernel overwrote lines of its log before they were read: events may be missing"
                );
                events.shown().log.overruns += 1;
            }
            Ok(Next::Restarted) => {
                identity = log.identity();
                let mut writer = events.writer();
                writer.marks.remove(&Source::Kernel);
                writer.first = None;
            }
            Err(error) => return Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
