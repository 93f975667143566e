//! `hot.duckdb`: the one writer of samples, and reading them back.
//!
//! A commit costs one fsync whatever it holds, so all targets' samples of about a second go into one transaction, new
//! series before the samples that carry their numbers. What a commit cannot write stays in the queue.

use super::intake::Shared;
use super::metrics::Dropped;
use super::queue::{Batch, Work};
use super::series::{SeriesTable, from_columns};
use super::{STALE, Sample, SeriesId, StoreConfig, StoreError, is_stale};
use crate::error_chain;
use duckdb::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, RecordBatch, TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Schema, TimeUnit, TimestampMillisecondType};
use duckdb::{Connection, params};
use hashbrown::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use takt_model::Timestamp;
use tokio::sync::watch;

/// Whether samples reach the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// They do.
    #[default]
    Writing,
    /// They wait in the queue and are written once the reason is gone.
    Waiting(String),
    /// DuckDB is lost to this process: the owner must open the data directory anew.
    Invalidated(String),
}

/// How often old samples are looked for.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);

/// After a failed commit the next one is tried this many commit intervals later.
const RETRY_INTERVALS: u32 = 3;

/// The thread that commits samples.
pub(crate) struct Writer {
    pub db: Connection,
    pub directory: PathBuf,
    pub config: StoreConfig,
    pub shared: Arc<Shared>,
    pub health: watch::Sender<Health>,
    pub state: Written,
}

/// What the database has.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Series below this number.
    pub series: u32,
    /// The newest sample.
    pub newest: Option<Timestamp>,
    /// The newest samples of series that may be given once more: those with timestamps of their own, and those
    /// that were already ahead of the clock when the database was opened.
    pub last: HashMap<u32, Timestamp>,
    /// Up to here a sample may repeat one of `last`.
    pub ahead_until: Option<Timestamp>,
}

impl Writer {
    /// Commits until the queue is closed, then once more.
    pub fn run(mut self) {
        let mut next = Instant::now() + self.config.commit_interval();
        let mut next_retention = Instant::now();
        loop {
            let Work { batches, flush, is_closing } = self.shared.queue.wait(next);
            let began = Instant::now();
            let left = self.commit_or_keep(batches);
            let is_failing = !left.is_empty();
            if is_closing && is_failing {
                let samples: usize = left.iter().map(Batch::samples).sum();
                tracing::error!(samples, "samples could not be written before the end");
            }
            let dropped = self.shared.queue.done(flush, left);
            self.shared.metrics.drop_samples(Dropped::QueueFull, dropped);
            self.shared.metrics.watermark_seconds.set(self.shared.watermark.get().as_seconds());
            if is_closing {
                return;
            }
            if began >= next_retention && !is_failing {
                next_retention = began + RETENTION_INTERVAL;
                self.drop_old();
            }
            next = began + self.config.commit_interval() * if is_failing { RETRY_INTERVALS } else { 1 };
        }
    }

    /// Returns what could not be written.
    fn commit_or_keep(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        if batches.is_empty() || matches!(*self.health.borrow(), Health::Invalidated(_)) {
            return batches;
        }
        let began = Instant::now();
        let result = self.check_room().and_then(|()| self.commit(&batches));
        self.shared.metrics.commit(result.is_ok());
        match result {
            Ok(samples) => {
                self.shared.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
                self.shared.metrics.samples.inc_by(samples as u64);
                if self.health.send_if_modified(|health| std::mem::take(health) != Health::Writing) {
                    tracing::warn!("samples are written again");
                }
                Vec::new()
            }
            Err(error) => {
                self.report(&error);
                batches
            }
        }
    }

    /// Says once what is wrong; the retries that follow say nothing until it is something else.
    fn report(&self, error: &StoreError) {
        let reason = error_chain(error);
        let health = match error {
            StoreError::Invalidated { .. } => Health::Invalidated(reason.clone()),
            _ => Health::Waiting(reason.clone()),
        };
        let is_news = self.health.send_if_modified(|now| {
            let same_kind = std::mem::discriminant(now) == std::mem::discriminant(&health);
            if !same_kind {
                *now = health;
            }
            !same_kind
        });
        if is_news {
            tracing::error!(error = %reason, "samples cannot be written");
        }
    }

