//! Cache of samples read from blocks. Blocks never change, and dashboards query the same metrics
//! again and again.
//!
//! An entry holds all series of one metric in one block, packed. A full cache evicts the entry that
//! was used the longest ago.

use super::block::{Block, SampleSelection, collect};
use super::packed::{Packer, unpack};
use super::{Meter, Sample, StoreError};
use duckdb::Connection;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use takt_model::Timestamp;

/// Largest number of samples in an entry. A query of a larger metric reads only the samples that it
/// needs.
const MAX_SAMPLES: u64 = 4_000_000;

/// Approximate size of an entry without its samples and series, in bytes.
const ENTRY_BYTES: usize = 200;

/// All series of one metric in one block, packed.
#[derive(Debug, Default)]
pub(crate) struct CachedMetric {
    series: Vec<PackedSeries>,
    bytes: Box<[u8]>,
}

/// Position of a series in [`CachedMetric::bytes`].
#[derive(Debug)]
struct PackedSeries {
    series: u32,
    rows: u32,
    /// Offset of its timestamps.
    times: usize,
    /// Offset of its values. They end where the timestamps of the next series begin.
    values: usize,
}

impl CachedMetric {
    /// Packs series. The samples of each series must be in order of time.
    fn pack(mut found: Vec<(u32, Vec<Sample>)>) -> Self {
        // Series of one target have neighbouring numbers, so that equal times follow each other.
        found.sort_unstable_by_key(|(series, _)| *series);
        let mut packed = Vec::with_capacity(found.len());
        let mut bytes = Vec::new();
        let mut column = Vec::new();
        let mut packer = Packer::default();

        for (series, samples) in &found {
            let rows = u32::try_from(samples.len()).expect("an entry has at most MAX_SAMPLES");
            let times = bytes.len();

            // Doubles hold milliseconds since 1970 exactly. A constant interval packs into no bits.
            column.clear();
            column.extend(samples.iter().map(|sample| sample.at.0 as f64));
            packer.pack(&column, &mut bytes);

            let values = bytes.len();
            column.clear();
            column.extend(samples.iter().map(|sample| sample.value));
            packer.pack(&column, &mut bytes);

            packed.push(PackedSeries {
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

    /// Size in memory, in bytes.
    fn bytes(&self) -> usize {
        self.bytes.len() + self.series.len() * size_of::<PackedSeries>() + ENTRY_BYTES
    }

    /// Adds the selected samples to `found`. Returns `false` if the meter stopped the read.
    fn read(
        &self,
        selection: &SampleSelection,
        found: &mut HashMap<u32, Vec<Sample>>,
        meter: Meter<'_>,
    ) -> bool {
        // Series of one target have the same timestamps and follow each other.
        let mut known: &[u8] = &[];
        let mut times: Vec<i64> = Vec::new();
        let mut column = Vec::new();

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
            .filter(|(one, _)| selection.series.contains(one.series))
        {
            let packed = &self.bytes[one.times..one.values];
            if packed != known || times.len() != one.rows as usize {
                column.clear();
                unpack(packed, one.rows as usize, &mut column);
                times.clear();
                times.extend(column.iter().map(|&at| at as i64));
                known = packed;
            }

            let begin = times.partition_point(|&at| at < selection.from.0);
            let end_row = times.partition_point(|&at| at <= selection.to.0);
            if begin >= end_row {
                continue;
            }
            // The meter comes before the values are unpacked, so that a large query stops early.
            if !meter(end_row - begin) {
                return false;
            }

            column.clear();
            unpack(&self.bytes[one.values..end], one.rows as usize, &mut column);

            let samples = found.entry(one.series).or_default();
            let pairs = times[begin..end_row].iter().zip(&column[begin..end_row]);
            samples.extend(pairs.map(|(&at, &value)| Sample {
                at: Timestamp(at),
                value,
            }));
        }
        true
    }
}

/// Least-recently-used cache of [`CachedMetric`]s, bounded by their total size.
#[derive(Debug)]
pub(crate) struct BlockCache {
    max_bytes: usize,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    /// Entries by the block's folder, then by the metric's hash.
    by_block: HashMap<PathBuf, HashMap<i32, CacheEntry>>,
    /// Keys of all entries by [`CacheEntry::last_use`], so that eviction needs no scan.
    by_last_use: BTreeMap<u64, (PathBuf, i32)>,
    /// Size of all entries, in bytes.
    bytes: usize,
    /// Number of uses so far. Each use gets a number of its own.
    uses: u64,
}

#[derive(Debug)]
struct CacheEntry {
    metric: Arc<CachedMetric>,
    last_use: u64,
}

impl BlockCache {
    /// Returns an empty cache of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            state: Mutex::default(),
        }
    }

    /// Adds the selected samples of raw blocks to `found`, from cached metrics; missing ones are
    /// loaded first. Returns the blocks whose metrics are too large for the cache: the caller reads
    /// those.
    ///
    /// # Errors
    /// [`StoreError::GivenUp`] if the meter stopped the read, or if DuckDB fails.
    pub fn read<'b>(
        &self,
        db: &Connection,
        blocks: Vec<&'b Arc<Block>>,
        selection: &SampleSelection,
        found: &mut HashMap<u32, Vec<Sample>>,
        meter: Meter<'_>,
    ) -> Result<Vec<&'b Arc<Block>>, StoreError> {
        let mut left = Vec::new();
        for block in blocks {
            if !self.can_cache(block, selection) {
                left.push(block);
                continue;
            }

            for &metric_hash in selection.metric_hashes() {
                let known = self.get(&block.path, metric_hash);
                let metric = match known {
                    Some(metric) => metric,
                    // Two queries may load a metric at the same time. The second entry then replaces the first.
                    None => self.load(db, block, metric_hash)?,
                };
                if !metric.read(selection, found, meter) {
                    return Err(StoreError::GivenUp);
                }
            }
        }
        Ok(left)
    }

