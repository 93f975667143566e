//! Unsealed samples: those of the last hours, which no block has yet.
//!
//! ```text
//! unsealed/12.chunks   segment 12: packed chunks of rows, as the head seals them
//! unsealed/12-34.log   rows that are not in a chunk yet; synced once a second
//! unsealed/committed   lengths of both: what must be whole after a crash
//! unsealed/clean       the last process ended in order
//! ```
//!
//! The writer appends rows to the log. When the head seals a chunk of rows, the chunk goes into the
//! segment's file; a log is deleted when all its rows are in chunks. A start turns the rows that a
//! crash left in logs into chunks. When a segment is complete, the compactor makes a block of it and
//! deletes its file.

mod file;
mod index;
mod log;
mod loose;
mod needed;
mod position;
mod read;
mod record;
mod recover;
mod scan;
mod shape;
#[cfg(test)]
mod tests;

pub(crate) use file::SegmentFile;
pub(crate) use log::LogWriter;
pub(crate) use loose::{LooseBatch, LooseSample};
pub(crate) use needed::{Needed, VARIABLE};
pub(crate) use position::CommitPosition;
pub(crate) use read::{ALL_TIME, Each};
pub(crate) use scan::{
    Arguments, CHUNK, FUNCTION, SegmentScan, declare, fill, parameters, register, scan_all,
    scan_metric,
};
pub(crate) use shape::Shape;

use crate::head::SealedChunk;
use crate::intake::SharedState;
use crate::segments::Segment;
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use takt_model::Timestamp;

/// Folder of the files in the data directory.
pub(crate) const FOLDER: &str = "unsealed";

/// File that exists after an orderly end.
const CLEAN: &str = "clean";

/// A chunk that the head has sealed.
#[derive(Debug)]
pub(crate) struct FullChunk {
    pub shape: Arc<Shape>,
    pub chunk: Arc<SealedChunk>,
    /// Values of the chunk's unchanged columns.
    pub next: Arc<[f64]>,
    /// Timestamp of the group's newest row in the log.
    pub committed: Arc<AtomicI64>,
}

impl FullChunk {
    /// Returns whether no row of the chunk is in the log.
    fn is_uncommitted(&self) -> bool {
        self.chunk.oldest().0 > self.committed.load(Ordering::Acquire)
    }

    fn has_times_of(&self, repeated: &Repeated) -> bool {
        !repeated.0.is_empty()
            && self
                .chunk
                .index()
                .times()
                .any(|at| repeated.0.contains_key(&at))
    }
}

/// Newest row of groups that is in chunks, by process and group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coverage(HashMap<(u64, u32), Timestamp>);

impl Coverage {
    fn note(&mut self, owner: (u64, u32), newest: Timestamp) {
        let known = self.0.entry(owner).or_insert(newest);
        *known = newest.max(*known);
    }

    /// Adds the rows of `other`.
    pub fn add(&mut self, other: &Self) {
        for (&owner, &newest) in &other.0 {
            self.note(owner, newest);
        }
    }

    fn get(&self, owner: (u64, u32)) -> Option<Timestamp> {
        self.0.get(&owner).copied()
    }

    /// Keeps the groups of one process.
    pub fn retain_run(&mut self, run: u64) {
        self.0.retain(|owner, _| owner.0 == run);
    }
}

/// Series by timestamp, for samples that were ahead of the clock when the store was opened. Such
/// samples are left from a clock that was wrong; their timestamps will occur again.
#[derive(Debug, Default)]
pub(crate) struct Repeated(pub HashMap<Timestamp, RoaringBitmap>);

impl Repeated {
    /// Returns whether a sample with this time is stored already.
    pub fn has(&self, at: Timestamp, series: u32) -> bool {
        !self.0.is_empty() && self.0.get(&at).is_some_and(|taken| taken.contains(series))
    }
}

/// The unsealed samples of a data directory.
#[derive(Debug)]
pub(crate) struct Unsealed {
    folder: PathBuf,
    /// Number of this process in the files.
    run: u64,
    /// Number of the newest log.
    log: u32,
    /// The segment that gets new chunks.
    current: RwLock<Arc<SegmentFile>>,
    /// Open segments by number. A SQL statement may name one that was sealed a moment ago.
    open: Mutex<HashMap<u32, Weak<SegmentFile>>>,
    /// The head and the series, if this process writes samples.
    live: OnceLock<Weak<SharedState>>,
    repeated: OnceLock<Repeated>,
    /// Why the last segment could not be ended; empty if it could.
    failure: Mutex<String>,
}

impl Unsealed {
    /// Folder of the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Connects the head. Called once, before the first row.
    pub fn go_live(&self, shared: &Arc<SharedState>, repeated: Repeated) -> io::Result<()> {
        // Both are set once.
        let _ = self.live.set(Arc::downgrade(shared));
        let _ = self.repeated.set(repeated);
        match fs::remove_file(self.folder.join(CLEAN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Samples that are stored already although their time is ahead.
    pub fn repeated(&self) -> &Repeated {
        self.repeated.get_or_init(Repeated::default)
    }

    /// The segment that gets new chunks.
    pub fn current(&self) -> Arc<SegmentFile> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of this process in the files.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Returns a writer of logs.
    pub fn log_writer(&self) -> LogWriter {
        LogWriter::new(&self.folder, self.run, self.log)
    }

    /// Adds a chunk of a group to the current segment. The caller must hold the group's lock.
    pub fn add(&self, group: u32, full: FullChunk) {
        // The lock is held until the chunk is added: the segment may end at any moment.
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.add((self.run, group), full);
    }

    /// Seals the open chunks of all groups into the current segment.
    pub fn seal_open_chunks(&self) {
        let Some(shared) = self.live.get().and_then(Weak::upgrade) else {
            return;
        };
        for (group, rows) in shared.head.groups() {
            let mut rows = rows.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(full) = rows.seal_open() {
                self.add(group, full);
            }
        }
    }

    /// Number of samples in the open chunks of all groups.
    pub fn open_samples(&self) -> u64 {
        let shared = self.live.get().and_then(Weak::upgrade);
        shared
            .iter()
            .flat_map(|shared| shared.head.groups())
            .map(|(_, rows)| {
                let rows = rows.read().unwrap_or_else(PoisonError::into_inner);
                rows.open_samples()
            })
            .sum()
    }

    /// Creates the file of the next segment.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(&self, segment: Segment) -> io::Result<Arc<SegmentFile>> {
        let file = Arc::new(SegmentFile::create(&self.folder, segment)?);
        crate::block::sync_directory(&self.folder)?;
        self.remember(&file);
        Ok(file)
    }

    /// Makes `next` the current segment. Returns the one before.
    pub fn switch(&self, next: Arc<SegmentFile>) -> Arc<SegmentFile> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Rows that the head still has are in the segment before.
        next.inherit(&current);
        std::mem::replace(&mut current, next)
    }

    /// Records why a segment could not be ended; an empty text if it could.
    pub fn note_failure(&self, reason: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Why the last segment could not be ended; empty if it could.
    pub fn failure(&self) -> String {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that everything is in chunks and synced.
    pub fn end_in_order(&self) {
        if let Err(error) = fs::write(self.folder.join(CLEAN), "") {
            tracing::debug!(%error, "cannot record an orderly end");
        }
    }

    fn remember(&self, file: &Arc<SegmentFile>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(file.segment.0, Arc::downgrade(file));
    }

    fn find(&self, segment: u32) -> Option<Arc<SegmentFile>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&segment)?.upgrade()
    }
}