    fn check_room(&self) -> Result<(), StoreError> {
        let failed = |source| StoreError::Directory { path: self.directory.clone(), source };
        let disk = rustix::fs::statvfs(&self.directory).map_err(|error| failed(error.into()))?;
        let (free, floor) = (disk.f_bavail * disk.f_frsize, self.config.min_free_bytes);
        match free < floor {
            true => Err(StoreError::DiskLow { path: self.directory.clone(), free, floor }),
            false => Ok(()),
        }
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<usize, StoreError> {
        let mut transaction = || {
            self.db.execute_batch("BEGIN TRANSACTION")?;
            self.look_up_last(batches)?;
            let series = self.write_series()?;
            let (samples, last) = self.write_samples(batches)?;
            self.db.execute_batch("COMMIT")?;
            self.state.series = series;
            self.state.last.extend(last);
            Ok(samples)
        };
        transaction().map_err(|error| {
            // Where even this fails there is no transaction left to end.
            let _ = self.db.execute_batch("ROLLBACK");
            StoreError::sql("store samples")(error)
        })
    }

    /// Writes the series that the database does not have and returns how many there are then.
    fn write_series(&self) -> Result<u32, duckdb::Error> {
        let new: Vec<(u32, (String, String))> = {
            let table = self.shared.series.read().unwrap_or_else(PoisonError::into_inner);
            let end = u32::try_from(table.len()).expect("the table checks its numbers");
            (self.state.series..end).map(|id| (id, table.columns(SeriesId(id)))).collect()
        };
        let Some(&(newest, _)) = new.last() else { return Ok(self.state.series) };
        let mut appender = self.db.appender_to_catalog_and_db("series", "hot", "main")?;
        for (id, (metric, labels)) in &new {
            appender.append_row(params![id.cast_signed(), metric, labels])?;
        }
        appender.flush()?;
        Ok(newest + 1)
    }

    /// Returns how many samples were written, and the newest of those series that may be given once more.
    fn write_samples(&self, batches: &[Batch]) -> Result<(usize, HashMap<u32, Timestamp>), duckdb::Error> {
        let mut columns = Columns::with_capacity(batches.iter().map(Batch::samples).sum());
        let mut repeated = 0;
        for batch in batches {
            let at = batch.ticket.at();
            let may_repeat = self.state.ahead_until.is_some_and(|until| at <= until);
            for (&series, &value) in batch.series.iter().zip(&batch.values) {
                if may_repeat && self.state.last.get(&series).is_some_and(|&last| last >= at) {
                    repeated += 1;
                } else {
                    columns.push(series, Sample { at, value });
                }
            }
        }
        self.shared.metrics.drop_samples(Dropped::OutOfOrder, repeated);
        let mut newest: HashMap<u32, Timestamp> = HashMap::new();
        for &(SeriesId(series), sample) in batches.iter().flat_map(|batch| &batch.own_time) {
            let last = newest.get(&series).or_else(|| self.state.last.get(&series));
            if last.is_none_or(|&last| last < sample.at) {
                newest.insert(series, sample.at);
                columns.push(series, sample);
            }
        }
        let samples = columns.series.len();
        let mut appender = self.db.appender_to_catalog_and_db("samples", "hot", "main")?;
        appender.append_record_batch(columns.into_record_batch())?;
        // Dropping an appender hides its errors.
        appender.flush()?;
        Ok((samples, newest))
    }

    /// A page may repeat a sample with its own timestamp for days, across a restart too. So for a series that was not
    /// met yet the database is asked what it has.
    fn look_up_last(&mut self, batches: &[Batch]) -> Result<(), duckdb::Error> {
        let last = &mut self.state.last;
        let unknown =
            batches.iter().flat_map(|batch| &batch.own_time).filter(|(series, _)| !last.contains_key(&series.0));
        let unknown: Vec<(SeriesId, Timestamp)> = unknown.map(|&(series, sample)| (series, sample.at)).collect();
        let Some(oldest) = unknown.iter().map(|&(_, at)| at).min() else { return Ok(()) };
        let ids: Vec<SeriesId> = unknown.iter().map(|&(series, _)| series).collect();
        let sql = format!(
            "SELECT series, max(ts) FROM hot.samples WHERE ts >= {} AND series IN ({}) GROUP BY series",
            instant(oldest),
            list(&ids)
        );
        last.extend(read_newest(&self.db, &sql)?);
        Ok(())
    }

    /// Deletes samples older than the retention. The table is in order of time, so whole row groups go. Once samples
    /// are sealed into blocks, the sealer deletes here what it has verified, and retention unlinks blocks.
    fn drop_old(&self) {
        let before = Timestamp::from(SystemTime::now()).minus(self.config.retention());
        let deleted = self.db.execute(&format!("DELETE FROM hot.samples WHERE ts < {}", instant(before)), []);
        match deleted {
            Ok(0) => {}
            Ok(samples) => tracing::info!(samples, "deleted samples past their retention"),
            Err(error) => tracing::warn!(%error, "cannot delete old samples"),
        }
    }
}

#[derive(Debug)]
struct Columns {
    series: Vec<i32>,
    at: Vec<i64>,
    values: Vec<f64>,
    has_stale: bool,
}

impl Columns {
    fn with_capacity(samples: usize) -> Self {
        Self {
            series: Vec::with_capacity(samples),
            at: Vec::with_capacity(samples),
            values: Vec::with_capacity(samples),
            has_stale: false,
        }
    }

