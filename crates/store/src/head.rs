//! The last minutes of every series, in memory.
//!
//! Series that are scraped together are a group: each scrape is one row with one timestamp and a column for every
//! series. The newest rows are as they came, older ones packed by series ([`super::chunk`]); the oldest are dropped a
//! chunk at a time.
//!
//! Samples that carry a timestamp of their own are kept beside the rows.

use super::chunk::{Changes, Open, Sealed};
use super::{Meter, Sample, SeriesId};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use takt_model::Timestamp;

/// A value that says "no longer there" (Prometheus' staleness marker). It exists in memory only; DuckDB has NULL.
pub const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Whether `value` is [`STALE`], which is a NaN and so equals nothing.
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// A window is cut into this many chunks. More would make each series cost more for itself in every chunk, fewer leave
/// more rows open.
const CHUNKS_PER_WINDOW: u32 = 16;

/// A chunk of rare rows is at most this part of a window, so the head holds up to so much more than it must.
const LONGEST_CHUNK: u32 = 4;

/// Groups end their chunks this many milliseconds from each other; prime, so that they stay apart.
const PHASE_STEP_MS: u32 = 7919;

/// All groups, and where each series is.
#[derive(Debug)]
pub(crate) struct Head {
    window: Duration,
    began: Timestamp,
    groups: RwLock<HashMap<u32, Arc<RwLock<Rows>>>>,
    places: RwLock<Places>,
}

#[derive(Debug, Default)]
struct Places {
    by_series: Vec<Place>,
    next_group: u32,
}

/// Where the samples of a series are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// All that there are were stored before this process began.
    #[default]
    Stored,
    /// The newest are in a column of a group.
    Column { group: u32, column: u32 },
    /// They were in a column; there is none from this instant on.
    Ended(Timestamp),
}

/// The column of a series in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column(pub(crate) u32);

impl Column {
    /// The column at a place in a row.
    pub const fn at(index: u32) -> Self {
        Self(index)
    }

    /// Its place in a row.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the head knows of one series.
#[derive(Debug)]
pub(crate) struct Recent {
    /// From here on the head has every sample there is.
    pub complete_from: Timestamp,
    pub samples: Vec<Sample>,
}

impl Head {
    /// `began` is the instant from which on samples can only come through this head.
    pub fn new(window: Duration, began: Timestamp) -> Self {
        Self {
            window,
            began,
            groups: RwLock::default(),
            places: RwLock::default(),
        }
    }

    /// A new group without series; `from` is the instant before which it cannot know anything.
    pub fn open_group(&self, from: Timestamp) -> (u32, Arc<RwLock<Rows>>) {
        let id = {
            let mut places = write(&self.places);
            places.next_group += 1;
            places.next_group
        };
        let rows = Arc::new(RwLock::new(Rows::new(
            from,
            self.window,
            id.wrapping_mul(PHASE_STEP_MS),
        )));
        write(&self.groups).insert(id, Arc::clone(&rows));
        (id, rows)
    }

    /// Forgets a group. What it had is found in the database.
    pub fn close_group(&self, id: u32) {
        let Some(rows) = write(&self.groups).remove(&id) else {
            return;
        };
        // The places first, as everywhere.
        let mut places = write(&self.places);
        let rows = read(&rows);
        for place in &mut places.by_series {
            if let Place::Column { group, column } = *place
                && group == id
            {
                *place = Place::Ended(rows.after_last(column));
            }
        }
    }

    /// Gives a series a column in a group; `None` if another group has it.
    pub fn column(&self, id: u32, rows: &RwLock<Rows>, series: SeriesId) -> Option<Column> {
        let mut places = write(&self.places);
        let index = series.0 as usize;
        if places.by_series.len() <= index {
            places.by_series.resize(index + 1, Place::Stored);
        }
        match places.by_series[index] {
            Place::Column { group, column } => (group == id).then_some(Column(column)),
            Place::Stored => self.give(&mut places, (id, rows), series, self.began),
            Place::Ended(from) => self.give(&mut places, (id, rows), series, from),
        }
    }

