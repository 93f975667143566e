//! Strips: the last seven days of each GPU at five minutes, one byte a slot, in memory.
//!
//! Pages show every GPU of the cluster over a day or a week. Reading that from samples takes seconds
//! for 2,400 GPUs; a strip of 2,016 bytes a GPU answers at once. [`Store::fill_strips`] fills the
//! strips from samples, and a file keeps them over a restart.

mod file;
mod fill;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use takt_model::{Timestamp, UnixTime};

/// Length of a slot, in seconds.
pub const SLOT_SECONDS: i64 = 300;

/// Returns the number of the slot that contains an instant.
pub fn slot_of(at: UnixTime) -> i64 {
    at.0.div_euclid(SLOT_SECONDS)
}

/// Returns the begin of a slot.
pub fn slot_start(slot: i64) -> UnixTime {
    UnixTime(slot.saturating_mul(SLOT_SECONDS))
}

/// Slots of a strip: seven days.
pub const SLOTS: i64 = 2016;

/// Steps of the utilization.
const STEPS: f64 = 126.0;

/// One slot: mean utilization, and whether a job or a process held the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u8);

impl Slot {
    /// Not measured.
    pub const UNKNOWN: Self = Self(255);

    /// A measured slot: utilization, 0 to 1, and whether the GPU was held.
    pub fn new(utilization_ratio: f64, is_held: bool) -> Self {
        let step = (utilization_ratio.clamp(0.0, 1.0) * STEPS).round() as u8;
        // The lowest bit says whether the GPU was held. The largest value is 253, and 255 means unknown.
        Self(step * 2 + u8::from(is_held))
    }

    /// Mean utilization, 0 to 1, to 1/126; `None` if it was not measured.
    pub fn utilization_ratio(self) -> Option<f64> {
        (self != Self::UNKNOWN).then(|| f64::from(self.0 / 2) / STEPS)
    }

    /// Whether a job or a process held the GPU; `false` if it was not measured.
    pub fn is_held(self) -> bool {
        self != Self::UNKNOWN && self.0 % 2 == 1
    }
}

/// A GPU in a node. A card that moves to another node has a strip in each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuPlace {
    /// Name of the node.
    pub node: String,
    /// UUID of the GPU.
    pub uuid: String,
}

/// The strips of all GPUs.
#[derive(Debug, Default)]
pub struct Strips {
    rings: RwLock<Rings>,
    past: Mutex<Past>,
}

/// Time without samples of the past after which the strips are filled again, in milliseconds.
const PAST_SETTLES_MS: i64 = 30_000;

/// Least time between two such fillings, in milliseconds: they read a week of samples.
const REFILL_EVERY_MS: i64 = 3_600_000;

/// Samples of the past, which arrive for slots that are filled already.
#[derive(Debug, Default)]
struct Past {
    /// Last time at which such samples were written; `None` if the strips have them.
    written_at: Option<Timestamp>,
    /// Slot before which the strips are to be filled again.
    refill_before: Option<i64>,
    /// Begin of the last filling.
    refilled_at: Option<Timestamp>,
}

/// A ring for each GPU. Slots have numbers: seconds since 1970 by [`SLOT_SECONDS`].
#[derive(Debug, Default, PartialEq)]
struct Rings {
    /// First filled slot.
    from: i64,
    /// Slot after the last filled one.
    until: i64,
    gpus: BTreeMap<GpuPlace, Vec<Slot>>,
}

impl Strips {
    /// Reads the strips from a data directory. Without a readable file, the strips are empty.
    pub fn load(directory: &Path) -> Self {
        Self {
            rings: RwLock::new(file::load(directory).unwrap_or_default()),
            past: Mutex::default(),
        }
    }

