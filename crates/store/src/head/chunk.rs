//! Chunks: rows of one group over a part of the head's window. A chunk is open while it gets rows,
//! then sealed.
//!
//! About half of a node's values do not change between two scrapes. An open chunk therefore stores
//! only the changes of each row: one bit per column, and the new values in column order. A sealed
//! chunk stores the values by series, packed. A series that did not change at all takes one bit:
//! its value is the one with which the next chunk begins.

use super::{STALE, is_stale};
use crate::Sample;
use crate::packed::{Packer, unpack};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use takt_model::Timestamp;

/// The chunk that gets new rows.
#[derive(Debug)]
pub(super) struct OpenChunk {
    /// Values of the first row.
    first: Vec<f64>,
    /// One bit per column: the series had a value before the first row.
    was: Box<[u64]>,
    /// Changes of each row. The entry of the first row is empty.
    rows: Vec<ChunkRow>,
    /// Number of samples, including staleness markers.
    samples: u32,
}

/// Changes of one row. The slices have no spare capacity, because the head holds very many of them.
#[derive(Debug)]
struct ChunkRow {
    at: Timestamp,
    columns: u32,
    changed: Box<[ChangedColumns]>,
    values: Box<[f64]>,
}

/// Changes in 64 columns: one bit per column, and the index of the first new value in the row.
#[derive(Debug, Clone, Copy)]
struct ChangedColumns {
    bits: u64,
    values: u32,
}

/// Changes of the row being added. Reused for every row, to avoid allocations.
#[derive(Debug, Default)]
pub(super) struct RowChanges {
    changed: Vec<ChangedColumns>,
    values: Vec<f64>,
    current: u64,
    begin: u32,
}

impl RowChanges {
    /// Adds a change. Columns must come in ascending order.
    #[inline]
    pub fn push(&mut self, column: usize, value: f64) {
        self.advance(column / 64);
        self.current |= 1 << (column % 64);
        self.values.push(value);
    }

    fn advance(&mut self, word: usize) {
        while self.changed.len() < word {
            self.changed.push(ChangedColumns {
                bits: self.current,
                values: self.begin,
            });
            (self.current, self.begin) = (0, offset(self.values.len()));
        }
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.changed.clear();
        self.values.clear();
        (self.current, self.begin) = (0, 0);
    }
}

impl OpenChunk {
    /// Maximum number of rows, so that a chunk stays quick to read at any scrape interval.
    const MAX_ROWS: usize = 512;
    /// Minimum number of rows: the fixed cost of a smaller sealed chunk exceeds what packing saves.
    const MIN_ROWS: usize = 16;

    /// Begins a chunk with a row of `samples` samples. `was` has one bit per column: the series had
    /// a value before this row.
    pub fn new(at: Timestamp, first: Vec<f64>, was: Box<[u64]>, samples: u32) -> Self {
        let row = ChunkRow {
            at,
            columns: 0,
            changed: Box::default(),
            values: Box::default(),
        };
        Self {
            first,
            was,
            rows: vec![row],
            samples,
        }
    }

    /// Number of samples, including staleness markers.
    pub fn sample_count(&self) -> u32 {
        self.samples
    }

    /// Returns whether the series of a column had a value before the first row.
    #[inline]
    pub fn was(&self, column: u32) -> bool {
        self.was
            .get((column / 64) as usize)
            .is_some_and(|bits| bits >> (column % 64) & 1 == 1)
    }

    #[inline]
    pub fn oldest(&self) -> Timestamp {
        self.rows.first().expect("a chunk begins with a row").at
    }

    #[inline]
    pub fn newest(&self) -> Timestamp {
        self.rows.last().expect("a chunk begins with a row").at
    }

    /// Returns whether a row at `at` must begin a new chunk. A chunk covers `length`; `phase`
    /// shifts the ends of each group's chunks, so that not all chunks are sealed at once. `longest`
    /// limits chunks with few rows.
    pub fn is_full(&self, at: Timestamp, length: Duration, phase: u32, longest: Duration) -> bool {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(1);
        let part = |at: Timestamp| {
            at.0.saturating_add(i64::from(phase) % length_ms)
                .div_euclid(length_ms)
        };
        self.rows.len() >= Self::MAX_ROWS
            || at >= self.oldest().plus(longest)
            || (self.rows.len() >= Self::MIN_ROWS && part(at) != part(self.oldest()))
    }

