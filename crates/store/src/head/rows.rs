//! Rows of one group: new rows in an open chunk, older ones in sealed chunks.

use super::chunk::{OpenChunk, RowChanges, SealedChunk, push_present};
use super::column_map::ColumnMap;
use super::own_time::{OwnTime, PackBuffers};
use super::{Column, STALE, is_stale};
use crate::push::PlacedOutcome;
use crate::unsealed::{FullChunk, Shape};
use crate::{Placement, Sample, SeriesId};
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use takt_model::Timestamp;

/// Number of chunks in a window. More chunks cost more memory per series; fewer leave more rows
/// unpacked.
const CHUNKS_PER_WINDOW: u32 = 16;

/// Longest time of a chunk, as a part of the window. The head holds up to this much more than its
/// window.
const LONGEST_CHUNK: u32 = 4;

/// Part of the window whose chunks stay in memory. Older ones are read from the file of their
/// segment, where rules with the usual ranges do not look.
const MEMORY_PART: u32 = 3;

/// Rows of one group.
#[derive(Debug)]
pub(crate) struct GroupRows {
    window: Duration,
    complete_from: Timestamp,
    /// For columns whose series had samples elsewhere: the time from which on this column is
    /// complete.
    since: ColumnMap<Timestamp>,
    columns: Vec<Option<SeriesId>>,
    /// Columns without a series, to be reused.
    free: Vec<u32>,
    /// Values of the newest row; [`STALE`] for absent series.
    latest: Vec<f64>,
    /// For columns that are [`STALE`] in the newest row: the time of the last value. A column may
    /// have newer samples in `own_time`.
    ended: ColumnMap<Timestamp>,
    /// Offset of the group's chunk ends, see [`OpenChunk::is_full`].
    phase: u32,
    sealed: VecDeque<Arc<SealedChunk>>,
    open: Option<OpenChunk>,
    /// Timestamp of the newest row.
    newest: Option<Timestamp>,
    /// Timestamp of the newest row in the log.
    committed: Arc<AtomicI64>,
    /// The series of the columns, until they change.
    shape: Option<Arc<Shape>>,
    changes: RowChanges,
    /// Samples with timestamps of their own, by column.
    own_time: ColumnMap<OwnTime>,
    buffers: PackBuffers,
    /// Arrival and timestamp of the newest pushed sample.
    newest_pushed: Option<(Timestamp, Timestamp)>,
    /// Outcomes of pushed requests that are not known yet.
    undecided: Vec<Arc<PlacedOutcome>>,
}

/// Result of adding a row.
#[derive(Debug, Default)]
pub(crate) struct RowOutcome {
    /// Number of series that the row before did not have.
    pub added: usize,
    /// Series that ended before the oldest chunk and lost their column.
    pub dropped: Vec<DroppedSeries>,
    /// The chunk that this row ended.
    pub full: Option<FullChunk>,
}

/// A series that lost its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DroppedSeries {
    pub series: SeriesId,
    pub column: Column,
    /// The series has no samples from this time on.
    pub from: Timestamp,
}

impl GroupRows {
    pub(crate) fn new(complete_from: Timestamp, window: Duration, phase: u32) -> Self {
        Self {
            window,
            complete_from,
            since: ColumnMap::default(),
            columns: Vec::new(),
            free: Vec::new(),
            latest: Vec::new(),
            ended: ColumnMap::default(),
            phase,
            sealed: VecDeque::new(),
            open: None,
            newest: None,
            committed: Arc::new(AtomicI64::new(i64::MIN)),
            shape: None,
            changes: RowChanges::default(),
            own_time: ColumnMap::default(),
            buffers: PackBuffers::default(),
            newest_pushed: None,
            undecided: Vec::new(),
        }
    }

