//! Pushed samples: each has a timestamp of its own, may come late, and may come again.
//!
//! A pushed sample goes into the head and into the queue at once. Its sender gets a reply when the
//! writer has synced it. If the writer cannot, the sample is removed from both again, so that the
//! sender's next attempt begins from the same state.

use super::block::{Caching, Reading};
use super::head::Column;
use super::intake::{Group, SharedState};
use super::metrics::DropReason;
use super::queue::Batch;
use super::unsealed::ALL_TIME;
use super::{Health, Sample, SeriesId, Store, StoreError};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Pause between two looks at a batch that the writer is writing.
const PAUSE: Duration = Duration::from_millis(5);

/// State of [`Placed::committed`] before the commit.
const UNCOMMITTED: i64 = i64::MIN;

/// Result of placing a pushed sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The sample is new.
    New,
    /// The series has the same sample already.
    Repeated,
    /// The series has another value at that time. The first one stays.
    Conflicting,
}

/// Samples cannot be stored now.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The disk is full or fails.
    #[error("samples cannot be written: {0}")]
    Unwritable(String),
    /// The clock went back.
    #[error(transparent)]
    Clock(#[from] super::ClockWentBack),
    /// Samples of the series cannot be read.
    #[error("cannot compare with stored samples")]
    Unreadable(#[source] StoreError),
}

/// Pushed samples in the head that may not be durable yet. Pass them to [`Store::confirm`].
#[derive(Debug)]
#[must_use]
pub struct Placed {
    /// Result for each sample, in the order given.
    pub placements: Vec<Placement>,
    /// The new samples.
    new: Vec<(Column, Timestamp)>,
    /// Set by the writer.
    committed: Arc<AtomicI64>,
    /// Set by [`Store::confirm`].
    outcome: Arc<PlacedOutcome>,
    /// Outcomes of the requests whose samples these may repeat.
    earlier: Vec<Arc<PlacedOutcome>>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        // Others must not wait for what nobody confirms.
        if !self.outcome.is_decided() {
            self.outcome.set(PlacedOutcome::REMOVED);
        }
    }
}

/// Whether placed samples are durable, or were removed again.
#[derive(Debug, Default)]
pub(crate) struct PlacedOutcome(AtomicU8);

impl PlacedOutcome {
    const DURABLE: u8 = 1;
    const REMOVED: u8 = 2;

    fn set(&self, outcome: u8) {
        self.0.store(outcome, Ordering::Release);
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Waits for the outcome. Returns whether the samples are durable.
    fn wait(&self) -> bool {
        while !self.is_decided() {
            std::thread::sleep(PAUSE);
        }
        self.0.load(Ordering::Acquire) == Self::DURABLE
    }
}

impl Group {
    /// Opens a group for pushed samples. The head has everything since the store was opened.
    pub(crate) fn open_pushed(shared: Arc<SharedState>) -> Self {
        let began = shared.head.began();
        Self::open(shared, began)
    }

    /// Removes samples from memory that left the head's window, and the columns of series that got
    /// no samples for a window. Returns these columns. Call it regularly on groups of pushed
    /// samples.
    pub fn age(&self, now: Timestamp) -> Vec<Column> {
        let dropped = {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            rows.age(now)
        };
        self.shared.head.forget(&dropped);
        dropped.iter().map(|gone| gone.column).collect()
    }

    /// Returns whether the series with these labels has a column.
    pub fn has_series(&self, labels: &Labels) -> bool {
        let known = {
            let table = self.shared.series.read();
            table.unwrap_or_else(PoisonError::into_inner).find(labels)
        };
        known.is_some_and(|series| self.shared.head.has_column(self.id(), series))
    }

    /// Returns the series of samples whose repetition only the disk can show, and the range of
    /// their times.
    fn unknown(
        &self,
        samples: &[(Column, Sample)],
    ) -> (RoaringBitmap, Option<(Timestamp, Timestamp)>) {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let mut series = RoaringBitmap::new();
        let mut range = None;
        for &(column, sample) in samples {
            if let Some(SeriesId(id)) = rows.series(column)
                && sample.at < rows.complete_from(column.0)
            {
                series.insert(id);
                let (from, to) = range.unwrap_or((sample.at, sample.at));
                range = Some((sample.at.min(from), sample.at.max(to)));
            }
        }
        (series, range)
    }
}

impl Store {
    /// Adds a group of series that are pushed, not scraped.
    pub fn pushed_group(&self) -> Group {
        Group::open_pushed(Arc::clone(&self.shared))
    }

