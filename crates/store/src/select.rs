//! Reading samples, wherever they are.
//!
//! The head answers from the instant on since which it has everything; before that the segments of the hot database,
//! the blocks, and where those are gone the down-sampled ones. Callers need not know which.

use super::block::{Reading, Wanted};
use super::hot::read_range;
use super::{SeriesId, Store, StoreError, head, is_stale};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::sync::PoisonError;
use std::time::Duration;
use takt_model::Matcher;
use takt_model::{Labels, Timestamp};

/// A value at an instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// The value; [`STALE`](super::STALE) says that the series ended here.
    pub value: f64,
}

/// A series and its samples in order of time, each instant once.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesData {
    /// Its number.
    pub id: SeriesId,
    /// Its labels.
    pub labels: Labels,
    /// Its samples; never empty.
    pub samples: Vec<Sample>,
}

/// Is told how many samples have been read since it was told last, before more are read. `false`: no more are wanted.
pub type Meter<'a> = &'a mut dyn FnMut(usize) -> bool;

impl Store {
    /// The samples in `[from, to]` of every series that the matchers accept, markers of their ends included; in order
    /// of the series' numbers. May read the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn range(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<SeriesData>, StoreError> {
        self.range_metered(matchers, from, to, Reading::Last, &mut |_| true)
    }

    /// As [`range`](Self::range), as long as the meter wants more; `reading` says what stands for samples of which only
    /// down-sampled rows are left.
    ///
    /// # Errors
    /// When the database cannot be read, and [`StoreError::GivenUp`].
    pub fn range_metered(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
        reading: Reading,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let ids = self.matching(matchers);
        let recent = self
            .shared
            .head
            .range(&ids, from, to, meter)
            .ok_or(StoreError::GivenUp)?;
        self.unite(&ids, recent, (from, to), reading, meter)
    }

    /// The last sample of every series that the matchers accept, if it is in `(at - lookback, at]` and the series has
    /// not ended since. May read the disk, as [`range`](Self::range) does.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn instant(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
    ) -> Result<Vec<SeriesData>, StoreError> {
        self.instant_metered(matchers, at, lookback, &mut |_| true)
    }

    /// As [`instant`](Self::instant), as long as the meter wants more.
    ///
    /// # Errors
    /// When the database cannot be read, and [`StoreError::GivenUp`].
    pub fn instant_metered(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let from = at.minus(lookback).plus(Duration::from_millis(1));
        let ids = self.matching(matchers);
        let mut recent = self
            .shared
            .head
            .last(&ids, from, at, meter)
            .ok_or(StoreError::GivenUp)?;
        for recent in &mut recent {
            // From there on the head has everything, so what it has is the last there is: what lies before is not asked
            // for. Else every query would read the disk until the head is as old as the look-back.
            if recent
                .samples
                .last()
                .is_some_and(|last| last.at >= recent.complete_from)
            {
                recent.complete_from = from;
            }
        }
        let mut found = self.unite(&ids, recent, (from, at), Reading::Last, meter)?;
        found.retain_mut(|series| {
            let last = series.samples.split_off(series.samples.len() - 1);
            series.samples = last;
            series.samples.iter().all(|sample| !is_stale(sample.value))
        });
        Ok(found)
    }

    /// How many series the matchers accept.
    pub fn count(&self, matchers: &[Matcher]) -> usize {
        self.matching(matchers).len()
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

    /// Puts what the database has before what the head has.
    fn unite(
        &self,
        ids: &[SeriesId],
        recent: Vec<head::Recent>,
        (from, to): (Timestamp, Timestamp),
        reading: Reading,
        meter: Meter<'_>,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let is_older = |recent: &head::Recent| recent.complete_from > from;
        let older: RoaringBitmap = ids
            .iter()
            .zip(&recent)
            .filter(|(_, recent)| is_older(recent))
            .map(|(&id, _)| id.0)
            .collect();
        let mut stored = self.stored(older, (from, to), reading, meter)?;
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

    /// What the disk has of these series. A block that turns out to be damaged is set aside, and the rest answers.
    fn stored(
        &self,
        series: RoaringBitmap,
        (from, to): (Timestamp, Timestamp),
        reading: Reading,
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
            Wanted::new(
                &series,
                table.of_metrics(&series),
                table.metrics(&series),
                (from, to),
                reading,
            )
        };
        let db = self.database().connect()?;
        let layout = self.database().layout();
        let pieces = self.database().pieces();
        match read_range(&db, &layout, pieces, &wanted, meter) {
            Err(StoreError::Sql { .. }) if self.set_damaged_aside(from, to) => {
                read_range(&db, &self.database().layout(), pieces, &wanted, meter)
            }
            answer => answer,
        }
    }
}