    /// Writes the strips into a data directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
        // A GPU that was not seen for seven days is gone.
        rings
            .gpus
            .retain(|_, ring| ring.iter().any(|slot| *slot != Slot::UNKNOWN));
        file::save(&rings, directory)
    }

    /// Returns the slots `[from, until)` of each GPU of a node, or of all nodes, in order of node and
    /// UUID. Slots outside the strips are unknown.
    pub fn read(&self, node: Option<&str>, from: i64, until: i64) -> Vec<(GpuPlace, Vec<Slot>)> {
        let rings = self.rings.read().unwrap_or_else(PoisonError::into_inner);
        rings
            .gpus
            .iter()
            .filter(|(place, _)| node.is_none_or(|node| place.node == node))
            .map(|(place, ring)| {
                let slots = (from..until).map(|slot| rings.slot(ring, slot));
                (place.clone(), slots.collect())
            })
            .collect()
    }

    /// Returns the slots `[from, until)` of one GPU; all unknown for an unknown GPU.
    pub fn read_one(&self, place: &GpuPlace, from: i64, until: i64) -> Vec<Slot> {
        let rings = self.rings.read().unwrap_or_else(PoisonError::into_inner);
        let ring = rings.gpus.get(place);
        (from..until)
            .map(|slot| ring.map_or(Slot::UNKNOWN, |ring| rings.slot(ring, slot)))
            .collect()
    }

    /// Notes that samples of the past were written at `now`.
    pub(crate) fn past_was_written(&self, now: Timestamp) {
        self.past().written_at = Some(now);
    }

    /// Notes that the samples of the past are complete: the next [`Store::fill_strips`] fills all
    /// slots again without waiting for more.
    pub fn past_is_complete(&self, now: Timestamp) {
        let mut past = self.past();
        past.written_at = None;
        past.refilled_at = Some(now);
        past.refill_before = Some(slot_of(now.whole_seconds()) + 1);
    }

    /// Returns the slot before which the next slots are to be filled again, going back to `oldest`,
    /// and moves it back by `length`. `None` if nothing is to be filled again.
    fn take_refill(&self, now: Timestamp, oldest: i64, length: i64) -> Option<i64> {
        let mut past = self.past();
        let is_settled = past
            .written_at
            .is_some_and(|at| now.0 - at.0 >= PAST_SETTLES_MS);
        let is_due = past
            .refilled_at
            .is_none_or(|at| now.0 - at.0 >= REFILL_EVERY_MS);

        if is_settled && is_due {
            past.written_at = None;
            past.refilled_at = Some(now);
            past.refill_before = Some(slot_of(now.whole_seconds()));
        }

        // Each call takes a part, the newest first, so that no call reads a whole week.
        let before = past.refill_before.take()?;
        let next = before - length;
        past.refill_before = (next > oldest).then_some(next);
        Some(before)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the filled slots: `[from, until)`.
    pub fn filled(&self) -> (i64, i64) {
        let rings = self.rings.read().unwrap_or_else(PoisonError::into_inner);
        (rings.from, rings.until)
    }

    /// Fills slots `[from, from + n)`, where `n` is the length of the rows. The slots must touch
    /// those that are filled already, else the strips start anew.
    fn fill(&self, from: i64, length: i64, rows: BTreeMap<GpuPlace, Vec<Slot>>) {
        let mut rings = self.rings.write().unwrap_or_else(PoisonError::into_inner);
        rings.advance(from, from + length);
        for (place, slots) in rows {
            let oldest = rings.until - SLOTS;
            let ring = rings
                .gpus
                .entry(place)
                .or_insert_with(|| vec![Slot::UNKNOWN; SLOTS as usize]);
            for (slot, value) in (from..).zip(slots) {
                // The ring keeps newer slots in the places of older ones.
                if slot >= oldest {
                    ring[slot.rem_euclid(SLOTS) as usize] = value;
                }
            }
        }
    }
}

impl Rings {
    fn slot(&self, ring: &[Slot], slot: i64) -> Slot {
        if (self.from.max(self.until - SLOTS)..self.until).contains(&slot) {
            ring[slot.rem_euclid(SLOTS) as usize]
        } else {
            Slot::UNKNOWN
        }
    }

