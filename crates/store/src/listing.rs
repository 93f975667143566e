//! Which series, label names and label values there are.

use super::series::SeriesTable;
use super::{SeriesId, Store, StoreError};
use duckdb::arrow::array::AsArray;
use duckdb::arrow::datatypes::{Int32Type, TimestampMillisecondType};
use roaring::RoaringBitmap;
use std::sync::PoisonError;
use takt_model::Matcher;
use takt_model::{Labels, Timestamp};

/// Which series a listing is about: those that all matchers accept and that may have samples in `[from, to]`.
///
/// The time is as exact as blocks are, as in Prometheus: a series counts if it is in a block with samples of that time,
/// and before its samples are sealed if it was scraped since then.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// All of them must fit.
    pub matchers: &'a [Matcher],
    /// First instant, included.
    pub from: Timestamp,
    /// Last instant, included.
    pub to: Timestamp,
}

impl<'a> Listed<'a> {
    /// Whenever they had samples.
    pub fn ever(matchers: &'a [Matcher]) -> Self {
        Self {
            matchers,
            from: Timestamp(i64::MIN),
            to: Timestamp(i64::MAX),
        }
    }
}

/// What a process finds outside of blocks when it begins.
#[derive(Debug, Default)]
pub(super) struct Unsealed {
    series: RoaringBitmap,
    /// The oldest sample of it.
    since: Option<Timestamp>,
}

impl Store {
    /// The labels of these series. May read the disk, as the other listings do: call it where blocking is allowed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn series(&self, listed: Listed<'_>) -> Result<Vec<Labels>, StoreError> {
        self.listing(listed, |table, found| {
            found.iter().map(|id| table.labels(SeriesId(id))).collect()
        })
    }

    /// The names of the labels that these series have, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn label_names(&self, listed: Listed<'_>) -> Result<Vec<String>, StoreError> {
        self.listing(listed, SeriesTable::label_names)
    }

    /// The values that the label `name` has on these series, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    pub fn label_values(&self, name: &str, listed: Listed<'_>) -> Result<Vec<String>, StoreError> {
        self.listing(listed, |table, found| table.label_values(name, found))
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
        let mut found = table.matching(matchers);
        if let Some(active) = active {
            found &= active;
        }
        Ok(list(&table, &found))
    }

    /// The series that may have samples in `[from, to]`.
    fn active(&self, from: Timestamp, to: Timestamp) -> Result<RoaringBitmap, StoreError> {
        let layout = self.database().layout();
        let mut active = RoaringBitmap::new();
        for block in layout
            .blocks
            .iter()
            .filter(|block| block.overlaps(from, to))
        {
            active |= &block.series;
        }
        let sealed = layout.blocks.iter().map(|block| block.facts.to_ms).max();
        if sealed.is_some_and(|sealed| to.0 <= sealed) {
            return Ok(active);
        }
        let began = self.shared.head.began();
        if began <= to {
            active |= self.shared.head.since(from);
        }
        // What came before this process is not in the head.
        if from < began {
            let Unsealed { series, since } = self.unsealed()?;
            if since.is_some_and(|since| since <= to) {
                active |= series;
            }
        }
        Ok(active)
    }

    /// What was outside of blocks when this process began. Found out once, by a scan of at most the hour that is not
    /// sealed; it is too much once that hour is, and of no use then.
    fn unsealed(&self) -> Result<&Unsealed, StoreError> {
        if let Some(known) = self.unsealed.get() {
            return Ok(known);
        }
        let db = self.database().connect()?;
        let scan = || {
            let mut found = Unsealed::default();
            for segment in &self.database().layout().segments {
                let sql = format!(
                    "SELECT series, min(ts) FROM hot.{} GROUP BY series",
                    segment.table()
                );
                for batch in db.prepare(&sql)?.query_arrow([])? {
                    let series = batch.column(0).as_primitive::<Int32Type>().values();
                    found
                        .series
                        .extend(series.iter().map(|id| id.cast_unsigned()));
                    let first = batch
                        .column(1)
                        .as_primitive::<TimestampMillisecondType>()
                        .values();
                    found.since = first
                        .iter()
                        .map(|&at| Timestamp(at))
                        .chain(found.since)
                        .min();
                }
            }
            Ok(found)
        };
        let found = scan().map_err(StoreError::sql("list the series that are not sealed"))?;
        Ok(self.unsealed.get_or_init(|| found))
    }
}
