//! Plans a new block: its series, and the slices in which they are written.
//!
//! Segments are in order of time, blocks in order of series. The samples of each series are counted
//! first, which gives each series a range of positions, and then scattered: one pass over the
//! source for as many series as fit into memory.

use super::{Block, list_of};
use crate::segments::Segment;
use crate::unsealed::{ALL_TIME, SegmentFile};
use crate::{STALE, Sample, StoreError, is_stale};
use duckdb::Connection;
use duckdb::arrow::array::{Array, AsArray};
use duckdb::arrow::datatypes::{Float64Type, Int32Type, Int64Type, TimestampMillisecondType};
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;
use takt_model::Timestamp;
use xxhash_rust::xxh64::xxh64;

/// Source of the samples of a new block.
#[derive(Debug, Clone)]
pub(crate) enum BlockSource {
    /// A segment that an earlier version wrote as a table.
    Table(Segment),
    /// A complete segment.
    Segment(Arc<SegmentFile>),
    /// Raw blocks, in order of time.
    Blocks(Vec<Arc<Block>>),
}

/// A series of a new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SliceEntry {
    pub series: u32,
    pub metric_hash: i32,
    /// Number of its samples in the source.
    pub samples: usize,
}

/// Samples of some series, in block order.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// The series, in order.
    pub entries: Vec<SliceEntry>,
    pub at: Vec<i64>,
    pub values: Vec<f64>,
}

/// Hash of a metric's name, stable across versions and machines. Blocks are sorted by it, then by
/// series, so the series of one metric are adjacent.
pub(crate) fn metric_hash(metric: &str) -> i32 {
    xxh64(metric.as_bytes(), 0) as i32
}

impl BlockSource {
    /// Returns the series in the source, in block order.
    pub(super) fn entries(&self, db: &Connection) -> Result<Vec<SliceEntry>, StoreError> {
        let counted = match self {
            Self::Segment(file) => return segment_entries(db, file),
            Self::Table(segment) => {
                format!(
                    "SELECT series, count(*)::BIGINT AS samples FROM hot.{} GROUP BY series",
                    segment.table()
                )
            }
            Self::Blocks(blocks) => format!(
                "SELECT series, sum(samples)::BIGINT AS samples FROM read_parquet({}) GROUP BY series",
                list_of(blocks.iter().map(|block| block.series_file()))
            ),
        };

        let sql = format!(
            "SELECT c.series, s.metric_hash, c.samples FROM ({counted}) AS c
             JOIN hot.series AS s ON s.id = c.series ORDER BY s.metric_hash, c.series"
        );

        let read = || -> Result<Vec<SliceEntry>, duckdb::Error> {
            let mut entries = Vec::new();
            for batch in db.prepare(&sql)?.query_arrow([])? {
                let series = batch.column(0).as_primitive::<Int32Type>().values();
                let hashes = batch.column(1).as_primitive::<Int32Type>().values();
                let samples = batch.column(2).as_primitive::<Int64Type>().values();
                entries.extend((0..batch.num_rows()).map(|row| SliceEntry {
                    series: series[row].cast_unsigned(),
                    metric_hash: hashes[row],
                    samples: usize::try_from(samples[row]).unwrap_or(0),
                }));
            }
            Ok(entries)
        };

        read().map_err(StoreError::sql("count the samples of each series"))
    }

