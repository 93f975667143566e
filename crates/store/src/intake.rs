//! Giving samples to the store.

use super::head::{Column, Head, Rows, is_stale};
use super::metrics::{Dropped, StoreMetrics};
use super::queue::{Batch, Queue};
use super::series::SeriesTable;
use super::watermark::Watermark;
use super::{ClockWentBack, Sample, SeriesId, Ticket};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// A sample's own timestamp may be this much later than the scrape that brought it, as in Prometheus.
const OWN_TIME_AHEAD: Duration = Duration::from_secs(600);

/// What readers and writers of samples share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub series: RwLock<SeriesTable>,
    pub head: Head,
    pub watermark: Arc<Watermark>,
    pub queue: Queue,
    pub metrics: StoreMetrics,
    pub retention: Duration,
}

/// Series that are written together, such as those of one target: each write is a row with one timestamp.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    id: u32,
    rows: Arc<RwLock<Rows>>,
}

/// What a write did.
#[derive(Debug, Default)]
pub struct Committed {
    /// Series that the write before did not have.
    pub added: usize,
    /// Columns that are no longer those of the series they were given for.
    pub dropped: Vec<Column>,
}

impl Group {
    pub(crate) fn open(shared: Arc<Shared>, now: Timestamp) -> Self {
        let (id, rows) = shared.head.open_group(now);
        Self { shared, id, rows }
    }

    /// Reserves the instant `at` for a row: until the ticket is committed or dropped, the watermark stays before it.
    ///
    /// # Errors
    /// When the clock went back behind what is stored.
    pub fn ticket(&self, at: Timestamp) -> Result<Ticket, ClockWentBack> {
        self.shared.watermark.hold(at)
    }

    /// The column of the series with these labels, or `None` where another group writes that series.
    pub fn column(&self, labels: &Labels) -> Option<Column> {
        let series = {
            let mut table = self
                .shared
                .series
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            let series = table.intern(labels);
            self.shared.metrics.series.set(table.len() as i64);
            series
        };
        let column = self.shared.head.column(self.id, &self.rows, series);
        if column.is_none() {
            self.shared.metrics.drop_samples(Dropped::OtherTarget, 1);
        }
        column
    }

    /// How many columns a row has now.
    pub fn width(&self) -> usize {
        self.rows
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .width()
    }

    /// Number of series that have a column, recently ended series included.
    pub fn series_count(&self) -> usize {
        self.rows
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .series_count()
    }

    /// Writes a row: one value a column, [`STALE`](super::STALE) for a series that is not in it; `own_time` has the
    /// samples that carry timestamps of their own. Queries see it at once; it is durable with the next commit.
    ///
    /// # Errors
    /// When the group has a row at that instant or a later one.
    pub fn commit(
        &self,
        ticket: Ticket,
        row: &[f64],
        own_time: &[(Column, Sample)],
    ) -> Result<Committed, ClockWentBack> {
        let at = ticket.at();
        let metrics = &self.shared.metrics;
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(watermark) = rows.newest().filter(|&newest| newest >= at) {
            metrics.drop_samples(
                Dropped::OutOfOrder,
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
        let own_time = self.keep_own_time(&mut rows, at, own_time);
        drop(rows);
        self.shared.head.forget(&outcome.dropped);
        let dropped = self.shared.queue.push(Batch {
            ticket,
            series,
            values,
            own_time,
        });
        metrics.drop_samples(Dropped::QueueFull, dropped);
        metrics.queue_bytes.set(self.shared.queue.bytes() as i64);
        Ok(Committed {
            added: outcome.added,
            dropped: outcome.dropped.iter().map(|gone| gone.column).collect(),
        })
    }

    /// A page repeats such samples until there are newer ones; that is no loss, so it is not counted as one.
    fn keep_own_time(
        &self,
        rows: &mut Rows,
        now: Timestamp,
        given: &[(Column, Sample)],
    ) -> Vec<(SeriesId, Sample)> {
        let bounds = now.minus(self.shared.retention)..=now.plus(OWN_TIME_AHEAD);
        let (inside, outside): (Vec<_>, Vec<_>) = given
            .iter()
            .partition(|(_, sample)| bounds.contains(&sample.at));
        self.shared
            .metrics
            .drop_samples(Dropped::OutOfBounds, outside.len());
        let news = inside
            .into_iter()
            .filter(|&&(column, sample)| rows.push_own_time(column, now, sample));
        let news: Vec<(Column, Sample)> = news.copied().collect();
        news.into_iter()
            .filter_map(|(column, sample)| Some((rows.series(column)?, sample)))
            .collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.head.close_group(self.id);
    }
}
