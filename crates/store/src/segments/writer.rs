//! Writes samples into segments: one thread, one transaction about every second.
//!
//! A commit costs one fsync whatever its size. The writer therefore commits the samples of all
//! targets in one transaction. New series come before the samples that carry their numbers.
//! Samples that a failed commit could not write return to the queue.

use super::Segment;
use super::state::{OpenSegment, WrittenState, newest_since, read_pairs};
use crate::block::metric_hash;
use crate::commit_count::CommitCount;
use crate::compactor::CompactionSignal;
use crate::free_space::check_free_space;
use crate::intake::SharedState;
use crate::metrics::DropReason;
use crate::queue::{Batch, QueuedWork};
use crate::{Clock, Database, Sample, SeriesId, StoreConfig, StoreError, is_stale};
use duckdb::arrow::array::{
    ArrayRef, Float64Array, Int32Array, RecordBatch, TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use duckdb::{Connection, params};
use hashbrown::HashMap;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use std::{fs, io};
use takt_model::Timestamp;
use takt_model::error_chain;
use tokio::sync::watch;

/// State of writing samples to disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// Samples are written.
    #[default]
    Writing,
    /// Samples wait in the queue until the error is resolved. Contains the error.
    Waiting(String),
    /// DuckDB cannot continue in this process; the owner must reopen the data directory. Contains
    /// the error.
    Invalidated(String),
}

/// Commit intervals to wait after a failed commit.
const RETRY_INTERVALS: u32 = 3;

/// The thread that commits samples.
pub(crate) struct SampleWriter {
    pub db: Connection,
    pub database: Arc<Database>,
    pub directory: PathBuf,
    /// Identity of the open database file ([`SampleWriter::file`]).
    pub file: Option<(u64, u64)>,
    pub config: StoreConfig,
    pub shared: Arc<SharedState>,
    pub health: watch::Sender<Health>,
    pub clock: Clock,
    /// Wakes the compactor when a segment is complete.
    pub signal: Arc<CompactionSignal>,
    pub segment: OpenSegment,
    pub commit_count: CommitCount,
    pub state: WrittenState,
}