    /// Makes room for the slots `[from, until)`.
    fn advance(&mut self, from: i64, until: i64) {
        let touches = from <= self.until && until >= self.from;
        // A gap between the slots would count as filled.
        if self.until == 0 || !touches {
            self.gpus.clear();
            self.from = from;
            self.until = until;
            return;
        }

        // The ring still has the slots of seven days ago in these places.
        let fresh = self.until..until.max(self.until);
        for ring in self.gpus.values_mut() {
            for slot in fresh.clone() {
                ring[slot.rem_euclid(SLOTS) as usize] = Slot::UNKNOWN;
            }
        }
        self.until = self.until.max(until);
        self.from = self.from.min(from).max(self.until - SLOTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn samples_of_the_past_fill_the_strips_again_when_they_have_settled() {
        let strips = Strips::default();
        let at = Timestamp::from_seconds;
        let refill = |seconds: i64| strips.take_refill(at(seconds), 50, 30);
        assert_eq!(refill(30_000), None);
        strips.past_was_written(at(30_000));
        assert_eq!(refill(30_010), None, "more may come");
        assert_eq!(refill(30_030), Some(100));
        assert_eq!(refill(30_031), Some(70), "the rest, an hour at a time");
        assert_eq!(refill(30_032), None);
        strips.past_was_written(at(30_040));
        assert_eq!(refill(31_000), None, "at most once an hour");
        assert_eq!(refill(33_700), Some(112));
        strips.past_is_complete(at(33_701));
        assert_eq!(refill(33_701), Some(113), "without waiting");
    }

    fn place(uuid: &str) -> GpuPlace {
        GpuPlace {
            node: "g01".to_owned(),
            uuid: uuid.to_owned(),
        }
    }

    proptest! {
        #[test]
        fn a_slot_keeps_the_utilization_to_half_a_step(ratio in 0.0..=1.0_f64, is_held: bool) {
            let slot = Slot::new(ratio, is_held);
            prop_assert_eq!(slot.is_held(), is_held);
            prop_assert!((slot.utilization_ratio().unwrap() - ratio).abs() <= 0.5 / STEPS + 1e-9);
            prop_assert_ne!(slot, Slot::UNKNOWN);
        }

        /// Whatever order the hours are filled in, a slot within seven days of the newest has the
        /// last value that was written, all others are unknown, and a file changes nothing.
        #[test]
        fn strips_remember_what_was_filled(
            steps in prop::collection::vec((-3_i64..4, 1_i64..40, 0_u8..254), 1..40),
            jump in prop::option::of(0..3 * SLOTS),
        ) {
            let strips = Strips::default();
            let mut model: BTreeMap<i64, Slot> = BTreeMap::new();
            let (mut from, mut until) = (0_i64, 0_i64);
            let jumped = jump.map(|jump| (jump, 5, 9));
            for (offset, length, value) in steps.into_iter().chain(jumped) {
                // Forwards from the end, or backwards from the begin.
                let at = if until == 0 {
                    1_000_000
                } else if offset < 0 {
                    from - length
                } else {
                    until + offset - 3
                };
                strips.fill(
                    at,
                    length,
                    BTreeMap::from([(place("a"), vec![Slot(value); length as usize])]),
                );
                if until == 0 || at > until || at + length < from {
                    model.clear();
                    (from, until) = (at, at + length);
                }
                (from, until) = (from.min(at), until.max(at + length));
                from = from.max(until - SLOTS);
                model.extend((at..at + length).map(|slot| (slot, Slot(value))));
                model.retain(|slot, _| *slot >= from);
            }
            let directory = tempdir().unwrap();
            strips.save(directory.path()).unwrap();
            let kept = Strips::load(directory.path());
            for strips in [&strips, &kept] {
                prop_assert_eq!(strips.filled(), (from, until));
                let read = strips.read(None, from - 50, until + 50);
                prop_assert_eq!(
                    &strips.read_one(&place("a"), from - 50, until + 50),
                    &read[0].1
                );
                for (slot, value) in (from - 50..).zip(&read[0].1) {
                    let expected = model.get(&slot).copied().unwrap_or(Slot::UNKNOWN);
                    prop_assert_eq!(*value, expected, "slot {}", slot);
                }
            }
        }
    }

    #[test]
    fn a_damaged_file_gives_empty_strips() {
        let directory = tempdir().unwrap();
        let strips = Strips::default();
        strips.fill(
            10,
            1,
            BTreeMap::from([(place("a"), vec![Slot::new(1.0, true)])]),
        );
        strips.save(directory.path()).unwrap();
        let path = directory.path().join(file::NAME);
        let whole = fs::read(&path).unwrap();
        // A file without its end, one with another byte, and an empty one.
        for damaged in [
            &whole[..whole.len() - 3],
            &[&whole[..9], b"x", &whole[10..]].concat(),
            b"",
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(Strips::load(directory.path()).filled(), (0, 0));
        }
    }
}