    /// Adds a column for a series whose samples before `from` are elsewhere.
    pub(crate) fn add_column(&mut self, series: SeriesId, from: Timestamp) -> u32 {
        self.shape = None;
        let column = self.free.pop().unwrap_or_else(|| {
            self.columns.push(None);
            self.latest.push(STALE);
            u32::try_from(self.columns.len() - 1).expect("fewer columns than series")
        });
        self.columns[column as usize] = Some(series);
        if from > self.complete_from {
            self.since.insert(column, from);
        }
        // A column that never gets a value is dropped like one that ended.
        self.ended
            .insert(column, self.newest().unwrap_or(self.complete_from));
        column
    }

    /// Time from which on a column has every sample.
    #[inline]
    pub(crate) fn complete_from(&self, column: u32) -> Timestamp {
        self.since
            .get(&column)
            .map_or(self.complete_from, |&since| since.max(self.complete_from))
    }

    /// Timestamp of the newest row.
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Timestamp of the newest row in the log. The writer sets it.
    pub fn committed(&self) -> &Arc<AtomicI64> {
        &self.committed
    }

    /// Number of samples that are not in a sealed chunk.
    pub fn open_samples(&self) -> u64 {
        self.open
            .as_ref()
            .map_or(0, |open| u64::from(open.sample_count()))
    }

    /// Number of columns, including free ones.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Number of columns that have a series.
    pub fn series_count(&self) -> usize {
        self.columns.len() - self.free.len()
    }

    /// The columns that have a series.
    pub fn columns(&self) -> impl Iterator<Item = (u32, SeriesId)> {
        let columns = (0..).zip(&self.columns);
        columns.filter_map(|(column, series)| Some((column, (*series)?)))
    }

    /// Adds a row with one value per column: [`STALE`] for absent series, also for columns beyond
    /// the end of `row`. Calls `written` with everything that the database must store: each value,
    /// and [`STALE`] once when a series ends.
    pub fn push(
        &mut self,
        at: Timestamp,
        row: &[f64],
        mut written: impl FnMut(SeriesId, f64),
    ) -> RowOutcome {
        let mut outcome = RowOutcome::default();
        let length = self.window / CHUNKS_PER_WINDOW;
        let longest = self.window / LONGEST_CHUNK;
        let is_full = self
            .open
            .as_ref()
            .is_none_or(|open| open.is_full(at, length, self.phase, longest));

        self.changes.clear();
        let mut samples = 0;
        let mut before = vec![
            0_u64;
            if is_full {
                self.latest.len().div_ceil(64)
            } else {
                0
            }
        ];

        for (column, latest) in self.latest.iter_mut().enumerate() {
            let value = row.get(column).copied().unwrap_or(STALE);
            let is = !is_stale(value);
            let was = !is_stale(*latest);

            if (is || was)
                && let Some(series) = self.columns[column]
            {
                written(series, value);
                samples += 1;
            }
            if was && is_full {
                before[column / 64] |= 1 << (column % 64);
            }

            if value.to_bits() != latest.to_bits() {
                if is != was {
                    let column = column as u32;
                    if is {
                        outcome.added += 1;
                        self.ended.remove(&column);
                    } else {
                        self.ended.insert(column, at);
                    }
                }
                *latest = value;
                if !is_full {
                    self.changes.push(column, value);
                }
            }
        }

        match &mut self.open {
            Some(open) if !is_full => {
                open.push(at, self.latest.len(), &mut self.changes, samples);
            }
            _ => {
                let first = OpenChunk::new(at, self.latest.clone(), before.into(), samples);
                outcome.full = self.begin_chunk(first);
                outcome.dropped = self.drop_ended();
            }
        }

        self.newest = Some(at);
        outcome
    }

    /// Adds a sample with a timestamp of its own. Returns `false` if the series has a sample at
    /// that time or later.
    pub fn push_own_time(&mut self, column: Column, now: Timestamp, sample: Sample) -> bool {
        let own = self.own_time.entry(column.0).or_default();
        own.arrived = now;
        let is_new = own.is_before(sample.at);
        if is_new {
            own.insert(sample, &mut self.buffers);
        }
        is_new
    }

    /// Whether samples were pushed to the group.
    pub fn has_pushed(&self) -> bool {
        self.newest_pushed.is_some()
    }

