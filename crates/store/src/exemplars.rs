//! Exemplars of series, in memory.
//!
//! As in Prometheus: a ring with room for a fixed number of exemplars of all series, in which a new
//! one replaces the oldest. The ring grows as exemplars arrive, and a restart empties it.

use super::{SeriesId, Store};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use takt_model::exposition::Exemplar;
use takt_model::{Labels, Matcher, Timestamp};

/// Maximum length of an exemplar's label names and values, in characters (OpenMetrics 1.0).
const MAX_CHARACTERS: usize = 128;

/// The exemplars of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplars {
    /// Labels of the series.
    pub labels: Labels,
    /// Exemplars in order of time. Each has a time.
    pub exemplars: Vec<Exemplar>,
}

/// The ring of all exemplars.
#[derive(Debug)]
pub(crate) struct Exemplars {
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// In order of arrival.
    all: VecDeque<StoredExemplar>,
    /// Number of exemplars that were removed from the front of `all`.
    removed: u64,
    /// Position of the newest exemplar of each series, counted from the first one ever.
    newest: HashMap<SeriesId, u64>,
}

#[derive(Debug, Clone)]
struct StoredExemplar {
    series: SeriesId,
    labels: Labels,
    value: f64,
    at: Timestamp,
    /// Whether the target sent the time. Otherwise it is the time of the scrape.
    has_time: bool,
}

impl Exemplars {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ring: Mutex::default(),
        }
    }

    /// Stores the exemplar of a series. A page repeats an exemplar until a newer one exists: a
    /// repetition is ignored, as is an exemplar that is older than the newest of its series or has
    /// too long labels.
    pub fn add(&self, series: SeriesId, exemplar: &Exemplar, scraped: Timestamp) {
        let characters = |text: &str| text.chars().count();
        let length = exemplar
            .labels
            .iter()
            .map(|(name, value)| characters(name) + characters(value));
        // OpenMetrics counts characters, not bytes.
        if self.capacity == 0 || length.sum::<usize>() > MAX_CHARACTERS {
            return;
        }

        let new = StoredExemplar {
            series,
            labels: exemplar.labels.clone(),
            value: exemplar.value,
            at: exemplar.at.unwrap_or(scraped),
            has_time: exemplar.at.is_some(),
        };

        let mut ring = self.ring();
        if ring
            .newest(series)
            .is_some_and(|newest| !new.follows(newest))
        {
            return;
        }

        ring.push(new, self.capacity);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn newest(&self, series: SeriesId) -> Option<&StoredExemplar> {
        let position = self.newest.get(&series)?.checked_sub(self.removed)?;
        self.all.get(usize::try_from(position).ok()?)
    }

    fn push(&mut self, new: StoredExemplar, capacity: usize) {
        if self.all.len() >= capacity
            && let Some(oldest) = self.all.pop_front()
        {
            // A newer exemplar of the series may still be there.
            if self.newest.get(&oldest.series) == Some(&self.removed) {
                self.newest.remove(&oldest.series);
            }
            self.removed += 1;
        }
        let position = self.removed + self.all.len() as u64;
        self.newest.insert(new.series, position);
        self.all.push_back(new);
    }
}

impl StoredExemplar {
    /// Whether the exemplar is neither a repetition of `newest` nor older.
    fn follows(&self, newest: &Self) -> bool {
        let is_same_time =
            // A page without times repeats its exemplar, with the time of each scrape.
            self.has_time == newest.has_time && (!self.has_time || self.at == newest.at);
        let is_same = is_same_time
            && self.labels == newest.labels
            && self.value.to_bits() == newest.value.to_bits();
        // Prometheus orders exemplars of one time by their values.
        let is_older = self.at < newest.at || (self.at == newest.at && self.value < newest.value);
        !is_same && !is_older
    }
}

impl Store {
    /// Whether exemplars are kept.
    pub fn keeps_exemplars(&self) -> bool {
        self.shared.exemplars.capacity > 0
    }

    /// Returns the exemplars in `[from, to]` of the series that one of the selectors accepts,
    /// sorted by labels.
    pub fn exemplars(
        &self,
        selectors: &[Vec<Matcher>],
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<SeriesExemplars> {
        let table = self
            .shared
            .series
            .read()
            .unwrap_or_else(PoisonError::into_inner);

        let selected = selectors
            .iter()
            .map(|matchers| table.matching(matchers))
            .fold(RoaringBitmap::new(), |all, some| all | some);

        let mut by_series: HashMap<SeriesId, Vec<Exemplar>> = HashMap::new();
        for stored in &self.shared.exemplars.ring().all {
            if selected.contains(stored.series.0) && (from..=to).contains(&stored.at) {
                by_series.entry(stored.series).or_default().push(Exemplar {
                    labels: stored.labels.clone(),
                    value: stored.value,
                    at: Some(stored.at),
                });
            }
        }

        let mut found: Vec<SeriesExemplars> = by_series
            .into_iter()
            .map(|(series, exemplars)| SeriesExemplars {
                labels: table.labels(series),
                exemplars,
            })
            .collect();
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(trace: &str, value: f64, at: Option<i64>) -> Exemplar {
        Exemplar {
            labels: [("trace_id", trace)].into_iter().collect(),
            value,
            at: at.map(Timestamp),
        }
    }

    fn kept(exemplars: &Exemplars) -> Vec<(u32, i64)> {
        let ring = exemplars.ring();
        ring.all
            .iter()
            .map(|stored| (stored.series.0, stored.at.0))
            .collect()
    }

    #[test]
    fn repetitions_and_older_exemplars_are_ignored() {
        let exemplars = Exemplars::new(10);
        let add = |exemplar, at| exemplars.add(SeriesId(1), &exemplar, Timestamp(at));
        add(exemplar("a", 1.0, Some(5)), 10);
        add(exemplar("a", 1.0, Some(5)), 20);
        add(exemplar("b", 1.0, Some(4)), 20);
        add(exemplar(&"x".repeat(121), 1.0, Some(9)), 20);
        add(exemplar("b", 1.0, None), 30);
        add(exemplar("b", 1.0, None), 40);
        add(exemplar("b", 2.0, None), 50);
        assert_eq!(kept(&exemplars), [(1, 5), (1, 30), (1, 50)]);
    }

    #[test]
    fn a_full_ring_forgets_the_oldest() {
        let exemplars = Exemplars::new(2);
        for (series, at) in [(1, 1), (2, 2), (2, 3), (1, 1), (1, 4)] {
            let one = exemplar("a", 1.0, Some(at));
            exemplars.add(SeriesId(series), &one, Timestamp(at));
        }
        // The newest exemplar of series 1 was gone, so its repetition counted as new.
        assert_eq!(kept(&exemplars), [(1, 1), (1, 4)]);
        assert_eq!(exemplars.ring().newest.len(), 1);
        let none = Exemplars::new(0);
        none.add(SeriesId(1), &exemplar("a", 1.0, None), Timestamp(1));
        assert_eq!(kept(&none), []);
    }
}
