//! Listing series, label names and label values.

use super::block::{Block, Resolution, list_of};
use super::series::SeriesTable;
use super::{SeriesId, Store, StoreError};
use duckdb::arrow::array::AsArray;
use duckdb::arrow::datatypes::{Int32Type, TimestampMillisecondType};
use roaring::RoaringBitmap;
use std::sync::{Arc, PoisonError};
use takt_model::native::NATIVE_LABEL;
use takt_model::{Labels, Matcher, Timestamp};

/// Selects series for a listing: all matchers accept them, and they may have samples in `[from,
/// to]`.
///
/// A series is listed if the times of its first and last sample in a block, which are exact to one row
/// of the block, reach into the time, or, before sealing, if it was scraped since `from`.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// All matchers must accept the series.
    pub matchers: &'a [Matcher],
    /// Start, inclusive.
    pub from: Timestamp,
    /// End, inclusive.
    pub to: Timestamp,
}

impl<'a> Listed<'a> {
    /// Selects series of any time.
    pub fn ever(matchers: &'a [Matcher]) -> Self {
        Self {
            matchers,
            from: Timestamp(i64::MIN),
            to: Timestamp(i64::MAX),
        }
    }
}

/// Series in the segments that existed when the process started.
#[derive(Debug, Default)]
pub(super) struct UnsealedSeries {
    series: RoaringBitmap,
    /// Time of the oldest sample.
    since: Option<Timestamp>,
}