    /// Adds a pushed sample at its place in time, unless the series has a sample at that time:
    /// here, or in `on_disk`, which is in order of time.
    #[inline]
    pub fn place(
        &mut self,
        column: Column,
        now: Timestamp,
        sample: Sample,
        on_disk: &[Sample],
    ) -> Placement {
        let own = self.own_time.entry(column.0).or_default();
        own.arrived = now;
        let known = known(Some(own), sample.at, on_disk);
        let placement = match known {
            Some(known) if is_same(known.value, sample.value) => Placement::Repeated,
            Some(_) => Placement::Conflicting,
            None => {
                own.insert(sample, &mut self.buffers);
                Placement::New
            }
        };

        if own.is_empty() {
            self.own_time.remove(&column.0);
            self.ended.insert(column.0, now);
        }

        let newest = self.newest_pushed.map_or(sample.at, |(_, newest)| newest);
        self.newest_pushed = Some((now, newest.max(sample.at)));
        placement
    }

    /// Returns whether the series has this sample: here, or in `on_disk`, which is in order of time.
    pub fn has(&self, column: Column, sample: Sample, on_disk: &[Sample]) -> bool {
        let known = known(self.own_time.get(&column.0), sample.at, on_disk);
        known.is_some_and(|known| is_same(known.value, sample.value))
    }

    /// Adds the outcome of a request whose samples were placed. Returns those of earlier requests that
    /// are not known yet.
    pub fn await_outcome(&mut self, outcome: &Arc<PlacedOutcome>) -> Vec<Arc<PlacedOutcome>> {
        self.undecided.retain(|earlier| !earlier.is_decided());
        let earlier = self.undecided.clone();
        self.undecided.push(Arc::clone(outcome));
        earlier
    }

    /// Removes a sample that [`GroupRows::place`] added.
    pub fn remove_placed(&mut self, column: Column, at: Timestamp) {
        if let Some(own) = self.own_time.get_mut(&column.0) {
            own.remove(at, &mut self.buffers);
            if own.is_empty() {
                self.ended.insert(column.0, own.arrived);
                self.own_time.remove(&column.0);
            }
        }
    }

    /// Drops pushed samples from before the window that ends with the newest one, and columns
    /// without new samples. After a window without any push, the window ends `now`.
    pub fn age(&mut self, now: Timestamp) -> Vec<DroppedSeries> {
        let end = self.newest_pushed.map_or(now, |(arrived, newest)| {
            if now.minus(self.window) > arrived {
                now
            } else {
                newest.min(now)
            }
        });
        self.complete_from = self.complete_from.max(end.minus(self.window));
        self.drop_ended()
    }

    /// Series of a column.
    #[inline]
    pub fn series(&self, column: Column) -> Option<SeriesId> {
        self.columns.get(column.0 as usize).copied().flatten()
    }

    /// Takes a row without storing it: the next row is compared with it. `row` must have all
    /// columns.
    pub fn skip(&mut self, at: Timestamp, row: &[f64]) {
        for (latest, &value) in self.latest.iter_mut().zip(row) {
            *latest = value;
        }
        let latest = &self.latest;
        self.ended
            .retain(|&column, _| is_stale(latest[column as usize]));
        self.newest = Some(at);
    }

    /// Seals the chunk that gets rows, so that the next row begins another one. `None` if it has no
    /// rows.
    pub fn seal_open(&mut self) -> Option<FullChunk> {
        let open = self.open.take()?;
        Some(self.full(&open, true))
    }

    fn full(&mut self, open: &OpenChunk, is_last: bool) -> FullChunk {
        let chunk = Arc::new(open.seal(&self.latest, is_last));
        self.sealed.push_back(Arc::clone(&chunk));
        let columns = &self.columns;
        let shape = self
            .shape
            .get_or_insert_with(|| Arc::new(Shape::of_columns(columns)));
        FullChunk {
            shape: Arc::clone(shape),
            chunk,
            next: self.latest.as_slice().into(),
            committed: Arc::clone(&self.committed),
        }
    }

