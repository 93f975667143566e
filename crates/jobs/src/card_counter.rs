//! The life of a card's readings: counters over their resets, and states with the times at which they changed.

use serde::{Deserialize, Serialize};
use takt_model::UnixTime;

/// How a reading is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardReadingKind {
    /// A counter, which begins at 0 again with the driver or the card.
    Counter,
    /// A flag, a code or a count that seldom changes: each change is noted.
    State,
    /// A measurement, of which the extremes are kept.
    Gauge,
}

/// What a reading of a card was in all its life.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CardCounter {
    /// Last value.
    pub last: f64,
    /// Highest value.
    pub highest: f64,
    /// Lowest value.
    pub lowest: f64,
    /// Of a counter: the sum of its increases over all resets, its first value included.
    pub total: f64,
    /// Of a counter: how often it fell.
    pub resets: u32,
    /// First reading.
    pub first_seen: UnixTime,
    /// Last reading.
    pub seen: UnixTime,
    /// When the value last changed; the first reading if it never did.
    pub changed_at: UnixTime,
}

/// A change of a reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardChange {
    /// The card.
    pub card: String,
    /// When it was noticed.
    pub at: UnixTime,
    /// Name of the reading.
    pub reading: String,
    /// Value before; `None` for the first reading.
    pub before: Option<f64>,
    /// Value since.
    pub value: f64,
}

impl CardCounter {
    /// The first reading.
    pub fn new(value: f64, now: UnixTime) -> Self {
        Self {
            last: value,
            highest: value,
            lowest: value,
            total: value,
            resets: 0,
            first_seen: now,
            seen: now,
            changed_at: now,
        }
    }

    /// Takes the next reading. Returns whether a counter began anew.
    pub fn observe(&mut self, kind: CardReadingKind, value: f64, now: UnixTime) -> bool {
        let has_fallen = kind == CardReadingKind::Counter && value < self.last;
        if has_fallen {
            self.resets = self.resets.saturating_add(1);
            self.total += value;
        } else {
            self.total += value - self.last;
        }

        if value != self.last {
            self.changed_at = now;
        }
        self.last = value;
        self.highest = self.highest.max(value);
        self.lowest = self.lowest.min(value);
        self.seen = self.seen.max(now);
        has_fallen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_resets() {
        let mut counter = CardCounter::new(10.0, UnixTime(0));
        let resets = [(12.0, 1), (2.0, 2), (2.0, 3), (7.0, 4)]
            .map(|(value, at)| counter.observe(CardReadingKind::Counter, value, UnixTime(at)));
        assert_eq!(resets, [false, true, false, false]);
        assert_eq!(
            (counter.total, counter.resets, counter.highest),
            (19.0, 1, 12.0)
        );
        assert_eq!(
            (counter.changed_at, counter.seen),
            (UnixTime(4), UnixTime(4))
        );

        // A state that falls was not reset.
        let mut state = CardCounter::new(16.0, UnixTime(0));
        assert!(!state.observe(CardReadingKind::State, 8.0, UnixTime(9)));
        assert_eq!(
            (state.lowest, state.resets, state.changed_at),
            (8.0, 0, UnixTime(9))
        );
    }
}
