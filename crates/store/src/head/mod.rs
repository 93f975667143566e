//! The head: the samples of the last minutes, in memory.
//!
//! The series of one scrape target form a group. Each scrape is one row: a timestamp and one column
//! per series. New rows go into an open chunk; older rows are packed by series ([`chunk`]).
//! The oldest chunk is dropped as a whole.
//!
//! Samples with timestamps of their own are stored beside the rows.

mod chunk;
mod column_map;
mod own_time;
mod rows;
#[cfg(test)]
mod tests;

use super::allocator::make_room;
use super::{Meter, Sample, SeriesId};
pub(crate) use chunk::{ChunkIndex, ColumnPlace, SealedChunk};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
pub(crate) use rows::{DroppedSeries, GroupRows, merge};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use takt_model::Timestamp;

/// Marks the end of a series (Prometheus' staleness marker). It exists in memory only; the database
/// stores NULL.
pub const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Returns whether `value` is [`STALE`]. The marker is a NaN, so `==` cannot find it.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// Milliseconds between the chunk ends of two groups. A prime number, so that the ends of many
/// groups do not coincide.
const PHASE_STEP_MS: u32 = 7919;

/// All groups, and the location of each series.
#[derive(Debug)]
pub(crate) struct Head {
    window: Duration,
    began: Timestamp,
    groups: RwLock<HashMap<u32, Arc<RwLock<GroupRows>>>>,
    locations: RwLock<SeriesLocations>,
}

#[derive(Debug, Default)]
struct SeriesLocations {
    by_series: Vec<SeriesLocation>,
    next_group: u32,
}

/// Location of the newest samples of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SeriesLocation {
    /// Only in the database: all samples are older than this process.
    #[default]
    Stored,
    /// In a column of a group.
    Column { group: u32, column: u32 },
    /// In the database only: the series had a column, and has no samples from this time on.
    Ended(Timestamp),
}

/// Column of a series in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column(pub(crate) u32);

impl Column {
    /// Returns the column with this index in a row.
    #[inline]
    pub const fn at(index: u32) -> Self {
        Self(index)
    }

    /// Index in a row.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Samples of one series in the head.
#[derive(Debug)]
pub(crate) struct RecentSamples {
    /// The head has every sample from this time on.
    pub complete_from: Timestamp,
    pub samples: Vec<Sample>,
}

impl Head {
    /// Returns an empty head. From `began` on, all samples arrive through this head.
    pub fn new(window: Duration, began: Timestamp) -> Self {
        Self {
            window,
            began,
            groups: RwLock::default(),
            locations: RwLock::default(),
        }
    }

    /// Adds a group without series. The group has no samples before `from`.
    pub fn open_group(&self, from: Timestamp) -> (u32, Arc<RwLock<GroupRows>>) {
        let id = {
            let mut locations = write(&self.locations);
            locations.next_group += 1;
            locations.next_group
        };
        let rows = Arc::new(RwLock::new(GroupRows::new(
            from,
            self.window,
            id.wrapping_mul(PHASE_STEP_MS),
        )));
        write(&self.groups).insert(id, Arc::clone(&rows));
        (id, rows)
    }

    /// All groups, by number.
    pub fn groups(&self) -> Vec<(u32, Arc<RwLock<GroupRows>>)> {
        let groups = read(&self.groups);
        groups
            .iter()
            .map(|(&id, rows)| (id, Arc::clone(rows)))
            .collect()
    }

    /// Removes a group. Its samples remain in the database.
    pub fn close_group(&self, id: u32) {
        let Some(rows) = write(&self.groups).remove(&id) else {
            return;
        };
        // Lock order: locations before rows, as in all methods.
        let mut locations = write(&self.locations);
        let rows = read(&rows);
        for (column, series) in rows.columns() {
            locations.by_series[series.0 as usize] = SeriesLocation::Ended(rows.after_last(column));
        }
    }

    /// Returns the column of a series in a group, a new one if needed. `None` if another group
    /// writes the series.
    pub fn column(&self, id: u32, rows: &RwLock<GroupRows>, series: SeriesId) -> Option<Column> {
        let mut locations = write(&self.locations);
        let index = series.0 as usize;
        while locations.by_series.len() <= index {
            make_room(&mut locations.by_series);
            locations.by_series.push(SeriesLocation::Stored);
        }
        match locations.by_series[index] {
            SeriesLocation::Column { group, column } => (group == id).then_some(Column(column)),
            SeriesLocation::Stored => self.give(&mut locations, (id, rows), series, self.began),
            SeriesLocation::Ended(from) => self.give(&mut locations, (id, rows), series, from),
        }
    }

