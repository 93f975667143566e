//! The lengths of the segment's file and of the log, written to a file. A start detects lost samples
//! by them, and knows which part of the segment's file must be whole.
//!
//! A log may end in the middle of a record after a crash. That is no damage; a log that is shorter
//! than it was after its last commit is. Its length is written at each commit without an fsync:
//! after a power failure it may be too small, never too large.
//!
//! Behind its synced length, a segment's file may have any part of what was written. The logs have
//! all of it: they are deleted after the synced length is on disk.

use crate::segments::Segment;
use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE: &str = "committed";

/// Lengths after a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the segment.
    pub segment: u32,
    /// Synced bytes of the segment's file.
    pub chunks: u64,
    /// Number of the log; 0 if there is none.
    pub log: u32,
    /// Bytes of the log.
    pub log_bytes: u64,
}

impl Position {
    /// Synced bytes of a segment's file.
    pub fn synced(self, segment: u32) -> u64 {
        match segment.cmp(&self.segment) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => self.chunks,
            Ordering::Greater => 0,
        }
    }

    /// Reads the lengths after the last commit. `None` if there was none, or if the file is damaged.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(folder.join(FILE)) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            segment: u32::try_from(next()?).ok()?,
            chunks: next()?,
            log: u32::try_from(next()?).ok()?,
            log_bytes: next()?,
        })
    }
}

/// The file with the lengths.
#[derive(Debug)]
pub(crate) struct CommitPosition {
    file: File,
    position: Position,
}

impl CommitPosition {
    /// Opens the file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(FILE))?;
        let position = Position::read(folder)?.unwrap_or_default();
        Ok(Self { file, position })
    }

    /// Records the length of the log. A failure is logged: the length then stays too small.
    pub fn note_log(&mut self, number: u32, bytes: u64) {
        self.position.log = number;
        self.position.log_bytes = bytes;
        if let Err(error) = self.write() {
            tracing::debug!(%error, "cannot record the lengths of the logs");
        }
    }

    /// Records the synced length of the segment's file, and syncs the record. Earlier segments are
    /// synced as a whole.
    ///
    /// # Errors
    /// If the length cannot be written. Logs must not be deleted then.
    pub fn sync_chunks(&mut self, segment: Segment, bytes: u64) -> io::Result<()> {
        self.position.segment = segment.0;
        self.position.chunks = bytes;
        self.write()?;
        self.file.sync_data()
    }

    fn write(&self) -> io::Result<()> {
        let Position {
            segment,
            chunks,
            log,
            log_bytes,
        } = self.position;
        // A fixed length, so that a write never truncates the file.
        let text = format!("{segment:010} {chunks:020} {log:010} {log_bytes:020}\n");
        self.file.write_all_at(text.as_bytes(), 0)
    }
}