    /// Adds pushed samples to the series of a group. Queries see them at once. Reads the disk for
    /// samples that are older than the head. The caller makes one call at a time for each group.
    ///
    /// # Errors
    /// If the disk is full or fails, or the clock went back. Nothing is added then.
    pub fn place(&self, group: &Group, samples: &[(Column, Sample)]) -> Result<Placed, PushError> {
        self.place_sets(group, samples, &[])
    }

    /// As [`place`](Self::place). The samples of a set, such as the parts of a histogram, are added together: all if the first
    /// one is new, else none. The first one's placement stands for the set, which repeats another
    /// one only if all of its samples do. `sets` has their numbers, in order.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub fn place_sets(
        &self,
        group: &Group,
        samples: &[(Column, Sample)],
        sets: &[Range<usize>],
    ) -> Result<Placed, PushError> {
        self.check_writing()?;

        let stored = match group.unknown(samples) {
            (series, Some(range)) => self
                .stored(
                    series,
                    range,
                    (Reading::Last, Caching::Metrics),
                    &mut |_| true,
                )
                .map_err(PushError::Unreadable)?,
            (_, None) => HashMap::new(),
        };

        let now = self.now();
        let ticket = group.ticket(now)?;
        let committed = Arc::new(AtomicI64::new(UNCOMMITTED));

        let mut placements = Vec::with_capacity(samples.len());
        let mut new = Vec::with_capacity(samples.len());
        let mut past = Vec::with_capacity(samples.len());
        let mut rows = group.rows.write().unwrap_or_else(PoisonError::into_inner);

        let mut sets = sets.iter().peekable();
        for (number, &(column, sample)) in samples.iter().enumerate() {
            while sets.next_if(|set| set.end <= number).is_some() {}
            let first = sets.peek().map(|set| set.start);
            let first = first.filter(|&first| first < number);
            let of_set = first.map(|first| placements[first]);

            let Some(series) = rows.series(column) else {
                // The caller uses a column that was dropped.
                placements.push(Placement::Conflicting);
                continue;
            };

            let on_disk = stored.get(&series.0).map_or(&[][..], Vec::as_slice);
            if let (Some(first), Some(mut placement)) = (first, of_set)
                && placement != Placement::New
            {
                if placement == Placement::Repeated && !rows.has(column, sample, on_disk) {
                    placement = Placement::Conflicting;
                    placements[first] = placement;
                }
                placements.push(placement);
                continue;
            }

            let placement = rows.place(column, now, sample, on_disk);
            placements.push(placement);
            if placement == Placement::New {
                new.push((column, sample.at));
                past.push((series.0, sample));
            }
        }

        let outcome = Arc::new(PlacedOutcome::default());
        let earlier = rows.await_outcome(&outcome);
        if !past.is_empty() {
            let dropped = self.shared.queue.push(Batch {
                ticket,
                // The number of no group.
                group: 0,
                committed: Arc::clone(&committed),
                series: Vec::new(),
                values: Vec::new(),
                own_time: Vec::new(),
                past: Arc::new(past.into()),
            });
            let metrics = &self.shared.metrics;
            metrics.drop_samples(DropReason::QueueFull, dropped);
        }

        drop(rows);
        Ok(Placed {
            placements,
            new,
            committed,
            outcome,
            earlier,
        })
    }