    /// Whether a series has a column in a group.
    pub fn has_column(&self, id: u32, series: SeriesId) -> bool {
        let locations = read(&self.locations);
        let location = locations.by_series.get(series.0 as usize);
        matches!(location, Some(SeriesLocation::Column { group, .. }) if *group == id)
    }

    /// Whether a group of scraped series writes the series.
    pub fn is_scraped(&self, series: SeriesId) -> bool {
        let location = read(&self.locations)
            .by_series
            .get(series.0 as usize)
            .copied();
        let Some(SeriesLocation::Column { group, .. }) = location else {
            return false;
        };
        let groups = read(&self.groups);
        groups
            .get(&group)
            .is_some_and(|rows| !read(rows).has_pushed())
    }

    /// Adds a column for a series whose samples before `from` are in the database.
    fn give(
        &self,
        locations: &mut SeriesLocations,
        (group, rows): (u32, &RwLock<GroupRows>),
        series: SeriesId,
        from: Timestamp,
    ) -> Option<Column> {
        let column = write(rows).add_column(series, from);
        locations.by_series[series.0 as usize] = SeriesLocation::Column { group, column };
        Some(Column(column))
    }

    /// Records that series lost their columns.
    pub fn forget(&self, dropped: &[DroppedSeries]) {
        if !dropped.is_empty() {
            let mut locations = write(&self.locations);
            for gone in dropped {
                locations.by_series[gone.series.0 as usize] = SeriesLocation::Ended(gone.from);
            }
        }
    }

    /// Time from which on all samples arrived through this head.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// Returns the series that may have samples since `from` in this head.
    pub fn since(&self, from: Timestamp) -> RoaringBitmap {
        let locations = read(&self.locations);
        let is_active = |location: &SeriesLocation| match location {
            SeriesLocation::Stored => false,
            SeriesLocation::Column { .. } => true,
            SeriesLocation::Ended(end) => *end > from,
        };
        (0_u32..)
            .zip(&locations.by_series)
            .filter(|(_, location)| is_active(location))
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the samples of each series in `[from, to]`, in order of time. `None` if the meter
    /// stopped the read.
    pub fn range(
        &self,
        ids: &[SeriesId],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Option<Vec<RecentSamples>> {
        self.each(ids, meter, |rows, column| rows.range(column, from, to))
    }

    /// Returns the last sample of each series in `[from, to]`, which may be [`STALE`]. `None` if
    /// the meter stopped the read.
    pub fn last(
        &self,
        ids: &[SeriesId],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Option<Vec<RecentSamples>> {
        self.each(ids, meter, |rows, column| rows.last(column, from, to))
    }

    fn each(
        &self,
        ids: &[SeriesId],
        meter: Meter<'_>,
        read_one: impl Fn(&GroupRows, u32) -> Vec<Sample>,
    ) -> Option<Vec<RecentSamples>> {
        let locations: Vec<SeriesLocation> = {
            let locations = read(&self.locations);
            ids.iter()
                .map(|id| {
                    locations
                        .by_series
                        .get(id.0 as usize)
                        .copied()
                        .unwrap_or_default()
                })
                .collect()
        };
        let groups = read(&self.groups);
        let recent = |(&series, &location): (&SeriesId, &SeriesLocation)| {
            let (group, column) = match location {
                SeriesLocation::Stored => {
                    return RecentSamples {
                        complete_from: self.began,
                        samples: Vec::new(),
                    };
                }
                SeriesLocation::Ended(from) => {
                    return RecentSamples {
                        complete_from: from,
                        samples: Vec::new(),
                    };
                }
                SeriesLocation::Column { group, column } => (group, column),
            };
            match groups.get(&group).map(|rows| read(rows)) {
                Some(rows) if rows.series(Column(column)) == Some(series) => RecentSamples {
                    complete_from: rows.complete_from(column),
                    samples: read_one(&rows, column),
                },
                // The group or column was removed after the location was read.
                _ => RecentSamples {
                    complete_from: Timestamp(i64::MAX),
                    samples: Vec::new(),
                },
            }
        };
        let metered = |recent: RecentSamples| meter(recent.samples.len()).then_some(recent);
        ids.iter()
            .zip(&locations)
            .map(recent)
            .map(metered)
            .collect()
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
