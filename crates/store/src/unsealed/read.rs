//! Reads samples from a segment's file, a part at a time.

use super::file::SegmentFile;
use super::index::{CHUNK_FIELDS, ChunkPlace, StoredChunk};
use super::loose::LooseRecord;
use super::record::{Record, read};
use super::{Coverage, FullChunk, LooseSample};
use crate::Sample;
use crate::head::{ChunkIndex, ColumnPlace, STALE};
use crate::packed::unpack;
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use takt_model::Timestamp;

/// From the first to the last time.
pub(crate) const ALL_TIME: (Timestamp, Timestamp) = (Timestamp(i64::MIN), Timestamp(i64::MAX));

/// With more columns of one chunk than this, the whole chunk is read at once.
const SINGLE_READS: usize = 6;

/// Called with samples of one series, in order of time. Returns `false` to stop.
pub(crate) type Each<'a> = &'a mut dyn FnMut(u32, &[Sample]) -> bool;

/// Samples of one chunk, or of loose samples.
#[derive(Debug)]
pub(crate) struct Part {
    content: PartContent,
}

#[derive(Debug)]
enum PartContent {
    Chunk {
        /// Selected series with their columns.
        columns: Arc<[(u32, u32)]>,
        chunk: StoredChunk,
    },
    Loose(LooseRecord),
    Waiting(Vec<LooseSample>),
}

impl Part {
    /// Returns whether the part is not in the file yet.
    pub fn is_memory(&self) -> bool {
        match &self.content {
            PartContent::Chunk { chunk, .. } => matches!(chunk.place, ChunkPlace::Memory(_)),
            PartContent::Loose(_) => false,
            PartContent::Waiting(_) => true,
        }
    }
}

impl SegmentFile {
    /// Returns the parts that may have samples of the wanted series, or of all series, in a range of
    /// time, and the newest row of each group in this file.
    pub fn parts(
        &self,
        wanted: Option<&RoaringBitmap>,
        (from, to): (Timestamp, Timestamp),
    ) -> (Vec<Part>, Coverage) {
        let state = self.state();

        // Deletions are rare, so usually no bitmap is copied.
        let remaining = wanted
            .filter(|_| !state.deleted.is_empty())
            .map(|wanted| wanted - &state.deleted);
        let wanted = remaining.as_ref().or(wanted);

        let mut parts = Vec::new();
        for group in &state.groups {
            let mut chunks = group
                .chunks
                .iter()
                .filter(|chunk| chunk.rows > 0 && chunk.newest >= from && chunk.oldest <= to)
                .peekable();
            if chunks.peek().is_none() {
                continue;
            }

            let columns: Arc<[(u32, u32)]> = match wanted {
                Some(wanted) => group.shape.columns_of(wanted).into(),
                None => group
                    .shape
                    .pairs()
                    .iter()
                    .copied()
                    .filter(|(series, _)| !state.deleted.contains(*series))
                    .collect(),
            };

            if !columns.is_empty() {
                parts.extend(chunks.map(|chunk| PartContent::Chunk {
                    columns: Arc::clone(&columns),
                    chunk: chunk.clone(),
                }));
            }
        }

        let loose = state
            .loose
            .iter()
            .filter(|record| record.newest >= from && record.oldest <= to);
        parts.extend(loose.cloned().map(PartContent::Loose));

        let is_wanted = |(series, sample): &&LooseSample| {
            from <= sample.at
                && sample.at <= to
                && wanted.is_none_or(|wanted| wanted.contains(*series))
                && !state.deleted.contains(*series)
        };

        // Copied, because the lock must not be held while the caller works.
        let waiting: Vec<_> = state
            .loose_waiting
            .iter()
            .filter(|batch| batch.overlaps((from, to)))
            .flat_map(|batch| batch.iter())
            .filter(is_wanted)
            .copied()
            .collect();

        if !waiting.is_empty() {
            parts.push(PartContent::Waiting(waiting));
        }

        let parts = parts.into_iter().map(|content| Part { content }).collect();
        (parts, state.coverage.clone())
    }

