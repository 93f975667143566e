//! Work for pages and answers: how much of it runs at once, and its end when the client leaves.
//!
//! A thread cannot be stopped, so work whose client has left keeps its place until it has ended: clients that ask and leave
//! start no more work than those that wait. Its statements are interrupted, and later ones are refused.

use super::{MemoryAccount, StoreError, spawn_blocking};
use duckdb::{Connection, InterruptHandle};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time;

/// Work that runs at once. That of administrators is not counted.
const MOST: usize = 8;

/// Work of one viewer that runs at once.
const MOST_OF_ONE: usize = 4;

/// Time that work waits for a place.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why work has no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// No place became free in time.
    #[error(
        "the server computes {MOST} answers at once, {MOST_OF_ONE} of them for one user, and none ended within {} seconds: \
         try again, or ask for less at a time",
        PATIENCE.as_secs()
    )]
    Busy,
    /// The work panicked.
    #[error(transparent)]
    Failed(JoinError),
}

/// Places of work; clones are the same ones.
#[derive(Debug, Clone)]
pub struct WorkPlaces(Arc<Places>);

#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    of_viewer: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
    patience: Duration,
}

/// A place of the viewer, and one of all.
type Place = [Option<OwnedSemaphorePermit>; 2];

impl Default for WorkPlaces {
    fn default() -> Self {
        Self::new(PATIENCE)
    }
}

impl WorkPlaces {
    fn new(patience: Duration) -> Self {
        Self(Arc::new(Places {
            all: Arc::new(Semaphore::new(MOST)),
            of_viewer: Mutex::default(),
            patience,
        }))
    }

    /// Runs work that only reads, on a thread for blocking work. If the future is dropped, the work ends at its next
    /// statement.
    ///
    /// # Errors
    /// If no place is free in time, or the work panics.
    pub async fn read<T: Send + 'static>(
        &self,
        account: &MemoryAccount,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let place = self.take(account).await?;
        let task = Arc::new(Task::default());
        // Dropped with the future, so also when the client leaves.
        let _abandoned = AbandonWhenDropped(Arc::clone(&task));
        let work = move || {
            let _current = Current::begin(task);
            work()
        };
        Self::run(place, work).await
    }

    /// Runs work that may change something: as [`read`](Self::read), but it does not end early.
    ///
    /// # Errors
    /// If no place is free in time, or the work panics.
    pub async fn change<T: Send + 'static>(
        &self,
        account: &MemoryAccount,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        Self::run(self.take(account).await?, work).await
    }

    async fn run<T: Send + 'static>(
        place: Place,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        spawn_blocking(move || {
            // The thread holds it, because the work continues when the future is dropped.
            let _place = place;
            work()
        })
        .await
        .map_err(WorkError::Failed)
    }

    async fn take(&self, account: &MemoryAccount) -> Result<Place, WorkError> {
        let of_viewer = self.of_viewer(account.viewer());
        // Administrators must see why the server is busy.
        let all = (!account.has_reserve()).then(|| Arc::clone(&self.0.all));
        let taken = async {
            // The semaphores are never closed.
            let own = of_viewer.acquire_owned().await.ok();
            let common = match all {
                Some(all) => all.acquire_owned().await.ok(),
                None => None,
            };
            [own, common]
        };
        time::timeout(self.0.patience, taken)
            .await
            .map_err(|_| WorkError::Busy)
    }

    fn of_viewer(&self, viewer: &Arc<str>) -> Arc<Semaphore> {
        let mut known = lock(&self.0.of_viewer);
        // A viewer whose work has ended needs no entry.
        known.retain(|_, places| places.strong_count() > 0);
        if let Some(places) = known.get(viewer).and_then(Weak::upgrade) {
            return places;
        }
        let places = Arc::new(Semaphore::new(MOST_OF_ONE));
        known.insert(Arc::clone(viewer), Arc::downgrade(&places));
        places
    }
}

/// Returns whether this thread works for a client that has left. Its results may lack what could not be read.
#[must_use]
pub fn is_abandoned() -> bool {
    CURRENT.with_borrow(|task| task.as_ref().is_some_and(|task| lock(&task.0).is_abandoned))
}

/// Has the statements of a connection interrupted when the client of this thread's work leaves.
///
/// # Errors
/// If it has left.
pub(super) fn follow_client(db: &Connection) -> Result<(), StoreError> {
    CURRENT.with_borrow(|task| match task {
        Some(task) => task.adopt(&db.interrupt_handle()),
        None => Ok(()),
    })
}

thread_local! {
    /// The work of this thread.
    static CURRENT: RefCell<Option<Arc<Task>>> = const { RefCell::new(None) };
}