    /// Number of sealed chunks in memory, and of all.
    #[cfg(test)]
    pub(super) fn chunk_counts(&self) -> (usize, usize) {
        let in_memory = self.sealed.iter().filter(|chunk| chunk.is_in_memory());
        (in_memory.count(), self.sealed.len())
    }

    /// Calls `each` with the samples of every wanted series, or of every series, that are in
    /// `[from, to]`, including staleness markers.
    pub fn each(
        &self,
        wanted: Option<&RoaringBitmap>,
        (from, to): (Timestamp, Timestamp),
        mut each: impl FnMut(SeriesId, Vec<Sample>),
    ) {
        if from > to {
            return;
        }
        let first = self.sealed.partition_point(|chunk| chunk.newest() < from);
        let sealed: Vec<_> = self.sealed.range(first..).collect();
        let is_wanted = |series: &SeriesId| wanted.is_none_or(|wanted| wanted.contains(series.0));
        for (column, series) in (0_u32..).zip(&self.columns) {
            let Some(series) = series.filter(is_wanted) else {
                continue;
            };
            let mut next = self.open.as_ref().map_or(STALE, |open| open.first(column));
            let mut parts = Vec::with_capacity(sealed.len());
            for chunk in sealed.iter().rev() {
                let values = chunk.values(column, next);
                next = values.first().copied().unwrap_or(next);
                parts.push(values);
            }
            let mut samples = Vec::new();
            for (chunk, values) in sealed.iter().zip(parts.into_iter().rev()) {
                chunk
                    .index()
                    .samples(column, &values, (from, to), &mut samples);
            }
            if let Some(open) = &self.open {
                push_present(
                    open.samples(column),
                    open.was(column),
                    (from, to),
                    &mut samples,
                );
            }
            if !samples.is_empty() {
                each(series, samples);
            }
        }
    }

    /// Timestamp of the newest row in the log.
    pub fn committed_until(&self) -> Timestamp {
        Timestamp(self.committed.load(Ordering::Acquire))
    }

    fn begin_chunk(&mut self, first: OpenChunk) -> Option<FullChunk> {
        let at = first.oldest();
        let begin = at.minus(self.window);
        let full = self.open.replace(first).map(|open| self.full(&open, false));
        let kept = at.minus(self.window / MEMORY_PART);
        let old = self.sealed.iter().take_while(|chunk| chunk.newest() < kept);
        old.for_each(|chunk| chunk.leave_memory());
        let held = self.sealed.len();
        while self
            .sealed
            .front()
            .is_some_and(|chunk| chunk.newest() < begin)
        {
            self.sealed.pop_front();
        }
        if self.sealed.len() < held {
            // Staleness markers from before the oldest remaining row are in the database only, so
            // this row is no longer complete.
            let oldest = self.sealed.front().map_or(at, |chunk| chunk.oldest());
            self.complete_from = self
                .complete_from
                .max(oldest.plus(Duration::from_millis(1)));
        }
        full
    }

    /// Drops columns whose last value is older than the oldest chunk.
    fn drop_ended(&mut self) -> Vec<DroppedSeries> {
        let begin = self.complete_from;
        self.since.retain(|_, since| *since > begin);
        // The newest sample stays, so that a repeated sample is recognized.
        self.own_time.values_mut().for_each(|own| own.forget(begin));
        let gone: Vec<u32> = self
            .ended
            .extract_if(|column, &mut last| {
                let own = self.own_time.get(column);
                last < begin && own.is_none_or(|own| own.arrived < begin)
            })
            .map(|(column, _)| column)
            .collect();
        let mut dropped = Vec::new();
        for column in gone {
            let last = self
                .own_time
                .remove(&column)
                .and_then(|own| own.last_sample());
            let from = last.map_or(begin, |last| {
                begin.max(last.at.plus(Duration::from_millis(1)))
            });
            self.free.push(column);
            self.since.remove(&column);
            let series = self.columns[column as usize].take();
            self.shape = None;
            dropped.extend(series.map(|series| DroppedSeries {
                series,
                column: Column(column),
                from,
            }));
        }
        // Each new series was in these maps until its first value; give that memory back.
        self.ended.shrink_to_fit();
        self.since.shrink_to_fit();
        self.columns.shrink_to_fit();
        self.latest.shrink_to_fit();
        dropped
    }

