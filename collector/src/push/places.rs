//! Where the samples of each pushed series go.
//!
//! A sender repeats its series in the same order. The place of a series is therefore mostly the one
//! that follows the last place, and is found without a search.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::sync::Arc;
use takt_push::LabelKey;
use takt_store::Column;

/// Where the samples of a series go.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Column in the group. `None` while another replica is elected.
    pub column: Option<Column>,
    pub replica: Option<Arc<str>>,
}

/// Places of series, by the keys of their labels.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the order of first use.
    all: Vec<(LabelKey, Place)>,
    /// Positions in `all`.
    positions: HashMap<LabelKey, usize>,
    /// Position after the last found place.
    next: usize,
}

impl Places {
    /// Returns the place of a series.
    pub fn get(&mut self, key: LabelKey) -> Option<&Place> {
        let is_next = |(known, _): &&(LabelKey, Place)| *known == key;
        let at = match self.all.get(self.next).filter(is_next) {
            Some(_) => self.next,
            None => *self.positions.get(&key)?,
        };

        // The position may lie behind the last place. The next look-up then searches.
        self.next = at + 1;
        Some(&self.all[at].1)
    }

    /// Adds or replaces the place of a series.
    pub fn insert(&mut self, key: LabelKey, place: Place) {
        match self.positions.entry(key) {
            Entry::Occupied(known) => self.all[*known.get()].1 = place,
            Entry::Vacant(new) => {
                new.insert(self.all.len());
                self.all.push((key, place));
                self.next = self.all.len();
            }
        }
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes all places.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes the places for which `keeps` returns `false`.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Place) -> bool) {
        self.all.retain(|(_, place)| keeps(place));
        self.next = 0;
        self.positions.clear();

        // The remaining places have moved, so every position changes.
        let positions = self.all.iter().enumerate();
        self.positions
            .extend(positions.map(|(at, (key, _))| (*key, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_push::MemoryGrant;
    use takt_push::remote_write::{Protocol, RequestWriter, decompress, read_request};

    fn keys(metrics: &[&str]) -> Vec<LabelKey> {
        let mut writer = RequestWriter::new(Protocol::V1);
        for metric in metrics {
            let labels = [("__name__", *metric)].into_iter().collect();
            writer.add(&labels, std::iter::empty());
        }
        let message = decompress(&writer.body(), 1 << 20).unwrap();
        read_request(
            Protocol::V1,
            message,
            &mut MemoryGrant::of_bytes(usize::MAX),
        )
        .unwrap()
        .iter()
        .map(|series| series.key)
        .collect()
    }

    #[test]
    fn places_are_found_in_any_order_and_after_others_were_removed() {
        let keys = keys(&["a", "b", "c", "d"]);
        let place = |at: usize| Place {
            column: Some(Column::at(at as u32)),
            replica: None,
        };

        let mut places = Places::default();
        for (at, &key) in keys.iter().enumerate() {
            assert!(places.get(key).is_none());
            places.insert(key, place(at));
        }
        let column = |places: &mut Places, at: usize| places.get(keys[at]).map(|one| one.column);
        // The usual order, its reverse, a repeated series, and an order that turns back.
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 0, 2, 3], [1, 2, 0, 1]] {
            for at in order {
                assert_eq!(column(&mut places, at), Some(place(at).column));
            }
        }

        // A place that changes keeps its position.
        places.insert(keys[1], place(7));
        assert_eq!(column(&mut places, 1), Some(place(7).column));
        places.retain(|one| one.column != place(0).column);
        assert_eq!(places.len(), 3);
        assert_eq!(column(&mut places, 0), None);
        for (at, expected) in [(2, 2), (3, 3), (1, 7)] {
            assert_eq!(column(&mut places, at), Some(place(expected).column));
        }
        places.clear();
        assert_eq!(places.len(), 0);
        assert_eq!(column(&mut places, 2), None);
    }
}
