//! The thread that follows the kernel log.

use super::history::LogMark;
use super::judge::EventSource;
use super::kernel_log::{KernelLog, Next, Record};
use super::recognise::Recogniser;
use super::writer::FirstStart;
use super::{Events, Inner};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use takt_model::Timestamp;

/// How often the thread looks whether it is still needed.
const LOOK_UP: Duration = Duration::from_secs(1);
/// Pause before a log that cannot be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl Events {
    /// Starts the thread that follows the kernel log of the node with this sysfs. It ends when the
    /// last handle is dropped.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn follow(&self, path: &Path, sysfs: &Path) -> io::Result<()> {
        let log = self.open_log(path, true);
        let events = Arc::downgrade(&self.0);
        let path = path.to_owned();
        let sysfs = sysfs.to_owned();

        let thread = std::thread::Builder::new()
            .name("kernel log".to_owned())
            .stack_size(256 << 10);
        let started = thread.spawn(move || follow(&events, &path, &sysfs, log));
        started.map(drop)
    }

    fn open_log(&self, path: &Path, is_first: bool) -> Option<KernelLog> {
        let log = KernelLog::open(path).and_then(|log| self.begin(log, is_first));
        let log = log.map_err(|error| self.cannot_follow(path, &error));
        log.ok()
    }

    /// Prepares an opened log. With a history the log is read from its beginning, and records that
    /// the history has are skipped. Without one, this exporter cannot know which events were sent
    /// before its start, so it begins at the end of the log.
    fn begin(&self, mut log: KernelLog, is_first: bool) -> io::Result<KernelLog> {
        let mut writer = self.writer();
        if writer.history.is_some() {
            let is_cut = |mark: &LogMark| {
                mark.log == log.identity() && log.end().is_some_and(|end| end < mark.position)
            };
            // A log that is shorter than what was read of it is another one.
            let marks = &mut writer.marks;
            marks.retain(|source, mark| *source != EventSource::Kernel || !is_cut(mark));

            let end = log.end().filter(|_| is_first);
            writer.first = writer.first.map(|first| FirstStart {
                end: end.or(first.end),
                ..first
            });
        } else if is_first {
            log.skip_to_end()?;
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
        let is_known = |(_, kind, _): &(_, io::ErrorKind, _)| *kind == error.kind();
        if !log.problem.as_ref().is_some_and(is_known) {
            tracing::warn!(
                path = %path.display(),
                %error,
                "cannot read the kernel log: XIDs, OOM kills and other events are not seen; the \
                 device needs CAP_SYSLOG where kernel.dmesg_restrict is 1"
            );
        }

        log.is_followed = false;
        log.problem = Some((path.to_owned(), error.kind(), error.to_string()));
    }
}

/// Reads until the log fails, and returns the error; `None` when the last handle was dropped.
fn read_on(events: &Weak<Inner>, sysfs: &Path, mut log: KernelLog) -> Option<io::Error> {
    let mut recogniser = Recogniser::new(sysfs);
    let mut identity = log.identity();

    loop {
        let next = log.next(LOOK_UP);
        let events = Events(events.upgrade()?);
        match next {
            Ok(Next::Record(Record {
                position,
                at,
                level,
                message,
            })) => {
                if let Some(found) = recogniser.read(&message, level) {
                    let mark = LogMark {
                        source: EventSource::Kernel,
                        log: identity.clone(),
                        position,
                    };
                    events.record(EventSource::Kernel, found, at, Some(mark));
                    events.sync();
                }
            }
            Ok(Next::Nothing) => {}
            Ok(Next::Overrun) => {
                tracing::warn!(
                    "the kernel overwrote lines of its log before they were read: events may be \
                     missing"
                );
                events.shown().log.overruns += 1;
            }
            Ok(Next::TooLong) => {
                tracing::warn!("left out a line of the kernel log that is longer than 64 KiB");
                events.shown().log.too_long += 1;
            }
            Ok(Next::Restarted) => {
                identity = log.identity();
                let mut writer = events.writer();
                writer.marks.remove(&EventSource::Kernel);
                writer.first = None;
            }
            Err(error) => return Some(error),
        }

        events.send_held_back(Timestamp::from(SystemTime::now()));
    }
}

/// The thread: reads the log, and opens it again where that fails.
fn follow(events: &Weak<Inner>, path: &Path, sysfs: &Path, mut log: Option<KernelLog>) {
    loop {
        if let Some(log) = log.take() {
            let Some(error) = read_on(events, sysfs, log) else {
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
        let events = Events(inner);
        events.send_held_back(Timestamp::from(SystemTime::now()));

        // A log that comes later is new as a whole.
        log = events.open_log(path, false);
    }
}
