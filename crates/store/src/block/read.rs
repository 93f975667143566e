//! Reads samples from blocks.

use super::reading::never_falling;
use super::{Block, Reading, Resolution, list_of, metric_hash};
use crate::segments::instant;
use crate::{Meter, STALE, Sample, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::{Array, AsArray, StructArray};
use duckdb::arrow::datatypes::{Float64Type, Int32Type, TimestampMillisecondType};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use takt_model::Timestamp;

/// Maximum number of values in a SQL condition. With more, the condition is coarser, and the
/// results are filtered here.
const LISTED: u64 = 64;

/// Use of the block cache by a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// The metrics of the read blocks are cached.
    Metrics,
    /// Blocks are read past the cache.
    Nothing,
}

/// Selects samples by series and time.
#[derive(Debug)]
pub(crate) struct SampleSelection {
    pub series: RoaringBitmap,
    pub from: Timestamp,
    pub to: Timestamp,
    /// All series of the selected series' metrics.
    of_metrics: RoaringBitmap,
    /// Hashes of the metrics.
    metric_hashes: BTreeSet<i32>,
    /// Hashes of metrics that are counters, judged by their names.
    counters: BTreeSet<i32>,
    /// Column of down-sampled rows that replaces samples.
    pub reading: Reading,
    pub caching: Caching,
}

impl SampleSelection {
    pub fn new<'m>(
        series: &RoaringBitmap,
        of_metrics: RoaringBitmap,
        metrics: impl Iterator<Item = &'m str>,
        (from, to): (Timestamp, Timestamp),
        (reading, caching): (Reading, Caching),
    ) -> Self {
        let mut metric_hashes = BTreeSet::new();
        let mut counters = BTreeSet::new();

        for metric in metrics {
            metric_hashes.insert(metric_hash(metric));
            if ["_total", "_count", "_sum", "_bucket"]
                .iter()
                .any(|suffix| metric.ends_with(suffix))
            {
                counters.insert(metric_hash(metric));
            }
        }

        Self {
            series: series.clone(),
            from,
            to,
            of_metrics,
            metric_hashes,
            counters,
            reading,
            caching,
        }
    }

    /// All series of the selected metrics, including series that are not selected.
    pub fn of_metrics(&self) -> &RoaringBitmap {
        &self.of_metrics
    }

    /// Hashes of the selected metrics. Blocks are sorted by them.
    pub fn metric_hashes(&self) -> impl Iterator<Item = &i32> {
        self.metric_hashes.iter()
    }

    /// SQL condition that all selected rows satisfy. Other rows may satisfy it too.
    fn condition(&self, to: Timestamp) -> String {
        let mut sql = format!("{} AND {}", self.times(to), self.hot_series());
        if self.metric_hashes.len() as u64 <= LISTED {
            sql += &format!(" AND metric_hash IN ({})", list(self.metric_hashes.iter()));
        }
        sql
    }

    /// The same for segments, which have no column for the metric's hash.
    pub fn hot_condition(&self) -> String {
        format!("{} AND {}", self.times(self.to), self.hot_series())
    }

    fn times(&self, to: Timestamp) -> String {
        format!("ts >= {} AND ts <= {}", instant(self.from), instant(to))
    }

    fn hot_series(&self) -> String {
        let series = &self.series;
        match (series.min(), series.max()) {
            (Some(min), Some(max)) if series.len() > LISTED => {
                format!("series BETWEEN {min} AND {max}")
            }
            _ => format!("series IN ({})", list(series.iter())),
        }
    }

    /// SQL that reads files of a resolution: series, time, value, and for down-sampled rows the
    /// increase.
    fn select(&self, resolution: Resolution, files: &str) -> String {
        if resolution == Resolution::Raw {
            return format!(
                "SELECT series, ts::TIMESTAMP_MS, coalesce(mantissa / divisor, exact) FROM read_parquet({files})
                 WHERE {}",
                self.condition(self.to)
            );
        }

        let counters = if self.counters.is_empty() {
            "false".to_owned()
        } else {
            format!("metric_hash IN ({})", list(self.counters.iter()))
        };
        let interval = resolution.milliseconds();
        let steps = self.reading.steps(resolution);

        // A row stands at the end of its interval, so a row up to one interval later belongs to the range, too.
        format!(
            "SELECT series, ts::TIMESTAMP_MS, value, growth FROM (
                 SELECT series, ts - to_milliseconds(({interval} * step) // {steps}) AS ts, {} AS value, {} AS growth
                 FROM read_parquet({files}), unnest(range({steps})) AS steps(step) WHERE {}
             ) WHERE {}",
            self.reading.value(resolution, &counters),
            Reading::growth(resolution),
            self.condition(self.to.plus(Duration::from_millis(interval.unsigned_abs()))),
            self.times(self.to)
        )
    }
}

