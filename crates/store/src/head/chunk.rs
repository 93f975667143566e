//! Chunks: rows of one group over a part of the head's window. A chunk is open while it gets rows,
//! then sealed.
//!
//! About half of a node's values do not change between two scrapes. An open chunk therefore stores
//! only the changes of each row: one bit per column, and the new values in column order. A sealed
//! chunk stores the values by series, packed. A series that did not change at all takes one bit:
//! its value is the one with which the next chunk begins.

use super::STALE;
use crate::Sample;
use crate::packed::{pack, unpack};
use std::time::Duration;
use takt_model::Timestamp;

/// The chunk that gets new rows.
#[derive(Debug)]
pub(super) struct OpenChunk {
    /// Values of the first row.
    first: Vec<f64>,
    /// Changes of each row. The entry of the first row is empty.
    rows: Vec<ChunkRow>,
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

    pub fn new(at: Timestamp, first: Vec<f64>) -> Self {
        let row = ChunkRow {
            at,
            columns: 0,
            changed: Box::default(),
            values: Box::default(),
        };
        Self {
            first,
            rows: vec![row],
        }
    }

    pub fn oldest(&self) -> Timestamp {
        self.rows.first().expect("a chunk begins with a row").at
    }

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

    /// Adds a row of `columns` columns, given as changes from the row before. Clears `changes`.
    pub fn push(&mut self, at: Timestamp, columns: usize, changes: &mut RowChanges) {
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
                    let before = (bits & ((1 << bit) - 1)).count_ones();
                    value = row.values[(values + before) as usize];
                }
            }
            Sample { at: row.at, value }
        })
    }

    /// Packs the chunk. `next` holds the first row of the next chunk.
    pub fn seal(&self, next: &[f64]) -> SealedChunk {
        let columns = self
            .rows
            .last()
            .map_or(0, |row| row.columns as usize)
            .max(self.first.len());
        let mut words = Vec::with_capacity(columns.div_ceil(64));
        let mut lengths = Vec::new();
        let mut bytes = Vec::new();
        let mut values = Vec::with_capacity(self.rows.len());
        for word in 0..columns.div_ceil(64) {
            let mut packed = PackedWord {
                bits: 0,
                lengths: offset(lengths.len()),
                bytes: offset(bytes.len()),
            };
            let changed = self.rows.iter().fold(0, |all, row| {
                all | row.changed.get(word).map_or(0, |one| one.bits)
            });
            for column in word * 64..columns.min(word * 64 + 64) {
                let next = next.get(column).copied().unwrap_or(STALE);
                let column = offset(column);
                let stays = changed >> (column % 64) & 1 == 0;
                if stays && self.first(column).to_bits() == next.to_bits() {
                    continue;
                }
                values.clear();
                values.extend(self.samples(column).map(|sample| sample.value));
                let begin = bytes.len();
                pack(&values, &mut bytes);
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
            begin,
            since_begin: self.rows.iter().map(since).collect(),
            columns: offset(columns),
            words: words.into(),
            lengths: lengths.into(),
            bytes: bytes.into(),
        }
    }
}

/// A packed chunk that gets no more rows.
#[derive(Debug)]
pub(super) struct SealedChunk {
    begin: Timestamp,
    /// Milliseconds from `begin` to each row.
    since_begin: Box<[u32]>,
    columns: u32,
    words: Box<[PackedWord]>,
    /// Number of bytes of each packed column.
    lengths: Box<[u16]>,
    bytes: Box<[u8]>,
}

/// Packed columns among 64: one bit per column, and the indexes of the first one's length and
/// bytes.
#[derive(Debug)]
struct PackedWord {
    bits: u64,
    lengths: u32,
    bytes: u32,
}

impl SealedChunk {
    pub fn oldest(&self) -> Timestamp {
        self.begin
    }

    pub fn newest(&self) -> Timestamp {
        self.at(self.since_begin.last().copied().unwrap_or_default())
    }

    /// Values of a column in all rows. `next` is its value in the first row of the next chunk.
    pub fn values(&self, column: u32, next: f64) -> Vec<f64> {
        let rows = self.since_begin.len();
        if column >= self.columns {
            return vec![STALE; rows];
        }
        let word = &self.words[(column / 64) as usize];
        let bit = column % 64;
        if word.bits >> bit & 1 == 0 {
            return vec![next; rows];
        }
        let before = (word.bits & ((1 << bit) - 1)).count_ones() as usize;
        let lengths = &self.lengths[word.lengths as usize..];
        let begin = word.bytes as usize
            + lengths[..before]
                .iter()
                .map(|&length| usize::from(length))
                .sum::<usize>();
        unpack(
            &self.bytes[begin..begin + usize::from(lengths[before])],
            rows,
        )
    }

    /// Combines `values` with the timestamps of the rows.
    pub fn samples(&self, values: Vec<f64>) -> impl Iterator<Item = Sample> {
        self.since_begin
            .iter()
            .zip(values)
            .map(|(&since, value)| Sample {
                at: self.at(since),
                value,
            })
    }

    fn at(&self, since_begin: u32) -> Timestamp {
        Timestamp(self.begin.0 + i64::from(since_begin))
    }
}

fn offset(length: usize) -> u32 {
    u32::try_from(length).expect("MAX_ROWS keeps a chunk small")
}