    /// First time after the last sample of a column.
    pub(super) fn after_last(&self, column: u32) -> Timestamp {
        let own = self
            .own_time
            .get(&column)
            .and_then(OwnTime::last_sample)
            .map(|sample| sample.at);
        let last = self.newest().max(own);
        last.map_or(self.complete_from, |last| {
            self.complete_from.max(last.plus(Duration::from_millis(1)))
        })
    }

    pub(super) fn range(&self, column: u32, from: Timestamp, to: Timestamp) -> Vec<Sample> {
        // Backwards: a sealed chunk needs the first value of the next chunk.
        let mut next = self.open.as_ref().map_or(STALE, |open| open.first(column));
        let mut older = Vec::new();
        for chunk in self
            .sealed
            .iter()
            .rev()
            .take_while(|chunk| chunk.newest() >= from)
        {
            let values = chunk.values(column, next);
            next = values.first().copied().unwrap_or(next);
            older.push((chunk, values));
        }
        let older = older
            .into_iter()
            .rev()
            .filter(|(chunk, _)| chunk.oldest() <= to);
        let older = older.flat_map(|(chunk, values)| chunk.samples(values));
        let newest = self
            .open
            .as_ref()
            .filter(|open| open.newest() >= from && open.oldest() <= to);
        let newest = newest.map(|open| open.samples(column));
        let mut samples = Vec::new();
        let mut was_stale = true;
        for sample in older.chain(newest.into_iter().flatten()) {
            let is_stale = is_stale(sample.value);
            if sample.at >= from && sample.at <= to && !(is_stale && was_stale) {
                samples.push(sample);
            }
            was_stale = is_stale;
        }
        match self.own_time.get(&column) {
            Some(own) => merge(samples, own.range((from, to))),
            None => samples,
        }
    }

    pub(crate) fn last(&self, column: u32, from: Timestamp, to: Timestamp) -> Vec<Sample> {
        if let Some(at) = self.newest().filter(|&at| from <= at && at <= to)
            && !self.own_time.contains_key(&column)
        {
            return vec![Sample {
                at,
                value: self.latest[column as usize],
            }];
        }
        // The last sample is nearly always in the last part of the range. Only ended series need a
        // longer search.
        let near = from.max(to.minus(self.window / CHUNKS_PER_WINDOW));
        let mut samples = self.range(column, near, to);
        if samples.last().is_none_or(|last| is_stale(last.value)) {
            samples = self.range(column, from, to);
        }
        samples.split_off(samples.len().saturating_sub(1))
    }
}

/// Returns the sample that a series has at a time: in memory, or in `on_disk`.
#[inline]
fn known(own: Option<&OwnTime>, at: Timestamp, on_disk: &[Sample]) -> Option<Sample> {
    own.and_then(|own| own.find(at)).or_else(|| {
        let found = on_disk.binary_search_by_key(&at, |known| known.at);
        found.ok().map(|place| on_disk[place])
    })
}

/// Returns whether two values are the same. All NaNs but the staleness marker are the same value.
fn is_same(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits()
        || (one.is_nan() && other.is_nan() && is_stale(one) == is_stale(other))
        || one == other
}

/// Merges two lists in order of time. If both have a sample at the same time, the one of `first`
/// stays.
pub(crate) fn merge(first: Vec<Sample>, second: Vec<Sample>) -> Vec<Sample> {
    if second.is_empty() {
        return first;
    }
    let mut all = first;
    all.extend(second);
    all.sort_by_key(|sample| sample.at);
    all.dedup_by_key(|sample| sample.at);
    all
}