    /// Adds a row of `columns` columns and `samples` samples, given as changes from the row before.
    /// Clears `changes`.
    pub fn push(&mut self, at: Timestamp, columns: usize, changes: &mut RowChanges, samples: u32) {
        self.samples += samples;

        // Words behind the last change are added, so that a word of each column exists.
        changes.advance(columns.div_ceil(64));
        let changed = changes.changed.as_slice().into();
        let values = changes.values.as_slice().into();
        self.rows.push(ChunkRow {
            at,
            columns: offset(columns),
            changed,
            values,
        });
        changes.clear();
    }

    /// Value of a column in the first row.
    #[inline]
    pub fn first(&self, column: u32) -> f64 {
        self.first.get(column as usize).copied().unwrap_or(STALE)
    }

    /// Values of a column in all rows.
    pub fn samples(&self, column: u32) -> impl Iterator<Item = Sample> {
        let word = (column / 64) as usize;
        let bit = column % 64;
        let mut value = self.first(column);
        self.rows.iter().map(move |row| {
            if column < row.columns {
                let ChangedColumns { bits, values } = row.changed[word];
                if bits >> bit & 1 == 1 {
                    // Values are in column order, so the bits below this one give its index.
                    let before = (bits & ((1 << bit) - 1)).count_ones();
                    value = row.values[(values + before) as usize];
                }
            }
            Sample { at: row.at, value }
        })
    }

    /// Packs the chunk. `next` holds the first row of the next chunk, or, if `is_last`, the last
    /// row of this one: no row follows for now.
    pub fn seal(&self, next: &[f64], is_last: bool) -> SealedChunk {
        let columns = self
            .rows
            .last()
            .map_or(0, |row| row.columns as usize)
            .max(self.first.len());

        let mut words = Vec::with_capacity(columns.div_ceil(64));
        let mut lengths = Vec::new();
        let mut bytes = Vec::new();
        let mut values = Vec::with_capacity(self.rows.len());
        let mut packer = Packer::default();

        for word in 0..columns.div_ceil(64) {
            let mut packed = PackedWord {
                bits: 0,
                was: self.was.get(word).copied().unwrap_or(0),
                lengths: offset(lengths.len()),
                bytes: offset(bytes.len()),
            };

            // A column without a bit in any row keeps its first value.
            let changed = self.rows.iter().fold(0, |all, row| {
                all | row.changed.get(word).map_or(0, |one| one.bits)
            });
            for column in word * 64..columns.min(word * 64 + 64) {
                let next = next.get(column).copied().unwrap_or(STALE);
                let column = offset(column);
                // Bits are compared, because a staleness marker is a NaN, which equals no number.
                let stays = changed >> (column % 64) & 1 == 0;
                if stays && self.first(column).to_bits() == next.to_bits() {
                    continue;
                }

                values.clear();
                values.extend(self.samples(column).map(|sample| sample.value));
                let begin = bytes.len();
                packer.pack(&values, &mut bytes);
                packed.bits |= 1 << (column % 64);
                lengths.push(
                    u16::try_from(bytes.len() - begin)
                        .expect("512 values pack into less than 64 KiB"),
                );
            }
            words.push(packed);
        }

        let begin = self.oldest();
        let since = |row: &ChunkRow| {
            u32::try_from(row.at.0 - begin.0).expect("a chunk is shorter than 49 days")
        };

        SealedChunk {
            index: ChunkIndex {
                begin,
                since_begin: self.rows.iter().map(since).collect(),
                columns: offset(columns),
                words: words.into(),
                lengths: lengths.into(),
            },
            bytes: RwLock::new(Some(bytes.into())),
            stored: OnceLock::new(),
            next: is_last.then(|| next.into()),
            samples: self.samples,
        }
    }
}

/// A packed chunk that gets no more rows.
#[derive(Debug)]
pub(crate) struct SealedChunk {
    index: ChunkIndex,
    /// The packed columns; `None` if they are in the file only.
    bytes: RwLock<Option<Box<[u8]>>>,
    /// File of a segment with the same bytes, and their offset.
    stored: OnceLock<(Arc<File>, u64)>,
    /// Values of the unchanged columns, if they are not those of the next chunk's first row.
    next: Option<Arc<[f64]>>,
    samples: u32,
}

/// Times of a chunk's rows, and the places of its columns.
#[derive(Debug)]
pub(crate) struct ChunkIndex {
    begin: Timestamp,
    /// Milliseconds from `begin` to each row.
    since_begin: Box<[u32]>,
    columns: u32,
    words: Box<[PackedWord]>,
    /// Number of bytes of each packed column.
    lengths: Box<[u16]>,
}

