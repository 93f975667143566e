//! Writing samples into the store.

use super::exemplars::Exemplars;
use super::head::{Column, GroupRows, Head, is_stale};
use super::metrics::{DropReason, StoreMetrics};
use super::queue::{Batch, Queue};
use super::series::SeriesTable;
use super::unsealed::Unsealed;
use super::watermark::Watermark;
use super::{ClockWentBack, Sample, SeriesId, Ticket};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use takt_model::exposition::Exemplar;
use takt_model::{Labels, Timestamp};

/// How far a sample's own timestamp may be ahead of the scrape, as in Prometheus.
const OWN_TIME_AHEAD: Duration = Duration::from_secs(600);

/// State shared by readers and writers of samples.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub series: RwLock<SeriesTable>,
    pub head: Head,
    pub watermark: Arc<Watermark>,
    pub queue: Queue,
    pub unsealed: Arc<Unsealed>,
    pub exemplars: Exemplars,
    pub metrics: StoreMetrics,
    pub retention: Duration,
}

impl SharedState {
    /// Returns the number of the series with these labels. A new series gets one.
    pub fn series_number(&self, labels: &Labels) -> SeriesId {
        let mut table = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let series = table.intern(labels);
        self.metrics.series.set(table.len() as i64);
        series
    }
}

/// Series that are written together, such as the series of one target. Each write adds a row with
/// one timestamp.
#[derive(Debug)]
pub struct Group {
    pub(crate) shared: Arc<SharedState>,
    id: u32,
    pub(crate) rows: Arc<RwLock<GroupRows>>,
}

/// Result of writing a row.
#[derive(Debug, Default)]
pub struct CommitOutcome {
    /// Number of series that the row before did not have.
    pub added: usize,
    /// Columns that lost their series. They may be assigned to other series.
    pub dropped: Vec<Column>,
}

impl Group {
    pub(crate) fn open(shared: Arc<SharedState>, now: Timestamp) -> Self {
        let (id, rows) = shared.head.open_group(now);
        Self { shared, id, rows }
    }

    /// Reserves the time `at` for a row. The watermark stays before `at` until the ticket is
    /// committed or dropped.
    ///
    /// # Errors
    /// If the clock went back behind the watermark.
    pub fn ticket(&self, at: Timestamp) -> Result<Ticket, ClockWentBack> {
        self.shared.watermark.hold(at)
    }

    /// Returns the column of the series with these labels. `None` if another group writes the
    /// series.
    pub fn column(&self, labels: &Labels) -> Option<Column> {
        let series = self.shared.series_number(labels);
        let column = self.shared.head.column(self.id, &self.rows, series);
        if column.is_none() {
            self.shared.metrics.drop_samples(DropReason::OtherTarget, 1);
        }
        column
    }

    /// Number of the group in the head.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Number of columns of a row.
    pub fn width(&self) -> usize {
        self.rows
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .width()
    }

    /// Number of series with a column, including series that ended recently.
    pub fn series_count(&self) -> usize {
        self.rows
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .series_count()
    }

    /// Writes a row with one value per column: [`STALE`](super::STALE) for absent series.
    /// `own_time` holds samples with timestamps of their own. Queries see the row at once; it is
    /// durable after the next commit.
    ///
    /// # Errors
    /// If the group has a row at that time or later.
    pub fn commit(
        &self,
        ticket: Ticket,
        row: &[f64],
        own_time: &[(Column, Sample)],
    ) -> Result<CommitOutcome, ClockWentBack> {
        let at = ticket.at();
        let metrics = &self.shared.metrics;
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);

        if let Some(watermark) = rows.newest().filter(|&newest| newest >= at) {
            metrics.drop_samples(
                DropReason::OutOfOrder,
                row.iter().filter(|&&value| !is_stale(value)).count(),
            );
            return Err(ClockWentBack { at, watermark });
        }

        let mut series = Vec::with_capacity(row.len());
        let mut values = Vec::with_capacity(row.len());
        let outcome = rows.push(at, row, |id, value| {
            series.push(id.0);
            values.push(value);
        });

        if let Some(full) = outcome.full {
            self.shared.unsealed.add(self.id, full);
        }

        let own_time = self.keep_own_time(&mut rows, at, own_time);
        let committed = Arc::clone(rows.committed());
        // The queue does not need the lock of the rows, which queries read.
        drop(rows);
        self.shared.head.forget(&outcome.dropped);

        let dropped = self.shared.queue.push(Batch {
            ticket,
            group: self.id,
            committed,
            series,
            values,
            own_time,
            past: Arc::default(),
        });

        // A full queue drops its oldest samples to make room.
        metrics.drop_samples(DropReason::QueueFull, dropped);
        metrics.queue_bytes.set(self.shared.queue.bytes() as i64);

        Ok(CommitOutcome {
            added: outcome.added,
            dropped: outcome.dropped.iter().map(|gone| gone.column).collect(),
        })
    }

    /// Keeps exemplars of the row that was written at `at`. Exemplars of columns without a series are ignored.
    pub fn keep_exemplars(&self, at: Timestamp, given: &[(Column, Exemplar)]) {
        if given.is_empty() {
            return;
        }
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        for (column, exemplar) in given {
            if let Some(series) = rows.series(*column) {
                self.shared.exemplars.add(series, exemplar, at);
            }
        }
    }

    /// Filters samples with timestamps of their own. A page repeats such a sample until a newer one
    /// exists; repetitions are not counted as dropped.
    fn keep_own_time(
        &self,
        rows: &mut GroupRows,
        now: Timestamp,
        given: &[(Column, Sample)],
    ) -> Vec<(SeriesId, Sample)> {
        // A sample older than the retention would be deleted soon.
        let bounds = now.minus(self.shared.retention)..=now.plus(OWN_TIME_AHEAD);
        let (inside, outside): (Vec<_>, Vec<_>) = given
            .iter()
            .partition(|(_, sample)| bounds.contains(&sample.at));
        self.shared
            .metrics
            .drop_samples(DropReason::OutOfBounds, outside.len());
        let news = inside
            .into_iter()
            .filter(|&&(column, sample)| rows.push_own_time(column, now, sample));

        // Collected, because the filter changes the rows that are read next.
        let news: Vec<(Column, Sample)> = news.copied().collect();
        news.into_iter()
            .filter_map(|(column, sample)| Some((rows.series(column)?, sample)))
            .collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            // No later row would seal the open chunk.
            if let Some(full) = rows.seal_open() {
                self.shared.unsealed.add(self.id, full);
            }
        }
        self.shared.head.close_group(self.id);
    }
}