    /// Reads the samples of some series into `slice`. `positions` is scratch space with an entry
    /// for every series.
    pub(super) fn fill(
        &self,
        db: &Connection,
        entries: &[SliceEntry],
        positions: &mut RowPositions,
        slice: &mut Slice,
    ) -> Result<(), StoreError> {
        let samples = positions.lay_out(entries);
        slice.entries.clear();
        slice.entries.extend_from_slice(entries);
        slice.at.resize(samples, 0);
        slice.values.resize(samples, 0.0);

        let Slice { at, values, .. } = slice;

        if let Self::Segment(file) = self {
            let wanted: RoaringBitmap = entries.iter().map(|entry| entry.series).collect();
            let mut add = |series, found: &[Sample]| {
                let begin = positions.advance(series, found.len());
                if let Some(begin) = begin.filter(|&begin| begin < samples) {
                    let end = samples.min(begin + found.len());
                    let places = at[begin..end].iter_mut().zip(&mut values[begin..end]);
                    for ((at, value), sample) in places.zip(found) {
                        *at = sample.at.0;
                        *value = sample.value;
                    }
                }
                true
            };

            file.each(&wanted, ALL_TIME, &mut add)
                .map_err(|source| StoreError::Directory {
                    path: file.path().to_owned(),
                    source,
                })?;

            // Counts are upper bounds, so a series may have fewer samples than places.
            slice.close_gaps(positions);
            slice.put_in_order();
            return Ok(());
        }

        // Surplus samples are counted instead of stored, so that one error names the source at the end.
        let mut extra = 0;
        let mut scan = || -> Result<(), duckdb::Error> {
            let mut statement = db.prepare(&self.rows(entries))?;
            for batch in statement.stream_arrow([])? {
                let series = batch.column(0).as_primitive::<Int32Type>().values();
                let times = batch
                    .column(1)
                    .as_primitive::<TimestampMillisecondType>()
                    .values();
                let floats = batch.column(2).as_primitive::<Float64Type>();
                for row in 0..batch.num_rows() {
                    let Some(place) = positions.next(series[row].cast_unsigned()) else {
                        continue;
                    };
                    // More samples than were counted: the source has changed.
                    if place >= samples {
                        extra += 1;
                        continue;
                    }
                    at[place] = times[row];
                    values[place] = if floats.is_null(row) {
                        STALE
                    } else {
                        floats.value(row)
                    };
                }
            }
            Ok(())
        };

        scan().map_err(StoreError::sql("read samples to be sealed"))?;
        if extra > 0 || !positions.are_full(entries) {
            return Err(StoreError::Unsealed {
                what: self.title(),
                reason: "the samples changed while they were read",
            });
        }

        slice.put_in_order();
        Ok(())
    }

    fn rows(&self, entries: &[SliceEntry]) -> String {
        match self {
            Self::Segment(_) => String::new(),
            Self::Table(segment) => {
                format!("SELECT series, ts, value FROM hot.{}", segment.table())
            }
            Self::Blocks(blocks) => {
                // Files are sorted by hash and series, so this range lets DuckDB skip the row groups of other slices.
                let first = entries.first();
                let last = entries.last();
                let hashes = first.zip(last).map_or_else(String::new, |(first, last)| {
                    let one_metric = if first.metric_hash == last.metric_hash {
                        format!(" AND series BETWEEN {} AND {}", first.series, last.series)
                    } else {
                        String::new()
                    };
                    format!(
                        " WHERE metric_hash BETWEEN {} AND {}{one_metric}",
                        first.metric_hash, last.metric_hash
                    )
                });
                format!(
                    "SELECT series, ts::TIMESTAMP_MS, coalesce(mantissa / divisor, exact) FROM read_parquet({}){hashes}",
                    list_of(blocks.iter().map(|block| block.samples()))
                )
            }
        }
    }

    /// Name of the source, for messages.
    pub fn title(&self) -> String {
        match self {
            Self::Table(segment) => segment.table(),
            Self::Segment(file) => format!("segment {}", file.segment.0),
            Self::Blocks(blocks) => blocks
                .iter()
                .map(|block| block.title())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

/// Returns the series of a segment, in block order, each with an upper bound of its samples.
fn segment_entries(db: &Connection, file: &SegmentFile) -> Result<Vec<SliceEntry>, StoreError> {
    let counts = file.counts().map_err(|source| StoreError::Directory {
        path: file.path().to_owned(),
        source,
    })?;

    let read = || -> Result<Vec<SliceEntry>, duckdb::Error> {
        let mut entries = Vec::with_capacity(counts.len());
        let mut statement = db.prepare("SELECT id, metric_hash FROM hot.series")?;
        for batch in statement.query_arrow([])? {
            let series = batch.column(0).as_primitive::<Int32Type>().values();
            let hashes = batch.column(1).as_primitive::<Int32Type>().values();
            for (&series, &metric_hash) in series.iter().zip(hashes) {
                let series = series.cast_unsigned();
                entries.extend(counts.get(&series).map(|&samples| SliceEntry {
                    series,
                    metric_hash,
                    samples,
                }));
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.metric_hash, entry.series));
        Ok(entries)
    };

    read().map_err(StoreError::sql("count the samples of each series"))
}

/// Splits the series of a block into groups of at most `samples` samples. A larger series forms a
/// group of its own.
pub(super) fn cut(entries: &[SliceEntry], samples: usize) -> impl Iterator<Item = &[SliceEntry]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut total = 0;
        let fits = |entry: &&SliceEntry| {
            total += entry.samples;
            total <= samples
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (run, others) = rest.split_at(count);
        rest = others;
        (!run.is_empty()).then_some(run)
    })
}

/// By series: position of the next sample.
#[derive(Debug)]
pub(super) struct RowPositions(Vec<u32>);

impl RowPositions {
    /// Marks a series that is not in the slice.
    const NONE: u32 = u32::MAX;