/// Packed columns among 64: one bit per column, and the indexes of the first one's length and
/// bytes.
#[derive(Debug)]
struct PackedWord {
    bits: u64,
    /// One bit per column: the series had a value before the first row.
    was: u64,
    lengths: u32,
    bytes: u32,
}

/// Place of a column's values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ColumnPlace {
    /// The chunk does not have the column.
    Absent,
    /// The value did not change: index among the unchanged columns.
    Unchanged(usize),
    /// Packed, at these bytes.
    Packed(Range<usize>),
}

impl ChunkIndex {
    /// Size of the fixed part of an encoded index, in bytes.
    const FIXED: usize = 20;

    /// Time of the first row.
    #[inline]
    pub fn oldest(&self) -> Timestamp {
        self.begin
    }

    /// Time of the last row.
    #[inline]
    pub fn newest(&self) -> Timestamp {
        self.at(self.since_begin.last().copied().unwrap_or_default())
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.since_begin.len()
    }

    /// Times of the rows, in order.
    pub fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.since_begin.iter().map(|&since| self.at(since))
    }

    /// Returns whether the series of a column had a value before the first row.
    #[inline]
    pub fn was(&self, column: u32) -> bool {
        self.words
            .get((column / 64) as usize)
            .is_some_and(|word| word.was >> (column % 64) & 1 == 1)
    }

    /// Returns the place of a column's values.
    pub fn place(&self, column: u32) -> ColumnPlace {
        if column >= self.columns {
            return ColumnPlace::Absent;
        }

        let word = &self.words[(column / 64) as usize];
        let bit = column % 64;
        let before = (word.bits & ((1 << bit) - 1)).count_ones() as usize;

        if word.bits >> bit & 1 == 0 {
            // The index counts unchanged columns only: those before this one less the packed ones.
            let packed = word.lengths as usize + before;
            return ColumnPlace::Unchanged(column as usize - packed);
        }

        // Two bytes for each length are less than four for an offset, and at most 63 are summed.
        let lengths = &self.lengths[word.lengths as usize..];
        let begin = word.bytes as usize
            + lengths[..before]
                .iter()
                .map(|&length| usize::from(length))
                .sum::<usize>();
        ColumnPlace::Packed(begin..begin + usize::from(lengths[before]))
    }

    #[inline]
    fn at(&self, since_begin: u32) -> Timestamp {
        Timestamp(self.begin.0 + i64::from(since_begin))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.begin.0.to_le_bytes());

        for length in [
            self.columns,
            offset(self.rows()),
            offset(self.lengths.len()),
        ] {
            out.extend_from_slice(&length.to_le_bytes());
        }
        for since in &self.since_begin {
            out.extend_from_slice(&since.to_le_bytes());
        }
        for word in &self.words {
            out.extend_from_slice(&word.bits.to_le_bytes());
            out.extend_from_slice(&word.was.to_le_bytes());
            out.extend_from_slice(&word.lengths.to_le_bytes());
            out.extend_from_slice(&word.bytes.to_le_bytes());
        }
        for length in &self.lengths {
            out.extend_from_slice(&length.to_le_bytes());
        }
    }

    /// Reads the output of [`SealedChunk::encode`]. `None` if `bytes` is not a whole index.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_at_checked(Self::FIXED)?;
        let number = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("4 bytes"));
        let begin = i64::from_le_bytes(fixed[..8].try_into().expect("8 bytes"));
        let columns = number(8);

        // The counts come from a file, so no slice trusts them.
        let (times, rest) = rest.split_at_checked(number(12) as usize * 4)?;
        let (words, lengths) = rest.split_at_checked(columns.div_ceil(64) as usize * 24)?;
        let lengths = lengths.get(..number(16) as usize * 2)?;

        let four = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        let eight = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let index = Self {
            begin: Timestamp(begin),
            since_begin: times.chunks_exact(4).map(four).collect(),
            columns,
            words: words
                .chunks_exact(24)
                .map(|word| PackedWord {
                    bits: eight(&word[..8]),
                    was: eight(&word[8..16]),
                    lengths: four(&word[16..20]),
                    bytes: four(&word[20..]),
                })
                .collect(),
            lengths: lengths
                .chunks_exact(2)
                .map(|length| u16::from_le_bytes([length[0], length[1]]))
                .collect(),
        };

        index.is_whole().then_some(index)
    }

    /// Returns whether the words count the lengths and bytes before them, as [`SealedChunk::encode`] writes them. `place`
    /// and `at` rely on it, and must not panic on damaged bytes.
    fn is_whole(&self) -> bool {
        let mut lengths = self.lengths.iter();
        let mut before = 0_u32;
        let mut bytes = 0_u64;
        for word in &self.words {
            if word.lengths != before || u64::from(word.bytes) != bytes {
                return false;
            }
            for _ in 0..word.bits.count_ones() {
                let Some(&length) = lengths.next() else {
                    return false;
                };
                // No more of them than lengths, whose number is one of 32 bits.
                before += 1;
                bytes += u64::from(length);
            }
        }

        let last = self.since_begin.iter().max().copied().unwrap_or(0);
        lengths.next().is_none() && self.begin.0.checked_add(i64::from(last)).is_some()
    }

    /// Number of bytes of the packed columns.
    pub fn packed_bytes(&self) -> usize {
        self.lengths.iter().map(|&length| usize::from(length)).sum()
    }

    /// Adds the samples of a column in `[from, to]` to `out`, given its `values` in all rows. A
    /// series that ended gets one staleness marker.
    pub fn samples(
        &self,
        column: u32,
        values: &[f64],
        (from, to): (Timestamp, Timestamp),
        out: &mut Vec<Sample>,
    ) {
        let samples = self.times().zip(values);
        let samples = samples.map(|(at, &value)| Sample { at, value });
        push_present(samples, self.was(column), (from, to), out);
    }
}

