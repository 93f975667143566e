//! The evaluation times of a group: slots that stay the same over restarts.

use crate::fingerprint::Fingerprint;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// The slots of one group: every `interval`, moved by an offset that its name gives, so that groups
/// with the same interval do not all run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval_ms: i64,
    offset_ms: i64,
    last: Option<Timestamp>,
}

/// An evaluation that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The slot: the instant at which the expressions are evaluated, whenever that happens.
    pub at: Timestamp,
    /// How many slots before it were missed. They are skipped, never made up for.
    pub missed: u64,
}

impl Schedule {
    /// The slots of the group `group` in the file `file`.
    pub fn new(file: &str, group: &str, interval: Duration) -> Self {
        let interval_ms = i64::try_from(interval.as_millis())
            .unwrap_or(i64::MAX)
            .max(1);
        // The hash of file and name, not their order in the configuration: a new group moves no other one.
        let name: Labels = [("file", file), ("name", group)].into_iter().collect();
        let offset_ms = (Fingerprint::of(&name).0 % interval_ms.unsigned_abs()) as i64;

        Self {
            interval_ms,
            offset_ms,
            last: None,
        }
    }

    /// Time from one slot to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.unsigned_abs())
    }

    /// The evaluation to do now, if there is one. The same slot is given once, also where the clock
    /// was put back.
    pub fn due(&mut self, now: Timestamp) -> Option<Due> {
        let slot = self.slot_before(now);
        let missed = match self.last {
            // This slot has been evaluated, or the clock moved back by less than an interval.
            Some(last) if slot <= last && self.is_near(last, now) => return None,
            Some(last) => ((slot.0 - last.0) / self.interval_ms - 1).max(0),
            None => 0,
        };

        self.last = Some(slot);
        Some(Due {
            at: slot,
            missed: missed.unsigned_abs(),
        })
    }

    /// When the next evaluation is due.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        match self.last {
            Some(last) if self.is_near(last, now) => {
                Timestamp(last.0.max(self.slot_before(now).0) + self.interval_ms)
            }
            _ => self.slot_before(now),
        }
    }

    /// Continues the schedule from before a reload.
    pub fn go_on_from(&mut self, before: &Self) {
        // Another interval has other slots, so the last one says nothing about them.
        if (self.interval_ms, self.offset_ms) == (before.interval_ms, before.offset_ms) {
            self.last = before.last;
        }
    }

    fn slot_before(&self, now: Timestamp) -> Timestamp {
        let since = (now.0 - self.offset_ms).rem_euclid(self.interval_ms);
        Timestamp(now.0 - since)
    }

    /// A clock that was put back by more than an interval begins a new count; else the group would
    /// stand still until the clock has come as far again.
    fn is_near(&self, last: Timestamp, now: Timestamp) -> bool {
        last.0 - now.0 <= self.interval_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn schedule() -> Schedule {
        Schedule {
            interval_ms: 60_000,
            offset_ms: 7_000,
            last: None,
        }
    }

    #[test]
    fn slots_are_given_once_and_missed_ones_counted() {
        let mut schedule = schedule();
        let mut due = |seconds: i64| {
            schedule
                .due(Timestamp::from_seconds(seconds))
                .map(|due| (due.at.0 / 1000, due.missed))
        };
        assert_eq!(due(100), Some((67, 0)));
        assert_eq!(due(126), None);
        assert_eq!(due(127), Some((127, 0)));
        assert_eq!(due(320), Some((307, 2)), "187 and 247 were missed");
        assert_eq!(due(310), None, "a clock that was put back a little");
        assert_eq!(
            due(20),
            Some((7, 0)),
            "a clock that was put back far begins again"
        );
    }

    #[test]
    fn the_next_slot_follows_the_last() {
        let mut schedule = schedule();
        assert_eq!(
            schedule.next(Timestamp::from_seconds(100)),
            Timestamp::from_seconds(67)
        );
        schedule.due(Timestamp::from_seconds(100));

        assert_eq!(
            schedule.next(Timestamp::from_seconds(100)),
            Timestamp::from_seconds(127)
        );
    }

    #[test]
    fn a_group_keeps_its_offset_over_restarts_and_groups_are_spread() {
        let offset = |group: &str| Schedule::new("a.yml", group, Duration::from_secs(60)).offset_ms;
        assert_eq!(offset("gpu"), offset("gpu"));
        let all: BTreeSet<_> = (0..50).map(|n| offset(&format!("g{n}")) / 6_000).collect();
        assert!(
            all.len() >= 8,
            "50 groups use most tenths of a minute: {all:?}"
        );
    }
}