    /// Returns scratch space for the series of a block.
    pub fn new(entries: &[SliceEntry]) -> Self {
        let end = entries
            .iter()
            .map(|entry| entry.series as usize + 1)
            .max()
            .unwrap_or(0);
        Self(vec![Self::NONE; end])
    }

    fn lay_out(&mut self, entries: &[SliceEntry]) -> usize {
        self.0.fill(Self::NONE);
        let mut next = 0;
        for entry in entries {
            self.0[entry.series as usize] =
                u32::try_from(next).expect("a slice has fewer than 2^32 samples");
            next += entry.samples;
        }
        next
    }

    #[inline]
    fn next(&mut self, series: u32) -> Option<usize> {
        self.advance(series, 1)
    }

    /// Returns the position of the first of `count` samples.
    #[inline]
    fn advance(&mut self, series: u32, count: usize) -> Option<usize> {
        let place = self
            .0
            .get_mut(series as usize)
            .filter(|place| **place != Self::NONE)?;
        let first = *place as usize;
        *place += count as u32;
        Some(first)
    }

    /// Position after the last sample of a series.
    fn end_of(&self, series: u32) -> usize {
        self.0[series as usize] as usize
    }

    fn are_full(&self, entries: &[SliceEntry]) -> bool {
        let mut end = 0;
        entries.iter().all(|entry| {
            end += entry.samples;
            self.0[entry.series as usize] as usize == end
        })
    }
}

impl Slice {
    /// Moves the samples together where a series has fewer than its entry says.
    fn close_gaps(&mut self, positions: &RowPositions) {
        let mut begin = 0;
        let mut kept = 0;
        for entry in &mut self.entries {
            let end = positions.end_of(entry.series);
            let next = begin + entry.samples;
            move_down(&mut self.at, &mut self.values, begin..end, kept);
            entry.samples = end - begin;
            kept += entry.samples;
            begin = next;
        }
        self.at.truncate(kept);
        self.values.truncate(kept);
    }

    /// Sorts the samples of each series by time and removes duplicates. Nearly always a no-op: only
    /// samples with timestamps of their own arrive late.
    fn put_in_order(&mut self) {
        let mut begin = 0;
        let mut kept = 0;
        for entry in &mut self.entries {
            let end = begin + entry.samples;
            // In order, as nearly always: the samples only close the gap that earlier duplicates left.
            if self.at[begin..end].is_sorted_by(|one, next| one < next) {
                move_down(&mut self.at, &mut self.values, begin..end, kept);
            } else {
                let times = self.at[begin..end].iter().map(|&at| Timestamp(at));
                let values = self.values[begin..end].iter();
                let mut samples: Vec<Sample> = times
                    .zip(values)
                    .map(|(at, &value)| Sample { at, value })
                    .collect();

                // The sort keeps the order of equal times, so the first of two samples at one time stays.
                samples.sort_by_key(|sample| sample.at);
                samples.dedup_by_key(|sample| sample.at);
                entry.samples = samples.len();
                for (offset, sample) in samples.iter().enumerate() {
                    self.at[kept + offset] = sample.at.0;
                    self.values[kept + offset] = sample.value;
                }
            }

            begin = end;
            kept += entry.samples;
        }

        self.at.truncate(kept);
        self.values.truncate(kept);
    }

