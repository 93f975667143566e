//! Reading samples of series, from memory and disk.
//!
//! The head answers for the time in which it is complete. Before that, samples come from segments,
//! raw blocks and, where those were removed, from down-sampled blocks.

use super::block::{Caching, Reading, SampleSelection};
use super::segments::read_range;
use super::{SeriesId, Store, StoreError, head, is_stale, remote};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use takt_model::Matcher;
use takt_model::{Labels, Timestamp};

/// Attempts of a read. Each but the first follows the removal of a damaged block.
const READS_MAX: usize = 4;

/// Value of a series at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Timestamp.
    pub at: Timestamp,
    /// The value; [`STALE`](super::STALE) marks the end of the series.
    pub value: f64,
}

/// A series and its samples in order of time, one per timestamp.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesData {
    /// Number of the series.
    pub id: SeriesId,
    /// Labels of the series.
    pub labels: Labels,
    /// Samples; never empty.
    pub samples: Vec<Sample>,
}

/// Called with the number of samples read since the last call, before more are read. Returns
/// `false` to stop the read.
pub type Meter<'a> = &'a mut dyn FnMut(usize) -> bool;

impl Store {
    /// Returns the samples in `[from, to]` of all matching series, including staleness markers,
    /// sorted by series number. May read the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn range(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<SeriesData>, StoreError> {
        self.range_metered(matchers, from, to, Reading::Last, &mut |_| true)
    }

    /// Like [`range`](Self::range), until the meter stops the read. `reading` selects the column of
    /// down-sampled rows.
    ///
    /// # Errors
    /// [`StoreError::GivenUp`] if the meter stopped the read, or if the database cannot be read.
    pub fn range_metered(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
        reading: Reading,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        self.range_of(matchers, (from, to), (reading, Caching::Metrics), meter)
    }

    /// Like [`range_metered`](Self::range_metered) for samples that are read once: they are not
    /// cached, so that the metrics of dashboards stay in the cache.
    ///
    /// # Errors
    /// [`StoreError::GivenUp`] if the meter stopped the read, or if the database cannot be read.
    pub fn range_once(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let how = (Reading::Last, Caching::Nothing);
        self.range_of(matchers, (from, to), how, meter)
    }

    /// Like [`range`](Self::range), from this store even if it [reads from](Self::read_from) an
    /// engine.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn own_range(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let how = (Reading::Last, Caching::Metrics);
        self.own_range_of(matchers, (from, to), how, &mut |_| true)
    }

    fn range_of(
        &self,
        matchers: &[Matcher],
        (from, to): (Timestamp, Timestamp),
        how: (Reading, Caching),
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        match self.remote() {
            Some(engine) => Ok(remote::numbered(engine.range(matchers, from, to, meter)?)),
            None => self.own_range_of(matchers, (from, to), how, meter),
        }
    }

    fn own_range_of(
        &self,
        matchers: &[Matcher],
        (from, to): (Timestamp, Timestamp),
        how: (Reading, Caching),
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let ids = self.matching(matchers);
        let recent = self
            .shared
            .head
            .range(&ids, from, to, meter)
            .ok_or(StoreError::GivenUp)?;
        self.unite(&ids, recent, (from, to), how, meter)
    }

    /// Returns the last sample of each matching series, if it is in `(at - lookback, at]` and the
    /// series has not ended since. May read the disk, like [`range`](Self::range).
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn instant(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
    ) -> Result<Vec<SeriesData>, StoreError> {
        self.instant_metered(matchers, at, lookback, &mut |_| true)
    }

    /// Like [`instant`](Self::instant), until the meter stops the read.
    ///
    /// # Errors
    /// [`StoreError::GivenUp`] if the meter stopped the read, or if the database cannot be read.
    pub fn instant_metered(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        if let Some(engine) = self.remote() {
            let found = engine.newest(matchers, at, lookback, meter)?;
            return Ok(remote::numbered(found));
        }

        let from = at.minus(lookback).plus(Duration::from_millis(1));
        let ids = self.matching(matchers);
        let mut recent = self
            .shared
            .head
            .last(&ids, from, at, meter)
            .ok_or(StoreError::GivenUp)?;

        for recent in &mut recent {
            // The head is complete from this time on, so its newest sample is the last one and the
            // disk need not be read. Otherwise every query would read the disk until the head
            // covers the look-back.
            if recent
                .samples
                .last()
                .is_some_and(|last| last.at >= recent.complete_from)
            {
                recent.complete_from = from;
            }
        }

        let how = (Reading::Last, Caching::Metrics);
        let mut found = self.unite(&ids, recent, (from, at), how, meter)?;

        found.retain_mut(|series| {
            let last = series.samples.split_off(series.samples.len() - 1);
            series.samples = last;
            series.samples.iter().all(|sample| !is_stale(sample.value))
        });

        Ok(found)
    }

    /// Number of series that the matchers accept.
    pub fn count(&self, matchers: &[Matcher]) -> usize {
        self.matching(matchers).len()
    }

    /// Whether the store has any native histogram.
    pub(super) fn has_histograms(&self) -> bool {
        let table = self
            .shared
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        table.has_histograms()
    }

    fn matching(&self, matchers: &[Matcher]) -> Vec<SeriesId> {
        let table = self
            .shared
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let found: RoaringBitmap = table.matching(matchers);
        found.iter().map(SeriesId).collect()
    }

    /// Joins the samples of the database with those of the head.
    fn unite(
        &self,
        ids: &[SeriesId],
        recent: Vec<head::RecentSamples>,
        (from, to): (Timestamp, Timestamp),
        how: (Reading, Caching),
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let is_older = |recent: &head::RecentSamples| recent.complete_from > from;
        let older: RoaringBitmap = ids
            .iter()
            .zip(&recent)
            .filter(|(_, recent)| is_older(recent))
            .map(|(&id, _)| id.0)
            .collect();

        let mut stored = self.stored(older, (from, to), how, meter)?;
        let table = self
            .shared
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner);

        let mut found = Vec::new();
        for (&id, recent) in ids.iter().zip(recent) {
            let mut before = stored.remove(&id.0).unwrap_or_default();
            before.truncate(before.partition_point(|sample| sample.at < recent.complete_from));
            let samples = head::merge(before, recent.samples);
            if !samples.is_empty() {
                found.push(SeriesData {
                    id,
                    labels: table.labels(id),
                    samples,
                });
            }
        }
        Ok(found)
    }

    /// Reads samples of series from disk. Sets damaged blocks aside and reads again without them.
    pub(super) fn stored(
        &self,
        series: RoaringBitmap,
        (from, to): (Timestamp, Timestamp),
        how: (Reading, Caching),
        meter: Meter<'_>,
    ) -> Result<HashMap<u32, Vec<Sample>>, StoreError> {
        if series.is_empty() {
            return Ok(HashMap::new());
        }

        let wanted = {
            let table = self
                .shared
                .series
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            SampleSelection::new(
                &series,
                table.of_metrics(&series),
                table.metrics(&series),
                (from, to),
                how,
            )
        };

        let database = self.database();
        let mut attempts = 1;

        loop {
            let layout = database.layout();
            match read_range(database, &layout, &wanted, &mut *meter) {
                // Another reader may have set the block aside while this one read it.
                Err(StoreError::Sql { .. })
                    if attempts < READS_MAX
                        && (self.set_damaged_aside(from, to)
                            || !Arc::ptr_eq(&layout, &database.layout())) =>
                {
                    attempts += 1;
                }
                answer => return answer,
            }
        }
    }
}