    #[inline]
    fn push(&mut self, series: u32, sample: Sample) {
        self.series.push(series.cast_signed());
        self.at.push(sample.at.0);
        self.values.push(sample.value);
        self.has_stale |= is_stale(sample.value);
    }

    fn into_record_batch(self) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("series", DataType::Int32, false),
            Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
            Field::new("value", DataType::Float64, true),
        ]);
        let values = match self.has_stale {
            true => self.values.iter().map(|&value| Some(value).filter(|&value| !is_stale(value))).collect(),
            false => Float64Array::from(self.values),
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(self.series)),
            Arc::new(TimestampMillisecondArray::from(self.at)),
            Arc::new(values),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).expect("three columns of one length and of the schema's types")
    }
}

/// Reads the series table, and up to where samples go.
pub(crate) fn load(db: &Connection, now: Timestamp) -> Result<(SeriesTable, Written), StoreError> {
    let failed = || StoreError::sql("read the stored series");
    let mut table = SeriesTable::default();
    let mut statement = db.prepare("SELECT id, metric, labels FROM hot.series ORDER BY id").map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    while let Some(row) = rows.next().map_err(failed())? {
        let columns = (|| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))();
        let (id, metric, labels): (u32, String, String) = columns.map_err(failed())?;
        let labels =
            from_columns(&metric, &labels).map_err(|source| StoreError::SeriesLabels { id: i64::from(id), source })?;
        table.restore(SeriesId(id), &labels);
    }
    let newest: Option<i64> =
        db.query_row("SELECT epoch_ms(max(ts)) FROM hot.samples", [], |row| row.get(0)).map_err(failed())?;
    let newest = newest.map(Timestamp);
    let ahead_until = newest.filter(|&newest| newest > now);
    let mut last = HashMap::new();
    if let Some(until) = ahead_until {
        tracing::warn!(%now, newest = %until, "the store has samples that are ahead of the clock");
        let sql = format!("SELECT series, max(ts) FROM hot.samples WHERE ts > {} GROUP BY series", instant(now));
        last.extend(read_newest(db, &sql).map_err(failed())?);
    }
    let series = u32::try_from(table.len()).expect("the table checks its numbers");
    Ok((table, Written { series, newest, last, ahead_until }))
}

/// The stored samples of `ids` in `[from, to]`, in order of series and time.
pub(crate) fn read_range(
    db: &Connection,
    ids: &[SeriesId],
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<(SeriesId, Sample)>, StoreError> {
    let failed = StoreError::sql("read samples");
    if ids.is_empty() || from > to {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT series, ts, value FROM hot.samples WHERE ts >= {} AND ts <= {} AND series IN ({}) ORDER BY series, ts",
        instant(from),
        instant(to),
        list(ids)
    );
    (|| {
        let mut found = Vec::new();
        for batch in db.prepare(&sql)?.query_arrow([])? {
            let series = batch.column(0).as_primitive::<Int32Type>().values();
            let at = batch.column(1).as_primitive::<TimestampMillisecondType>().values();
            let values = batch.column(2).as_primitive::<Float64Type>();
            found.extend((0..batch.num_rows()).map(|row| {
                let value = if values.is_null(row) { STALE } else { values.value(row) };
                (SeriesId(series[row].cast_unsigned()), Sample { at: Timestamp(at[row]), value })
            }));
        }
        Ok(found)
    })()
    .map_err(failed)
}

fn read_newest(db: &Connection, sql: &str) -> Result<Vec<(u32, Timestamp)>, duckdb::Error> {
    let mut newest = Vec::new();
    for batch in db.prepare(sql)?.query_arrow([])? {
        let series = batch.column(0).as_primitive::<Int32Type>().values();
        let at = batch.column(1).as_primitive::<TimestampMillisecondType>().values();
        newest.extend(series.iter().zip(at).map(|(&series, &at)| (series.cast_unsigned(), Timestamp(at))));
    }
    Ok(newest)
}

/// An instant as a literal of the column's own type, so that DuckDB can leave out row groups.
fn instant(at: Timestamp) -> String {
    // What DuckDB's epoch_ms takes: about the years -290,000 to 290,000.
    const LIMIT: i64 = 9_000_000_000_000_000;
    format!("epoch_ms({})::TIMESTAMP_MS", at.0.clamp(-LIMIT, LIMIT))
}

fn list(ids: &[SeriesId]) -> String {
    let mut out = String::with_capacity(8 * ids.len());
    for id in ids {
        let comma = if out.is_empty() { "" } else { "," };
        write!(out, "{comma}{}", id.0).expect("a string takes everything");
    }
    out
}
