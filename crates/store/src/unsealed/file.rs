//! The file of a segment: chunks of rows as the head packs them, and an index in memory.
//!
//! A chunk is in the index as soon as it is sealed, and in the file after the writer's next commit.
//! Until then the log has its rows.

use super::index::{
    CHUNK, CHUNK_FIELDS, COVERED, ChunkPlace, DELETED, SHAPE, SegmentState, StoredChunk,
};
use super::loose::encode;
use super::read::ALL_TIME;
use super::record::{HEADER, Record, header};
use super::{Coverage, FullChunk, LooseBatch, Repeated, Shape};
use crate::segments::Segment;
use roaring::RoaringBitmap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use takt_model::Timestamp;

/// Most loose samples of a record, but for a single batch.
const MAX_LOOSE: usize = 1 << 20;

/// The samples of a segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub segment: Segment,
    path: PathBuf,
    pub(super) file: Arc<File>,
    state: RwLock<SegmentState>,
    end: Mutex<FileEnd>,
    /// Whether the segment gets no more samples and all of them are on disk.
    is_complete: AtomicBool,
}

/// The end of the file, and what the writer knows of it.
#[derive(Debug, Default)]
struct FileEnd {
    length: u64,
    /// Length that is on disk.
    synced: u64,
    /// Whether the rest may never reach the disk although it can be read: a sync failed, or the
    /// process that wrote it crashed. After a failure, Linux takes the pages for written.
    is_doubtful: bool,
    /// Shapes in the file, by number. `None` for a damaged one.
    shapes: Vec<Option<Arc<Shape>>>,
    /// Newest row of each group in the file.
    written: Coverage,
}

/// What is on disk.
#[derive(Debug)]
pub(crate) struct SyncedPart {
    /// Newest row of each group.
    pub covered: Coverage,
    pub length: u64,
}

/// State of a file that was opened.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Length of the part of the file that could be read.
    pub length: u64,
    /// Number of synced records that are damaged.
    pub damaged: usize,
}

impl SegmentFile {
    pub fn path_of(folder: &Path, segment: Segment) -> PathBuf {
        folder.join(format!("{}.chunks", segment.0))
    }

    /// Creates the file of a new segment.
    pub fn create(folder: &Path, segment: Segment) -> io::Result<Self> {
        let path = Self::path_of(folder, segment);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        Ok(Self {
            segment,
            path,
            file: Arc::new(file),
            state: RwLock::default(),
            end: Mutex::default(),
            is_complete: AtomicBool::new(false),
        })
    }