/// Adds samples in `[from, to]` to `out`. Of consecutive staleness markers, only the first is
/// added, and only if the series had a value before (`was`).
pub(super) fn push_present(
    samples: impl Iterator<Item = Sample>,
    was: bool,
    (from, to): (Timestamp, Timestamp),
    out: &mut Vec<Sample>,
) {
    let mut was = was;
    for sample in samples {
        let is = !is_stale(sample.value);
        if (is || was) && from <= sample.at && sample.at <= to {
            out.push(sample);
        }
        was = is;
    }
}

impl SealedChunk {
    /// Times of the rows, and the places of the columns.
    pub fn index(&self) -> &ChunkIndex {
        &self.index
    }

    #[inline]
    pub fn oldest(&self) -> Timestamp {
        self.index.oldest()
    }

    #[inline]
    pub fn newest(&self) -> Timestamp {
        self.index.newest()
    }

    /// Number of samples, including staleness markers.
    pub fn sample_count(&self) -> u32 {
        self.samples
    }

    /// Size of the packed columns, in bytes.
    pub fn bytes(&self) -> usize {
        self.index.packed_bytes()
    }

    /// Notes that a file has the packed columns from this offset on. The file must keep them.
    pub fn note_stored(&self, file: &Arc<File>, offset: u64) {
        // A chunk is stored once.
        let _ = self.stored.set((Arc::clone(file), offset));
    }