impl Store {
    /// Labels of the selected series. May read the disk, like the other listings: call it where
    /// blocking is allowed.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn series(&self, listed: Listed<'_>) -> Result<Vec<Labels>, StoreError> {
        if let Some(engine) = self.remote() {
            return Ok(engine.series(listed)?);
        }
        self.own_series(listed)
    }

    /// Like [`series`](Self::series), of this store even if it [reads from](Self::read_from) an
    /// engine.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn own_series(&self, listed: Listed<'_>) -> Result<Vec<Labels>, StoreError> {
        self.listing(listed, |table, found| {
            found
                .iter()
                .map(|id| {
                    let mut labels = table.labels(SeriesId(id));
                    labels.remove(NATIVE_LABEL);
                    labels
                })
                .collect()
        })
    }

    /// Label names of the selected series, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn label_names(&self, listed: Listed<'_>) -> Result<Vec<String>, StoreError> {
        match self.remote() {
            Some(engine) => Ok(engine.label_names(listed)?),
            None => self.listing(listed, SeriesTable::label_names),
        }
    }

    /// Values of the label `name` on the selected series, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn label_values(&self, name: &str, listed: Listed<'_>) -> Result<Vec<String>, StoreError> {
        match self.remote() {
            Some(engine) => Ok(engine.label_values(name, listed)?),
            None => self.listing(listed, |table, found| table.label_values(name, found)),
        }
    }

    fn listing<T>(
        &self,
        listed: Listed<'_>,
        list: impl FnOnce(&SeriesTable, &RoaringBitmap) -> T,
    ) -> Result<T, StoreError> {
        let Listed { matchers, from, to } = listed;
        let active = match (from, to) {
            (Timestamp(i64::MIN), Timestamp(i64::MAX)) => None,
            _ => Some(self.active(from, to)?),
        };
        let table = self
            .shared
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut found = table.matching_with_histograms(matchers);
        if let Some(active) = active {
            found &= active;
        }
        Ok(list(&table, &found))
    }

    /// Returns the series that may have samples in `[from, to]`.
    fn active(&self, from: Timestamp, to: Timestamp) -> Result<RoaringBitmap, StoreError> {
        let layout = self.database().layout();
        let mut active = RoaringBitmap::new();
        let (inside, cut): (Vec<_>, Vec<_>) = layout
            .blocks
            .iter()
            .filter(|block| block.overlaps(from, to))
            .partition(|block| from <= block.facts.from && block.facts.to <= to);
        for block in inside {
            active |= &block.series;
        }
        for resolution in Resolution::ALL {
            let of_resolution = cut.iter().filter(|block| block.resolution == resolution);
            active |= self.within(&of_resolution.copied().collect::<Vec<_>>(), from, to)?;
        }

        let sealed = layout.blocks.iter().map(|block| block.facts.to).max();
        if sealed.is_some_and(|sealed| to <= sealed) {
            return Ok(active);
        }
        let began = self.shared.head.began();
        if began <= to {
            active |= self.shared.head.since(from);
        }
        // Samples from before this process are not in the head.
        if from < began {
            let UnsealedSeries { series, since } = self.unsealed()?;
            if since.is_some_and(|since| since <= to) {
                active |= series;
            }
        }
        Ok(active)
    }

    /// Returns the series with samples in `[from, to]` in blocks of one resolution, by their first and
    /// last rows. A block may be of weeks, and hold many jobs that ran at other times.
    fn within(
        &self,
        blocks: &[&Arc<Block>],
        from: Timestamp,
        to: Timestamp,
    ) -> Result<RoaringBitmap, StoreError> {
        let Some(first) = blocks.first() else {
            return Ok(RoaringBitmap::new());
        };
        let files = list_of(blocks.iter().map(|block| block.series_file()));
        // The row of an interval stands for samples from all of it.
        let row = first.resolution.milliseconds() - 1;
        let sql = format!(
            "SELECT series FROM read_parquet({files})
             WHERE epoch_ms(first_ts::TIMESTAMP) <= {} AND epoch_ms(last_ts::TIMESTAMP) >= {}",
            to.0.saturating_add(row),
            from.0.saturating_sub(row),
        );

        let db = self.database().connect()?;
        let read = || {
            let mut found = RoaringBitmap::new();
            for batch in db.prepare(&sql)?.query_arrow([])? {
                let series = batch.column(0).as_primitive::<Int32Type>().values();
                found.extend(series.iter().map(|id| id.cast_unsigned()));
            }
            Ok(found)
        };
        let found: Result<RoaringBitmap, duckdb::Error> = read();
        // A merge may have removed a file since. All series of the blocks are at most too many.
        Ok(found.unwrap_or_else(|_| {
            let mut all = RoaringBitmap::new();
            for block in blocks {
                all |= &block.series;
            }
            all
        }))
    }

    /// Returns the series in segments from before this process. One scan of at most an hour of
    /// samples finds them. Once that hour is sealed, the result lists too many series but is no
    /// longer used.
    fn unsealed(&self) -> Result<&UnsealedSeries, StoreError> {
        if let Some(known) = self.unsealed.get() {
            return Ok(known);
        }
        let db = self.database().connect()?;
        let scan = || {
            let mut found = UnsealedSeries::default();
            for segment in &self.database().layout().tables {
                let sql = format!(
                    "SELECT series, min(ts) FROM hot.{} GROUP BY series",
                    segment.table()
                );
                for batch in db.prepare(&sql)?.query_arrow([])? {
                    let series = batch.column(0).as_primitive::<Int32Type>().values();
                    found
                        .series
                        .extend(series.iter().map(|id| id.cast_unsigned()));
                    found.since = batch
                        .column(1)
                        .as_primitive::<TimestampMillisecondType>()
                        .values()
                        .iter()
                        .map(|&at| Timestamp(at))
                        .chain(found.since)
                        .min();
                }
            }
            Ok(found)
        };
        let mut found = scan().map_err(StoreError::sql("list the unsealed series"))?;
        for file in &self.database().layout().segments {
            let series = file.series().map_err(|source| StoreError::Directory {
                path: file.path().to_owned(),
                source,
            })?;
            found.series |= series;
            found.since = file
                .times()
                .map(|(first, _)| first)
                .into_iter()
                .chain(found.since)
                .min();
        }
        Ok(self.unsealed.get_or_init(|| found))
    }
}
