//! Times in which Takt saw nothing of its targets: before its start, while its process or machine was
//! stopped, and where the clock jumped.

use std::time::Duration;
use takt_model::Timestamp;

/// Longest time between two evaluations without a gap. The thread of alerts evaluates every second.
const GAP: Duration = Duration::from_secs(60);

/// The evaluations since the last gap.
#[derive(Debug, Default)]
pub(super) struct Watched {
    since: Timestamp,
    last: Option<Timestamp>,
}

impl Watched {
    /// Notes an evaluation. Returns the first evaluation after the last gap.
    pub fn since(&mut self, now: Timestamp) -> Timestamp {
        // A step back of the clock is a gap too: what was seen then is in the future now.
        let is_gapless = self
            .last
            .is_some_and(|last| last <= now && now <= last.plus(GAP));

        if !is_gapless {
            self.since = now;
        }

        self.last = Some(now);
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_and_jumps_of_the_clock_are_gaps() {
        let mut watched = Watched::default();
        let since = |seconds: i64| watched.since(Timestamp::from_seconds(seconds)).0 / 1000;

        // The 61 s from 161 to 222 are a gap, 60 s are not; 200 is a step back.
        assert_eq!(
            [100, 101, 161, 222, 223, 200, 201].map(since),
            [100, 100, 100, 222, 222, 200, 200]
        );
    }
}