    /// Returns the newest sample of each of these columns that has one since `since`. May read the
    /// disk.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn newest(
        &self,
        group: &Group,
        columns: &[Column],
        since: Timestamp,
    ) -> Result<HashMap<Column, Sample>, PushError> {
        let mut found = HashMap::new();
        let mut older = HashMap::new();

        let rows = group.rows.read().unwrap_or_else(PoisonError::into_inner);
        for &column in columns {
            let Some(series) = rows.series(column) else {
                continue;
            };
            match rows.last(column.0, since, ALL_TIME.1).pop() {
                Some(sample) => drop(found.insert(column, sample)),
                None => drop(older.insert(series.0, column)),
            }
        }

        drop(rows);
        let stored = self.stored(
            older.keys().copied().collect(),
            (since, ALL_TIME.1),
            (Reading::Last, Caching::Metrics),
            &mut |_| true,
        );

        for (series, samples) in stored.map_err(PushError::Unreadable)? {
            if let (Some(&column), Some(&sample)) = (older.get(&series), samples.last()) {
                found.insert(column, sample);
            }
        }
        Ok(found)
    }

    /// Waits until placed samples, and earlier ones that they repeat, are durable. Blocks.
    ///
    /// # Errors
    /// If they cannot be written. They are removed again then.
    pub fn confirm(&self, group: &Group, placed: &Placed) -> Result<(), PushError> {
        if placed.placements.is_empty() {
            return Ok(());
        }

        self.flush();
        if !placed.new.is_empty() {
            self.confirm_new(group, placed)?;
        }

        placed.outcome.set(PlacedOutcome::DURABLE);
        if placed.new.len() == placed.placements.len() {
            return Ok(());
        }

        // The samples that these repeat may be those of a request that is not decided yet.
        if placed.earlier.iter().all(|earlier| earlier.wait()) {
            return Ok(());
        }

        let reason = "samples that these repeat could not be written";
        Err(PushError::Unwritable(reason.to_owned()))
    }

    /// Waits until the new samples are durable.
    fn confirm_new(&self, group: &Group, placed: &Placed) -> Result<(), PushError> {
        while placed.committed.load(Ordering::Acquire) == UNCOMMITTED {
            let is_gone = self.shared.queue.withdraw(&placed.committed)
                || Arc::strong_count(&placed.committed) == 1;

            // What the writer did before it gave its mark up is visible from here on.
            fence(Ordering::Acquire);
            if is_gone && placed.committed.load(Ordering::Acquire) == UNCOMMITTED {
                let mut rows = group.rows.write().unwrap_or_else(PoisonError::into_inner);
                for &(column, at) in &placed.new {
                    rows.remove_placed(column, at);
                }
                drop(rows);
                placed.outcome.set(PlacedOutcome::REMOVED);
                self.check_writing()?;
                let reason = "the commit failed".to_owned();
                return Err(PushError::Unwritable(reason));
            }

            // The writer is writing the batch.
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn check_writing(&self) -> Result<(), PushError> {
        match &*self.health().borrow() {
            Health::Writing => Ok(()),
            Health::Waiting(reason) | Health::Invalidated(reason) => {
                Err(PushError::Unwritable(reason.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, StoreConfig};
    use prometheus_client::registry::Registry;
    use takt_model::{Labels, METRIC_NAME, Matcher};

    fn open(root: &std::path::Path, min_free_bytes: u64) -> Store {
        let config = StoreConfig {
            commit_interval_ms: 20,
            min_free_bytes,
            ..StoreConfig::default()
        };
        let directory = DataDir::claim(root).unwrap();
        Store::open(directory, &config, &mut Registry::default()).unwrap()
    }

    fn column(group: &Group, metric: &str) -> Column {
        let labels: Labels = [(METRIC_NAME, metric)].into_iter().collect();
        group.column(&labels).unwrap()
    }

    fn stored(store: &Store, metric: &str) -> Vec<(i64, f64)> {
        let all = (Timestamp(0), Timestamp(i64::MAX));
        let found = store.range(&[Matcher::metric(metric)], all.0, all.1);
        let samples = found.unwrap().into_iter().flat_map(|one| one.samples);
        samples.map(|one| (one.at.0, one.value)).collect()
    }

    fn sample(at: i64, value: f64) -> Sample {
        Sample {
            at: Timestamp(at),
            value,
        }
    }

    #[test]
    fn what_cannot_be_written_is_removed_again() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), u64::MAX);
        let group = store.pushed_group();
        let up = column(&group, "up");
        let at = store.now().0 - 1000;
        // The store learns from the first commit that the disk is full.
        let placed = store.place(&group, &[(up, sample(at, 1.0))]).unwrap();
        assert_eq!(stored(&store, "up"), [(at, 1.0)]);
        assert!(matches!(
            store.confirm(&group, &placed),
            Err(PushError::Unwritable(_))
        ));
        assert_eq!(stored(&store, "up"), []);
        assert!(matches!(
            store.place(&group, &[(up, sample(at, 1.0))]),
            Err(PushError::Unwritable(_))
        ));
        drop((group, placed));
        drop(store);
        let store = open(root.path(), 0);
        assert_eq!(stored(&store, "up"), []);
        let group = store.pushed_group();
        let up = column(&group, "up");
        let placed = store.place(&group, &[(up, sample(at, 1.0))]).unwrap();
        store.confirm(&group, &placed).unwrap();
        assert_eq!(placed.placements, [Placement::New]);
        let again = store.place(&group, &[(up, sample(at, 1.0))]).unwrap();
        store.confirm(&group, &again).unwrap();
        assert_eq!(again.placements, [Placement::Repeated]);
    }

    /// A sender that got no reply sends again, while the first request still waits for the disk.
    #[test]
    fn a_repetition_is_confirmed_after_what_it_repeats() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), 0);
        let group = store.pushed_group();
        let up = column(&group, "up");
        let at = store.now().0 - 1000;
        let place = |at| store.place(&group, &[(up, sample(at, 1.0))]).unwrap();
        let (first, second) = (place(at), place(at));
        assert_eq!(second.placements, [Placement::Repeated]);
        std::thread::scope(|threads| {
            let repetition = threads.spawn(|| store.confirm(&group, &second));
            std::thread::sleep(10 * PAUSE);
            assert!(!repetition.is_finished());
            store.confirm(&group, &first).unwrap();
            repetition.join().unwrap().unwrap();
        });
        let (lost, repetition) = (place(at + 1), place(at + 1));
        drop(lost);
        assert!(matches!(
            store.confirm(&group, &repetition),
            Err(PushError::Unwritable(_))
        ));
    }

    #[test]
    fn a_set_is_added_as_a_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), 0);
        let group = store.pushed_group();
        let [up, count, sum] = ["up", "count", "sum"].map(|name| column(&group, name));
        let at = store.now().0 - 1000;
        let place = |count_of, sum_of, up_at| {
            let samples = [
                (count, sample(at, count_of)),
                (sum, sample(at, sum_of)),
                (up, sample(up_at, 1.0)),
            ];
            let set = 0..2;
            let placed = store.place_sets(&group, &samples, std::slice::from_ref(&set));
            let placed = placed.unwrap();
            store.confirm(&group, &placed).unwrap();
            placed.placements.clone()
        };
        use Placement::{Conflicting, New, Repeated};
        assert_eq!(place(1.0, 2.0, at), [New, New, New]);
        assert_eq!(place(1.0, 2.0, at), [Repeated, Repeated, Repeated]);
        assert_eq!(place(3.0, 2.0, at + 1), [Conflicting, Conflicting, New]);
        // The first sample is the same, another one is not.
        let differing = place(1.0, 5.0, at);
        assert_eq!(differing, [Conflicting, Conflicting, Repeated]);
        assert_eq!(stored(&store, "count"), [(at, 1.0)]);
        assert_eq!(stored(&store, "sum"), [(at, 2.0)]);
    }

    /// Each sample is there once and in order, whatever the order of arrival, and whether memory or
    /// the disk knows the earlier ones.
    #[test]
    fn samples_in_any_order_are_stored_once() {
        use proptest::prelude::*;
        let offset = prop_oneof![0_i64..40, 7_200_000_i64..7_200_040];
        let request = prop::collection::vec(offset, 1..6);
        let requests = prop::collection::vec((request, any::<bool>(), any::<bool>()), 1..8);
        let config = ProptestConfig {
            cases: 10,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        proptest!(config, |(requests in requests)| {
            let root = tempfile::tempdir().unwrap();
            let mut store = open(root.path(), 0);
            let mut group = store.pushed_group();
            let began = store.now().0 - 1000;
            let mut expected = std::collections::BTreeMap::new();
            for (offsets, ages, reopens) in requests {
                let up = column(&group, "up");
                let given: Vec<_> = offsets
                    .iter()
                    .map(|&offset| (up, sample(began - offset, offset as f64)))
                    .collect();
                let placed = store.place(&group, &given).unwrap();
                store.confirm(&group, &placed).unwrap();
                for ((_, one), placement) in given.iter().zip(&placed.placements) {
                    let known = expected.insert(one.at.0, one.value);
                    let is_new = *placement == Placement::New;
                    prop_assert_eq!(is_new, known.is_none());
                    prop_assert_ne!(*placement, Placement::Conflicting);
                }
                if ages {
                    group.age(store.now());
                }
                if reopens {
                    drop(group);
                    drop(store);
                    store = open(root.path(), 0);
                    group = store.pushed_group();
                }
                let all: Vec<(i64, f64)> = expected.iter().map(|(at, value)| (*at, *value)).collect();
                prop_assert_eq!(stored(&store, "up"), all);
            }
        });
    }
}