    /// Opens a file and reads its index. With `verify`, compares every checksum.
    ///
    /// Damaged records in the first `synced` bytes are left out. Behind them, the file ends at the
    /// first one: a power failure keeps any part of what was not synced, and the logs have all of
    /// it until `CommitPosition::sync_chunks` has returned.
    pub(super) fn open(
        folder: &Path,
        segment: Segment,
        verify: bool,
        synced: u64,
    ) -> io::Result<(Self, Findings)> {
        let path = Self::path_of(folder, segment);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let length = file.metadata()?.len();

        let mut found = Findings::default();
        let mut state = SegmentState::default();
        let mut shapes = Vec::new();
        let mut at = 0;
        let mut tail = None;

        while let Some(record) = Record::at(&file, at, length)? {
            // The next sync begins with the first record behind the synced part.
            if at >= synced {
                tail.get_or_insert(at);
            }

            if state.restore(&file, record, verify, &mut shapes)?.is_some() {
                found.length = record.end();
            } else if at < synced {
                found.damaged += 1;
            } else {
                break;
            }
            at = record.end();
        }

        let end = FileEnd {
            length: found.length,
            synced: tail.map_or(found.length, |tail| found.length.min(tail)),
            // Checksums are compared after a crash, whose last writes may not have reached the disk.
            is_doubtful: verify,
            shapes,
            written: state.coverage.clone(),
        };

        let opened = Self {
            segment,
            path,
            file: Arc::new(file),
            state: RwLock::new(state),
            end: Mutex::new(end),
            is_complete: AtomicBool::new(false),
        };
        Ok((opened, found))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the written part, in bytes.
    pub fn length(&self) -> u64 {
        self.end().length
    }

    /// Number of samples, including staleness markers.
    pub fn samples(&self) -> u64 {
        let state = self.state();
        let chunks = state.groups.iter().flat_map(|group| &group.chunks);
        let loose: u64 = state
            .loose
            .iter()
            .map(|record| u64::from(record.samples))
            .sum();
        let rows: u64 = chunks.map(|chunk| u64::from(chunk.samples)).sum();
        let waiting = state.loose_waiting.iter();
        rows + loose + waiting.map(|batch| batch.len() as u64).sum::<u64>()
    }

    /// Times of the first and last sample. `None` if there are no samples.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let state = self.state();
        let chunks = state
            .groups
            .iter()
            .flat_map(|group| &group.chunks)
            .filter(|chunk| chunk.rows > 0)
            .map(|chunk| (chunk.oldest, chunk.newest));

        let loose = state
            .loose
            .iter()
            .filter(|record| record.samples > 0)
            .map(|record| (record.oldest, record.newest));

        let waiting = state.loose_waiting.iter().filter_map(|batch| batch.times());
        chunks
            .chain(loose)
            .chain(waiting)
            .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// Newest row of each group of each run, in chunks of this file or of earlier ones.
    pub fn coverage(&self) -> Coverage {
        self.state().coverage.clone()
    }

    /// Number of the newest log whose loose samples are in this file.
    pub fn loose_log(&self) -> u32 {
        self.state().loose_log
    }

    /// Takes over what an earlier segment covers.
    pub fn inherit(&self, earlier: &Self) {
        let covered = earlier.coverage();
        self.state_mut().coverage.add(&covered);
    }

    /// Whether the segment gets no more samples and all of them are on disk.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Records that the segment gets no more samples and all of them are on disk.
    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Adds a chunk of a group.
    pub fn add(&self, (run, group): (u64, u32), full: FullChunk) {
        let chunk = StoredChunk {
            oldest: full.chunk.oldest(),
            newest: full.chunk.newest(),
            rows: u32::try_from(full.chunk.index().rows()).expect("a chunk has 512 rows at most"),
            samples: full.chunk.sample_count(),
            place: ChunkPlace::Memory(Arc::new(full)),
        };
        let mut state = self.state_mut();
        let ChunkPlace::Memory(full) = &chunk.place else {
            return;
        };
        let shape = Arc::clone(&full.shape);
        state.push((run, group), shape, chunk);
    }

    /// Adds loose samples, which are in the log.
    pub fn add_loose(&self, batches: &[LooseBatch]) {
        let batches = batches.iter().filter(|batch| !batch.is_empty());
        self.state_mut().loose_waiting.extend(batches.cloned());
    }

    /// Writes all chunks that are in memory only. Samples in `repeated` are left out.
    ///
    /// # Errors
    /// If the file cannot be written. The rest stays in memory.
    pub fn persist(&self, repeated: &Repeated) -> io::Result<()> {
        // The chunks are listed first, so that no lock of the state is held while the file is written.
        let mut waiting = Vec::new();
        for (index, group) in self.state().groups.iter().enumerate() {
            for (number, chunk) in group.chunks.iter().enumerate() {
                if let ChunkPlace::Memory(full) = &chunk.place {
                    waiting.push((index, number, (group.run, group.group), Arc::clone(full)));
                }
            }
        }

        let mut content = Vec::new();
        for (index, number, owner, full) in waiting {
            // A packed chunk cannot lose single samples, so its other samples are written one by one.
            if full.has_times_of(repeated) {
                self.make_loose((index, number), owner, &full, repeated)?;
                continue;
            }

            let mut end = self.end();
            let shape = self.shape(&mut end, &full.shape)?;
            content.clear();
            // The fields come before the index, whose length is known only when it is encoded.
            content.resize(CHUNK_FIELDS, 0);
            let index_length = full.chunk.encode(&full.next, &mut content);
            let index_length = u32::try_from(index_length).map_err(io::Error::other)?;
            let rows = u32::try_from(full.chunk.index().rows()).map_err(io::Error::other)?;

            let fields: [&[u8]; 8] = [
                &owner.0.to_le_bytes(),
                &owner.1.to_le_bytes(),
                &shape.to_le_bytes(),
                &full.chunk.oldest().0.to_le_bytes(),
                &full.chunk.newest().0.to_le_bytes(),
                &full.chunk.sample_count().to_le_bytes(),
                &index_length.to_le_bytes(),
                &rows.to_le_bytes(),
            ];

            content[..CHUNK_FIELDS].copy_from_slice(&fields.concat());
            let record = self.append(&mut end, CHUNK, &content)?;
            end.written.note(owner, full.chunk.newest());
            drop(end);

            let packed = record.offset + CHUNK_FIELDS as u64 + u64::from(index_length);

            // The head may now drop the packed columns: the file returns them, synced or not.
            full.chunk.note_stored(&self.file, packed);
            self.state_mut().groups[index].chunks[number].place = ChunkPlace::File {
                record,
                index_length,
            };
        }
        Ok(())
    }

    /// Writes the loose samples, which are all that logs up to `log` have and earlier files lack.
    ///
    /// # Errors
    /// If the file cannot be written. The rest is written by the next call.
    pub fn persist_loose(&self, log: u32) -> io::Result<()> {
        loop {
            // Only this thread adds loose samples.
            let batches = self.state().loose_waiting.clone();
            let mut samples = 0;

            let count = batches
                .iter()
                .take_while(|batch| {
                    samples += batch.len();
                    samples <= MAX_LOOSE
                })
                .count()
                .max(1)
                .min(batches.len());

            if count == 0 {
                return Ok(());
            }

            // Only the last record names the log: after a crash between two records, the log is still needed.
            let is_last = count == batches.len();
            let log = if is_last { log } else { self.loose_log() };
            self.append_loose(log, &batches[..count])?;
            self.state_mut().loose_waiting.drain(..count);
        }
    }

    /// Writes a record of loose samples.
    fn append_loose(&self, log: u32, batches: &[LooseBatch]) -> io::Result<()> {
        let (kind, content) = encode(log, batches);
        let record = self.append(&mut self.end(), kind, &content)?;
        self.state_mut()
            .add_loose_record(record, &content)
            .ok_or_else(|| io::Error::other("loose samples were encoded wrongly"))
    }

    /// Cuts off what follows the readable part, and syncs the file.
    ///
    /// # Errors
    /// If the file cannot be changed.
    pub(super) fn cut(&self) -> io::Result<()> {
        let length = self.length();
        if self.file.metadata()?.len() > length {
            self.file.set_len(length)?;
        }
        self.sync().map(drop)
    }

    /// Syncs the file.
    ///
    /// # Errors
    /// If the file cannot be synced.
    pub fn sync(&self) -> io::Result<SyncedPart> {
        let mut end = self.end();
        // Doubtful until the sync has returned, so that a sync that fails is not forgotten.
        if std::mem::replace(&mut end.is_doubtful, true) {
            self.write_again(end.synced, end.length)?;
        }
        self.file.sync_data()?;
        end.is_doubtful = false;
        end.synced = end.length;
        Ok(SyncedPart {
            covered: end.written.clone(),
            length: end.length,
        })
    }

    /// Writes records once more, so that the next sync writes them to disk.
    fn write_again(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let record = Record::at(&self.file, at, to)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let content = record.read(&self.file)?;
            // The kernel may have dropped the pages that it failed to write.
            if !record.is_intact(&content) {
                let path = self.path.display();
                let lost = format!("{path}: lost what a failed sync did not write");
                return Err(io::Error::other(lost));
            }
            self.write_record(at, &header(record.kind, &content)?, &content)?;
            at = record.end();
        }
        Ok(())
    }

