//! Reading samples, wherever they are.
//!
//! The head answers from the instant on since which it has everything, the hot database before that. Sealed blocks
//! will answer for what is older still; callers ask the same questions then.

use super::hot::read_range;
use super::{Matcher, SeriesId, Store, StoreError, head, is_stale};
use roaring::RoaringBitmap;
use std::sync::PoisonError;
use std::time::Duration;
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

impl Store {
    /// The samples in `[from, to]` of every series that the matchers accept, markers of their ends included; in order
    /// of the series' numbers. May read the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn range(&self, matchers: &[Matcher], from: Timestamp, to: Timestamp) -> Result<Vec<SeriesData>, StoreError> {
        let ids = self.matching(matchers);
        let recent = self.shared.head.range(&ids, from, to);
        self.unite(&ids, recent, from, to)
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
        let from = at.minus(lookback).plus(Duration::from_millis(1));
        let ids = self.matching(matchers);
        let recent = self.shared.head.last(&ids, from, at);
        let mut found = self.unite(&ids, recent, from, at)?;
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

    /// The labels of every series that the matchers accept.
    pub fn series(&self, matchers: &[Matcher]) -> Vec<Labels> {
        let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
        table.matching(matchers).iter().map(|id| table.labels(SeriesId(id))).collect()
    }

    /// The names of the labels that those series have, in byte order.
    pub fn label_names(&self, matchers: &[Matcher]) -> Vec<String> {
        let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
        table.label_names(&table.matching(matchers))
    }

    /// The values that the label `name` has on those series, in byte order.
    pub fn label_values(&self, name: &str, matchers: &[Matcher]) -> Vec<String> {
        let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
        table.label_values(name, &table.matching(matchers))
    }

    fn matching(&self, matchers: &[Matcher]) -> Vec<SeriesId> {
        let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
        let found: RoaringBitmap = table.matching(matchers);
        found.iter().map(SeriesId).collect()
    }

    /// Puts what the database has before what the head has.
    fn unite(
        &self,
        ids: &[SeriesId],
        recent: Vec<head::Recent>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<SeriesData>, StoreError> {
        let is_older = |recent: &head::Recent| recent.complete_from > from;
        let older: Vec<SeriesId> =
            ids.iter().zip(&recent).filter(|(_, recent)| is_older(recent)).map(|(&id, _)| id).collect();
        let stored = match older.is_empty() {
            true => Vec::new(),
            false => read_range(&self.database().connect()?, &older, from, to)?,
        };
        let mut stored = stored.into_iter().peekable();
        let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (&id, recent) in ids.iter().zip(recent) {
            let mut before = Vec::new();
            while let Some((_, sample)) = stored.next_if(|(of, _)| *of == id) {
                if sample.at < recent.complete_from {
                    before.push(sample);
                }
            }
            let samples = head::merge(before, recent.samples);
            if !samples.is_empty() {
                found.push(SeriesData { id, labels: table.labels(id), samples });
            }
        }
        Ok(found)
    }
}
