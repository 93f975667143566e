//! Detects lost samples: the lengths of the segment's file and of the log, written to a file at
//! each commit.
//!
//! A log may end in the middle of a record after a crash. That is no damage; a log that is shorter
//! than it was after its last commit is. The file is written without an fsync: after a power
//! failure the lengths may be too small, never too large.

use crate::segments::Segment;
use std::fs::{self, File, OpenOptions};
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
    /// Reads the lengths after the last commit.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(FILE)).ok()?;
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

/// The file with the lengths. `None` if it could not be created.
#[derive(Debug)]
pub(crate) struct CommitPosition {
    file: Option<File>,
    position: Position,
}

impl CommitPosition {
    /// Opens the file. A failure disables the check and is logged.
    pub fn open(folder: &Path) -> Self {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(FILE));
        let file = file.inspect_err(
            |error| tracing::warn!(%error, "cannot open the file for the lengths of the logs"),
        );
        Self {
            file: file.ok(),
            position: Position::default(),
        }
    }

    /// Records the length of the log.
    pub fn note_log(&mut self, number: u32, bytes: u64) {
        self.position.log = number;
        self.position.log_bytes = bytes;
        self.write();
    }

    /// Records the synced length of the segment's file.
    pub fn note_chunks(&mut self, segment: Segment, bytes: u64) {
        self.position.segment = segment.0;
        self.position.chunks = bytes;
        self.write();
    }

    fn write(&self) {
        let Position {
            segment,
            chunks,
            log,
            log_bytes,
        } = self.position;
        // A fixed length, so that a write never truncates the file.
        let text = format!("{segment:010} {chunks:020} {log:010} {log_bytes:020}\n");
        let written = self
            .file
            .as_ref()
            .map(|file| file.write_all_at(text.as_bytes(), 0));
        if let Some(Err(error)) = written {
            tracing::debug!(%error, "cannot record the lengths of the logs");
        }
    }
}