    /// Returns each series with its samples.
    pub fn series(&self) -> impl Iterator<Item = (SliceEntry, &[i64], &[f64])> {
        let mut begin = 0;
        self.entries.iter().map(move |entry| {
            let range = begin..begin + entry.samples;
            begin = range.end;
            (*entry, &self.at[range.clone()], &self.values[range])
        })
    }
}

fn move_down(at: &mut [i64], values: &mut [f64], from: Range<usize>, to: usize) {
    if from.start != to {
        at.copy_within(from.clone(), to);
        values.copy_within(from, to);
    }
}

/// Digest of samples in their order. Two files with the same digest have the same samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SampleDigest {
    pub samples: u64,
    keys: u64,
    values: u64,
}

impl SampleDigest {
    /// Adds a sample, given its time in microseconds.
    #[inline]
    pub fn add(&mut self, series: u32, at: i64, value: f64) {
        // DuckDB preserves NaNs, but not their bits.
        let bits = if value.is_nan() && !is_stale(value) {
            f64::NAN.to_bits()
        } else {
            value.to_bits()
        };
        self.samples += 1;
        // Two hashes: a processor computes both at the same time.
        let key = u64::from(series) ^ at.cast_unsigned().rotate_left(32);
        self.keys = fold(self.keys, key);
        self.values = fold(self.values, bits);
    }
}

#[inline]
fn fold(hash: u64, word: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash ^ word).wrapping_mul(ODD).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(series: u32, samples: usize) -> SliceEntry {
        SliceEntry {
            series,
            metric_hash: 0,
            samples,
        }
    }

    #[test]
    fn slices_contain_whole_series() {
        // Series 3 alone has more samples than a slice.
        let entries = [
            entry(1, 3),
            entry(2, 3),
            entry(3, 9),
            entry(4, 1),
            entry(5, 2),
        ];
        let cuts: Vec<Vec<u32>> = cut(&entries, 6)
            .map(|run| run.iter().map(|entry| entry.series).collect())
            .collect();
        assert_eq!(cuts, [vec![1, 2], vec![3], vec![4, 5]]);
        assert_eq!(cut(&[], 6).count(), 0);
    }

    #[test]
    fn late_samples_are_sorted_and_repeated_ones_removed() {
        // Series 2 has late samples, and two values at time 5.
        let mut slice = Slice {
            entries: vec![entry(1, 2), entry(2, 4), entry(3, 1)],
            at: vec![1, 2, 5, 3, 5, 4, 9],
            values: vec![1.0, 2.0, 5.0, 3.0, 50.0, 4.0, 9.0],
        };
        slice.put_in_order();
        let all: Vec<_> = slice
            .series()
            .map(|(entry, at, values)| (entry.series, at.to_vec(), values.to_vec()))
            .collect();
        assert_eq!(
            all,
            [
                (1, vec![1, 2], vec![1.0, 2.0]),
                (2, vec![3, 4, 5], vec![3.0, 4.0, 5.0]),
                (3, vec![9], vec![9.0])
            ]
        );
    }

    #[test]
    fn a_digest_depends_on_order_value_and_series() {
        let digest = |samples: &[(u32, i64, f64)]| {
            let mut digest = SampleDigest::default();
            samples
                .iter()
                .for_each(|&(series, at, value)| digest.add(series, at, value));
            digest
        };
        let one = digest(&[(1, 10, 1.0), (1, 20, 2.0)]);
        for other in [
            digest(&[(1, 20, 2.0), (1, 10, 1.0)]),
            digest(&[(1, 10, 1.0)]),
            digest(&[(2, 10, 1.0), (1, 20, 2.0)]),
            digest(&[(1, 10, 1.0), (1, 20, 2.5)]),
            digest(&[(1, 10, 1.0), (1, 21, 2.0)]),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(
            digest(&[(1, 1, f64::NAN)]),
            digest(&[(1, 1, f64::from_bits(0x7ff8_0000_0000_0009))])
        );
    }
}