    /// Calls `each` with the samples of the wanted series, in the order of the parts. Returns
    /// `false` if `each` stopped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn each(
        &self,
        wanted: &RoaringBitmap,
        range: (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> io::Result<bool> {
        for part in self.parts(Some(wanted), range).0 {
            if !self.read_part(&part, Some(wanted), range, each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls `each` with the samples of a part. Returns `false` if `each` stopped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_part(
        &self,
        part: &Part,
        wanted: Option<&RoaringBitmap>,
        range: (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> io::Result<bool> {
        match &part.content {
            PartContent::Chunk { columns, chunk } => match &chunk.place {
                ChunkPlace::Memory(full) => Ok(full.each(columns, range, each)),
                ChunkPlace::File {
                    record,
                    index_length,
                } => self.read_chunk(record, *index_length, columns, range, each),
            },
            PartContent::Loose(loose) => self.read_loose(loose, wanted, range, each),
            PartContent::Waiting(samples) => Ok(samples
                .iter()
                .all(|(series, sample)| each(*series, std::slice::from_ref(sample)))),
        }
    }

    /// Returns an upper bound of the number of samples of each series.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn counts(&self) -> io::Result<HashMap<u32, usize>> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for part in self.parts(None, ALL_TIME).0 {
            match &part.content {
                PartContent::Chunk { columns, chunk } => {
                    // The rows of a chunk are the upper bound: a series may lack a value in some.
                    for (series, _) in columns.iter() {
                        *counts.entry(*series).or_default() += chunk.rows as usize;
                    }
                }
                _ => {
                    self.read_part(&part, None, ALL_TIME, &mut |series, samples| {
                        *counts.entry(series).or_default() += samples.len();
                        true
                    })?;
                }
            }
        }
        Ok(counts)
    }

    /// All series that may have samples.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn series(&self) -> io::Result<RoaringBitmap> {
        Ok(self.counts()?.into_keys().collect())
    }

    fn read_chunk(
        &self,
        record: &Record,
        index_length: u32,
        columns: &[(u32, u32)],
        range: (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> io::Result<bool> {
        let begin = record.offset + CHUNK_FIELDS as u64;
        let index_length = index_length as usize;

        // A chunk may have thousands of columns, of which a query needs a few.
        let whole = columns.len() > SINGLE_READS;
        let length = if whole {
            (record.length as usize).saturating_sub(CHUNK_FIELDS)
        } else {
            index_length
        };

        let bytes = read(&self.file, begin, length)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a chunk is damaged");
        let index = bytes
            .get(..index_length)
            .and_then(ChunkIndex::decode)
            .ok_or_else(damaged)?;

        let rows = index.rows();
        let unchanged = index_length + index.packed_bytes();
        let take = |at: usize, length: usize| -> io::Result<Cow<'_, [u8]>> {
            if whole {
                bytes
                    .get(at..at + length)
                    .map(Cow::Borrowed)
                    .ok_or_else(damaged)
            } else {
                read(&self.file, begin + at as u64, length).map(Cow::Owned)
            }
        };

        let mut values = Vec::with_capacity(rows);
        let mut samples = Vec::with_capacity(rows);
        for &(series, column) in columns {
            values.clear();
            match index.place(column) {
                ColumnPlace::Absent => values.resize(rows, STALE),
                ColumnPlace::Unchanged(number) => {
                    let value = take(unchanged + 8 * number, 8)?;
                    let value = value.first_chunk().ok_or_else(damaged)?;
                    values.resize(rows, f64::from_le_bytes(*value));
                }
                ColumnPlace::Packed(place) => {
                    let packed = take(index_length + place.start, place.len())?;
                    unpack(&packed, rows, &mut values);
                }
            }

            samples.clear();
            index.samples(column, &values, range, &mut samples);
            if !samples.is_empty() && !each(series, &samples) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_loose(
        &self,
        loose: &LooseRecord,
        wanted: Option<&RoaringBitmap>,
        range: (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> io::Result<bool> {
        // Copied, because the lock must not be held while the file is read.
        let deleted = self.state().deleted.clone();
        let is_wanted = |series| {
            wanted.is_none_or(|wanted| wanted.contains(series)) && !deleted.contains(series)
        };
        for part in loose.parts(wanted) {
            let begin = loose.record.offset + u64::from(part.start);
            let bytes = read(&self.file, begin, part.len())?;
            let read = loose.each(&bytes, is_wanted, range, each);
            let damaged = || io::Error::new(io::ErrorKind::InvalidData, "samples are damaged");
            if !read.ok_or_else(damaged)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl FullChunk {
    /// Calls `each` with the samples of some columns. Returns `false` if `each` stopped.
    pub(super) fn each(
        &self,
        columns: &[(u32, u32)],
        range: (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> bool {
        let mut samples = Vec::new();
        columns.iter().all(|&(series, column)| {
            let next = self.next.get(column as usize).copied().unwrap_or(STALE);
            let values = self.chunk.values(column, next);
            samples.clear();
            self.chunk
                .index()
                .samples(column, &values, range, &mut samples);
            samples.is_empty() || each(series, &samples)
        })
    }
}
