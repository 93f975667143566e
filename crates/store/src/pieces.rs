//! What was read from blocks, kept packed in memory: a dashboard asks for the same metrics again and again, and blocks
//! do not change.
//!
//! A piece has all series of one metric in one block. What no query has asked for the longest goes first.

use super::block::{Block, Wanted, collect};
use super::packed::{pack, unpack};
use super::{Meter, Sample, StoreError};
use duckdb::Connection;
use hashbrown::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use takt_model::Timestamp;

/// A piece that would have more samples is not made: reading what is wanted of it costs less.
const MOST_SAMPLES: u64 = 4_000_000;

/// What an entry of the cache costs besides its bytes, roughly.
const ENTRY_BYTES: usize = 200;

/// The series of one metric in one block.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    series: Vec<Packed>,
    bytes: Box<[u8]>,
}

/// Where a series is in a piece.
#[derive(Debug)]
struct Packed {
    series: u32,
    rows: u32,
    /// Its instants begin here, its values there; they end where the next series begins.
    times: usize,
    values: usize,
}

impl Piece {
    /// Of series whose samples are in order.
    fn of(mut found: Vec<(u32, Vec<Sample>)>) -> Self {
        found.sort_unstable_by_key(|(series, _)| *series);
        let (mut packed, mut bytes, mut column) =
            (Vec::with_capacity(found.len()), Vec::new(), Vec::new());
        for (series, samples) in &found {
            let rows = u32::try_from(samples.len()).expect("a piece has no more than MOST_SAMPLES");
            let times = bytes.len();
            // Milliseconds since 1970 are exact as doubles; even steps take no bits at all.
            column.clear();
            column.extend(samples.iter().map(|sample| sample.at.0 as f64));
            pack(&column, &mut bytes);
            let values = bytes.len();
            column.clear();
            column.extend(samples.iter().map(|sample| sample.value));
            pack(&column, &mut bytes);
            packed.push(Packed {
                series: *series,
                rows,
                times,
                values,
            });
        }
        Self {
            series: packed,
            bytes: bytes.into(),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes.len() + self.series.len() * size_of::<Packed>() + ENTRY_BYTES
    }

    /// Adds the wanted samples to those of their series. Whether the meter let it come to the end.
    fn read(
        &self,
        wanted: &Wanted,
        found: &mut HashMap<u32, Vec<Sample>>,
        meter: Meter<'_>,
    ) -> bool {
        // Series of one target have the same instants, and stand together.
        let (mut known, mut times): (&[u8], Vec<i64>) = (&[], Vec::new());
        let ends = self
            .series
            .iter()
            .skip(1)
            .map(|next| next.times)
            .chain([self.bytes.len()]);
        for (one, end) in self
            .series
            .iter()
            .zip(ends)
            .filter(|(one, _)| wanted.series.contains(one.series))
        {
            let packed = &self.bytes[one.times..one.values];
            if packed != known || times.len() != one.rows as usize {
                times = unpack(packed, one.rows as usize)
                    .into_iter()
                    .map(|at| at as i64)
                    .collect();
                known = packed;
            }
            let begin = times.partition_point(|&at| at < wanted.from.0);
            let end_row = times.partition_point(|&at| at <= wanted.to.0);
            if begin >= end_row {
                continue;
            }
            if !meter(end_row - begin) {
                return false;
            }
            let values = unpack(&self.bytes[one.values..end], one.rows as usize);
            let samples = found.entry(one.series).or_default();
            let pairs = times[begin..end_row].iter().zip(&values[begin..end_row]);
            samples.extend(pairs.map(|(&at, &value)| Sample {
                at: Timestamp(at),
                value,
            }));
        }
        true
    }
}

/// The pieces in memory.
#[derive(Debug)]
pub(crate) struct Pieces {
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_block: HashMap<PathBuf, HashMap<i32, Entry>>,
    bytes: usize,
    /// Counts questions.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    piece: Arc<Piece>,
    asked: u64,
}

impl Pieces {
    /// An empty cache of so many bytes.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            kept: Mutex::default(),
        }
    }

    /// Adds the wanted samples of raw blocks, as far as pieces have them or can have them, and returns the blocks that
    /// must be read for this question.
    pub fn read<'b>(
        &self,
        db: &Connection,
        blocks: Vec<&'b Arc<Block>>,
        wanted: &Wanted,
        found: &mut HashMap<u32, Vec<Sample>>,
        meter: Meter<'_>,
    ) -> Result<Vec<&'b Arc<Block>>, StoreError> {
        let mut left = Vec::new();
        for block in blocks {
            if !self.is_worth_it(block, wanted) {
                left.push(block);
                continue;
            }
            for &metric_hash in wanted.metric_hashes() {
                let known = self.get(&block.path, metric_hash);
                let piece = match known {
                    Some(piece) => piece,
                    None => self.load(db, block, metric_hash)?,
                };
                if !piece.read(wanted, found, meter) {
                    return Err(StoreError::GivenUp);
                }
            }
        }
        Ok(left)
    }

    /// Whether the metrics' series in a block are few enough to be kept together.
    fn is_worth_it(&self, block: &Block, wanted: &Wanted) -> bool {
        let series = block.series.intersection_len(wanted.of_metrics());
        let samples = series.saturating_mul(block.facts.rows / block.series.len().max(1));
        // A fair share of the cache, at two or three bytes a sample.
        samples <= MOST_SAMPLES.min(self.most_bytes as u64 / 8)
    }

    fn get(&self, block: &Path, metric_hash: i32) -> Option<Arc<Piece>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let entry = kept.by_block.get_mut(block)?.get_mut(&metric_hash)?;
        entry.asked = clock;
        Some(Arc::clone(&entry.piece))
    }

    fn load(
        &self,
        db: &Connection,
        block: &Block,
        metric_hash: i32,
    ) -> Result<Arc<Piece>, StoreError> {
        let sql = format!(
            "SELECT series, ts::TIMESTAMP_MS, coalesce(mantissa / divisor, exact) FROM read_parquet({})
             WHERE metric_hash = {metric_hash}",
            block.samples()
        );
        let mut found = HashMap::new();
        let all = &block.series;
        collect(db, &sql, all, &mut found, &mut |_| true)
            .map_err(StoreError::sql("read samples from blocks"))?;
        let mut found: Vec<(u32, Vec<Sample>)> = found.into_iter().collect();
        for (_, samples) in &mut found {
            if !samples.is_sorted_by_key(|sample| sample.at) {
                samples.sort_by_key(|sample| sample.at);
            }
        }
        let piece = Arc::new(Piece::of(found));
        self.put(&block.path, metric_hash, Arc::clone(&piece));
        Ok(piece)
    }

    fn put(&self, block: &Path, metric_hash: i32, piece: Arc<Piece>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = kept.clock;
        kept.bytes += piece.bytes();
        let pieces = kept.by_block.entry_ref(block).or_default();
        if let Some(before) = pieces.insert(metric_hash, Entry { piece, asked }) {
            kept.bytes -= before.piece.bytes();
        }
        while kept.bytes > self.most_bytes {
            kept.drop_oldest();
        }
    }
}

