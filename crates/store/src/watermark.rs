//! The watermark: the time up to which all scrapes are settled.
//!
//! Each scrape holds a ticket from its timestamp until its samples are durable or dropped. The
//! watermark is the time before the oldest ticket: every sample up to it is in the database, or was
//! counted as failed or dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use takt_model::Timestamp;

/// How far a ticket may be behind the watermark; it is then moved to just after the watermark. On a
/// busy machine, time passes between reading the clock and drawing the ticket.
const SLACK: Duration = Duration::from_secs(1);

/// The clock shows a time well before the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the clock shows {at}, samples up to {watermark} are already stored: it went back")]
pub struct ClockWentBack {
    /// Time of the clock.
    pub at: Timestamp,
    /// The watermark.
    pub watermark: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Watermark(Mutex<WatermarkState>);

#[derive(Debug)]
struct WatermarkState {
    open: BTreeMap<Timestamp, u32>,
    newest_settled: Timestamp,
    published: Timestamp,
}

impl Watermark {
    /// Returns a watermark that begins at `settled`.
    pub fn new(settled: Timestamp) -> Self {
        Self(Mutex::new(WatermarkState {
            open: BTreeMap::new(),
            newest_settled: settled,
            published: settled,
        }))
    }

    /// The watermark. It never goes back.
    pub fn get(&self) -> Timestamp {
        self.state().published
    }

    /// Keeps the watermark before `at` until the ticket is dropped.
    pub fn hold(self: &Arc<Self>, at: Timestamp) -> Result<Ticket, ClockWentBack> {
        let mut state = self.state();
        let watermark = state.published;
        if at < watermark.minus(SLACK) {
            return Err(ClockWentBack { at, watermark });
        }
        let at = at.max(watermark.plus(Duration::from_millis(1)));
        *state.open.entry(at).or_default() += 1;
        Ok(Ticket {
            at,
            watermark: Arc::clone(self),
        })
    }

    fn settle(&self, at: Timestamp) {
        let mut state = self.state();
        if let Some(holders) = state.open.get_mut(&at) {
            *holders -= 1;
            if *holders == 0 {
                state.open.remove(&at);
            }
        }

        state.newest_settled = state.newest_settled.max(at);
        let settled = state
            .open
            .first_key_value()
            .map(|(&oldest, _)| oldest.minus(Duration::from_millis(1)))
            .map_or(state.newest_settled, |before| {
                before.min(state.newest_settled)
            });
        state.published = state.published.max(settled);
    }

    fn state(&self) -> MutexGuard<'_, WatermarkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the watermark before a scrape's timestamp. Dropping the ticket marks the samples as
/// durable or dropped.
#[derive(Debug)]
pub struct Ticket {
    at: Timestamp,
    watermark: Arc<Watermark>,
}

impl Ticket {
    /// Timestamp of the samples.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.watermark.settle(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp(1_000_000 + ms)
    }

    #[test]
    fn the_oldest_ticket_holds_the_watermark_back() {
        let mark = Arc::new(Watermark::new(at(0)));
        let first = mark.hold(at(10)).unwrap();
        let second = mark.hold(at(20)).unwrap();
        let same = mark.hold(at(20)).unwrap();
        drop(second);
        assert_eq!(mark.get(), at(9));
        drop(first);
        assert_eq!(mark.get(), at(19));
        drop(same);
        assert_eq!(mark.get(), at(20));
    }

    #[test]
    fn a_late_ticket_is_moved_and_a_clock_that_went_back_is_rejected() {
        let mark = Arc::new(Watermark::new(at(5000)));
        assert_eq!(mark.hold(at(4990)).unwrap().at(), at(5001));
        let refused = mark.hold(at(1000)).unwrap_err();
        assert_eq!(
            refused,
            ClockWentBack {
                at: at(1000),
                watermark: at(5001)
            }
        );
    }

    proptest! {
        #[test]
        fn the_watermark_never_goes_back_or_passes_an_open_ticket(
            steps in collection::vec((0_i64..3000, 0_usize..4), 1..60),
        ) {
            let mark = Arc::new(Watermark::new(at(0)));
            let mut open: Vec<Ticket> = Vec::new();
            let mut last = mark.get();
            for (ms, close) in steps {
                open.extend(mark.hold(at(ms)).ok());
                if !open.is_empty() && close > 0 {
                    open.swap_remove(close % open.len());
                }
                prop_assert!(mark.get() >= last);
                prop_assert!(open.iter().all(|ticket| ticket.at() > mark.get()));
                last = mark.get();
            }
        }
    }
}