    /// A column for a series that has samples elsewhere before `from`.
    fn give(
        &self,
        places: &mut Places,
        (group, rows): (u32, &RwLock<Rows>),
        series: SeriesId,
        from: Timestamp,
    ) -> Option<Column> {
        let column = write(rows).add_column(series, from);
        places.by_series[series.0 as usize] = Place::Column { group, column };
        Some(Column(column))
    }

    /// Notes that series have lost their columns.
    pub fn forget(&self, dropped: &[Dropped]) {
        if !dropped.is_empty() {
            let mut places = write(&self.places);
            for gone in dropped {
                places.by_series[gone.series.0 as usize] = Place::Ended(gone.from);
            }
        }
    }

    /// The instant from which on samples came through this head.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// The series that may have had samples since `from`, of those that came through this head.
    pub fn since(&self, from: Timestamp) -> RoaringBitmap {
        let places = read(&self.places);
        let is_active = |place: &Place| match place {
            Place::Stored => false,
            Place::Column { .. } => true,
            Place::Ended(end) => *end > from,
        };
        (0_u32..)
            .zip(&places.by_series)
            .filter(|(_, place)| is_active(place))
            .map(|(id, _)| id)
            .collect()
    }

    /// The samples of each series in `[from, to]`, in order of time; `None` where the meter gave it up.
    pub fn range(
        &self,
        ids: &[SeriesId],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Option<Vec<Recent>> {
        self.each(ids, meter, |rows, column| rows.range(column, from, to))
    }

    /// The last sample of each series in `[from, to]`, which may be [`STALE`]; `None` where the meter gave it up.
    pub fn last(
        &self,
        ids: &[SeriesId],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Option<Vec<Recent>> {
        self.each(ids, meter, |rows, column| rows.last(column, from, to))
    }

    fn each(
        &self,
        ids: &[SeriesId],
        meter: Meter<'_>,
        read_one: impl Fn(&Rows, u32) -> Vec<Sample>,
    ) -> Option<Vec<Recent>> {
        let places: Vec<Place> = {
            let places = read(&self.places);
            ids.iter()
                .map(|id| {
                    places
                        .by_series
                        .get(id.0 as usize)
                        .copied()
                        .unwrap_or_default()
                })
                .collect()
        };
        let groups = read(&self.groups);
        let recent = |(&series, &place): (&SeriesId, &Place)| {
            let (group, column) = match place {
                Place::Stored => {
                    return Recent {
                        complete_from: self.began,
                        samples: Vec::new(),
                    };
                }
                Place::Ended(from) => {
                    return Recent {
                        complete_from: from,
                        samples: Vec::new(),
                    };
                }
                Place::Column { group, column } => (group, column),
            };
            match groups.get(&group).map(|rows| read(rows)) {
                Some(rows) if rows.series(Column(column)) == Some(series) => Recent {
                    complete_from: rows.complete_from(column),
                    samples: read_one(&rows, column),
                },
                // The group or the column went since the place was looked up.
                _ => Recent {
                    complete_from: Timestamp(i64::MAX),
                    samples: Vec::new(),
                },
            }
        };
        let metered = |recent: Recent| meter(recent.samples.len()).then_some(recent);
        ids.iter().zip(&places).map(recent).map(metered).collect()
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The rows of one group.
#[derive(Debug)]
pub(crate) struct Rows {
    window: Duration,
    complete_from: Timestamp,
    /// Columns whose series had samples elsewhere after that: from here on they are all here.
    since: HashMap<u32, Timestamp>,
    columns: Vec<Option<SeriesId>>,
    /// Columns without a series, for the next ones that come.
    free: Vec<u32>,
    /// The values of the newest row; [`STALE`] where a series is not in it.
    latest: Vec<f64>,
    /// When a column that is [`STALE`] in the newest row was last heard of.
    ended: HashMap<u32, Timestamp>,
    /// Where the group's chunks end, see [`Open::is_full`].
    phase: u32,
    sealed: VecDeque<Sealed>,
    open: Option<Open>,
    changes: Changes,
    /// Samples with timestamps of their own, in order of time.
    own_time: HashMap<u32, Vec<Sample>>,
}

/// What a row did.
#[derive(Debug, Default)]
pub(crate) struct RowOutcome {
    /// Series that the row before did not have.
    pub added: usize,
    /// Series that ended long ago and lost their column.
    pub dropped: Vec<Dropped>,
}

/// A series that lost its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub series: SeriesId,
    pub column: Column,
    /// It has no sample from here on.
    pub from: Timestamp,
}

impl Rows {
    fn new(complete_from: Timestamp, window: Duration, phase: u32) -> Self {
        Self {
            window,
            complete_from,
            since: HashMap::new(),
            columns: Vec::new(),
            free: Vec::new(),
            latest: Vec::new(),
            ended: HashMap::new(),
            phase,
            sealed: VecDeque::new(),
            open: None,
            changes: Changes::default(),
            own_time: HashMap::new(),
        }
    }

    /// A column for a series that has samples elsewhere before `from`.
    fn add_column(&mut self, series: SeriesId, from: Timestamp) -> u32 {
        let column = self.free.pop().unwrap_or_else(|| {
            self.columns.push(None);
            self.latest.push(STALE);
            u32::try_from(self.columns.len() - 1).expect("fewer columns than series")
        });
        self.columns[column as usize] = Some(series);
        if from > self.complete_from {
            self.since.insert(column, from);
        }
        // Should no value ever come, the column goes the way of one that ended.
        self.ended
            .insert(column, self.newest().unwrap_or(self.complete_from));
        column
    }

    /// From here on a column has every sample there is.
    fn complete_from(&self, column: u32) -> Timestamp {
        self.since
            .get(&column)
            .map_or(self.complete_from, |&since| since.max(self.complete_from))
    }

    /// When the newest row was taken.
    pub fn newest(&self) -> Option<Timestamp> {
        self.open.as_ref().map(Open::newest)
    }

    /// How many columns there are.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// How many columns have a series.
    pub fn series_count(&self) -> usize {
        self.columns.len() - self.free.len()
    }

    /// Adds a row, one value a column, [`STALE`] where a series is not in it; columns beyond its end are not in it.
    /// `written` is told what the database must get: every value, and [`STALE`] once for a series that ended.
    pub fn push(
        &mut self,
        at: Timestamp,
        row: &[f64],
        mut written: impl FnMut(SeriesId, f64),
    ) -> RowOutcome {
        let mut outcome = RowOutcome::default();
        let (length, longest) = (self.window / CHUNKS_PER_WINDOW, self.window / LONGEST_CHUNK);
        let is_full = self
            .open
            .as_ref()
            .is_none_or(|open| open.is_full(at, length, self.phase, longest));
        self.changes.clear();
        for (column, latest) in self.latest.iter_mut().enumerate() {
            let value = row.get(column).copied().unwrap_or(STALE);
            let (is, was) = (!is_stale(value), !is_stale(*latest));
            if (is || was)
                && let Some(series) = self.columns[column]
            {
                written(series, value);
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
            Some(open) if !is_full => open.push(at, self.latest.len(), &mut self.changes),
            _ => {
                self.begin_chunk(at);
                outcome.dropped = self.drop_ended();
            }
        }
        outcome
    }

    /// Adds a sample with a timestamp of its own. `false` where the series has that instant or a later one.
    pub fn push_own_time(&mut self, column: Column, now: Timestamp, sample: Sample) -> bool {
        if is_stale(self.latest[column.0 as usize]) {
            self.ended.insert(column.0, now);
        }
        let samples = self.own_time.entry(column.0).or_default();
        if samples.last().is_some_and(|last| last.at >= sample.at) {
            return false;
        }
        samples.push(sample);
        true
    }

    /// The series of a column.
    pub fn series(&self, column: Column) -> Option<SeriesId> {
        self.columns.get(column.0 as usize).copied().flatten()
    }

    fn begin_chunk(&mut self, at: Timestamp) {
        let begin = at.minus(self.window);
        let full = self.open.replace(Open::new(at, self.latest.clone()));
        self.sealed.extend(full.map(|full| full.seal(&self.latest)));
        let held = self.sealed.len();
        while self
            .sealed
            .front()
            .is_some_and(|chunk| chunk.newest() < begin)
        {
            self.sealed.pop_front();
        }
        if self.sealed.len() < held {
            // Of the oldest row it is no longer known which series ended with it; the database has their markers.
            let oldest = self.sealed.front().map_or(at, Sealed::oldest);
            self.complete_from = self
                .complete_from
                .max(oldest.plus(Duration::from_millis(1)));
        }
    }

    /// Drops what no chunk has a value of any more.
    fn drop_ended(&mut self) -> Vec<Dropped> {
        let begin = self.complete_from;
        self.since.retain(|_, since| *since > begin);
        for samples in self.own_time.values_mut() {
            // The last one stays: it tells a repetition from news.
            let old = samples
                .partition_point(|sample| sample.at < begin)
                .min(samples.len() - 1);
            samples.drain(..old);
        }
        let gone: Vec<u32> = self
            .ended
            .extract_if(|_, &mut last| last < begin)
            .map(|(column, _)| column)
            .collect();
        let mut dropped = Vec::new();
        for column in gone {
            let last = self
                .own_time
                .remove(&column)
                .and_then(|samples| samples.last().copied());
            let from = last.map_or(begin, |last| {
                begin.max(last.at.plus(Duration::from_millis(1)))
            });
            self.free.push(column);
            self.since.remove(&column);
            let series = self.columns[column as usize].take();
            dropped.extend(series.map(|series| Dropped {
                series,
                column: Column(column),
                from,
            }));
        }
        // Every series has been in it before its first value.
        self.ended.shrink_to_fit();
        self.since.shrink_to_fit();
        dropped
    }

    /// The first instant after every sample of a column.
    fn after_last(&self, column: u32) -> Timestamp {
        let own = self
            .own_time
            .get(&column)
            .and_then(|samples| samples.last())
            .map(|sample| sample.at);
        let last = self.newest().max(own);
        last.map_or(self.complete_from, |last| {
            self.complete_from.max(last.plus(Duration::from_millis(1)))
        })
    }

    fn range(&self, column: u32, from: Timestamp, to: Timestamp) -> Vec<Sample> {
        // Backwards, as a sealed chunk may have to be told what comes after it.
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
        let own = self.own_time.get(&column).into_iter().flatten();
        let own = own
            .filter(|sample| sample.at >= from && sample.at <= to)
            .copied();
        merge(samples, own.collect())
    }

    fn last(&self, column: u32, from: Timestamp, to: Timestamp) -> Vec<Sample> {
        if let Some(at) = self.newest().filter(|&at| from <= at && at <= to)
            && !self.own_time.contains_key(&column)
        {
            return vec![Sample {
                at,
                value: self.latest[column as usize],
            }];
        }
        // Mostly it is in the last part of the range; only what has ended before makes us look further back.
        let near = from.max(to.minus(self.window / CHUNKS_PER_WINDOW));
        let mut samples = self.range(column, near, to);
        if samples.last().is_none_or(|last| is_stale(last.value)) {
            samples = self.range(column, from, to);
        }
        samples.split_off(samples.len().saturating_sub(1))
    }
}

/// Two lists in order of time as one; of two samples of one instant the first list's stays.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(8);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn group(head: &Head, series: u32) -> (u32, Arc<RwLock<Rows>>) {
        let (id, rows) = head.open_group(at(0));
        for number in 0..series {
            assert_eq!(
                head.column(id, &rows, SeriesId(number)),
                Some(Column(number))
            );
        }
        (id, rows)
    }

    fn show(samples: &[Sample]) -> Vec<(i64, String)> {
        let show = |value: f64| {
            if is_stale(value) {
                "stale".to_owned()
            } else {
                value.to_string()
            }
        };
        samples
            .iter()
            .map(|sample| (sample.at.whole_seconds() - 1_000_000, show(sample.value)))
            .collect()
    }

    fn range(head: &Head, series: u32, from: i64, to: i64) -> Vec<(i64, String)> {
        show(
            &head
                .range(&[SeriesId(series)], at(from), at(to), &mut |_| true)
                .unwrap()[0]
                .samples,
        )
    }

    #[test]
    fn a_series_that_leaves_the_page_ends_once() {
        let head = Head::new(WINDOW, at(0));
        let (_, rows) = group(&head, 2);
        let mut written = Vec::new();
        for (second, row) in [
            (0, [1.0, 5.0]),
            (1, [1.0, STALE]),
            (2, [2.0, STALE]),
            (3, [2.0, f64::NAN]),
        ] {
            write(&rows).push(at(second), &row, |id, value| {
                written.push((second, id.0, value.to_string()))
            });
        }
        let expected = [
            (0, "5".to_owned()),
            (1, "stale".to_owned()),
            (3, "NaN".to_owned()),
        ];
        assert_eq!(range(&head, 1, 0, 9), expected);
        assert_eq!(
            range(&head, 0, 1, 2),
            [(1, "1".to_owned()), (2, "2".to_owned())]
        );
        assert_eq!(written.iter().filter(|(_, id, _)| *id == 1).count(), 3);
        let last = |series, to| {
            show(
                &head
                    .last(&[SeriesId(series)], at(0), at(to), &mut |_| true)
                    .unwrap()[0]
                    .samples,
            )
        };
        assert_eq!(last(0, 9), [(3, "2".to_owned())]);
        assert_eq!(last(1, 2), [(1, "stale".to_owned())]);
        assert_eq!(last(1, 0), [(0, "5".to_owned())]);
    }

    #[test]
    fn a_series_that_is_gone_for_long_gives_its_column_back() {
        let head = Head::new(WINDOW, at(0));
        let (group, rows) = group(&head, 1);
        let mut dropped = Vec::new();
        for second in 0..30 {
            let row = [if second < 3 { 7.0 } else { STALE }];
            dropped.extend(write(&rows).push(at(second), &row, |_, _| {}).dropped);
        }
        let [gone] = dropped[..] else {
            panic!("{dropped:?}")
        };
        assert_eq!((gone.series, gone.column), (SeriesId(0), Column(0)));
        // The marker of its end is the last that the database has.
        assert!(gone.from > at(3) && gone.from < at(13), "{gone:?}");
        head.forget(&dropped);
        assert_eq!(
            head.last(&[SeriesId(0)], at(0), at(99), &mut |_| true)
                .unwrap()[0]
                .complete_from,
            gone.from
        );
        assert_eq!(head.column(group, &rows, SeriesId(9)), Some(Column(0)));
        write(&rows).push(at(30), &[1.0], |_, _| {});
        assert_eq!(range(&head, 9, 0, 99), [(30, "1".to_owned())]);
        assert_eq!(range(&head, 0, 0, 99), []);
    }

    #[test]
    fn two_groups_cannot_have_one_series() {
        let head = Head::new(WINDOW, at(0));
        let (first, _) = group(&head, 1);
        let (second, rows) = head.open_group(at(0));
        assert_eq!(head.column(second, &rows, SeriesId(0)), None);
        head.close_group(first);
        assert_eq!(head.column(second, &rows, SeriesId(0)), Some(Column(0)));
    }

    #[test]
    fn own_timestamps_are_kept_once() {
        let head = Head::new(WINDOW, at(0));
        let (_, rows) = group(&head, 1);
        let push = |second, value| {
            write(&rows).push_own_time(
                Column(0),
                at(9),
                Sample {
                    at: at(second),
                    value,
                },
            )
        };
        assert_eq!(
            [push(1, 1.0), push(1, 2.0), push(0, 3.0), push(2, 4.0)],
            [true, false, false, true]
        );
        assert_eq!(
            range(&head, 0, 0, 9),
            [(1, "1".to_owned()), (2, "4".to_owned())]
        );
        assert_eq!(
            show(
                &head
                    .last(&[SeriesId(0)], at(0), at(1), &mut |_| true)
                    .unwrap()[0]
                    .samples
            ),
            [(1, "1".to_owned())]
        );
    }

    /// Values of each kind: those that end, stay, move on, jump, and are no numbers.
    fn value(second: i64, cell: u8) -> f64 {
        match cell {
            // Every fifth row is full, or columns would be given back.
            0 if second % 5 != 0 => STALE,
            0 | 1 => 1.0,
            2 => second as f64 / 10.0,
            3 => (second * second % 13) as f64 * 4096.0,
            4 => f64::NAN,
            _ => f64::from(cell).sqrt(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The head against the plainest thing that could work: every row in full.
        #[test]
        fn a_head_answers_like_a_table(
            table in proptest::collection::vec(proptest::collection::vec(0_u8..7, 70), 1..130),
            // How many seconds in a row a column keeps its kind of value.
            pace in prop::sample::select(vec![1_usize, 3, 40]),
            window in prop::sample::select(vec![8_i64, 64]),
            column in 0_usize..70,
            from in 0_i64..130,
            length in 0_i64..130,
        ) {
            let head = Head::new(Duration::from_secs(window.unsigned_abs()), at(0));
            let (_, rows) = group(&head, 70);
            let cell = |second: i64, column: usize| {
                let row = &table[second as usize / pace];
                // The last columns come later, as those of a job that starts.
                if second < 5 && column >= 50 { STALE } else { value(second, row[column]) }
            };
            let seconds = table.len() as i64;
            for second in 0..seconds {
                let width = if second < 5 { 50 } else { 70 };
                let row: Vec<f64> = (0..width).map(|column| cell(second, column)).collect();
                write(&rows).push(at(second), &row, |_, _| {});
            }
            let from = from.max(seconds - 1 - window);
            let to = from + length;
            let mut expected = Vec::new();
            let mut was_stale = true;
            for second in 0..seconds {
                let value = cell(second, column);
                if second >= from && second <= to && !(is_stale(value) && was_stale) {
                    expected.push(Sample { at: at(second), value });
                }
                was_stale = is_stale(value);
            }
            let series = [SeriesId(column as u32)];
            let mut found = head.range(&series, at(from), at(to), &mut |_| true).unwrap().remove(0).samples;
            let last = head.last(&series, at(from), at(to), &mut |_| true).unwrap().remove(0).samples;
            let bits = |samples: &[Sample]| -> Vec<_> {
                samples.iter().map(|sample| (sample.at, sample.value.to_bits())).collect()
            };
            if let [.., newest] = expected[..] && !is_stale(newest.value) {
                prop_assert_eq!(bits(&last), bits(&[newest]));
            } else {
                prop_assert!(last.iter().all(|sample| is_stale(sample.value)));
            }
            // Chunks before `from` are not read, so the range may begin with a marker more or less.
            for samples in [&mut expected, &mut found] {
                if samples.first().is_some_and(|first| is_stale(first.value)) {
                    samples.remove(0);
                }
            }
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }
}
