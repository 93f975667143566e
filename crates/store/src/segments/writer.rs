//! Writes samples to disk: one thread, one commit about every second.
//!
//! A commit costs one fsync whatever its size. The writer therefore appends the samples of all
//! targets to the log at once. New series come before the samples that carry their numbers.
//! Samples that a failed commit could not write return to the queue.

use super::Segment;
use super::state::{OpenSegment, WrittenState, newest_since, read_pairs};
use crate::block::metric_hash;
use crate::compactor::CompactionSignal;
use crate::config::SEGMENT_SAMPLES;
use crate::free_space::check_free_space;
use crate::intake::SharedState;
use crate::metrics::DropReason;
use crate::migrate::HOT;
use crate::queue::{Batch, QueuedWork};
use crate::unsealed::{ALL_TIME, CommitPosition, Coverage, LogWriter, LooseBatch, SegmentFile};
use crate::{Clock, Database, Sample, SeriesId, StoreConfig, StoreError};
use duckdb::{Connection, params};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
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

/// Distance of a row from the newest one of its segment from which on it begins a segment, in
/// milliseconds. If the clock is set, a block must not have samples of both times: its day would be
/// merged, copied into the data lake and expire only with the later one.
const APART_MS: i64 = 86_400_000;

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
    pub log: LogWriter,
    pub position: CommitPosition,
    /// Newest row of each group that is in a synced file.
    pub covered: Coverage,
    /// The segment before, while a part of it could not be written.
    pub unfinished: Option<UnfinishedSegment>,
    pub state: WrittenState,
    /// When DuckDB was last asked whether it still works.
    pub checked: Option<Instant>,
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
            let left = self.commit_by_time(batches);
            let is_failing = !left.is_empty();
            if is_closing && is_failing {
                let samples: usize = left.iter().map(Batch::samples).sum();
                tracing::error!(samples, "samples could not be written before shutdown");
            }

            if !is_failing && self.unfinished.is_some() && self.finish_segment() {
                self.signal.segment_completed();
            }

            if !is_failing
                && !is_closing
                && self.segment.since.is_some()
                && self.unfinished.is_none()
            {
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

            if is_failing {
                let limit = usize::try_from(self.config.queue_limit_mib << 20);
                self.segment.file.shed(limit.unwrap_or(usize::MAX));
            } else if self.unfinished.is_none() {
                // Later chunks of a group without its earlier ones would hide rows of the logs.
                self.keep_chunks();
            }

            if is_closing && !is_failing {
                self.finish();
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

    /// Commits batches; those of another time than the segment's go into the next one. Returns the
    /// batches that could not be written.
    fn commit_by_time(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        let newest = self.segment.newest;
        let is_apart = |batch: &Batch| {
            newest.is_some_and(|newest| (batch.ticket.at() - newest).abs() > APART_MS)
        };
        let (apart, near): (Vec<_>, Vec<_>) = batches.into_iter().partition(is_apart);
        let mut left = self.commit_or_keep(near);
        if apart.is_empty() || !left.is_empty() {
            left.extend(apart);
            return left;
        }

        if self.unfinished.is_none() {
            self.begin_segment();
            self.signal.segment_completed();
        }
        self.commit_or_keep(apart)
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
        let stored = |error| StoreError::sql("store series")(error);
        self.look_up_last(batches)?;
        self.write_series().map_err(stored)?;

        let (loose, newest) = self.new_loose(batches);
        let rows = self.new_rows(batches);
        let loose_samples: usize = loose.iter().map(|batch| batch.len()).sum();
        let samples = loose_samples + rows.iter().map(|row| row.series.len()).sum::<usize>();

        let written = rows
            .iter()
            .map(|row| (row.group, row.at, &*row.series, &*row.values));
        self.log
            .append(self.segment.file.segment, written, &loose)
            .map_err(|source| StoreError::Log { source })?;

        if let Some((number, bytes)) = self.log.position() {
            self.position.note_log(number, bytes);
        }
        self.segment.file.add_loose(&loose);

        for batch in batches {
            batch
                .committed
                .store(batch.ticket.at().0, Ordering::Release);
        }

        self.state.last.extend(newest);
        self.segment.samples += samples as u64;

        if samples > 0 {
            self.segment.since.get_or_insert_with(|| self.clock.now());
            let rows = batches.iter().map(|batch| batch.ticket.at());
            self.segment.newest = self.segment.newest.max(rows.max());
        }
        Ok(samples)
    }

    /// Returns the rows of batches without repeated samples.
    fn new_rows<'b>(&self, batches: &'b [Batch]) -> Vec<NewRow<'b>> {
        let known = self.shared.unsealed.repeated();
        let mut repeated = 0;
        let mut rows = Vec::with_capacity(batches.len());
        // Past samples have no row.
        for batch in batches.iter().filter(|batch| batch.past.is_empty()) {
            let at = batch.ticket.at();
            let is_new = |series: &u32| !known.has(at, *series);

            let row = if known.0.is_empty() || batch.series.iter().all(is_new) {
                NewRow {
                    group: batch.group,
                    at,
                    series: Cow::Borrowed(&batch.series),
                    values: Cow::Borrowed(&batch.values),
                }
            } else {
                let pairs = batch.series.iter().zip(&batch.values);
                let (series, values): (Vec<u32>, Vec<f64>) =
                    pairs.filter(|(series, _)| is_new(series)).unzip();
                repeated += batch.series.len() - series.len();
                NewRow {
                    group: batch.group,
                    at,
                    series: series.into(),
                    values: values.into(),
                }
            };

            rows.push(row);
        }

        self.shared
            .metrics
            .drop_samples(DropReason::OutOfOrder, repeated);
        rows
    }

    /// Returns the samples with timestamps of their own that are not stored yet, and the newest
    /// time of each series.
    fn new_loose(&self, batches: &[Batch]) -> (Vec<LooseBatch>, HashMap<u32, Timestamp>) {
        let mut loose = Vec::new();
        let mut newest: HashMap<u32, Timestamp> = HashMap::new();
        for &(SeriesId(series), sample) in batches.iter().flat_map(|batch| &batch.own_time) {
            let last = newest.get(&series).or_else(|| self.state.last.get(&series));
            if last.is_none_or(|&last| last < sample.at) {
                newest.insert(series, sample.at);
                loose.push((series, sample));
            }
        }
        let past = batches.iter().map(|batch| &batch.past);
        let past = past.filter(|batch| !batch.is_empty()).cloned();
        let loose = (!loose.is_empty()).then(|| Arc::new(loose.into()));
        (loose.into_iter().chain(past).collect(), newest)
    }

    /// Writes the series that the database does not have.
    fn write_series(&mut self) -> Result<(), duckdb::Error> {
        let read = || {
            let series = self.shared.series.read();
            series.unwrap_or_else(PoisonError::into_inner)
        };
        let end = u32::try_from(read().len()).expect("the series table limits its numbers");

        if self.state.series == end {
            // A fatal error elsewhere must not stay unnoticed until a new series appears. Pushed
            // requests commit many times in an interval; one check is enough.
            let interval = self.config.commit_interval();
            if self.checked.is_none_or(|at| at.elapsed() >= interval) {
                self.db.execute_batch("SELECT id FROM hot.series LIMIT 0")?;
                self.checked = Some(Instant::now());
            }
            return Ok(());
        }

        let mut appender = self
            .db
            .appender_to_catalog_and_db("series", "hot", "main")?;
        for id in self.state.series..end {
            // Locked for one series: its text is long, and DuckDB may take its time.
            let (metric, labels) = read().columns(SeriesId(id));
            appender.append_row(params![
                id.cast_signed(),
                metric,
                labels,
                metric_hash(&metric)
            ])?;
        }

        // Dropping an appender would hide its errors.
        appender.flush()?;
        drop(appender);
        self.state.series = end;
        Ok(())
    }

    /// Loads the newest stored time of series in `batches` that are not known yet. Targets repeat a
    /// sample with its own timestamp for days, also across restarts of this process.
    fn look_up_last(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
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
        let layout = self.database.layout();

        for sql in newest_since(&layout, oldest, &only) {
            let found = read_pairs(&self.db, &sql);
            for (series, at) in found.map_err(StoreError::sql("find the newest samples"))? {
                let known = last.entry(series).or_insert(at);
                *known = at.max(*known);
            }
        }

        let wanted: RoaringBitmap = ids.iter().map(|series| series.0).collect();
        for file in &layout.segments {
            let mut add = |series, samples: &[Sample]| {
                if let Some(sample) = samples.last() {
                    let known = last.entry(series).or_insert(sample.at);
                    *known = sample.at.max(*known);
                }
                true
            };
            file.each(&wanted, (oldest, ALL_TIME.1), &mut add)
                .map_err(|source| StoreError::Log { source })?;
        }
        Ok(())
    }

    /// Returns whether the segment is old or large enough to be sealed.
    fn is_complete(&self) -> bool {
        let OpenSegment { samples, since, .. } = self.segment;
        let is_old =
            since.is_some_and(|since| self.clock.now() >= since.plus(self.config.seal_interval()));
        is_old || samples >= SEGMENT_SAMPLES
    }

    /// Begins the next segment: all samples so far belong to the one before.
    fn begin_segment(&mut self) {
        let next = Segment(self.segment.file.segment.0 + 1);

        let created = self.shared.unsealed.create(next);
        let made = created.map_err(|source| StoreError::Log { source });
        let made = made.and_then(|file| {
            let added = Arc::clone(&file);
            self.database.set_layout(|layout| {
                let mut layout = layout.clone();
                layout.segments.push(added);
                layout
            })?;
            Ok(file)
        });

        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // The next commit tries again. Until then the segment grows.
                self.shared.unsealed.note_failure(error_chain(&error));
                tracing::warn!(error = %error_chain(&error), "cannot begin a segment; the next commit tries again");
                return;
            }
        };

        self.shared.unsealed.seal_open_chunks();
        self.log.end();
        self.unfinished = Some(UnfinishedSegment {
            file: self.shared.unsealed.switch(Arc::clone(&file)),
            log: self.log.number(),
        });

        self.segment = OpenSegment {
            file,
            samples: 0,
            since: None,
            newest: None,
        };

        self.finish_segment();
        // DuckDB's log has the series.
        if let Err(error) = self.database.checkpoint(&HOT) {
            let error = error_chain(&error);
            tracing::debug!(error, "cannot write a checkpoint after beginning a segment");
        }
    }

    /// Writes the rest of the segment before the current one, so that it can be sealed. Returns
    /// whether that is done.
    fn finish_segment(&mut self) -> bool {
        let Some(UnfinishedSegment { file, log }) = self.unfinished.clone() else {
            return true;
        };

        let repeated = self.shared.unsealed.repeated();
        let mut finish = || {
            file.persist(repeated)?;
            file.persist_loose(log)?;
            let mut covered = self.covered.clone();
            covered.add(&file.sync()?.covered);
            covered.retain_run(self.shared.unsealed.run());
            // If this segment is sealed and deleted before the logs are, they must not be read
            // again.
            let current = &self.segment.file;
            current.note_coverage(&covered)?;
            let synced = current.sync()?;
            self.position.sync_chunks(current.segment, synced.length)?;
            Ok::<_, io::Error>(covered)
        };

        match finish() {
            Ok(covered) => self.covered = covered,
            Err(error) => {
                tracing::warn!(%error, "cannot complete a segment; the next commit tries again");
                self.shared.unsealed.note_failure(error.to_string());
                return false;
            }
        }

        self.log.delete_covered(&self.covered, log);
        file.complete();
        self.unfinished = None;
        self.shared.unsealed.note_failure(String::new());
        true
    }

    /// Writes the chunks that the head has sealed, and deletes logs whose rows are in chunks.
    fn keep_chunks(&mut self) {
        if let Err(error) = self.try_keep_chunks() {
            tracing::debug!(%error, "cannot write chunks of samples; the next commit tries again");
        }
    }

    fn try_keep_chunks(&mut self) -> io::Result<()> {
        let file = &self.segment.file;
        file.persist(self.shared.unsealed.repeated())?;
        if self.log.is_full() {
            self.log.end();
            file.persist_loose(self.log.number())?;
            self.delete_logs()?;
        }
        Ok(())
    }

    /// Syncs the segment's file, which has all loose samples, and deletes the logs whose rows are in
    /// synced files. Returns whether none of them is left.
    fn delete_logs(&mut self) -> io::Result<bool> {
        let file = &self.segment.file;
        let synced = file.sync()?;
        self.covered.add(&synced.covered);
        self.position.sync_chunks(file.segment, synced.length)?;
        Ok(self.log.delete_covered(&self.covered, self.log.number()))
    }

    /// Moves everything from the logs into chunks.
    fn finish(&mut self) {
        self.shared.unsealed.seal_open_chunks();
        self.log.end();
        if !self.finish_segment() {
            return;
        }
        let file = &self.segment.file;
        let written = file
            .persist(self.shared.unsealed.repeated())
            .and_then(|()| file.persist_loose(self.log.number()))
            .and_then(|()| self.delete_logs());
        match written {
            Ok(true) => self.shared.unsealed.end_in_order(),
            Ok(false) => {}
            // The next start reads the logs.
            Err(error) => tracing::warn!(%error, "cannot write the last chunks of samples"),
        }
    }
}

/// A segment that gets no more samples, and is not on disk yet.
#[derive(Clone)]
pub(crate) struct UnfinishedSegment {
    file: Arc<SegmentFile>,
    /// Number of the newest log with its samples.
    log: u32,
}

/// A row for the log.
struct NewRow<'b> {
    group: u32,
    at: Timestamp,
    series: Cow<'b, [u32]>,
    values: Cow<'b, [f64]>,
}

fn list(ids: &[SeriesId]) -> String {
    let mut out = String::with_capacity(8 * ids.len());
    for id in ids {
        let comma = if out.is_empty() { "" } else { "," };
        write!(out, "{comma}{}", id.0).expect("writing to a string cannot fail");
    }
    out
}