    /// Notes rows that earlier files have, so that a log is not read again for them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note_coverage(&self, covered: &Coverage) -> io::Result<()> {
        let mut content = Vec::new();
        for (&(run, group), newest) in &covered.0 {
            content.extend_from_slice(&run.to_le_bytes());
            content.extend_from_slice(&group.to_le_bytes());
            content.extend_from_slice(&newest.0.to_le_bytes());
        }
        self.append(&mut self.end(), COVERED, &content)?;
        self.state_mut().coverage.add(covered);
        Ok(())
    }

    /// Deletes the samples of series. Returns their number.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn delete(&self, series: &RoaringBitmap) -> io::Result<u64> {
        let mut samples = 0;
        self.each(series, ALL_TIME, &mut |_, found| {
            samples += found.len() as u64;
            true
        })?;
        if samples > 0 {
            let mut content = Vec::new();
            series.serialize_into(&mut content)?;
            self.append(&mut self.end(), DELETED, &content)?;
            // The caller reports the deletion as done, so it must be on disk.
            self.file.sync_data()?;
            self.state_mut().deleted |= series;
        }
        Ok(samples)
    }

    /// Reads every chunk and removes damaged ones from the index. Returns their number.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn leave_damaged_out(&self) -> io::Result<usize> {
        let records: Vec<Record> = self
            .state()
            .groups
            .iter()
            .flat_map(|group| &group.chunks)
            .filter_map(|chunk| match chunk.place {
                // A chunk that was made loose has no record.
                ChunkPlace::File { record, .. } if chunk.samples > 0 => Some(record),
                _ => None,
            })
            .collect();

        let mut damaged = Vec::new();
        for record in records {
            if !record.is_intact(&record.read(&self.file)?) {
                damaged.push(record);
            }
        }

        for group in &mut self.state_mut().groups {
            group.chunks.retain(|chunk| match &chunk.place {
                ChunkPlace::File { record, .. } => !damaged.contains(record),
                ChunkPlace::Memory(_) => true,
            });
        }
        Ok(damaged.len())
    }

    /// Drops the oldest chunks whose rows are all missing in the log until the rest takes at most
    /// `limit` bytes. They are in memory because the disk is full.
    pub fn shed(&self, limit: usize) {
        let mut state = self.state_mut();
        let bytes = |full: &FullChunk| full.chunk.bytes() + 8 * full.next.len();

        let mut held: usize = state
            .groups
            .iter()
            .flat_map(|group| &group.chunks)
            .filter_map(|chunk| match &chunk.place {
                ChunkPlace::Memory(full) => Some(bytes(full)),
                ChunkPlace::File { .. } => None,
            })
            .sum();

        for group in &mut state.groups {
            group.chunks.retain(|chunk| match &chunk.place {
                ChunkPlace::Memory(full) if held > limit && full.is_uncommitted() => {
                    held -= bytes(full);
                    false
                }
                _ => true,
            });
        }
    }

    /// Writes the samples of a chunk that are not repeated as loose samples.
    fn make_loose(
        &self,
        (index, number): (usize, usize),
        owner: (u64, u32),
        full: &FullChunk,
        repeated: &Repeated,
    ) -> io::Result<()> {
        let mut samples = Vec::new();
        full.each(full.shape.pairs(), ALL_TIME, &mut |series, found| {
            let found = found.iter().copied();
            samples.extend(
                found
                    .filter(|sample| !repeated.has(sample.at, series))
                    .map(|sample| (series, sample)),
            );
            true
        });

        if !samples.is_empty() {
            self.append_loose(self.loose_log(), &[Arc::new(samples.into())])?;
        }

        // Without this, the log of these rows would be read again at the next start.
        let mut covered = Coverage::default();
        covered.note(owner, full.chunk.newest());
        self.note_coverage(&covered)?;
        self.end().written.add(&covered);

        // The position stays, so that other positions do not change.
        self.state_mut().groups[index].chunks[number] = StoredChunk {
            oldest: Timestamp(i64::MAX),
            newest: Timestamp(i64::MIN),
            rows: 0,
            samples: 0,
            place: ChunkPlace::File {
                record: Record::default(),
                index_length: 0,
            },
        };
        Ok(())
    }

    /// Returns the number of a shape in this file, and writes it if needed.
    fn shape(&self, end: &mut FileEnd, shape: &Arc<Shape>) -> io::Result<u32> {
        // The shape of a chunk is nearly always one of the last ones.
        let known = end.shapes.iter().rposition(|known| {
            known
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, shape))
        });

        let number = match known {
            Some(number) => number,
            None => {
                let mut content = Vec::new();
                shape.encode(&mut content);
                self.append(end, SHAPE, &content)?;
                end.shapes.push(Some(Arc::clone(shape)));
                end.shapes.len() - 1
            }
        };
        u32::try_from(number).map_err(io::Error::other)
    }

    fn append(&self, end: &mut FileEnd, kind: u32, content: &[u8]) -> io::Result<Record> {
        let header = header(kind, content)?;
        self.write_record(end.length, &header, content)?;
        let record = Record::of(&header, end.length);
        end.length = record.end();
        Ok(record)
    }

    fn write_record(&self, at: u64, header: &[u8], content: &[u8]) -> io::Result<()> {
        // The header comes second, so that a reader of the growing file finds no record without its content.
        self.file.write_all_at(content, at + HEADER)?;
        self.file.write_all_at(header, at)
    }

    fn end(&self) -> MutexGuard<'_, FileEnd> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, SegmentState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, SegmentState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
