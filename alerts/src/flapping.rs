//! Flapping alerts: one message instead of one for each change.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use takt_model::Timestamp;

/// The time in which changes are counted.
pub const WINDOW: Duration = Duration::from_secs(3600);

/// An alert flaps if it changes more often than this within [`WINDOW`].
pub const CHANGES_MAX: usize = 4;

/// The changes of one alert between firing and not firing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flapping {
    changes: VecDeque<Timestamp>,
    is_firing: bool,
    /// Whether a message said that the alert flaps.
    #[serde(rename = "told")]
    is_reported: bool,
}

/// The decision about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlapVerdict {
    /// Send it.
    Send,
    /// Send that the alert flaps, once; the alert counts as firing from now on.
    SendFlapping,
    /// Send nothing: the channel knows that the alert flaps.
    Hold,
}

impl Flapping {
    /// The alert began or ceased to fire.
    pub fn change(&mut self, is_firing: bool, at: Timestamp) -> FlapVerdict {
        self.is_firing = is_firing;
        self.follow_clock(at);
        self.changes.push_back(at);
        self.forget_before(at.minus(WINDOW));

        if self.is_reported {
            return FlapVerdict::Hold;
        }

        if self.changes.len() <= CHANGES_MAX {
            return FlapVerdict::Send;
        }

        self.is_reported = true;
        FlapVerdict::SendFlapping
    }

    /// Whether the alert fires, once it has stopped flapping: it has not changed for an hour.
    /// `None` before that, and where it did not flap.
    pub fn settled(&mut self, at: Timestamp) -> Option<bool> {
        self.follow_clock(at);
        self.forget_before(at.minus(WINDOW));

        if !self.is_reported || !self.changes.is_empty() {
            return None;
        }

        self.is_reported = false;
        Some(self.is_firing)
    }

    /// Whether it counts as flapping.
    pub fn is_flapping(&self) -> bool {
        self.is_reported
    }

    /// Whether nothing has to be remembered.
    pub fn is_idle(&self) -> bool {
        self.changes.is_empty() && !self.is_reported
    }

    /// No change is later than the clock. After it was set back, an alert would else flap until the
    /// clock has come as far again.
    fn follow_clock(&mut self, at: Timestamp) {
        self.changes
            .iter_mut()
            .for_each(|change| *change = (*change).min(at));
    }

    fn forget_before(&mut self, horizon: Timestamp) {
        while self.changes.front().is_some_and(|at| *at <= horizon) {
            self.changes.pop_front();
        }
        // Flapping for days must not grow the log; the newest changes decide when it is at rest.
        while self.changes.len() > CHANGES_MAX + 1 {
            self.changes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(at: i64) -> Timestamp {
        Timestamp::from_seconds(at * 60)
    }

    #[test]
    fn the_fifth_change_within_an_hour_is_flapping_and_an_hour_of_rest_ends_it() {
        let mut flapping = Flapping::default();
        let verdicts: Vec<_> = (0..7)
            .map(|n| flapping.change(n % 2 == 0, minute(n * 10)))
            .collect();
        use FlapVerdict::{Hold, Send, SendFlapping};
        assert_eq!(verdicts, [Send, Send, Send, Send, SendFlapping, Hold, Hold]);
        assert_eq!(flapping.settled(minute(60 + 59)), None);
        assert_eq!(flapping.settled(minute(60 + 60)), Some(true));
        assert_eq!(flapping.settled(minute(60 + 61)), None, "reported once");
        assert!(flapping.is_idle());
    }

    #[test]
    fn an_hour_of_rest_ends_flapping_although_the_clock_was_set_back() {
        let mut flapping = Flapping::default();
        for n in 0..5 {
            // Five changes in the five minutes after 10:00, then the clock is set back to 0:00.
            flapping.change(n % 2 == 0, minute(600 + n));
        }
        assert_eq!(flapping.settled(minute(0)), None);
        assert_eq!(flapping.settled(minute(59)), None);
        assert_eq!(flapping.settled(minute(60)), Some(true));
    }

    #[test]
    fn changes_that_are_far_apart_are_reported() {
        let mut flapping = Flapping::default();
        // Sixteen minutes apart: no hour has more than four changes.
        for n in 0..50 {
            assert_eq!(
                flapping.change(n % 2 == 0, minute(n * 16)),
                FlapVerdict::Send,
                "change {n}"
            );
        }
    }
}