#[derive(Debug, Default)]
struct Task(Mutex<TaskState>);

#[derive(Debug, Default)]
struct TaskState {
    is_abandoned: bool,
    /// Connections that are open.
    connections: Vec<Weak<InterruptHandle>>,
}

impl Task {
    fn adopt(&self, connection: &Arc<InterruptHandle>) -> Result<(), StoreError> {
        let mut state = lock(&self.0);
        // A statement that begins later would never be interrupted.
        if state.is_abandoned {
            return Err(StoreError::GivenUp);
        }
        state.connections.retain(|open| open.strong_count() > 0);
        state.connections.push(Arc::downgrade(connection));
        Ok(())
    }

    /// A statement that begins at this moment runs to its end: an interrupt before it has no effect.
    fn abandon(&self) {
        let mut state = lock(&self.0);
        state.is_abandoned = true;
        for connection in state.connections.drain(..) {
            if let Some(connection) = connection.upgrade() {
                connection.interrupt();
            }
        }
    }
}

struct AbandonWhenDropped(Arc<Task>);

impl Drop for AbandonWhenDropped {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Marks the thread as working for a task, until it is dropped.
struct Current;

impl Current {
    fn begin(task: Arc<Task>) -> Self {
        CURRENT.set(Some(task));
        Self
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Database, MemoryBudget, Settings};
    use std::sync::mpsc;
    use tempfile::tempdir;

    #[tokio::test]
    async fn work_whose_client_has_left_keeps_its_place_until_it_ends() {
        let places = WorkPlaces::default();
        let budget = MemoryBudget::default();
        let (alice, bob) = (budget.account("alice"), budget.account("bob"));
        let admin = budget.account("root").with_reserve(true);
        let (end, is_ended) = mpsc::channel::<()>();
        let is_ended = Arc::new(Mutex::new(is_ended));
        let begin = async |account: &MemoryAccount| {
            let is_ended = Arc::clone(&is_ended);
            let work = places.change(account, move || lock(&is_ended).recv().is_err());
            time::timeout(Duration::from_millis(100), work).await
        };

        // The clients leave after a tenth of a second, and the work continues.
        for account in [&alice, &bob] {
            for _ in 0..MOST_OF_ONE {
                assert!(begin(account).await.is_err());
            }
        }
        assert_eq!(places.0.all.available_permits(), 0);
        assert_eq!(places.of_viewer(&"alice".into()).available_permits(), 0);
        // An administrator needs no common place.
        assert_eq!(places.change(&admin, || 42).await.unwrap(), 42);

        drop(end);
        assert_eq!(places.change(&alice, || 43).await.unwrap(), 43);
        assert_eq!(places.read(&bob, || 44).await.unwrap(), 44);
        assert!(places.read(&bob, || panic!("as a test")).await.is_err());
        // Even a panic gives the place back.
        assert_eq!(
            places.of_viewer(&"bob".into()).available_permits(),
            MOST_OF_ONE
        );
    }

    #[tokio::test]
    async fn work_without_a_place_is_refused() {
        let places = WorkPlaces::new(Duration::ZERO);
        let account = MemoryBudget::default().account("alice");
        let all = Arc::clone(&places.0.all)
            .acquire_many_owned(MOST as u32)
            .await;
        let refused = places.read(&account, || ()).await.unwrap_err();
        assert!(matches!(refused, WorkError::Busy), "{refused}");
        drop(all);
        places.read(&account, || ()).await.unwrap();
    }

    #[tokio::test]
    async fn a_statement_ends_when_its_client_leaves() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Arc::new(Database::open(&dir, &Settings::default()).unwrap());
        let places = WorkPlaces::default();
        let account = MemoryBudget::default().account("alice");
        let (say, hear) = mpsc::channel();
        let work = places.read(&account, move || {
            // It would run for hours.
            let long =
                "SELECT sum(hash(a.range, b.range)) FROM range(1000000) AS a, range(1000000) AS b";
            let db = database.reader().unwrap();
            let ended = db.query_row(long, [], |_| Ok(())).unwrap_err().to_string();
            let next = database
                .reader()
                .map(drop)
                .map_err(|error| error.to_string());
            say.send((ended, is_abandoned(), next)).unwrap();
        });
        assert!(
            time::timeout(Duration::from_millis(500), work)
                .await
                .is_err()
        );
        let heard = tokio::task::spawn_blocking(move || hear.recv());
        let (ended, was_abandoned, next) = heard.await.unwrap().unwrap();
        assert!(ended.contains("Interrupted"), "{ended}");
        assert!(was_abandoned);
        assert_eq!(next, Err("the caller stopped reading".to_owned()));
    }
}