impl SampleWriter {
    /// Commits until the queue is closed, then a last time.
    pub fn run(mut self) {
        let mut next = Instant::now() + self.config.commit_interval();
        loop {
            let QueuedWork {
                batches,
                flush,
                is_closing,
            } = self.shared.queue.wait(next);
            let began = Instant::now();
            let left = self.commit_or_keep(batches);
            let is_failing = !left.is_empty();
            if is_closing && is_failing {
                let samples: usize = left.iter().map(Batch::samples).sum();
                tracing::error!(samples, "samples could not be written before shutdown");
            }
            if !is_failing && !is_closing && self.segment.since.is_some() {
                let wants_segment_end = self.signal.take_segment_end_request();
                if wants_segment_end {
                    // The caller of `request_segment_end` also wakes the compactor and waits for
                    // its result.
                    self.begin_segment();
                } else if self.is_complete() {
                    self.begin_segment();
                    self.signal.segment_completed();
                }
            }
            let dropped = self.shared.queue.done(flush, left);
            self.shared
                .metrics
                .drop_samples(DropReason::QueueFull, dropped);
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

    /// Commits batches. Returns the batches that could not be written.
    fn commit_or_keep(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        if batches.is_empty() || matches!(*self.health.borrow(), Health::Invalidated(_)) {
            return batches;
        }
        let began = Instant::now();
        let room = check_free_space(&self.directory, self.config.min_free_bytes)
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

    /// Fails if the data directory was replaced: samples would go into a file that no path leads
    /// to.
    fn check_file(&self) -> Result<(), StoreError> {
        let failed = |source| StoreError::Directory {
            path: self.directory.clone(),
            source,
        };
        if Self::file(&self.directory).map_err(failed)? == self.file {
            Ok(())
        } else {
            Err(StoreError::Replaced {
                path: self.directory.clone(),
            })
        }
    }

    /// Returns device and inode of the sample file; `None` if it does not exist.
    ///
    /// # Errors
    /// If the directory cannot be read or does not exist.
    pub fn file(directory: &Path) -> io::Result<Option<(u64, u64)>> {
        fs::metadata(directory)?;
        let file = fs::metadata(directory.join("hot.duckdb"));
        Ok(file.ok().map(|file| (file.dev(), file.ino())))
    }

    /// Logs an error once. Repeated errors of the same kind are not logged.
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
            self.commit_count
                .note(self.segment.segment, self.segment.samples);
            if samples > 0 && self.segment.since.is_none() {
                self.segment.since = Some(self.clock.now());
            }
            Ok(samples)
        };
        transaction().map_err(|error| {
            // If the rollback fails too, no transaction is open.
            let _ = self.db.execute_batch("ROLLBACK");
            StoreError::sql("store samples")(error)
        })
    }

    /// Writes the series that the database does not have. Returns the number of stored series.
    fn write_series(&self) -> Result<u32, duckdb::Error> {
        let new: Vec<(u32, (String, String))> = {
            let table = self
                .shared
                .series
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let end = u32::try_from(table.len()).expect("the series table limits its numbers");
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

    /// Writes samples. Returns their number, and for samples with timestamps of their own the
    /// newest time by series.
    fn write_samples(
        &self,
        batches: &[Batch],
    ) -> Result<(usize, HashMap<u32, Timestamp>), duckdb::Error> {
        let mut columns = SampleColumns::with_capacity(batches.iter().map(Batch::samples).sum());
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
            .drop_samples(DropReason::OutOfOrder, repeated);
        let mut newest: HashMap<u32, Timestamp> = HashMap::new();
        for &(SeriesId(series), sample) in batches.iter().flat_map(|batch| &batch.own_time) {
            let last = newest.get(&series).or_else(|| self.state.last.get(&series));
            if last.is_none_or(|&last| last < sample.at) {
                newest.insert(series, sample.at);
                columns.push(series, sample);
            }
        }
        for &(SeriesId(series), sample) in batches.iter().flat_map(|batch| &batch.past) {
            columns.push(series, sample);
        }
        let samples = columns.series.len();
        let table = self.segment.segment.table();
        let mut appender = self.db.appender_to_catalog_and_db(&table, "hot", "main")?;
        appender.append_record_batch(columns.into_record_batch())?;
        // Dropping an appender would hide its errors.
        appender.flush()?;
        Ok((samples, newest))
    }

    /// Loads the newest stored time of series in `batches` that are not known yet. Targets repeat a
    /// sample with its own timestamp for days, also across restarts of this process.
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

    /// Returns whether the segment is old or large enough to be sealed.
    fn is_complete(&self) -> bool {
        let OpenSegment { samples, since, .. } = self.segment;
        let is_old =
            since.is_some_and(|since| self.clock.now() >= since.plus(self.config.seal_interval()));
        is_old || samples >= self.config.segment_samples()
    }

    /// Begins the next segment.
    fn begin_segment(&mut self) {
        let next = Segment(self.segment.segment.0 + 1);
        let made = self
            .db
            .execute_batch(&next.create())
            .map_err(StoreError::sql("create a table of samples"));
        let made = made.and_then(|()| {
            self.database.set_layout(|layout| {
                let mut layout = layout.clone();
                layout.segments.push(next);
                layout
            })
        });
        if let Err(error) = made {
            // The next commit tries again. Until then the segment grows.
            tracing::warn!(error = %error_chain(&error), "cannot begin a segment; the next commit tries again");
            return;
        }
        self.segment = OpenSegment {
            segment: next,
            samples: 0,
            since: None,
        };
        self.commit_count.note(next, 0);
        // DuckDB is least reliable at replaying a new table from its log, so write a checkpoint. A
        // reader may prevent it; that does no harm.
        if let Err(error) = self.db.execute_batch("CHECKPOINT hot") {
            tracing::debug!(%error, "cannot write a checkpoint after beginning a segment");
        }
    }
}

#[derive(Debug)]
struct SampleColumns {
    series: Vec<i32>,
    at: Vec<i64>,
    values: Vec<f64>,
    has_stale: bool,
}

impl SampleColumns {
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
        let values = if self.has_stale {
            self.values
                .iter()
                .map(|&value| Some(value).filter(|&value| !is_stale(value)))
                .collect()
        } else {
            Float64Array::from(self.values)
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

fn list(ids: &[SeriesId]) -> String {
    let mut out = String::with_capacity(8 * ids.len());
    for id in ids {
        let comma = if out.is_empty() { "" } else { "," };
        write!(out, "{comma}{}", id.0).expect("writing to a string cannot fail");
    }
    out
}
