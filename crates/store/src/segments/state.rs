//! State of the stored samples: read when the store opens, kept up to date by the writer.

use super::instant;
use crate::block::{Resolution, list_of};
use crate::layout::Layout;
use crate::series::SeriesTable;
use crate::unsealed::{ALL_TIME, Repeated, SegmentFile};
use crate::{Sample, SeriesId, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::AsArray;
use duckdb::arrow::datatypes::{Int32Type, TimestampMillisecondType};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Duration;
use takt_model::Timestamp;

/// The segment that the writer appends to.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub file: Arc<SegmentFile>,
    /// Number of samples in it.
    pub samples: u64,
    /// Time when its first sample was written.
    pub since: Option<Timestamp>,
    /// Time of its newest row.
    pub newest: Option<Timestamp>,
}

/// State of the stored samples.
#[derive(Debug, Default)]
pub(crate) struct WrittenState {
    /// The database has all series with numbers below this one.
    pub series: u32,
    /// Time of the newest sample.
    pub newest: Option<Timestamp>,
    /// By series: time of the newest sample that had a timestamp of its own. Targets repeat such
    /// samples.
    pub last: HashMap<u32, Timestamp>,
}

impl OpenSegment {
    /// Returns the state of the segment that the last process wrote to.
    pub fn of(file: Arc<SegmentFile>) -> Self {
        let times = file.times();
        Self {
            samples: file.samples(),
            since: times.map(|(first, _)| first),
            newest: times.map(|(_, last)| last),
            file,
        }
    }
}

/// Loads the series table, the state of the stored samples, and the samples that are ahead of the
/// clock.
pub(crate) fn load(
    db: &Connection,
    layout: &Layout,
    now: Timestamp,
) -> Result<(SeriesTable, WrittenState, Repeated), StoreError> {
    let failed = || StoreError::sql("load the stored series");
    let mut table = SeriesTable::default();

    let mut statement = db
        .prepare("SELECT id, metric, labels FROM hot.series ORDER BY id")
        .map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    while let Some(row) = rows.next().map_err(failed())? {
        let columns = (|| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))();
        let (id, metric, labels): (u32, String, String) = columns.map_err(failed())?;
        table
            .restore(SeriesId(id), &metric, &labels)
            .map_err(|source| StoreError::SeriesLabels {
                id: i64::from(id),
                source,
            })?;
    }

    let mut newest = layout.of(Resolution::Raw).map(|block| block.facts.to).max();
    for file in &layout.segments {
        newest = newest.max(file.times().map(|(_, last)| last));
    }
    for segment in &layout.tables {
        let sql = format!("SELECT epoch_ms(max(ts)) FROM hot.{}", segment.table());
        let found: Option<i64> = db.query_row(&sql, [], |row| row.get(0)).map_err(failed())?;
        newest = newest.max(found.map(Timestamp));
    }

    // When the clock reaches these times, scrapes may bring the same series and times again.
    let mut ahead = Repeated::default();
    if let Some(newest) = newest.filter(|&newest| newest > now) {
        tracing::warn!(%now, %newest, "the store has samples with timestamps ahead of the clock");
        for sql in all_after(layout, now) {
            for (series, at) in read_pairs(db, &sql).map_err(failed())? {
                ahead.0.entry(at).or_default().insert(series);
            }
        }

        // The range of a file includes its ends, and only later samples are ahead.
        let after = now.plus(Duration::from_millis(1));
        for file in &layout.segments {
            let failed = |source| StoreError::Directory {
                path: file.path().to_owned(),
                source,
            };
            let all = file.series().map_err(failed)?;

            let mut add = |series, samples: &[Sample]| {
                for sample in samples {
                    ahead.0.entry(sample.at).or_default().insert(series);
                }
                true
            };
            file.each(&all, (after, ALL_TIME.1), &mut add)
                .map_err(failed)?;
        }
    }

    let series = u32::try_from(table.len()).expect("the series table limits its numbers");
    Ok((
        table,
        WrittenState {
            series,
            newest,
            last: HashMap::new(),
        },
        ahead,
    ))
}

/// Returns SQL statements for the newest sample of each series since `from`: one per table, and one
/// for all blocks.
pub(super) fn newest_since(layout: &Layout, from: Timestamp, only: &str) -> Vec<String> {
    let segments = layout.tables.iter().map(|segment| {
        let table = segment.table();
        let from = instant(from);
        format!("SELECT series, max(ts) FROM hot.{table} WHERE ts >= {from}{only} GROUP BY series")
    });

    // A block's list of series has their last times, so its samples need not be read.
    let blocks: Vec<String> = layout
        .of(Resolution::Raw)
        .filter(|block| block.facts.to >= from)
        .map(|block| block.series_file())
        .collect();

    let sealed = (!blocks.is_empty()).then(|| {
        let files = list_of(blocks.into_iter());
        let from = instant(from);
        format!(
            "SELECT series, max(last_ts)::TIMESTAMP_MS FROM read_parquet({files})
             WHERE last_ts >= {from}{only} GROUP BY series"
        )
    });

    segments.chain(sealed).collect()
}

/// Returns SQL statements for the series and timestamps of all samples after `now`.
fn all_after(layout: &Layout, now: Timestamp) -> Vec<String> {
    let tables = layout
        .tables
        .iter()
        .map(|segment| format!("hot.{}", segment.table()));
    let blocks = layout
        .of(Resolution::Raw)
        .filter(|block| block.facts.to > now);
    let files = blocks.map(|block| format!("read_parquet({})", block.samples()));
    let select = |rows| {
        format!(
            "SELECT series, ts::TIMESTAMP_MS FROM {rows} WHERE ts > {}",
            instant(now)
        )
    };
    tables.chain(files).map(select).collect()
}

pub(super) fn read_pairs(
    db: &Connection,
    sql: &str,
) -> Result<Vec<(u32, Timestamp)>, duckdb::Error> {
    let mut newest = Vec::new();
    for batch in db.prepare(sql)?.query_arrow([])? {
        let series = batch.column(0).as_primitive::<Int32Type>().values();
        let at = batch
            .column(1)
            .as_primitive::<TimestampMillisecondType>()
            .values();
        newest.extend(
            series
                .iter()
                .zip(at)
                .map(|(&series, &at)| (series.cast_unsigned(), Timestamp(at))),
        );
    }
    Ok(newest)
}