impl Kept {
    fn drop_oldest(&mut self) {
        let each = self.by_block.iter().flat_map(|(block, pieces)| {
            pieces
                .iter()
                .map(move |(hash, entry)| (entry.asked, block, *hash))
        });
        let Some((_, block, hash)) = each.min_by_key(|(asked, ..)| *asked) else {
            self.bytes = 0;
            return;
        };
        let block = block.clone();
        if let Some(pieces) = self.by_block.get_mut(&block) {
            self.bytes -= pieces.remove(&hash).map_or(0, |entry| entry.piece.bytes());
            if pieces.is_empty() {
                self.by_block.remove(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::STALE;
    use crate::block::Reading;
    use proptest::prelude::*;
    use roaring::RoaringBitmap;

    fn wanted(series: &[u32], from: i64, to: i64) -> Wanted {
        let series: RoaringBitmap = series.iter().copied().collect();
        Wanted::new(
            &series,
            series.clone(),
            std::iter::empty(),
            (Timestamp(from), Timestamp(to)),
            Reading::Last,
        )
    }

    fn bits(samples: &[Sample]) -> Vec<(i64, u64)> {
        samples
            .iter()
            .map(|sample| (sample.at.0, sample.value.to_bits()))
            .collect()
    }

    proptest! {
        /// Whatever is packed comes out as it was, cut to the range.
        #[test]
        fn a_piece_gives_back_what_it_was_made_of(
            all in prop::collection::btree_map(0_u32..20, prop::collection::btree_map(
                0_i64..2_000_000_000_000,
                prop_oneof![any::<f64>(), Just(STALE), (-1000_i32..1000).prop_map(|n| f64::from(n) / 10.0)],
                1..40,
            ), 1..6),
            from in 0_i64..2_000_000_000_000,
            length in 0_i64..2_000_000_000_000,
        ) {
            let samples = |of: &std::collections::BTreeMap<i64, f64>| -> Vec<Sample> {
                of.iter().map(|(&at, &value)| Sample { at: Timestamp(at), value }).collect()
            };
            let piece = Piece::of(all.iter().map(|(&series, of)| (series, samples(of))).collect());
            let series: Vec<u32> = all.keys().copied().collect();
            let mut found = HashMap::new();
            prop_assert!(piece.read(&wanted(&series, from, from + length), &mut found, &mut |_| true));
            for (series, of) in &all {
                let expected: Vec<Sample> =
                    samples(of).into_iter().filter(|s| s.at.0 >= from && s.at.0 <= from + length).collect();
                let found = found.get(series).map_or(&[][..], Vec::as_slice);
                prop_assert_eq!(bits(found), bits(&expected));
            }
        }
    }

    #[test]
    fn what_was_not_asked_for_the_longest_goes_first() {
        let piece = |series: u32| {
            let samples = (0..1000)
                .map(|at| Sample {
                    at: Timestamp(at),
                    value: (at as f64).sqrt(),
                })
                .collect();
            Arc::new(Piece::of(vec![(series, samples)]))
        };
        let pieces = Pieces::new(2 * piece(0).bytes() + 100);
        let (a, b) = (Path::new("a"), Path::new("b"));
        pieces.put(a, 1, piece(1));
        pieces.put(a, 2, piece(2));
        assert!(pieces.get(a, 1).is_some());
        pieces.put(b, 1, piece(3));
        assert_eq!(
            [pieces.get(a, 1), pieces.get(a, 2), pieces.get(b, 1)].map(|piece| piece.is_some()),
            [true, false, true]
        );
        // A piece larger than all of the cache is not kept, and the account stays right.
        let tiny = Pieces::new(10);
        tiny.put(a, 1, piece(1));
        assert!(tiny.get(a, 1).is_none());
        assert_eq!(tiny.kept.lock().unwrap().bytes, 0);
    }

    #[test]
    fn the_meter_stops_it() {
        let samples = vec![Sample {
            at: Timestamp(1),
            value: 1.0,
        }];
        let piece = Piece::of(vec![(1, samples.clone()), (2, samples)]);
        let mut found = HashMap::new();
        let mut left = 1;
        let complete = piece.read(&wanted(&[1, 2], 0, 9), &mut found, &mut |samples| {
            left -= samples as i64;
            left >= 0
        });
        assert!(!complete && found.len() == 1);
    }
}
