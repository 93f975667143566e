//! The kernel log, record by record.
//!
//! Sources: `/dev/kmsg`, which returns one record for each read and keeps the records since boot
//! (as far as the kernel's buffer reaches); or a file with one record on each line, for tests and
//! for containers that may not open the device. A line of such a file is a record in the format of
//! `/dev/kmsg`, or a message with or without a prefix.
//!
//! The device alone tells the kernel's messages from others: each has a facility, and only the
//! kernel can use its own. It also keeps a message of several lines together, with `\x0a` for the
//! line feed; most programs that write such a file split it.

use regex_lite::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, SeekFrom, inotify, open, seek};
use rustix::io::{Errno, read};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use takt_model::Timestamp;

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Position in the log; rises with each record.
    pub position: u64,
    pub at: Timestamp,
    /// `None` in a file whose lines do not have it.
    pub level: Option<LogLevel>,
    pub message: String,
}

/// Urgency of a message, from 0 (emergency) to 7 (debug).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogLevel(u8);

impl LogLevel {
    /// Level of messages that are no reason to worry.
    pub const INFORMATION: Self = Self(6);
}

/// Result of waiting for the next record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Record(Record),
    /// No record arrived in time.
    Nothing,
    /// The kernel overwrote records before they were read.
    Overrun,
    /// A line of a file was longer than any message of the kernel, and was left out.
    TooLong,
    /// The file was truncated or replaced: positions begin at 0 again.
    Restarted,
}

/// An open log.
pub(crate) enum KernelLog {
    Device(Device),
    File(Follow),
}

impl KernelLog {
    /// Opens the log at its first record.
    pub fn open(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_char_device() {
            Device::open(path).map(Self::Device)
        } else {
            Follow::open(path).map(Self::File)
        }
    }

    /// Skips the records that are already there.
    pub fn skip_to_end(&mut self) -> io::Result<()> {
        match self {
            Self::Device(device) => seek(&device.handle, SeekFrom::End(0))
                .map(|_| ())
                .map_err(io::Error::from),
            Self::File(file) => file.skip_to_end(),
        }
    }

    /// Identity of the log: a position is valid only in the log it came from.
    pub fn identity(&self) -> String {
        match self {
            Self::Device(device) => device.boot.clone(),
            Self::File(file) => file.identity(),
        }
    }

    /// Length of a file; the device has none.
    pub fn end(&self) -> Option<u64> {
        match self {
            Self::Device(_) => None,
            Self::File(file) => file.file.metadata().ok().map(|metadata| metadata.len()),
        }
    }

    pub fn next(&mut self, timeout: Duration) -> io::Result<Next> {
        match self {
            Self::Device(device) => device.next(timeout),
            Self::File(file) => file.next(timeout),
        }
    }
}

/// `/dev/kmsg`.
pub(crate) struct Device {
    handle: OwnedFd,
    boot: String,
    buffer: Box<[u8; RECORD_BYTES]>,
}

/// Longest record; a shorter buffer would get `EINVAL`.
const RECORD_BYTES: usize = 16 << 10;

impl Device {
    fn open(path: &Path) -> io::Result<Self> {
        let handle = open(
            path,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        )?;

        // Positions begin at 0 with each boot, so the boot identifies the log.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();

        Ok(Self {
            handle,
            boot,
            buffer: Box::new([0; RECORD_BYTES]),
        })
    }

    fn next(&mut self, timeout: Duration) -> io::Result<Next> {
        let handle = &self.handle;
        next_record(
            &mut self.buffer[..],
            |buffer| read(handle, buffer),
            || wait(handle, timeout),
        )
    }
}

