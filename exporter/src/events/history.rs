//! The history on disk: the last events, and the positions in the kernel's and the BMC's log.
//!
//! `events.jsonl` in the state directory has one line for each event, and for each record of a log
//! that brought no new event. Lines are appended; from time to time the file is rewritten with
//! those that are still needed.

use super::judge::EventSource;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use takt_model::Event;

/// Events that are kept for listeners that were away.
pub(crate) const KEPT_EVENTS: usize = 1024;

/// Lines at which the file is rewritten.
const MAX_LINES: usize = 4 * KEPT_EVENTS;

/// A position in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogMark {
    #[serde(default)]
    pub source: EventSource,
    /// The log's identity: each boot has another kernel log.
    pub log: String,
    pub position: u64,
}

/// The position in each log.
pub(crate) type LogMarks = BTreeMap<EventSource, LogMark>;

#[derive(Serialize, Deserialize)]
struct Entry<E> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<LogMark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<E>,
    /// Id from which listeners continue after the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    begin: Option<u64>,
}

/// The file. Where it cannot be written, events are still sent.
#[derive(Debug)]
pub(crate) struct EventHistory {
    path: PathBuf,
    file: File,
    lines: usize,
    begin: u64,
    /// Locked until this is dropped.
    _lock: File,
    is_failing: bool,
}

/// The contents of a history.
#[derive(Debug, Default)]
pub(crate) struct HistoryContents {
    pub events: VecDeque<Arc<Event>>,
    pub marks: LogMarks,
    /// Id at which new events began at the first start: listeners may continue from it. 0 before.
    pub begin: u64,
}

impl EventHistory {
    /// Opens the history in `directory`, which is created if needed.
    ///
    /// # Errors
    /// When the directory cannot be used, or another exporter uses it.
    pub fn open(directory: &Path) -> io::Result<(Self, HistoryContents)> {
        std::fs::create_dir_all(directory)?;

        // The lock ends with the process, even if it crashes.
        let lock = File::create(directory.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another exporter uses this state directory",
            )
        })?;

        let path = directory.join("events.jsonl");
        let found = match std::fs::read(&path) {
            Ok(bytes) => read(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HistoryContents::default(),
            Err(error) => return Err(error),
        };

        // Written again at each start, so that damaged lines and old events go.
        let (file, lines) = write_anew(&path, &found)?;

        let history = Self {
            path,
            file,
            lines,
            begin: found.begin,
            _lock: lock,
            is_failing: false,
        };
        Ok((history, found))
    }

    /// Appends an event, or a position that brought none. The line survives a power cut only once
    /// the file of [`shorten`] is synced.
    ///
    /// [`shorten`]: History::shorten
    pub fn append(&mut self, mark: Option<&LogMark>, event: Option<&Event>) {
        let mut text = Vec::new();
        if self.is_failing {
            // The last line may be cut off and others missing: everything kept has to be rewritten.
            text.push(b'\n');
            self.lines = MAX_LINES + 1;
        }

        let result = line(mark, event, None).and_then(|line| {
            text.extend(line);
            self.file.write_all(&text)
        });

        self.lines += 1;
        self.wrote(result);
    }

    /// Notes the id at which new events begin, at the first start.
    pub fn begin_at(&mut self, id: u64) {
        self.begin = id;
        let result = line(None, None, Some(id)).and_then(|line| self.file.write_all(&line));
        self.lines += 1;
        self.wrote(result);
    }

    /// Rewrites the file if it is too long. Returns a handle to it: syncing the handle, which may
    /// take long, makes the appended lines survive a power cut.
    pub fn shorten(&mut self, kept: impl FnOnce() -> HistoryContents) -> io::Result<File> {
        if self.lines > MAX_LINES {
            let kept = HistoryContents {
                begin: self.begin,
                ..kept()
            };
            (self.file, self.lines) = write_anew(&self.path, &kept)?;
        }
        self.file.try_clone()
    }

    /// Takes note of the result of a write; the first failure is logged.
    pub fn wrote(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.is_failing = false,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(file = %self.path.display(), %error, "cannot write: a restart may \
                     repeat or lose events");
            }
            Err(_) => {}
        }
    }
}

