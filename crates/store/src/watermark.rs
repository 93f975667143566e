//! Up to which instant everything is settled.
//!
//! Every scrape holds a ticket from its timestamp on until its samples are durable or given up. The watermark is the
//! instant before the oldest ticket: whatever carries a timestamp at or before it is in the database, or was counted
//! as failed or dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use takt_model::Timestamp;

/// A ticket asked for at an instant that is settled already is moved behind the watermark, if by no more than this.
/// The clock is read before the ticket is drawn, and a busy machine may put anything between the two.
const SLACK: Duration = Duration::from_secs(1);

/// The clock shows an instant that the watermark has long passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the clock shows {at}, samples up to {watermark} are already stored: it went back")]
pub struct ClockWentBack {
    /// What the clock shows.
    pub at: Timestamp,
    /// Where the watermark stands.
    pub watermark: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Watermark(Mutex<State>);

#[derive(Debug)]
struct State {
    open: BTreeMap<Timestamp, u32>,
    newest_settled: Timestamp,
    published: Timestamp,
}

impl Watermark {
    /// Everything up to `settled` is settled.
    pub fn new(settled: Timestamp) -> Self {
        Self(Mutex::new(State {
            open: BTreeMap::new(),
            newest_settled: settled,
            published: settled,
        }))
    }

    /// The watermark. It never goes back.
    pub fn get(&self) -> Timestamp {
        self.state().published
    }

    /// Holds the watermark before `at` until the ticket is dropped.
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
        let oldest_open = state
            .open
            .first_key_value()
            .map(|(&oldest, _)| oldest.minus(Duration::from_millis(1)));
        let settled = oldest_open.map_or(state.newest_settled, |before| {
            before.min(state.newest_settled)
        });
        state.published = state.published.max(settled);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds the watermark back while a scrape and its samples are on their way. Dropping it says that they are durable
/// or given up.
#[derive(Debug)]
pub struct Ticket {
    at: Timestamp,
    watermark: Arc<Watermark>,
}

impl Ticket {
    /// The timestamp that the samples get.
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
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp(1_000_000 + ms)
    }

    #[test]
    fn the_oldest_ticket_holds_it_back() {
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
    fn a_late_ticket_is_moved_behind_it_and_a_clock_that_went_back_is_refused() {
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
        fn it_never_goes_back_and_never_passes_an_open_ticket(steps in proptest::collection::vec((0_i64..3000, 0_usize..4), 1..60)) {
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