/// The next record of `/dev/kmsg`. `wait` returns whether the device is readable.
fn next_record(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut wait: impl FnMut() -> io::Result<bool>,
) -> io::Result<Next> {
    loop {
        match read(buffer) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]);
                // Lines that user space wrote are not the kernel's.
                if let Some(record) = parse_record(&text, &Clock::now()) {
                    return Ok(Next::Record(record));
                }
            }
            Err(Errno::AGAIN) => {
                if !wait()? {
                    return Ok(Next::Nothing);
                }
            }
            // The next read continues with the oldest record that is left.
            Err(Errno::PIPE) => return Ok(Next::Overrun),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the device is readable. False when `timeout` passes first.
fn wait(handle: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };

    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Converts the kernel's time since boot to the time of the clock.
pub(super) struct Clock {
    wall: SystemTime,
    since_start: Duration,
}

impl Clock {
    pub fn now() -> Self {
        // The kernel's time in the log stands still while the machine sleeps, as this clock does.
        let now = clock_gettime(ClockId::Monotonic);
        Self {
            wall: SystemTime::now(),
            since_start: Duration::new(now.tv_sec as u64, now.tv_nsec as u32),
        }
    }

    fn at(&self, micros: u64) -> Timestamp {
        let since_start = Duration::from_micros(micros);
        // No record is in the future, whatever its number says.
        let ago = self.since_start.saturating_sub(since_start);
        Timestamp::from(self.wall).minus(ago)
    }
}

/// Parses `priority,sequence,microseconds,flags;message` of the kernel. Other programs may write to
/// the device, root's and those that forward what users log; their messages are no records.
/// Continuation lines, which begin with a blank, are left out.
pub(super) fn parse_record(text: &str, clock: &Clock) -> Option<Record> {
    let (head, message) = text.split_once(';')?;
    let mut fields = head.split(',');

    let mut number = || fields.next()?.parse::<u64>().ok();
    let level = kernel_level(number()?)?;
    let position = number()?;
    let micros = number()?;

    // Before 4.10, the rest of a message that was cut: it may begin with any text.
    if fields.next() == Some("+") {
        return None;
    }

    let message = unescape(message.lines().next().unwrap_or_default());
    Some(Record {
        position,
        at: clock.at(micros),
        level: Some(level),
        message,
    })
}

/// The level of a message of the kernel from its priority, which is 8 times the facility more; the
/// kernel's facility is 0.
fn kernel_level(priority: u64) -> Option<LogLevel> {
    let is_kernel = priority >> 3 == 0;
    is_kernel.then_some(LogLevel((priority & 7) as u8))
}