fn line(mark: Option<&LogMark>, event: Option<&Event>, begin: Option<u64>) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Entry {
        mark: mark.cloned(),
        event,
        begin,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a history. Lines that are cut off or damaged are left out.
fn read(bytes: &[u8]) -> HistoryContents {
    let mut found = HistoryContents::default();
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        let Ok(entry) = serde_json::from_slice::<Entry<Event>>(line) else {
            tracing::warn!("skipped a damaged line of the history of events");
            continue;
        };

        found.begin = found.begin.max(entry.begin.unwrap_or(0));
        if let Some(mark) = entry.mark {
            found.marks.insert(mark.source, mark);
        }

        // A line that comes twice, or out of order, counts once.
        let newest = found.events.back().map_or(0, |event: &Arc<Event>| event.id);
        if let Some(event) = entry.event.filter(|event| event.id > newest) {
            found.events.push_back(Arc::new(event));
        }
        if found.events.len() > KEPT_EVENTS {
            found.events.pop_front();
        }
    }
    found
}

/// Rewrites the file: events first, then positions. Returns it with its number of lines.
fn write_anew(path: &Path, found: &HistoryContents) -> io::Result<(File, usize)> {
    // After a power cut there is the old file or the new one, whole.
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;

    let mut text = Vec::new();
    for event in &found.events {
        text.extend(line(None, Some(event), None)?);
    }
    for mark in found.marks.values() {
        text.extend(line(Some(mark), None, None)?);
    }
    let has_begin = found.begin > 0;
    if has_begin {
        text.extend(line(None, None, Some(found.begin))?);
    }

    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;

    // The new name must survive a power cut, too.
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }

    let lines = found.events.len() + found.marks.len() + usize::from(has_begin);
    Ok((file, lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use takt_model::{EventKind, Labels, Timestamp};

    fn event(id: u64) -> Event {
        let labels = Labels::from_iter([("server", "nas \"01\"")]);
        Event {
            id,
            at: Timestamp(5),
            kind: EventKind::NfsResponding,
            labels,
            message: "nfs: server OK\n".into(),
        }
    }

    fn mark(position: u64) -> LogMark {
        LogMark {
            source: EventSource::Kernel,
            log: "boot".into(),
            position,
        }
    }

    fn marks(position: u64) -> LogMarks {
        LogMarks::from([(EventSource::Kernel, mark(position))])
    }

    #[test]
    fn what_was_appended_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("deep/state");
        let (mut history, found) = EventHistory::open(&state).unwrap();
        assert!(found.events.is_empty() && found.marks.is_empty());
        assert!(
            EventHistory::open(&state)
                .unwrap_err()
                .to_string()
                .contains("another exporter")
        );
        history.append(Some(&mark(3)), Some(&event(7)));
        history.append(Some(&mark(9)), None);
        let of_bmc = LogMark {
            source: EventSource::Bmc,
            log: "record".into(),
            position: 2,
        };
        history.append(Some(&of_bmc), None);
        history.append(None, Some(&event(8)));
        history
            .shorten(HistoryContents::default)
            .unwrap()
            .sync_data()
            .unwrap();
        drop(history);
        let (history, found) = EventHistory::open(&state).unwrap();
        assert_eq!(
            found
                .events
                .iter()
                .map(|event| event.id)
                .collect::<Vec<_>>(),
            [7, 8]
        );
        assert_eq!(*found.events[0], event(7));
        let all = LogMarks::from([(EventSource::Kernel, mark(9)), (EventSource::Bmc, of_bmc)]);
        assert_eq!(found.marks, all, "each log has its own");
        drop(history);
        let (_history, again) = EventHistory::open(&state).unwrap();
        assert_eq!(
            (again.events, again.marks),
            (found.events, found.marks),
            "written anew, it says the same"
        );
    }

    #[test]
    fn a_torn_line_costs_itself_alone() {
        let mut bytes = line(Some(&mark(3)), Some(&event(7)), None).unwrap();
        bytes.extend_from_slice(b"\xff\n{\"event\":{\"kind\":\"of the future\"}}\n\n");
        bytes.extend(line(Some(&mark(4)), Some(&event(8)), None).unwrap());

        // The last line breaks off, as after a power cut.
        let whole = bytes.len();
        bytes.extend(line(Some(&mark(5)), Some(&event(9)), None).unwrap());
        bytes.truncate(whole + 20);
        let found = read(&bytes);
        assert_eq!((found.events.len(), found.marks), (2, marks(4)));
        let before = read(br#"{"mark":{"log":"boot","position":4}}"#);
        assert_eq!(before.marks, marks(4), "of an exporter that knew one log");
    }

    #[test]
    fn events_missing_on_a_full_disk_are_written_later() {
        let directory = tempfile::tempdir().unwrap();
        let (mut history, _) = EventHistory::open(directory.path()).unwrap();
        history.append(Some(&mark(1)), Some(&event(1)));

        // Each write to /dev/full fails, as on a full disk.
        let file = std::mem::replace(
            &mut history.file,
            File::options().write(true).open("/dev/full").unwrap(),
        );
        history.append(Some(&mark(2)), Some(&event(2)));
        assert!(history.is_failing);
        // It got half of a line.
        history.file = file;
        history.file.write_all(b"{\"mark\":{\"lo").unwrap();
        history.append(Some(&mark(3)), Some(&event(3)));
        assert!(!history.is_failing);
        let ids = |found: &HistoryContents| {
            found
                .events
                .iter()
                .map(|event| event.id)
                .collect::<Vec<_>>()
        };
        let found = read(&std::fs::read(directory.path().join("events.jsonl")).unwrap());
        assert_eq!(ids(&found), [1, 3], "a torn line costs itself alone");
        let kept = || HistoryContents {
            events: [1, 2, 3].map(|id| Arc::new(event(id))).into(),
            marks: marks(3),
            begin: 0,
        };
        history.shorten(kept).unwrap();
        drop(history);
        let (_history, found) = EventHistory::open(directory.path()).unwrap();
        assert_eq!((ids(&found), found.marks), (vec![1, 2, 3], marks(3)));
    }

    #[test]
    fn an_unusable_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(EventHistory::open(&file).is_err(), "a file");
        std::fs::create_dir_all(directory.path().join("state/events.jsonl")).unwrap();
        assert!(
            EventHistory::open(&directory.path().join("state")).is_err(),
            "nothing that can be read"
        );
        // For root, /proc is the directory that takes no file.
        assert!(EventHistory::open(Path::new("/proc/takt")).is_err());
    }

    proptest! {
        /// Whatever a disk made of it: what is whole between the damage is found.
        #[test]
        fn damage_costs_the_lines_that_it_hit(damage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 5)) {
            let mut bytes = Vec::new();
            for (id, damage) in (1..).zip(&damage) {
                bytes.extend(damage.iter().filter(|byte| **byte != b'\n'));
                bytes.push(b'\n');
                bytes.extend(line(Some(&mark(id)), Some(&event(id)), None).unwrap());
            }
            let found = read(&bytes);
            prop_assert_eq!(found.events.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
            prop_assert_eq!(found.marks, marks(5));
        }
    }

    #[test]
    fn the_file_stays_small() {
        let directory = tempfile::tempdir().unwrap();
        let (mut history, _) = EventHistory::open(directory.path()).unwrap();
        history.begin_at(5);
        for id in 1..=(MAX_LINES as u64 + 10) {
            history.append(Some(&mark(id)), Some(&event(id)));
            let kept = || HistoryContents {
                events: [Arc::new(event(id))].into(),
                marks: marks(id),
                begin: 0,
            };
            if id % 100 == 0 {
                history.shorten(kept).unwrap();
            }
        }
        let lines = std::fs::read_to_string(directory.path().join("events.jsonl"))
            .unwrap()
            .lines()
            .count();
        assert!(lines < MAX_LINES / 2, "{lines}");
        drop(history);
        let (_history, found) = EventHistory::open(directory.path()).unwrap();
        assert_eq!(found.events.back().unwrap().id, MAX_LINES as u64 + 10);
        assert_eq!(found.begin, 5);
    }
}
