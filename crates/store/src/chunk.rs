//! Rows of one group over a part of the head's window: open while they come, then sealed.
//!
//! About half the values of a node stay the same from one scrape to the next, so an open chunk keeps of each row only
//! what changed: a bit for every column, and the new values in the order of the columns. A sealed chunk is turned round,
//! each series' values packed together, and a series that did not change at all is one bit: it has the value with which
//! the next chunk begins.

use super::Sample;
use super::head::STALE;
use super::packed::{pack, unpack};
use std::time::Duration;
use takt_model::Timestamp;

/// The chunk that rows are added to.
#[derive(Debug)]
pub(super) struct Open {
    /// The first row in full.
    first: Vec<f64>,
    /// The first row's entry is empty.
    rows: Vec<Row>,
}

/// What a row changed. Boxes of their exact size: the next rows of some other group take the place of these.
#[derive(Debug)]
struct Row {
    at: Timestamp,
    columns: u32,
    changed: Box<[Changed]>,
    values: Box<[f64]>,
}

/// Which of 64 columns changed, and where in the row's values the first of them is.
#[derive(Debug, Clone, Copy)]
struct Changed {
    bits: u64,
    values: u32,
}

/// A row's changes while they are gathered; kept from row to row for its memory.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changed: Vec<Changed>,
    values: Vec<f64>,
    current: u64,
    begin: u32,
}

impl Changes {
    /// Notes a change; columns come in rising order.
    #[inline]
    pub fn push(&mut self, column: usize, value: f64) {
        self.advance(column / 64);
        self.current |= 1 << (column % 64);
        self.values.push(value);
    }

    fn advance(&mut self, word: usize) {
        while self.changed.len() < word {
            self.changed.push(Changed {
                bits: self.current,
                values: self.begin,
            });
            (self.current, self.begin) = (0, offset(self.values.len()));
        }
    }

    /// Forgets what was gathered.
    pub fn clear(&mut self) {
        self.changed.clear();
        self.values.clear();
        (self.current, self.begin) = (0, 0);
    }
}

impl Open {
    /// Keeps a chunk's rows few enough to be read quickly, however fast they come.
    const MAX_ROWS: usize = 512;
    /// Below this, what a sealed chunk costs by itself outweighs what it saves.
    const MIN_ROWS: usize = 16;

    pub fn new(at: Timestamp, first: Vec<f64>) -> Self {
        let row = Row {
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

    /// Whether a row at `at` begins the next chunk. Chunks are `length` long, and each group's end at a `phase` of
    /// their own, so that not all are full at once; `longest` bounds those of rare rows.
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

    /// Adds a row that has `columns` columns and differs from the one before by `changes`, which are empty afterwards.
    pub fn push(&mut self, at: Timestamp, columns: usize, changes: &mut Changes) {
        changes.advance(columns.div_ceil(64));
        let (changed, values) = (
            changes.changed.as_slice().into(),
            changes.values.as_slice().into(),
        );
        self.rows.push(Row {
            at,
            columns: offset(columns),
            changed,
            values,
        });
        changes.clear();
    }

    /// A column's value in the first row.
    pub fn first(&self, column: u32) -> f64 {
        self.first.get(column as usize).copied().unwrap_or(STALE)
    }

    /// A column's value in each row.
    pub fn samples(&self, column: u32) -> impl Iterator<Item = Sample> {
        let (word, bit) = ((column / 64) as usize, column % 64);
        let mut value = self.first(column);
        self.rows.iter().map(move |row| {
            if column < row.columns {
                let Changed { bits, values } = row.changed[word];
                if bits >> bit & 1 == 1 {
                    let before = (bits & ((1 << bit) - 1)).count_ones();
                    value = row.values[(values + before) as usize];
                }
            }
            Sample { at: row.at, value }
        })
    }

    /// The same rows packed; `next` is the first row of the next chunk.
    pub fn seal(&self, next: &[f64]) -> Sealed {
        let columns = self
            .rows
            .last()
            .map_or(0, |row| row.columns as usize)
            .max(self.first.len());
        let (mut words, mut lengths, mut bytes) = (
            Vec::with_capacity(columns.div_ceil(64)),
            Vec::new(),
            Vec::new(),
        );
        let mut values = Vec::with_capacity(self.rows.len());
        for word in 0..columns.div_ceil(64) {
            let mut packed = Word {
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
        let since =
            |row: &Row| u32::try_from(row.at.0 - begin.0).expect("a chunk is shorter than 49 days");
        Sealed {
            begin,
            since_begin: self.rows.iter().map(since).collect(),
            columns: offset(columns),
            words: words.into(),
            lengths: lengths.into(),
            bytes: bytes.into(),
        }
    }
}

/// A chunk that gets no more rows.
#[derive(Debug)]
pub(super) struct Sealed {
    begin: Timestamp,
    /// Milliseconds from `begin` to each row.
    since_begin: Box<[u32]>,
    columns: u32,
    words: Box<[Word]>,
    /// Of each column that is packed.
    lengths: Box<[u16]>,
    bytes: Box<[u8]>,
}

/// Which of 64 columns are packed, and where the first of them is.
#[derive(Debug)]
struct Word {
    bits: u64,
    lengths: u32,
    bytes: u32,
}

impl Sealed {
    pub fn oldest(&self) -> Timestamp {
        self.begin
    }

    pub fn newest(&self) -> Timestamp {
        self.at(self.since_begin.last().copied().unwrap_or_default())
    }

    /// A column's value in each row, where `next` is its value in the first row of the next chunk.
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

    /// `values` with their instants.
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
