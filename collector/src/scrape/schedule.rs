//! Times of scrapes.

use super::target::Target;
use std::hash::{DefaultHasher, Hash, Hasher};
use takt_model::Timestamp;

/// Maximum delay at which a scrape still gets its planned timestamp: equal steps compress far
/// better.
const MAX_SNAP_MS: i64 = 2;

/// Offsets are multiples of this (of a tenth of an interval shorter than a second), so that scrapes
/// share a wake-up of their thread, and what it has in the processor's caches: with 60 targets a
/// second, a sample costs a third less.
const STEP_MS: i64 = 100;

/// The times at which one target is scraped: every interval, at the target's own offset. The
/// offsets spread the targets over the interval and survive restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    interval_ms: i64,
    offset_ms: i64,
}

impl Schedule {
    pub fn new(target: &Target) -> Self {
        let interval_ms = i64::try_from(target.interval.as_millis())
            .unwrap_or(i64::MAX)
            .max(1);

        // The hash has no key: the offset of a target must be the same in every process.
        let mut hasher = DefaultHasher::new();
        (target.url.as_str(), &target.labels).hash(&mut hasher);

        let step_ms = STEP_MS.min(interval_ms / 10).max(1);
        let steps = (interval_ms / step_ms).unsigned_abs();
        let offset_ms = (hasher.finish() % steps).cast_signed() * step_ms;

        Self {
            interval_ms,
            offset_ms,
        }
    }

    /// Returns the first planned time after `now`.
    pub fn next(self, now: Timestamp) -> Timestamp {
        let since = (now.0 - self.offset_ms).rem_euclid(self.interval_ms);
        Timestamp(now.0 - since + self.interval_ms)
    }

    /// Returns the timestamp of a scrape that was planned for `planned` and begins at `now`.
    pub fn timestamp(self, planned: Timestamp, now: Timestamp) -> Timestamp {
        let tolerance = MAX_SNAP_MS.min(self.interval_ms / 100);
        if (now.0 - planned.0).abs() <= tolerance {
            planned
        } else {
            now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ScrapeConfig, TargetConfig};
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn schedule(address: &str, interval: Duration) -> Schedule {
        let target = TargetConfig {
            address: address.to_owned(),
            ..TargetConfig::default()
        };
        let config = ScrapeConfig {
            targets: vec![target],
            ..ScrapeConfig::default()
        };
        let (_, mut targets) = config.listed("lab").unwrap();
        Schedule::new(&Target {
            interval,
            ..targets.remove(0)
        })
    }

    #[test]
    fn a_small_delay_is_forgiven() {
        let schedule = schedule("g01:1", Duration::from_secs(15));
        let planned = schedule.next(Timestamp(1_000_000));
        for (late, expected) in [(-1, 0), (0, 0), (2, 0), (3, 3), (500, 500)] {
            assert_eq!(
                schedule.timestamp(planned, Timestamp(planned.0 + late)).0 - planned.0,
                expected
            );
        }
        let fast = Schedule {
            interval_ms: 100,
            offset_ms: 0,
        };
        assert_eq!(
            fast.timestamp(Timestamp(0), Timestamp(2)),
            Timestamp(2),
            "more than 1 % of the interval"
        );
    }

    #[test]
    fn targets_are_spread() {
        let quarters: std::collections::BTreeSet<_> = (0..40)
            .map(|node| {
                schedule(&format!("g{node:02}:9855"), Duration::from_secs(15)).offset_ms / 3750
            })
            .collect();
        assert_eq!(quarters.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn scrapes_begin_together_at_tenths_of_a_second() {
        let offsets = |ms| {
            let of = |node| schedule(&format!("g{node:02}:9855"), Duration::from_millis(ms));
            let offsets: std::collections::BTreeSet<_> =
                (0..400).map(|node| of(node).offset_ms).collect();
            offsets.into_iter().collect::<Vec<_>>()
        };
        let tenths = |step: i64| (0..10).map(|tenth| tenth * step).collect::<Vec<_>>();
        assert_eq!(offsets(1_000), tenths(100));
        assert_eq!(offsets(500), tenths(50));
        assert!(offsets(15_000).iter().all(|offset| offset % 100 == 0));
        assert!(offsets(15_000).len() > 100);
    }

    proptest! {
        #[test]
        fn planned_instants_are_one_interval_apart(
            now in -1_000_000_i64..2_000_000_000_000,
            ms in 100_u64..100_000,
        ) {
            let schedule = schedule("g01:1", Duration::from_millis(ms));
            let next = schedule.next(Timestamp(now));
            prop_assert!(next.0 > now && next.0 <= now + ms.cast_signed());
            prop_assert_eq!(schedule.next(next).0, next.0 + ms.cast_signed());
            prop_assert_eq!(schedule.next(Timestamp(next.0 - 1)), next);
        }
    }
}
