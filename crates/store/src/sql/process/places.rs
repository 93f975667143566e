//! Places for running statements: how many run at once, and how many wait.

use super::super::{Cancel, SqlError};
use super::{LOOK_INTERVAL, unavailable};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of statements that run at once.
const MAX_RUNNING: usize = 4;

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
    /// Waiting statements of each viewer.
    of_viewer: HashMap<Arc<str>, usize>,
}

/// A place of one statement; given back when this is dropped.
pub(super) struct Place<'p>(&'p Places);

impl Places {
    /// Waits for a place, at most for a statement's time limit.
    pub fn take(
        &self,
        timeout: Duration,
        cancel: &Cancel,
        viewer: &Arc<str>,
    ) -> Result<Place<'_>, SqlError> {
        let deadline = Instant::now() + timeout;
        let mut count = self.lock();
        if count.running >= MAX_RUNNING && count.waiting >= MAX_WAITING {
            return Err(unavailable("too many statements are waiting"));
        }

        let of_viewer = count.of_viewer.entry(Arc::clone(viewer)).or_default();
        if *of_viewer >= MAX_WAITING_OF_ONE {
            return Err(unavailable("too many of your statements are waiting"));
        }

        *of_viewer += 1;
        count.waiting += 1;

        while count.running >= MAX_RUNNING && Instant::now() < deadline && !cancel.asked() {
            count = self
                .freed
                .wait_timeout(count, LOOK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }

        count.waiting -= 1;
        if let Some(waiting) = count.of_viewer.get_mut(viewer) {
            *waiting -= 1;
            if *waiting == 0 {
                count.of_viewer.remove(viewer);
            }
        }

        if count.running < MAX_RUNNING {
            count.running += 1;
            Ok(Place(self))
        } else if cancel.asked() {
            Err(SqlError::Cancelled)
        } else {
            Err(SqlError::Timeout(timeout))
        }
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_wait_for_a_place_no_longer_than_their_limit() {
        let places = Places::default();
        let alice = "alice".into();
        let limit = Duration::from_millis(60);
        let cancel = Cancel::default();
        let mut taken: Vec<_> = (0..MAX_RUNNING)
            .map(|_| places.take(limit, &cancel, &alice).unwrap())
            .collect();
        let late = places.take(limit, &cancel, &alice);
        assert!(matches!(late.err(), Some(SqlError::Timeout(_))));
        let cancelled = Cancel::default();
        cancelled.cancel();
        let given_up = places.take(limit, &cancelled, &alice);
        assert!(matches!(given_up.err(), Some(SqlError::Cancelled)));
        taken.pop();
        places.take(limit, &cancel, &alice).unwrap();
    }
}