/// Replaces the kernel's escapes, such as `\x0a` for a line feed.
fn unescape(text: &str) -> String {
    if !text.contains("\\x") {
        return text.to_owned();
    }

    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();

    while let [first, behind @ ..] = rest {
        let hex = |at: usize| {
            let digit = *behind.get(at)?;
            char::from(digit).to_digit(16)
        };

        let escaped = (*first == b'\\' && behind.first() == Some(&b'x'))
            .then(|| Some(hex(1)? * 16 + hex(2)?))
            .flatten();

        match escaped {
            Some(byte) => {
                bytes.push(byte as u8);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }

    String::from_utf8_lossy(&bytes).into_owned()
}

/// Texts that other programs write before the message: priority, time, host and `kernel:`, and the time
/// since boot, with the thread or CPU (`[T123]`). Nothing else is left out: a process may have a
/// name that looks like the end of a prefix.
const PREFIX: &str = r"^(?:<(?P<priority>\d{1,3})>)?(?:(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]+) [\w.:-]+ kernel: )?(?:\[(?: *\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\](?:\[ *[TC]\d+\])? )?";

/// A growing file.
pub(crate) struct Follow {
    path: PathBuf,
    file: File,
    changes: OwnedFd,
    prefix: Regex,
    /// Bytes that were read and not yet returned.
    pending: Vec<u8>,
    /// Offset of the first byte of `pending` in the file.
    offset: u64,
    /// Whether `pending` begins within a line that is left out.
    is_within_left_out_line: bool,
}

/// Longest line. A longer one is left out as a whole: a user could place the text of a fault where
/// its second part would begin.
const LINE_BYTES: usize = 64 << 10;

impl Follow {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open_file(path)?;
        let changes =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;

        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));

        // The directory: a file that replaces this one is a change too.
        let flags = inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&changes, directory, flags)?;

        Ok(Self {
            path: path.to_owned(),
            file,
            changes,
            prefix: Regex::new(PREFIX).expect("a test compiles it"),
            pending: Vec::new(),
            offset: 0,
            is_within_left_out_line: false,
        })
    }

    fn skip_to_end(&mut self) -> io::Result<()> {
        let end = self.file.seek(io::SeekFrom::End(0))?;
        self.forget(end);

        // The rest of a line whose begin was skipped is no message.
        self.is_within_left_out_line = !self.is_at_line()?;
        Ok(())
    }

    /// Whether a line begins at the offset.
    fn is_at_line(&self) -> io::Result<bool> {
        let mut before = [b'\n'];
        // Without a byte there, the file is shorter than the offset.
        if self.offset > 0 && self.file.read_at(&mut before, self.offset - 1)? == 0 {
            return Ok(false);
        }

        Ok(before == [b'\n'])
    }

    /// Whether the file was truncated, and then grew beyond the offset before anything looked: the
    /// next line would begin within another one.
    fn was_rewritten(&self) -> io::Result<bool> {
        let is_between_lines = self.pending.is_empty() && !self.is_within_left_out_line;
        Ok(is_between_lines && !self.is_at_line()?)
    }

    fn forget(&mut self, offset: u64) {
        self.offset = offset;
        self.pending.clear();
        self.is_within_left_out_line = false;
    }

    fn identity(&self) -> String {
        self.file.metadata().map_or_else(
            |_| String::new(),
            |file| format!("file {}:{}", file.dev(), file.ino()),
        )
    }

    fn next(&mut self, timeout: Duration) -> io::Result<Next> {
        if let Some(next) = self.line() {
            return Ok(next);
        }

        // A pass without waiting finds what is there already, and another one what came meanwhile.
        for may_wait in [true, false] {
            if self.was_rewritten()? {
                self.file.rewind()?;
                self.forget(0);
                return Ok(Next::Restarted);
            }

            if self.fill()? {
                return Ok(self.line().unwrap_or(Next::Nothing));
            }

            // A file that was rotated is read to its end first, because its lines are older than the new file's.
            if self.is_another()? {
                return Ok(Next::Restarted);
            }

            if may_wait && wait(&self.changes, timeout)? {
                self.forget_changes();
            }
        }
        Ok(Next::Nothing)
    }

    fn fill(&mut self) -> io::Result<bool> {
        let before = self.pending.len();
        // A piece at a time, so that a large file does not fill the memory.
        let mut piece = (&self.file).take(LINE_BYTES as u64);

        piece.read_to_end(&mut self.pending)?;
        Ok(self.pending.len() > before)
    }

    /// The next whole line, or that a line was left out; `None` while the file has no more.
    fn line(&mut self) -> Option<Next> {
        let end = self.pending.iter().position(|byte| *byte == b'\n');
        if self.is_within_left_out_line || end.unwrap_or(self.pending.len()) > LINE_BYTES {
            // A line is reported once, when it exceeds the bound. The rest of it is skipped without a word.
            let begins_here = !std::mem::replace(&mut self.is_within_left_out_line, end.is_none());
            self.take(end.map_or(self.pending.len(), |end| end + 1));
            return if begins_here {
                Some(Next::TooLong)
            } else {
                end.and_then(|_| self.line())
            };
        }

        let line = self.take(end? + 1);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);

        let clock = Clock::now();
        let record = parse_record(line, &clock).unwrap_or_else(|| self.prefixed(line, &clock));
        Some(Next::Record(Record {
            position: self.offset,
            ..record
        }))
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        self.offset += length as u64;
        self.pending.drain(..length).collect()
    }

    /// The record of a line with or without a prefix. A prefix that names another facility than the
    /// kernel's leaves no message.
    fn prefixed(&self, line: &str, clock: &Clock) -> Record {
        let prefix = self.prefix.captures(line);
        let priority = prefix
            .as_ref()
            .and_then(|found| found.name("priority")?.as_str().parse().ok());
        let level = priority.map(kernel_level);

        let message = match level {
            Some(None) => "",
            _ => &line[prefix.map_or(0, |found| found[0].len())..],
        };

        Record {
            position: 0,
            at: clock.wall.into(),
            level: level.flatten(),
            message: message.to_owned(),
        }
    }

    /// Whether the file was truncated or replaced; the new one is then read from its beginning.
    fn is_another(&mut self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) != (own.dev(), own.ino()) => {
                self.file = open_file(&self.path)?;
            }
            // Truncated in place, as logrotate's `copytruncate` does it.
            Ok(named) if named.len() < self.offset => self.file.rewind()?,
            // Between two files; the old one stays until there is a new one.
            _ => return Ok(false),
        }

        self.forget(0);
        Ok(true)
    }

    fn forget_changes(&self) {
        // The events only wake the reader: it looks at the file itself for what has changed.
        let mut buffer = [0; 4096];
        while read(&self.changes, &mut buffer[..]).is_ok_and(|length| length > 0) {}
    }
}

