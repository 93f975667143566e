//! Places for running statements: how many run at once, and how many wait.

use super::super::{Cancel, SqlError};
use super::{LOOK_INTERVAL, unavailable};
use crate::MemoryAccount;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of statements that run at once. Those of administrators are not counted.
const MAX_RUNNING: usize = 4;

/// Maximum number of one viewer's statements that run at once.
const MAX_RUNNING_OF_ONE: usize = MAX_RUNNING / 2;

/// Maximum number of statements that wait for others. More are refused.
const MAX_WAITING: usize = 64;

/// Maximum number of one viewer's statements that wait.
const MAX_WAITING_OF_ONE: usize = MAX_WAITING / 2;

/// Places for running statements.
#[derive(Debug, Default)]
pub(super) struct Places {
    count: Mutex<Count>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    running: usize,
    waiting: usize,
    of_viewer: HashMap<Arc<str>, OfViewer>,
}

/// Statements of one viewer.
#[derive(Debug, Default)]
struct OfViewer {
    running: usize,
    waiting: usize,
}

impl Count {
    fn of(&mut self, viewer: &Arc<str>) -> &mut OfViewer {
        self.of_viewer.entry(Arc::clone(viewer)).or_default()
    }

    fn has_place(&mut self, viewer: &Arc<str>) -> bool {
        self.running < MAX_RUNNING && self.of(viewer).running < MAX_RUNNING_OF_ONE
    }

    fn forget_idle(&mut self) {
        self.of_viewer.retain(|_, of| of.running + of.waiting > 0);
    }
}

/// A place of one statement; given back when this is dropped. `None` for an administrator's.
pub(super) struct Place<'p>(Option<(&'p Places, Arc<str>)>);

impl Places {
    /// Waits for a place, at most for a statement's time limit.
    pub fn take(
        &self,
        timeout: Duration,
        cancel: &Cancel,
        account: &MemoryAccount,
    ) -> Result<Place<'_>, SqlError> {
        if account.has_reserve() {
            return Ok(Place(None));
        }
        let viewer = account.viewer();
        let deadline = Instant::now() + timeout;
        let mut count = self.lock();
        if count.running >= MAX_RUNNING && count.waiting >= MAX_WAITING {
            return Err(unavailable("too many statements are waiting"));
        }
        if count.of(viewer).waiting >= MAX_WAITING_OF_ONE {
            return Err(unavailable("too many of your statements are waiting"));
        }

        count.of(viewer).waiting += 1;
        count.waiting += 1;
        while !count.has_place(viewer) && Instant::now() < deadline && !cancel.asked() {
            count = self
                .freed
                .wait_timeout(count, LOOK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        count.waiting -= 1;
        count.of(viewer).waiting -= 1;

        if count.has_place(viewer) {
            count.running += 1;
            count.of(viewer).running += 1;
            return Ok(Place(Some((self, Arc::clone(viewer)))));
        }
        count.forget_idle();
        Err(if cancel.asked() {
            SqlError::Cancelled
        } else {
            SqlError::Timeout(timeout)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some((places, viewer)) = self.0.take() else {
            return;
        };
        let mut count = places.lock();
        count.running -= 1;
        count.of(&viewer).running -= 1;
        count.forget_idle();
        drop(count);
        // The one that is woken may have its own places taken.
        places.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBudget;

    #[test]
    fn statements_wait_for_a_place_no_longer_than_their_limit() {
        let places = Places::default();
        let budget = MemoryBudget::default();
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| budget.account(name));
        let limit = Duration::from_millis(60);
        let cancel = Cancel::default();
        let take = |account| places.take(limit, &cancel, account);
        let is_late =
            |taken: Result<Place<'_>, SqlError>| matches!(taken.err(), Some(SqlError::Timeout(_)));

        // However many one viewer sends, another finds a place.
        let mut of_alice: Vec<_> = (0..MAX_RUNNING_OF_ONE)
            .map(|_| take(&alice).unwrap())
            .collect();
        assert!(is_late(take(&alice)));
        let of_bob: Vec<_> = (0..MAX_RUNNING_OF_ONE)
            .map(|_| take(&bob).unwrap())
            .collect();

        // All are taken; administrators need none.
        assert!(is_late(take(&carol)));
        let root = budget.account("root").with_reserve(true);
        drop(take(&root).unwrap());
        let cancelled = Cancel::default();
        cancelled.cancel();
        let given_up = places.take(limit, &cancelled, &carol);
        assert!(matches!(given_up.err(), Some(SqlError::Cancelled)));

        of_alice.pop();
        drop(take(&carol).unwrap());
        drop((of_alice, of_bob));
        assert!(places.lock().of_viewer.is_empty());
    }
}