fn list(numbers: impl Iterator<Item = impl ToString>) -> String {
    numbers
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join(",")
}

/// Adds the selected samples of blocks of one resolution to `found`, unordered.
pub(crate) fn read_blocks(
    db: &Connection,
    blocks: &[&Arc<Block>],
    wanted: &SampleSelection,
    found: &mut HashMap<u32, Vec<Sample>>,
    meter: Meter<'_>,
) -> Result<(), StoreError> {
    let Some(first) = blocks.first() else {
        return Ok(());
    };
    let sql = wanted.select(
        first.resolution,
        &list_of(blocks.iter().map(|block| block.samples())),
    );
    whole(collect(db, &sql, &wanted.series, found, meter))
}

/// Adds values from down-sampled blocks to `found`, by resolution.
pub(crate) fn read_rows(
    db: &Connection,
    blocks: &[Vec<&Arc<Block>>],
    wanted: &SampleSelection,
    found: &mut HashMap<u32, Vec<Sample>>,
    meter: Meter<'_>,
) -> Result<(), StoreError> {
    if wanted.reading != Reading::Growth {
        return blocks
            .iter()
            .try_for_each(|blocks| read_blocks(db, blocks, wanted, found, meter));
    }

    let mut grown: HashMap<u32, Vec<(Timestamp, f64, f64)>> = HashMap::new();
    for blocks in blocks.iter().filter(|blocks| !blocks.is_empty()) {
        let sql = wanted.select(
            blocks[0].resolution,
            &list_of(blocks.iter().map(|block| block.samples())),
        );
        whole(each_series(
            db,
            &sql,
            &wanted.series,
            meter,
            |series, batch, rows| {
                let at = batch
                    .column(1)
                    .as_primitive::<TimestampMillisecondType>()
                    .values();
                let [value, growth] = [2, 3]
                    .map(|column| batch.column(column).as_primitive::<Float64Type>().values());
                grown
                    .entry(series)
                    .or_default()
                    .extend(rows.map(|row| (Timestamp(at[row]), value[row], growth[row])));
            },
        ))?;
    }

    for (series, mut rows) in grown {
        // The rows come by resolution, not by time.
        rows.sort_by_key(|&(at, ..)| at);
        found
            .entry(series)
            .or_default()
            .extend(never_falling(&rows));
    }

    Ok(())
}

fn whole(complete: Result<bool, duckdb::Error>) -> Result<(), StoreError> {
    if complete.map_err(StoreError::sql("read samples from blocks"))? {
        Ok(())
    } else {
        Err(StoreError::GivenUp)
    }
}

/// Adds the rows (series, ts, value) of a statement to `found`. Returns `false` if the meter
/// stopped the read.
pub(crate) fn collect(
    db: &Connection,
    sql: &str,
    wanted: &RoaringBitmap,
    found: &mut HashMap<u32, Vec<Sample>>,
    meter: Meter<'_>,
) -> Result<bool, duckdb::Error> {
    each_series(db, sql, wanted, meter, |series, batch, rows| {
        let at = batch
            .column(1)
            .as_primitive::<TimestampMillisecondType>()
            .values();
        let values = batch.column(2).as_primitive::<Float64Type>();
        found
            .entry(series)
            .or_default()
            .extend(rows.map(|row| Sample {
                at: Timestamp(at[row]),
                value: if values.is_null(row) {
                    STALE
                } else {
                    values.value(row)
                },
            }));
    })
}

/// Passes the rows of a statement to `add`, in runs of one selected series. The first column must
/// be the series.
fn each_series(
    db: &Connection,
    sql: &str,
    wanted: &RoaringBitmap,
    meter: Meter<'_>,
    mut each: impl FnMut(u32, &StructArray, Range<usize>),
) -> Result<bool, duckdb::Error> {
    let mut statement = db.prepare(sql)?;

    // The returned iterator panics if fetching fails; `step` does not.
    drop(statement.stream_arrow([])?);
    while let Some(batch) = statement.step()? {
        let mut taken = 0;
        let series = batch.column(0).as_primitive::<Int32Type>().values();
        let mut row = 0;

        while row < batch.len() {
            // In a block, the rows of one series are adjacent.
            let id = series[row];
            let end = row
                + series[row..]
                    .iter()
                    .take_while(|&&other| other == id)
                    .count();

            if wanted.contains(id.cast_unsigned()) {
                taken += end - row;
                each(id.cast_unsigned(), &batch, row..end);
            }
            row = end;
        }

        // The meter counts whole batches, so a query can exceed its limit by one of them.
        if !meter(taken) {
            return Ok(false);
        }
    }
    Ok(true)
}