/// Opens a regular file. Without blocking, because opening a FIFO would wait for its writer.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        let reason = "expected /dev/kmsg or a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn a_fifo_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("kmsg");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, Mode::RUSR, 0).unwrap();
        let error = KernelLog::open(&fifo).err().unwrap();
        assert_eq!(error.to_string(), "expected /dev/kmsg or a regular file");
    }

    fn message(log: &mut KernelLog) -> Option<String> {
        match log.next(SOON).unwrap() {
            Next::Record(record) => Some(record.message),
            _ => None,
        }
    }

    #[test]
    fn records() {
        let clock = Clock {
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(100),
            since_start: Duration::from_secs(30),
        };
        let parse = |text| parse_record(text, &clock);
        let record = parse(
            "4,1234,29000000,-;NVRM: Xid\\x0aline two\n SUBSYSTEM=pci\n DEVICE=+pci:0000:06:00.0\n",
        )
        .unwrap();
        let message = "NVRM: Xid\nline two".to_owned();
        assert_eq!(
            record,
            Record {
                position: 1234,
                at: Timestamp(99_000),
                level: Some(LogLevel(4)),
                message
            }
        );
        assert_eq!(
            parse("6,1,40000000,-,caller=T1;text").unwrap().at,
            Timestamp(100_000),
            "never in the future"
        );

        // Incomplete heads, other facilities than the kernel's, and the rest of a message that was cut.
        for text in [
            "",
            ";",
            "4,1;x",
            "4,a,3,-;x",
            "30,1,1,-;systemd[1]: Link is Down",
            "8,1,1,-;NVRM: Xid (PCI:0000:06:00): 79, written to the device",
            "12,1,1,-,caller=T1;kernel BUG at mm/slub.c:306!",
            "4,1,1,+;kernel BUG at mm/slub.c:306!",
            "no record",
            "a;b",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(unescape("a\\x5cx\\xzz\\x4"), "a\\x\\xzz\\x4");
    }

    /// Reads of the device by a slow or interrupted reader, and of lines from user space.
    #[test]
    fn a_device_that_overran_is_read_on() {
        let record = |text: &'static str| Ok(text);
        let mut answers = [
            record("6,1,1,-;one"),
            Err(Errno::PIPE),
            Err(Errno::INTR),
            record("30,7,2,-;systemd[1]: Link is Down"),
            record("\u{fffd};garbage"),
            Err(Errno::AGAIN),
            record("6,9,3,-;two"),
            Err(Errno::AGAIN),
            Err(Errno::NODEV),
        ]
        .into_iter();
        let mut read = |buffer: &mut [u8]| {
            let text: &str = answers.next().unwrap()?;
            buffer[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        };
        let mut waits = [true, false].into_iter();
        let mut next = || next_record(&mut [0; 100], &mut read, || Ok(waits.next().unwrap()));
        assert!(matches!(next().unwrap(), Next::Record(record) if record.message == "one"));
        assert_eq!(next().unwrap(), Next::Overrun);
        assert!(matches!(next().unwrap(), Next::Record(record) if record.message == "two"));
        assert_eq!(next().unwrap(), Next::Nothing);
        assert!(next().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_record_or_none(text in "\\PC{0,80}|[0-9,;\\\\x-]{0,60}") {
            let clock = Clock { wall: SystemTime::now(), since_start: Duration::from_secs(30) };
            let _ = parse_record(&text, &clock);
        }

        #[test]
        fn any_bytes_are_lines_of_a_file(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..6)) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("kern.log");
            std::fs::write(&path, "").unwrap();
            let mut log = KernelLog::open(&path).unwrap();
            let mut file = File::options().append(true).open(&path).unwrap();
            let mut read = 0;
            let mut wrote = 0;
            for piece in &pieces {
                file.write_all(piece).unwrap();
                wrote += piece.iter().filter(|byte| **byte == b'\n').count();
                while let Next::Record(_) = log.next(Duration::ZERO).unwrap() {
                    read += 1;
                }
            }
            prop_assert_eq!(read, wrote);
        }
    }

    /// Text behind the bound is a part of the line, even if it looks like a fault.
    #[test]
    fn a_long_line_of_a_file_is_left_out_as_a_whole() {
        const FAULT: &[u8] = b"NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.";
        for length in [
            LINE_BYTES - 1,
            LINE_BYTES,
            LINE_BYTES + 1,
            2 * LINE_BYTES,
            5 * LINE_BYTES,
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("kern.log");
            std::fs::write(&path, "").unwrap();
            let mut log = KernelLog::open(&path).unwrap();
            let mut file = File::options().append(true).open(&path).unwrap();
            let read = |log: &mut KernelLog| {
                let mut found = Vec::new();
                for _ in 0..50 {
                    match log.next(Duration::ZERO).unwrap() {
                        Next::Record(record) => found.push(record.message),
                        Next::TooLong => found.push("too long".to_owned()),
                        _ => {}
                    }
                }
                found
            };

            file.write_all(&b"x".repeat(length)).unwrap();
            let mut found = read(&mut log);
            file.write_all(FAULT).unwrap();
            file.write_all(b"\nnext\n").unwrap();
            found.extend(read(&mut log));
            assert_eq!(found, ["too long", "next"], "{length} bytes");
            let Next::Nothing = log.next(Duration::ZERO).unwrap() else {
                panic!("{length}")
            };

            // Written at once, and the longest line that is read.
            let whole = [&b"x".repeat(length)[..], FAULT, b"\nnext\n"].concat();
            file.write_all(&whole).unwrap();
            file.write_all(&[&b"y".repeat(LINE_BYTES)[..], b"\n"].concat())
                .unwrap();
            let found = read(&mut log);
            assert_eq!(found[..2], ["too long", "next"], "{length} bytes");
            assert_eq!(found[2].len(), LINE_BYTES);
        }
    }

    #[test]
    fn a_file_is_followed_and_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kern.log");
        assert!(KernelLog::open(&path).is_err());
        std::fs::write(&path, "one\n[   12.345678] two\nhal").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        assert_eq!(message(&mut log).as_deref(), Some("one"));
        assert_eq!(message(&mut log).as_deref(), Some("two"));
        assert_eq!(message(&mut log), None, "the line has not ended");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"f\n4,7,0,-;record\n").unwrap();
        assert_eq!(message(&mut log).as_deref(), Some("half"));
        let Next::Record(record) = log.next(SOON).unwrap() else {
            panic!()
        };
        assert_eq!(
            (record.position, record.message.as_str()),
            (43, "record"),
            "the position is the file's"
        );

        let identity = log.identity();

        // Truncated and written again, it is the same file.
        std::fs::write(&path, "cut off\n").unwrap();
        assert_eq!(log.next(SOON).unwrap(), Next::Restarted);
        assert_eq!(message(&mut log).as_deref(), Some("cut off"));
        assert_eq!(log.identity(), identity);
        std::fs::rename(&path, directory.path().join("kern.log.1")).unwrap();
        assert_eq!(
            log.next(SOON).unwrap(),
            Next::Nothing,
            "there is none for a moment"
        );
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(log.next(SOON).unwrap(), Next::Restarted);
        assert_eq!(message(&mut log).as_deref(), Some("new"));
        assert_ne!(log.identity(), identity);
        log.skip_to_end().unwrap();
        assert_eq!(log.next(SOON).unwrap(), Next::Nothing);
        assert!(KernelLog::open(directory.path()).is_err(), "a directory");

        std::fs::write(&path, "longer than the file was, and one line\nmore\n").unwrap();
        assert_eq!(log.next(SOON).unwrap(), Next::Restarted, "rewritten");
        let first = message(&mut log);
        assert!(first.unwrap().starts_with("longer than"), "not its end");
        log.skip_to_end().unwrap();

        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"its begin is skipped, ").unwrap();
        log.skip_to_end().unwrap();
        file.write_all(b"and so is its end\nwhole\n").unwrap();
        assert_eq!(message(&mut log).as_deref(), Some("whole"));
    }

    #[test]
    fn prefixes_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kern.log");
        std::fs::write(&path, "").unwrap();
        let log = Follow::open(&path).unwrap();
        let clock = Clock::now();
        let read = |line: &str| log.prefixed(line, &clock);
        for prefix in [
            "",
            "[    1.234567] ",
            "[12345.678901][ T1234] ",
            "<3>[    1.234567][    C0] ",
            "Nov 21 13:28:31 g01 kernel: [ 1234.567890] ",
            "Nov  1 13:28:31 g01.example.org kernel: ",
            "2026-11-21T13:28:31.123456+01:00 g01 kernel: ",
            "[Sat Jan 18 05:24:36 2025] ",
        ] {
            let record = read(&format!("{prefix}nfs: server nas01 OK"));
            assert_eq!(record.message, "nfs: server nas01 OK", "{prefix}");
        }
        assert_eq!(read("<4>text").level, Some(LogLevel(4)));
        assert_eq!(read("<12>NVRM: Xid").message, "", "not the kernel's");
        // Lines of a program under another name, and a name that looks like a prefix.
        for line in [
            "Nov 21 13:28:31 g01 kernel[12]: Link is Down",
            "Nov 21 13:28:31 g01 ann: kernel: [ 1.234567] Link is Down",
            "[1.0] kernel BUG",
        ] {
            assert_eq!(read(line).message, line);
        }

        // Only one prefix is taken off: the second one is a part of the message.
        let twice = "[    1.234567] [    1.234567] Link is Down";
        assert_eq!(read(twice).message, "[    1.234567] Link is Down");
    }

    #[test]
    fn a_change_wakes_the_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kern.log");
        std::fs::write(&path, "").unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                File::options()
                    .append(true)
                    .open(&path)
                    .unwrap()
                    .write_all(b"line\n")
                    .unwrap();
            });
            let next = log.next(Duration::from_secs(30)).unwrap();
            assert!(matches!(next, Next::Record(_)), "{next:?}");
            writer.join().unwrap();
        });
    }

    #[test]
    fn the_machine_s_own_log() {
        // A container may have no device, or may not open it.
        let Ok(mut log) = KernelLog::open("/dev/kmsg".as_ref()) else {
            return;
        };
        let mut before = None;
        while let Next::Record(record) = log.next(Duration::ZERO).unwrap() {
            assert!(before.is_none_or(|before| before < record.position));
            assert!(record.at <= SystemTime::now().into());
            before = Some(record.position);
        }
        log.skip_to_end().unwrap();
    }
}
