//! Places for running statements: how many run at once, and how many wait.

use super::super::{Cancel, SqlError};
use super::{LOOK_INTERVAL, unavailable};
use crate::MemoryAccount;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of statements that run at once; administrators have as many places of their own.
const MAX_RUNNING: usize = 4;

/// Maximum number of one viewer's statements that run at once: another one finds a place.
const MAX_RUNNING_OF_ONE: usize = MAX_RUNNING - 1;

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
    /// Running statements of administrators.
    running_in_reserve: usize,
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

    fn running(&mut self, has_reserve: bool) -> &mut usize {
        if has_reserve {
            &mut self.running_in_reserve
        } else {
            &mut self.running
        }
    }

    fn has_place(&mut self, account: &MemoryAccount) -> bool {
        *self.running(account.has_reserve()) < MAX_RUNNING
            && self.of(account.viewer()).running < MAX_RUNNING_OF_ONE
    }

    fn forget_idle(&mut self) {
        self.of_viewer.retain(|_, of| of.running + of.waiting > 0);
    }
}

/// A place of one statement; given back when this is dropped.
pub(super) struct Place<'p> {
    places: &'p Places,
    viewer: Arc<str>,
    has_reserve: bool,
}

impl Places {
    /// Waits for a place, at most for a statement's time limit.
    pub fn take(
        &self,
        timeout: Duration,
        cancel: &Cancel,
        account: &MemoryAccount,
    ) -> Result<Place<'_>, SqlError> {
        let viewer = account.viewer();
        let deadline = Instant::now() + timeout;
        let mut count = self.lock();
        if !count.has_place(account) && count.waiting >= MAX_WAITING {
            return Err(unavailable("too many statements are waiting"));
        }
        if count.of(viewer).waiting >= MAX_WAITING_OF_ONE {
            return Err(unavailable("too many of your statements are waiting"));
        }

        count.of(viewer).waiting += 1;
        count.waiting += 1;
        while !count.has_place(account) && Instant::now() < deadline && !cancel.asked() {
            count = self
                .freed
                .wait_timeout(count, LOOK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        count.waiting -= 1;
        count.of(viewer).waiting -= 1;

        if count.has_place(account) {
            *count.running(account.has_reserve()) += 1;
            count.of(viewer).running += 1;
            return Ok(Place {
                places: self,
                viewer: Arc::clone(viewer),
                has_reserve: account.has_reserve(),
            });
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
        let mut count = self.places.lock();
        *count.running(self.has_reserve) -= 1;
        count.of(&self.viewer).running -= 1;
        count.forget_idle();
        drop(count);
        // The one that is woken may have its own places taken.
        self.places.freed.notify_all();
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
        let of_bob = take(&bob).unwrap();

        // All are taken; administrators have others.
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
