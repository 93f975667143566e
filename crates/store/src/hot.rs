//! `hot.duckdb`: the one writer of samples, and reading them back.
//!
//! Samples go into the newest segment; once that is old or large enough a new one is begun, and the keeper seals the
//! one before. A commit costs one fsync whatever it holds, so all targets' samples of about a second go into one transaction, new
//! series before the samples that carry their numbers. What a commit cannot write stays in the queue.

use super::block::{
    Block, Reading, Resolution, Wanted, collect, list_of, metric_hash, read_blocks, read_rows,
};
use super::intake::Shared;
use super::keeper::Bell;
use super::layout::Layout;
use super::metrics::Dropped;
use super::pieces::Pieces;
use super::queue::{Batch, Work};
use super::segment::Segment;
use super::series::{SeriesTable, from_columns};
use super::tally::Tally;
use super::{Clock, Database, Meter, Sample, SeriesId, StoreConfig, StoreError, is_stale};
use duckdb::arrow::array::{
    ArrayRef, AsArray, Float64Array, Int32Array, RecordBatch, TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{
    DataType, Field, Int32Type, Schema, TimeUnit, TimestampMillisecondType,
};
use duckdb::{Connection, params};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use std::{fs, io};
use takt_model::Timestamp;
use takt_model::error_chain;
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

/// After a failed commit the next one is tried this many commit intervals later.
const RETRY_INTERVALS: u32 = 3;

/// The thread that commits samples.
pub(crate) struct Writer {
    pub db: Connection,
    pub database: Arc<Database>,
    pub directory: PathBuf,
    /// The file that the database has open ([`Writer::file`]).
    pub file: Option<(u64, u64)>,
    pub config: StoreConfig,
    pub shared: Arc<Shared>,
    pub health: watch::Sender<Health>,
    pub clock: Clock,
    /// Rings when a segment is complete.
    pub bell: Arc<Bell>,
    pub segment: Open,
    pub tally: Tally,
    pub state: Written,
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Open {
    pub segment: Segment,
    /// How many samples it has.
    pub samples: u64,
    /// When the first of them came.
    pub since: Option<Timestamp>,
}

/// What the database has.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Series below this number.
    pub series: u32,
    /// The newest sample.
    pub newest: Option<Timestamp>,
    /// The newest samples with timestamps of their own, which pages repeat.
    pub last: HashMap<u32, Timestamp>,
    /// Which series had a sample at instants that were ahead of the clock when the database was opened: the clock had
    /// been wrong, and the instants come again.
    pub ahead: HashMap<Timestamp, RoaringBitmap>,
}

impl Writer {
    /// Commits until the queue is closed, then once more.
    pub fn run(mut self) {
        let mut next = Instant::now() + self.config.commit_interval();
        loop {
            let Work {
                batches,
                flush,
                is_closing,
            } = self.shared.queue.wait(next);
            let began = Instant::now();
            let left = self.commit_or_keep(batches);
            let is_failing = !left.is_empty();
            if is_closing && is_failing {
                let samples: usize = left.iter().map(Batch::samples).sum();
                tracing::error!(samples, "samples could not be written before the end");
            }
            if !is_failing && !is_closing && self.segment.since.is_some() {
                let is_wished = self.bell.take_wish();
                if is_wished {
                    // Whoever wished for it asks the keeper, too, and wants to hear what became of it.
                    self.begin_segment();
                } else if self.is_complete() {
                    self.begin_segment();
                    self.bell.ring();
                }
            }
            let dropped = self.shared.queue.done(flush, left);
            self.shared
                .metrics
                .drop_samples(Dropped::QueueFull, dropped);
            self.shared
                .metrics
                .watermark_seconds
                .set(self.shared.watermark.get().as_seconds());
            if is_closing {
                return;
            }
            next = began
                + self.config.commit_interval() * if is_failing { RETRY_INTERVALS } else { 1 };
        }
    }

    /// Returns what could not be written.
    fn commit_or_keep(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        if batches.is_empty() || matches!(*self.health.borrow(), Health::Invalidated(_)) {
            return batches;
        }
        let began = Instant::now();
        let room = check_room(&self.directory, self.config.min_free_bytes)
            .and_then(|()| self.check_file());
        let result = room.and_then(|()| self.commit(&batches));
        self.shared.metrics.commit(result.is_ok());
        match result {
            Ok(samples) => {
                self.shared
                    .metrics
                    .commit_seconds
                    .observe(began.elapsed().as_secs_f64());
                self.shared.metrics.samples.inc_by(samples as u64);
                if self
                    .health
                    .send_if_modified(|health| std::mem::take(health) != Health::Writing)
                {
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

    /// Whether the file in the data directory is still the one that is written to: where somebody put another directory in its
    /// place, samples would go to a file that nobody can open any more.
    fn check_file(&self) -> Result<(), StoreError> {
        let failed = |source| StoreError::Directory {
            path: self.directory.clone(),
            source,
        };
        match Self::file(&self.directory).map_err(failed)? == self.file {
            true => Ok(()),
            false => Err(StoreError::Replaced {
                path: self.directory.clone(),
            }),
        }
    }

    /// What tells the file of samples from any other; `None` where there is none.
    ///
    /// # Errors
    /// When the directory cannot be read, or is not there.
    pub fn file(directory: &Path) -> io::Result<Option<(u64, u64)>> {
        fs::metadata(directory)?;
        let file = fs::metadata(directory.join("hot.duckdb"));
        Ok(file.ok().map(|file| (file.dev(), file.ino())))
    }

    /// Says once what is wrong; the retries that follow say nothing until it is something else.
    fn report(&self, error: &StoreError) {
        let reason = error_chain(error);
        let health = match error {
            StoreError::Invalidated { .. } | StoreError::Replaced { .. } => {
                Health::Invalidated(reason.clone())
            }
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

    fn commit(&mut self, batches: &[Batch]) -> Result<usize, StoreError> {
        let mut transaction = || {
            self.db.execute_batch("BEGIN TRANSACTION")?;
            self.look_up_last(batches)?;
            let series = self.write_series()?;
            let (samples, last) = self.write_samples(batches)?;
            self.db.execute_batch("COMMIT")?;
            self.state.series = series;
            self.state.last.extend(last);
            self.segment.samples += samples as u64;
            self.tally.note(self.segment.segment, self.segment.samples);
            if samples > 0 && self.segment.since.is_none() {
                self.segment.since = Some(self.clock.now());
            }
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
            let table = self
                .shared
                .series
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let end = u32::try_from(table.len()).expect("the table checks its numbers");
            (self.state.series..end)
                .map(|id| (id, table.columns(SeriesId(id))))
                .collect()
        };
        let Some(&(newest, _)) = new.last() else {
            return Ok(self.state.series);
        };
        let mut appender = self
            .db
            .appender_to_catalog_and_db("series", "hot", "main")?;
        for (id, (metric, labels)) in &new {
            appender.append_row(params![
                id.cast_signed(),
                metric,
                labels,
                metric_hash(metric)
            ])?;
        }
        appender.flush()?;
        Ok(newest + 1)
    }

    /// Returns how many samples were written, and the newest of those series that may be given once more.
    fn write_samples(
        &self,
        batches: &[Batch],
    ) -> Result<(usize, HashMap<u32, Timestamp>), duckdb::Error> {
        let mut columns = Columns::with_capacity(batches.iter().map(Batch::samples).sum());
        let mut repeated = 0;
        for batch in batches {
            let at = batch.ticket.at();
            let taken = self.state.ahead.get(&at);
            for (&series, &value) in batch.series.iter().zip(&batch.values) {
                if taken.is_some_and(|taken| taken.contains(series)) {
                    repeated += 1;
                } else {
                    columns.push(series, Sample { at, value });
                }
            }
        }
        self.shared
            .metrics
            .drop_samples(Dropped::OutOfOrder, repeated);
        let mut newest: HashMap<u32, Timestamp> = HashMap::new();
        for &(SeriesId(series), sample) in batches.iter().flat_map(|batch| &batch.own_time) {
            let last = newest.get(&series).or_else(|| self.state.last.get(&series));
            if last.is_none_or(|&last| last < sample.at) {
                newest.insert(series, sample.at);
                columns.push(series, sample);
            }
        }
        let samples = columns.series.len();
        let table = self.segment.segment.table();
        let mut appender = self.db.appender_to_catalog_and_db(&table, "hot", "main")?;
        appender.append_record_batch(columns.into_record_batch())?;
        // Dropping an appender hides its errors.
        appender.flush()?;
        Ok((samples, newest))
    }

    /// A page may repeat a sample with its own timestamp for days, across a restart too. So for a series that was not
    /// met yet the database is asked what it has.
    fn look_up_last(&mut self, batches: &[Batch]) -> Result<(), duckdb::Error> {
        let last = &mut self.state.last;
        let unknown = batches
            .iter()
            .flat_map(|batch| &batch.own_time)
            .filter(|(series, _)| !last.contains_key(&series.0));
        let unknown: Vec<(SeriesId, Timestamp)> = unknown
            .map(|&(series, sample)| (series, sample.at))
            .collect();
        let Some(oldest) = unknown.iter().map(|&(_, at)| at).min() else {
            return Ok(());
        };
        let ids: Vec<SeriesId> = unknown.iter().map(|&(series, _)| series).collect();
        let only = format!(" AND series IN ({})", list(&ids));
        for sql in newest_since(&self.database.layout(), oldest, &only) {
            for (series, at) in read_pairs(&self.db, &sql)? {
                let known = last.entry(series).or_insert(at);
                *known = at.max(*known);
            }
        }
        Ok(())
    }

    /// Whether the segment is old or large enough.
    fn is_complete(&self) -> bool {
        let Open { samples, since, .. } = self.segment;
        let is_old =
            since.is_some_and(|since| self.clock.now() >= since.plus(self.config.seal_interval()));
        is_old || samples >= self.config.segment_samples()
    }

    /// What was committed so far is complete; what comes goes into the next segment.
    fn begin_segment(&mut self) {
        let next = Segment(self.segment.segment.0 + 1);
        let made = self
            .db
            .execute_batch(&next.create())
            .map_err(StoreError::sql("begin a table of samples"));
        let made = made.and_then(|()| {
            self.database.set_layout(|layout| {
                let mut layout = layout.clone();
                layout.segments.push(next);
                layout
            })
        });
        if let Err(error) = made {
            // It is tried again after the next commit; until then the table just grows.
            tracing::warn!(error = %error_chain(&error), "cannot begin a segment");
            return;
        }
        self.segment = Open {
            segment: next,
            samples: 0,
            since: None,
        };
        self.tally.note(next, 0);
        // A new table in the log is what DuckDB is worst at reading back. Where a reader is in the way there is no harm.
        if let Err(error) = self.db.execute_batch("CHECKPOINT hot") {
            tracing::debug!(%error, "no checkpoint after a new segment");
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
            Field::new(
                "ts",
                DataType::Timestamp(TimeUnit::Millisecond, None),
                false,
            ),
            Field::new("value", DataType::Float64, true),
        ]);
        let values = match self.has_stale {
            true => self
                .values
                .iter()
                .map(|&value| Some(value).filter(|&value| !is_stale(value)))
                .collect(),
            false => Float64Array::from(self.values),
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(self.series)),
            Arc::new(TimestampMillisecondArray::from(self.at)),
            Arc::new(values),
        ];
        RecordBatch::try_new(Arc::new(schema), columns)
            .expect("three columns of one length and of the schema's types")
    }
}

/// Whether the disk has more free than the floor.
pub(crate) fn check_room(directory: &Path, floor: u64) -> Result<(), StoreError> {
    let failed = |source| StoreError::Directory {
        path: directory.to_owned(),
        source,
    };
    let disk = rustix::fs::statvfs(directory).map_err(|error| failed(error.into()))?;
    match disk.f_bavail * disk.f_frsize {
        free if free < floor => Err(StoreError::DiskLow {
            path: directory.to_owned(),
            free,
            floor,
        }),
        _ => Ok(()),
    }
}

/// Reads the series table, and up to where samples go.
pub(crate) fn load(
    db: &Connection,
    layout: &Layout,
    now: Timestamp,
) -> Result<(SeriesTable, Written), StoreError> {
    let failed = || StoreError::sql("read the stored series");
    let mut table = SeriesTable::default();
    let mut statement = db
        .prepare("SELECT id, metric, labels FROM hot.series ORDER BY id")
        .map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    while let Some(row) = rows.next().map_err(failed())? {
        let columns = (|| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))();
        let (id, metric, labels): (u32, String, String) = columns.map_err(failed())?;
        let labels = from_columns(&metric, &labels).map_err(|source| StoreError::SeriesLabels {
            id: i64::from(id),
            source,
        })?;
        table.restore(SeriesId(id), &labels);
    }
    let mut newest = layout
        .of(Resolution::Raw)
        .map(|block| Timestamp(block.facts.to_ms))
        .max();
    for segment in &layout.segments {
        let sql = format!("SELECT epoch_ms(max(ts)) FROM hot.{}", segment.table());
        let found: Option<i64> = db.query_row(&sql, [], |row| row.get(0)).map_err(failed())?;
        newest = newest.max(found.map(Timestamp));
    }
    let mut ahead: HashMap<Timestamp, RoaringBitmap> = HashMap::new();
    if let Some(newest) = newest.filter(|&newest| newest > now) {
        tracing::warn!(%now, %newest, "the store has samples that are ahead of the clock");
        for sql in all_after(layout, now) {
            for (series, at) in read_pairs(db, &sql).map_err(failed())? {
                ahead.entry(at).or_default().insert(series);
            }
        }
    }
    let series = u32::try_from(table.len()).expect("the table checks its numbers");
    Ok((
        table,
        Written {
            series,
            newest,
            last: HashMap::new(),
            ahead,
        },
    ))
}

/// The segment that is written to, as it was left.
pub(crate) fn open_segment(db: &Connection, segment: Segment) -> Result<Open, StoreError> {
    let sql = format!(
        "SELECT count(*), epoch_ms(min(ts)) FROM hot.{}",
        segment.table()
    );
    let (samples, oldest): (i64, Option<i64>) = db
        .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(StoreError::sql("count samples"))?;
    Ok(Open {
        segment,
        samples: samples.cast_unsigned(),
        since: oldest.map(Timestamp),
    })
}

/// Statements that give the newest sample of each series that has one since `from`, wherever it is.
fn newest_since(layout: &Layout, from: Timestamp, only: &str) -> Vec<String> {
    let segments = layout.segments.iter().map(|segment| {
        let (table, from) = (segment.table(), instant(from));
        format!("SELECT series, max(ts) FROM hot.{table} WHERE ts >= {from}{only} GROUP BY series")
    });
    let blocks: Vec<String> = layout
        .of(Resolution::Raw)
        .filter(|block| block.facts.to_ms >= from.0)
        .map(|block| block.series_file())
        .collect();
    let sealed = (!blocks.is_empty()).then(|| {
        let (files, from) = (list_of(blocks.into_iter()), instant(from));
        format!("SELECT series, max(last_ts)::TIMESTAMP_MS FROM read_parquet({files}) WHERE last_ts >= {from}{only} GROUP BY series")
    });
    segments.chain(sealed).collect()
}

/// Statements that give the series and the instant of every sample after `now`.
fn all_after(layout: &Layout, now: Timestamp) -> Vec<String> {
    let tables = layout
        .segments
        .iter()
        .map(|segment| format!("hot.{}", segment.table()));
    let blocks = layout
        .of(Resolution::Raw)
        .filter(|block| block.facts.to_ms > now.0);
    let files = blocks.map(|block| format!("read_parquet({})", block.samples()));
    let select = |rows| {
        format!(
            "SELECT series, ts::TIMESTAMP_MS FROM {rows} WHERE ts > {}",
            instant(now)
        )
    };
    tables.chain(files).map(select).collect()
}

/// The samples of `wanted` from everywhere on disk, each series in order of time.
pub(crate) fn read_range(
    db: &Connection,
    layout: &Layout,
    pieces: &Pieces,
    wanted: &Wanted,
    meter: Meter<'_>,
) -> Result<HashMap<u32, Vec<Sample>>, StoreError> {
    let mut found = HashMap::new();
    if wanted.series.is_empty() || wanted.from > wanted.to {
        return Ok(found);
    }
    let is_asked = |block: &&Arc<Block>| {
        block.overlaps(wanted.from, wanted.to) && !block.series.is_disjoint(&wanted.series)
    };
    let asked = |resolution| {
        layout
            .answering(resolution)
            .filter(is_asked)
            .collect::<Vec<_>>()
    };
    read_rows(
        db,
        &[Resolution::Hour, Resolution::FiveMinutes].map(asked),
        wanted,
        &mut found,
        meter,
    )?;
    let unknown = pieces.read(db, asked(Resolution::Raw), wanted, &mut found, meter)?;
    read_blocks(db, &unknown, wanted, &mut found, meter)?;
    for segment in &layout.segments {
        let sql = format!(
            "SELECT series, ts, value FROM hot.{} WHERE {}",
            segment.table(),
            wanted.hot_condition()
        );
        let complete = collect(db, &sql, &wanted.series, &mut found, meter);
        if !complete.map_err(StoreError::sql("read samples"))? {
            return Err(StoreError::GivenUp);
        }
    }
    for samples in found.values_mut() {
        put_in_order(samples, wanted.reading);
    }
    Ok(found)
}

/// Puts samples that were read from the earlier blocks to the later ones into the order of time, each instant once.
fn put_in_order(samples: &mut Vec<Sample>, reading: Reading) {
    if samples.is_sorted_by(|one, next| one.at < next.at) {
        return;
    }
    samples.sort_by_key(|sample| sample.at);
    if reading != Reading::Count {
        samples.dedup_by(|next, kept| {
            next.at == kept.at && {
                kept.value = reading.join(kept.value, next.value);
                true
            }
        });
    }
}

fn read_pairs(db: &Connection, sql: &str) -> Result<Vec<(u32, Timestamp)>, duckdb::Error> {
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

/// An instant as a literal of the column's own type, so that DuckDB can leave out row groups.
pub(crate) fn instant(at: Timestamp) -> String {
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