    /// Drops the packed columns from memory if a file has them.
    pub fn leave_memory(&self) {
        if self.stored.get().is_some() {
            self.bytes
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
    }

    #[cfg(test)]
    pub fn is_in_memory(&self) -> bool {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        bytes.is_some()
    }

    /// Values of a column in all rows. `next` is its value in the first row of the next chunk. Rows
    /// that cannot be read from the file have no value.
    pub fn values(&self, column: u32, next: f64) -> Vec<f64> {
        let rows = self.index.rows();
        match self.index.place(column) {
            ColumnPlace::Absent => vec![STALE; rows],
            ColumnPlace::Unchanged(_) => {
                let own = self.next.as_ref();
                let own = own.map(|own| own.get(column as usize).copied().unwrap_or(STALE));
                vec![own.unwrap_or(next); rows]
            }
            ColumnPlace::Packed(place) => {
                let mut values = Vec::with_capacity(rows);
                let unpacked = self.with_packed(place, |bytes| unpack(bytes, rows, &mut values));
                if let Err(error) = unpacked {
                    tracing::error!(%error, "cannot read recent samples from the file of their segment");
                    values.resize(rows, STALE);
                }
                values
            }
        }
    }

    /// Calls `read` with a part of the packed columns.
    fn with_packed(&self, place: Range<usize>, read: impl FnOnce(&[u8])) -> io::Result<()> {
        if let Some(bytes) = &*self.bytes.read().unwrap_or_else(PoisonError::into_inner) {
            read(&bytes[place]);
            return Ok(());
        }
        let Some((file, offset)) = self.stored.get() else {
            return Err(io::Error::other(
                "a chunk is neither in memory nor in a file",
            ));
        };

        // Most packed columns are short enough for the stack.
        let mut short = [0; 512];
        let mut long = Vec::new();
        let bytes = match short.get_mut(..place.len()) {
            Some(short) => short,
            None => {
                long.resize(place.len(), 0);
                &mut long[..]
            }
        };
        file.read_exact_at(bytes, offset + place.start as u64)?;
        read(bytes);
        Ok(())
    }

    /// Combines `values` with the timestamps of the rows.
    pub fn samples(&self, values: Vec<f64>) -> impl Iterator<Item = Sample> {
        let times = self.index.times();
        times.zip(values).map(|(at, value)| Sample { at, value })
    }

    /// Appends the chunk to `out`: the index, the packed columns, and the values of the unchanged
    /// columns, which are in `next`. Returns the length of the index.
    pub fn encode(&self, next: &[f64], out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        self.index.encode(out);
        let length = out.len() - begin;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        // Only a chunk that is in a file has left memory, and such a chunk is not written again.
        out.extend_from_slice(bytes.as_deref().unwrap_or_default());
        drop(bytes);
        for column in 0..self.index.columns {
            if let ColumnPlace::Unchanged(_) = self.index.place(column) {
                let value = next.get(column as usize).copied().unwrap_or(STALE);
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
        length
    }
}

fn offset(length: usize) -> u32 {
    u32::try_from(length).expect("MAX_ROWS keeps a chunk small")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chunk of 70 columns in two words, of which every third changes.
    fn encoded() -> (Vec<u8>, usize) {
        let columns = 70;
        let mut chunk = OpenChunk::new(Timestamp(1000), vec![1.0; columns], Box::new([0, 0]), 70);
        let mut changes = RowChanges::default();
        for row in 1..4 {
            for column in (0..columns).step_by(3) {
                changes.push(column, row as f64);
            }
            chunk.push(Timestamp(1000 + row), columns, &mut changes, 70);
        }

        let mut next = vec![1.0; columns];
        (0..columns)
            .step_by(3)
            .for_each(|column| next[column] = 3.0);
        let mut bytes = Vec::new();
        let length = chunk.seal(&next, true).encode(&next, &mut bytes);
        (bytes, length)
    }

    /// Asks for all that queries ask for.
    fn places(index: &ChunkIndex) -> Vec<ColumnPlace> {
        assert_eq!(index.times().count(), index.rows());
        let _ = index.newest();
        (0..index.columns)
            .map(|column| index.place(column))
            .collect()
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let (bytes, length) = encoded();
        let index = ChunkIndex::decode(&bytes[..length]).unwrap();
        let places = places(&index);
        assert_eq!(
            places[0],
            ColumnPlace::Packed(0..usize::from(index.lengths[0]))
        );
        assert_eq!(
            places[69],
            ColumnPlace::Packed(
                index.packed_bytes() - usize::from(index.lengths[23])..index.packed_bytes(),
            )
        );
        assert_eq!(places[68], ColumnPlace::Unchanged(45));
        assert_eq!(index.newest(), Timestamp(1003));
    }

    #[test]
    fn sums_beyond_32_bits_are_no_index() {
        let (mut bytes, length) = encoded();
        // The number of lengths before the second word.
        let second = ChunkIndex::FIXED + 4 * 4 + 24;
        bytes[second + 16..second + 20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(ChunkIndex::decode(&bytes[..length]).is_none());

        // The time of the first row.
        let (mut bytes, length) = encoded();
        bytes[..8].copy_from_slice(&i64::MAX.to_le_bytes());
        assert!(ChunkIndex::decode(&bytes[..length]).is_none());
    }

    proptest! {
        #[test]
        fn a_damaged_index_is_refused_or_has_places_in_the_chunk(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
        ) {
            let (mut bytes, length) = encoded();
            for (at, byte) in damage {
                bytes[at.index(length)] = byte;
            }
            if let Some(index) = ChunkIndex::decode(&bytes[..length]) {
                for place in places(&index) {
                    if let ColumnPlace::Packed(place) = place {
                        prop_assert!(place.end <= index.packed_bytes());
                    }
                }
            }
        }
    }
}
