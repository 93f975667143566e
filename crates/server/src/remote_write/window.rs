//! Which span of time to send next.

use std::time::Duration;
use takt_model::Timestamp;

/// The shortest span to send, unless the receiver has caught up less than that ago.
const SHORTEST: Duration = Duration::from_secs(5);

/// The longest span to read at once.
const LONGEST: Duration = Duration::from_secs(3600);

/// Samples to hold in memory, 16 bytes each.
const SAMPLES: usize = 500_000;

/// Samples after `after`, up to and including `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Samples up to this time are acknowledged.
    pub after: Timestamp,
    /// End of the span.
    pub to: Timestamp,
}

/// Returns the time from which to send: `acknowledged`, but not before `oldest`. Never after
/// `settled`, because no samples are skipped where none exist.
pub fn begin_of(acknowledged: Timestamp, oldest: Timestamp, settled: Timestamp) -> Timestamp {
    acknowledged.max(oldest.min(settled))
}

/// Length of the next window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLength(Duration);

impl Default for WindowLength {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl WindowLength {
    /// Returns the next window. `None` if less than the shortest span is settled after
    /// `acknowledged`.
    pub fn next(self, acknowledged: Timestamp, settled: Timestamp) -> Option<Window> {
        (settled >= acknowledged.plus(SHORTEST)).then(|| Window {
            after: acknowledged,
            to: settled.min(acknowledged.plus(self.0)),
        })
    }

    /// Returns the length after a window of `span` had `samples`: at most twice the last one, and
    /// so that the next window has about as many samples as may be held.
    pub fn after(self, span: Duration, samples: usize) -> Self {
        // Without samples, the next window may have any number of them, so the length only doubles.
        let share = SAMPLES as f64 / samples.max(1) as f64;
        let fitting = span.mul_f64(share.min(2.0));
        Self(fitting.clamp(SHORTEST, LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn a_window_waits_for_settled_samples() {
        let length = WindowLength::default();

        assert_eq!(length.next(at(100), at(104)), None);
        assert_eq!(length.next(at(100), at(90)), None);

        let short = length.next(at(100), at(105)).unwrap();
        assert_eq!(short.after, at(100));
        assert_eq!(short.to, at(105));
        assert_eq!(length.next(at(100), at(9000)).unwrap().to, at(130));
    }

    /// After three days without samples, the time without them was skipped again and again.
    #[test]
    fn only_samples_that_exist_are_skipped() {
        assert_eq!(begin_of(at(500), at(100), at(900)), at(500));
        assert_eq!(begin_of(at(50), at(100), at(900)), at(100));
        assert_eq!(begin_of(at(50), at(100), at(70)), at(70));
        assert_eq!(begin_of(at(70), at(100), at(70)), at(70));
        assert_eq!(begin_of(at(80), at(100), at(70)), at(80));
    }

    proptest! {
        /// Windows follow each other without a gap, and their memory is bounded once the length
        /// has settled.
        #[test]
        fn a_day_is_caught_up_with_bounded_memory(per_second in 1_usize..80_000) {
            let end = at(86_400);
            let mut length = WindowLength::default();
            let mut reached = at(0);
            let mut windows = 0;
            while let Some(window) = length.next(reached, end) {
                prop_assert_eq!(window.after, reached);
                prop_assert!(window.to > reached);
                let span = Duration::from_millis(window.to.0.abs_diff(window.after.0));
                let samples = (span.as_secs_f64() * per_second as f64) as usize;
                // The first window has a length that no earlier one has corrected.
                if windows > 0 {
                    prop_assert!(samples <= 2 * SAMPLES, "{samples} samples in {span:?}");
                }
                length = length.after(span, samples);
                reached = window.to;
                windows += 1;
            }
            // Less than the shortest window may be left.
            prop_assert!(end.0 - reached.0 < 5_000);
        }
    }
}