    /// Returns whether the selected metrics of a block are small enough for the cache.
    fn can_cache(&self, block: &Block, selection: &SampleSelection) -> bool {
        // The block's mean stands for the metric, whose rows are not counted anywhere.
        let series = block.series.intersection_len(selection.of_metrics());
        let samples = series.saturating_mul(block.facts.rows / block.series.len().max(1));
        // A sample takes two to three bytes, so one entry fills at most about a third of the cache.
        samples <= MAX_SAMPLES.min(self.max_bytes as u64 / 8)
    }

    fn get(&self, block: &Path, metric_hash: i32) -> Option<Arc<CachedMetric>> {
        self.state().get(block, metric_hash)
    }

    /// Reads all series of a metric from a block and caches them.
    fn load(
        &self,
        db: &Connection,
        block: &Block,
        metric_hash: i32,
    ) -> Result<Arc<CachedMetric>, StoreError> {
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

        let metric = Arc::new(CachedMetric::pack(found));
        self.put(&block.path, metric_hash, Arc::clone(&metric));
        Ok(metric)
    }

    fn put(&self, block: &Path, metric_hash: i32, metric: Arc<CachedMetric>) {
        let mut state = self.state();
        state.insert(block, metric_hash, metric);
        while state.bytes > self.max_bytes {
            state.evict_oldest();
        }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    /// Returns an entry and marks it as used.
    fn get(&mut self, block: &Path, metric_hash: i32) -> Option<Arc<CachedMetric>> {
        let entry = self.by_block.get_mut(block)?.get_mut(&metric_hash)?;
        self.uses += 1;
        let key = self.by_last_use.remove(&entry.last_use)?;
        self.by_last_use.insert(self.uses, key);
        entry.last_use = self.uses;
        Some(Arc::clone(&entry.metric))
    }

    /// Adds an entry as the one used last. It replaces an entry of the same key.
    fn insert(&mut self, block: &Path, metric_hash: i32, metric: Arc<CachedMetric>) {
        self.uses += 1;
        let last_use = self.uses;
        self.bytes += metric.bytes();
        self.by_last_use
            .insert(last_use, (block.to_owned(), metric_hash));
        let entry = CacheEntry { metric, last_use };
        let metrics = self.by_block.entry_ref(block).or_default();
        if let Some(replaced) = metrics.insert(metric_hash, entry) {
            self.by_last_use.remove(&replaced.last_use);
            self.bytes -= replaced.metric.bytes();
        }
    }

    /// Removes the entry whose last use is the longest ago.
    fn evict_oldest(&mut self) {
        // Without entries, this ends the loop in `put`.
        let Some((_, (block, metric_hash))) = self.by_last_use.pop_first() else {
            self.bytes = 0;
            return;
        };
        if let Some(metrics) = self.by_block.get_mut(&block) {
            let evicted = metrics.remove(&metric_hash);
            self.bytes -= evicted.map_or(0, |entry| entry.metric.bytes());
            if metrics.is_empty() {
                self.by_block.remove(&block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::STALE;
    use crate::block::{Caching, Reading};
    use proptest::prelude::*;
    use roaring::RoaringBitmap;
    use std::time::{Duration, Instant};

    fn wanted(series: &[u32], from: i64, to: i64) -> SampleSelection {
        let series: RoaringBitmap = series.iter().copied().collect();
        SampleSelection::new(
            &series,
            series.clone(),
            std::iter::empty(),
            (Timestamp(from), Timestamp(to)),
            (Reading::Last, Caching::Metrics),
        )
    }

    fn bits(samples: &[Sample]) -> Vec<(i64, u64)> {
        samples
            .iter()
            .map(|sample| (sample.at.0, sample.value.to_bits()))
            .collect()
    }

    proptest! {
        /// Reading returns exactly the packed samples of the selected range.
        #[test]
        fn reading_returns_the_packed_samples(
            all in prop::collection::btree_map(0_u32..20, prop::collection::btree_map(
                0_i64..2_000_000_000_000,
                prop_oneof![any::<f64>(), Just(STALE), (-1000_i32..1000).prop_map(|n| f64::from(n) / 10.0)],
                1..40,
            ), 1..6),
            from in 0_i64..2_000_000_000_000,
            length in 0_i64..2_000_000_000_000,
        ) {
            let samples = |of: &BTreeMap<i64, f64>| -> Vec<Sample> {
                of.iter().map(|(&at, &value)| Sample { at: Timestamp(at), value }).collect()
            };
            let metric = CachedMetric::pack(all.iter().map(|(&series, of)| (series, samples(of))).collect());
            let series: Vec<u32> = all.keys().copied().collect();
            let mut found = HashMap::new();
            prop_assert!(metric.read(&wanted(&series, from, from + length), &mut found, &mut |_| true));
            for (series, of) in &all {
                let expected: Vec<Sample> =
                    samples(of).into_iter().filter(|s| s.at.0 >= from && s.at.0 <= from + length).collect();
                let found = found.get(series).map_or(&[][..], Vec::as_slice);
                prop_assert_eq!(bits(found), bits(&expected));
            }
        }
    }

    fn metric(series: u32, samples: i64) -> Arc<CachedMetric> {
        let samples = (0..samples)
            .map(|at| Sample {
                at: Timestamp(at),
                value: (at as f64).sqrt(),
            })
            .collect();
        Arc::new(CachedMetric::pack(vec![(series, samples)]))
    }

    #[test]
    fn a_full_cache_evicts_the_least_recently_used_metric() {
        // Two entries fit, and a third does not.
        let cache = BlockCache::new(2 * metric(0, 1000).bytes() + 100);
        let a = Path::new("a");
        let b = Path::new("b");
        cache.put(a, 1, metric(1, 1000));
        cache.put(a, 2, metric(2, 1000));

        // After this use, the second metric is the one whose last use is the longest ago.
        assert!(cache.get(a, 1).is_some());
        cache.put(b, 1, metric(3, 1000));
        assert_eq!(
            [cache.get(a, 1), cache.get(a, 2), cache.get(b, 1)].map(|metric| metric.is_some()),
            [true, false, true]
        );
        // A metric larger than the whole cache is not cached, and its size is subtracted again.
        let tiny = BlockCache::new(10);
        tiny.put(a, 1, metric(1, 1000));
        assert!(tiny.get(a, 1).is_none());
        assert_eq!(tiny.state.lock().unwrap().bytes, 0);
    }

    /// Every eviction scanned the whole cache once: 60,000 of them took minutes.
    #[test]
    fn eviction_time_does_not_grow_with_the_number_of_metrics() {
        const METRICS: i32 = 60_000;
        let one = metric(0, 1);
        let cache = BlockCache::new(METRICS as usize * one.bytes());
        let first = Path::new("first");
        let second = Path::new("second");
        for hash in 0..METRICS {
            cache.put(first, hash, Arc::clone(&one));
        }
        let began = Instant::now();
        for hash in 0..METRICS {
            cache.put(second, hash, Arc::clone(&one));
        }
        assert!(began.elapsed() < Duration::from_secs(20));
        let state = cache.state();
        assert!(!state.by_block.contains_key(first));
        assert_eq!(state.by_block[second].len(), METRICS as usize);
        assert_eq!(state.by_last_use.len(), METRICS as usize);
        assert_eq!(state.bytes, cache.max_bytes);
    }

    proptest! {
        /// The cache holds the same metrics as a list in order of use that drops its first items.
        #[test]
        fn eviction_follows_the_order_of_use(
            steps in prop::collection::vec((any::<bool>(), 0_i32..8, 1_i64..200), 1..100),
        ) {
            let block = Path::new("a");
            let cache = BlockCache::new(5 * metric(0, 100).bytes());
            let mut expected: Vec<(i32, usize)> = Vec::new();
            for (is_put, hash, samples) in steps {
                let known = expected.iter().position(|(known, _)| *known == hash);
                let known = known.map(|index| expected.remove(index));
                if is_put {
                    let metric = metric(0, samples);
                    expected.push((hash, metric.bytes()));
                    cache.put(block, hash, metric);
                    while expected.iter().map(|(_, bytes)| bytes).sum::<usize>() > cache.max_bytes {
                        expected.remove(0);
                    }
                } else {
                    prop_assert_eq!(cache.get(block, hash).is_some(), known.is_some());
                    expected.extend(known);
                }
                let state = cache.state();
                let order: Vec<i32> = state.by_last_use.values().map(|(_, hash)| *hash).collect();
                prop_assert_eq!(order, expected.iter().map(|(hash, _)| *hash).collect::<Vec<_>>());
                prop_assert_eq!(state.bytes, expected.iter().map(|(_, bytes)| bytes).sum::<usize>());
            }
        }
    }

    #[test]
    fn the_meter_stops_a_read() {
        let samples = vec![Sample {
            at: Timestamp(1),
            value: 1.0,
        }];
        let metric = CachedMetric::pack(vec![(1, samples.clone()), (2, samples)]);
        let mut found = HashMap::new();

        // The second series exceeds the limit of one sample.
        let mut left = 1;
        let complete = metric.read(&wanted(&[1, 2], 0, 9), &mut found, &mut |samples| {
            left -= samples as i64;
            left >= 0
        });
        assert!(!complete && found.len() == 1);
    }
}
