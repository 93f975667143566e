//! One budget of memory for everything that clients make a server hold: queries and their answers,
//! until they are read; statements; pushed requests.
//!
//! One viewer may hold at most half of the budget, and users together three quarters: the rest is for
//! pushes and administrators. If memory is short, a request that holds nothing yet waits five seconds
//! and is then refused; one that holds some is refused at once, since others wait for it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time;

/// Time that a holder waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// Holders that wait for memory at the same time; more are refused at once.
const MAX_WAITING: usize = 64;

/// Of them, those of one viewer.
const MAX_WAITING_OF_ONE: usize = MAX_WAITING / 4;

/// One part in so many of the budget is reserved for pushes and administrators.
const RESERVED_PART: u64 = 4;

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryUse {
    /// An answer that the client has not read yet.
    Answer,
    /// A pushed request.
    Push,
    /// A query that is evaluated.
    Query,
    /// The text of a statement, and its parameters.
    Statement,
}

impl MemoryUse {
    const ALL: [Self; 4] = [Self::Answer, Self::Push, Self::Query, Self::Statement];

    fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Push => "push",
            Self::Query => "query",
            Self::Statement => "statement",
        }
    }
}

/// Why memory is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryRefusal {
    /// One request wants more than a viewer may have: waiting does not help.
    #[error(
        "it takes more than {} MiB of memory, half of server.memory_budget_mib: ask for less at a time",
        share >> 20
    )]
    TooLarge {
        /// What a viewer may have, in bytes.
        share: u64,
    },
    /// The viewer's other queries and unread answers have its share.
    #[error(
        "your queries and unread answers hold {} of the {} MiB that one user may have: read or end \
         them, or ask for less at a time, and try again",
        held >> 20, share >> 20
    )]
    Share {
        /// What the viewer holds, in bytes.
        held: u64,
        /// What a viewer may have, in bytes.
        share: u64,
    },
    /// The whole budget, or the part of users, is in use.
    #[error(
        "queries and answers hold {} of {} MiB (server.memory_budget_mib): try again",
        held >> 20, limit >> 20
    )]
    Full {
        /// What all hold, in bytes.
        held: u64,
        /// The budget, or the part of users, in bytes.
        limit: u64,
    },
}

impl MemoryRefusal {
    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        !matches!(self, Self::TooLarge { .. })
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Share { .. } => "share",
            Self::Full { .. } => "full",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    kind: &'static str,
    reason: &'static str,
}

/// The budget; clones are the same one.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
    notify: Notify,
    held: Family<UseLabel, Gauge>,
    refused: Family<RefusalLabel, Counter>,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    /// Without those that may have the reserve.
    held_by_users: u64,
    waiting: usize,
    of_viewer: HashMap<Arc<str>, OfViewer>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OfViewer {
    held: u64,
    waiting: usize,
}

impl Default for MemoryBudget {
    /// A budget without a limit, for commands and tests.
    fn default() -> Self {
        Self::of_bytes(u64::MAX)
    }
}

impl MemoryBudget {
    /// Returns a budget of so many bytes, with metrics in the registry.
    pub fn register(limit: u64, registry: &mut Registry) -> Self {
        let budget = Self::of_bytes(limit);
        let Shared { held, refused, .. } = &*budget.0;
        let total: Gauge = Gauge::default();
        total.set(i64::try_from(limit).unwrap_or(i64::MAX));

        registry.register(
            "takt_server_memory_budget_bytes",
            "Memory that queries, unread answers, statements and pushed requests may hold together",
            total,
        );
        registry.register(
            "takt_server_memory_held_bytes",
            "Memory that queries, unread answers, statements and pushed requests hold",
            held.clone(),
        );
        registry.register(
            "takt_server_memory_refused",
            "Requests that were refused for lack of memory: too_large (one took more than half of \
             the budget), share (one user had half of it), full (all of it, or the three quarters of \
             users, was in use)",
            refused.clone(),
        );

        // All series exist from the start, so that `increase()` shows the first refusal.
        for kind in MemoryUse::ALL.map(MemoryUse::name) {
            drop(held.get_or_create(&UseLabel { kind }));
            for reason in ["full", "share", "too_large"] {
                drop(refused.get_or_create(&RefusalLabel { kind, reason }));
            }
        }
        budget
    }

    /// Returns a budget of so many bytes.
    pub fn of_bytes(limit: u64) -> Self {
        Self(Arc::new(Shared {
            limit,
            state: Mutex::default(),
            freed: Condvar::new(),
            notify: Notify::new(),
            held: Family::default(),
            refused: Family::default(),
        }))
    }

    /// Returns the account of one request of a viewer. An equal name is the same viewer.
    pub fn account(&self, viewer: impl Into<Arc<str>>) -> MemoryAccount {
        MemoryAccount {
            budget: self.clone(),
            viewer: viewer.into(),
            has_reserve: false,
            of_request: Arc::default(),
        }
    }

    /// Memory that is held now, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.0.lock().held
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one viewer may have.
    fn share(&self) -> u64 {
        if self.limit == u64::MAX {
            u64::MAX
        } else {
            self.limit / 2
        }
    }

    fn refuse(&self, kind: MemoryUse, refusal: MemoryRefusal) -> MemoryRefusal {
        let label = RefusalLabel {
            kind: kind.name(),
            reason: refusal.reason(),
        };
        self.refused.get_or_create(&label).inc();
        refusal
    }

    fn gauge(&self, kind: MemoryUse) -> Gauge {
        let label = UseLabel { kind: kind.name() };
        self.held.get_or_create_owned(&label)
    }
}

impl State {
    /// Adds bytes of an account, if there is room for them.
    fn take(&mut self, account: &MemoryAccount, bytes: u64) -> Result<(), MemoryRefusal> {
        let shared = &account.budget.0;
        let held = self.of(&account.viewer).held;
        let share = shared.share();
        if held.saturating_add(bytes) > share {
            return Err(MemoryRefusal::Share { held, share });
        }

        let most_of_users = shared.limit - shared.limit / RESERVED_PART;
        let bounds = [
            (self.held_by_users, most_of_users),
            (self.held, shared.limit),
        ];
        // An account with the reserve skips the first bound, which is that of users.
        for (held, limit) in bounds.into_iter().skip(account.has_reserve.into()) {
            if held.saturating_add(bytes) > limit {
                return Err(MemoryRefusal::Full { held, limit });
            }
        }

        self.held += bytes;
        if !account.has_reserve {
            self.held_by_users += bytes;
        }
        self.change(&account.viewer, |of_viewer| of_viewer.held += bytes);
        Ok(())
    }

    fn give_back(&mut self, account: &MemoryAccount, bytes: u64) {
        self.held -= bytes;
        if !account.has_reserve {
            self.held_by_users -= bytes;
        }
        self.change(&account.viewer, |of_viewer| of_viewer.held -= bytes);
    }

    fn of(&self, viewer: &Arc<str>) -> OfViewer {
        self.of_viewer.get(viewer).copied().unwrap_or_default()
    }

    /// Changes what is known of a viewer, and forgets one that holds nothing and does not wait.
    fn change(&mut self, viewer: &Arc<str>, change: impl FnOnce(&mut OfViewer)) {
        let mut of_viewer = self.of(viewer);
        change(&mut of_viewer);
        if of_viewer == OfViewer::default() {
            self.of_viewer.remove(viewer);
        } else {
            self.of_viewer.insert(Arc::clone(viewer), of_viewer);
        }
    }
}

/// One viewer's part of the budget, as one request uses it.
#[derive(Debug, Clone)]
pub struct MemoryAccount {
    budget: MemoryBudget,
    viewer: Arc<str>,
    /// Whether it may have the part of the budget that users leave.
    has_reserve: bool,
    /// Bytes that all holders of this account and its clones hold. Changed under the lock of the state.
    of_request: Arc<AtomicU64>,
}

impl Default for MemoryAccount {
    /// An account without a limit, for commands and tests.
    fn default() -> Self {
        MemoryBudget::default().account("")
    }
}

impl MemoryAccount {
    /// May also have the part of the budget that users leave, for pushes and administrators.
    #[must_use]
    pub fn with_reserve(mut self, has_reserve: bool) -> Self {
        self.has_reserve = has_reserve;
        self
    }

    /// Whether it may also have that part.
    pub fn has_reserve(&self) -> bool {
        self.has_reserve
    }

    /// Name of the viewer.
    pub fn viewer(&self) -> &Arc<str> {
        &self.viewer
    }

    /// Returns a holder that holds nothing yet.
    pub fn holder(&self, kind: MemoryUse) -> HeldMemory {
        HeldMemory {
            account: self.clone(),
            kind,
            bytes: 0,
            gauge: self.budget.0.gauge(kind),
        }
    }

    /// Takes bytes; waits for them where there are too few. Blocks.
    ///
    /// # Errors
    /// If there are too few for [`PATIENCE`].
    pub fn hold(&self, kind: MemoryUse, bytes: u64) -> Result<HeldMemory, MemoryRefusal> {
        let mut holder = self.holder(kind);
        holder.grow(bytes)?;
        Ok(holder)
    }
}

/// Held memory; given back when this is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    account: MemoryAccount,
    kind: MemoryUse,
    bytes: u64,
    gauge: Gauge,
}

/// A place among those that wait.
struct WaitingPlace<'a>(&'a MemoryAccount);

impl<'a> WaitingPlace<'a> {
    /// `None` if too many wait, or the request holds memory that others wait for.
    fn take(account: &'a MemoryAccount, state: &mut State) -> Option<Self> {
        let is_free = state.waiting < MAX_WAITING
            && state.of(&account.viewer).waiting < MAX_WAITING_OF_ONE
            && account.of_request.load(Ordering::Relaxed) == 0;
        is_free.then(|| {
            state.waiting += 1;
            state.change(&account.viewer, |of_viewer| of_viewer.waiting += 1);
            Self(account)
        })
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.0.budget.0.lock();
        state.waiting -= 1;
        state.change(&self.0.viewer, |of_viewer| of_viewer.waiting -= 1);
    }
}

impl HeldMemory {
    /// Bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes if they are there now.
    ///
    /// # Errors
    /// If they are not.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        let account = self.account.clone();
        let taken = self.attempt(&mut account.budget.0.lock(), bytes);
        self.noted(taken)
    }

    /// Takes more bytes. A request that holds none waits where there are too few. Blocks.
    ///
    /// # Errors
    /// If there are too few, for [`PATIENCE`] if it waits.
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        let account = self.account.clone();
        let shared = &account.budget.0;
        // The time counts from the request, however often others give memory back meanwhile.
        let deadline = Instant::now() + PATIENCE;
        let mut state = shared.lock();
        let mut taken = self.attempt(&mut state, bytes);

        if is_temporary(&taken) {
            let place = WaitingPlace::take(&account, &mut state);
            while is_temporary(&taken) && place.is_some() && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                state = shared
                    .freed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                taken = self.attempt(&mut state, bytes);
            }
            // The place is given back under the same lock.
            drop(state);
            drop(place);
        } else {
            drop(state);
        }
        self.noted(taken)
    }

    /// As [`grow`](Self::grow), without blocking the thread.
    ///
    /// # Errors
    /// If there are too few, for [`PATIENCE`] if it waits.
    pub async fn grow_soon(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        let account = self.account.clone();
        let shared = &account.budget.0;
        let mut taken = self.attempt(&mut shared.lock(), bytes);

        if is_temporary(&taken) {
            let place = WaitingPlace::take(&account, &mut shared.lock());
            let waited = async {
                while is_temporary(&taken) && place.is_some() {
                    // Registered before the attempt: memory that is given back between the two is not missed.
                    let freed = shared.notify.notified();
                    taken = self.attempt(&mut shared.lock(), bytes);
                    if is_temporary(&taken) {
                        freed.await;
                    }
                }
            };
            // After the time, the last refusal stays.
            let _ = time::timeout(PATIENCE, waited).await;
        }
        self.noted(taken)
    }

    /// Takes bytes up to this sum.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Returns a part of it as a holder of its own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            account: self.account.clone(),
            kind: self.kind,
            bytes,
            gauge: self.gauge.clone(),
        }
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        if bytes == 0 {
            return;
        }
        let shared = &self.account.budget.0;
        let mut state = shared.lock();
        state.give_back(&self.account, bytes);
        self.account.of_request.fetch_sub(bytes, Ordering::Relaxed);
        let is_awaited = state.waiting > 0;
        drop(state);

        self.gauge.dec_by(bytes.cast_signed());

        // Waking costs a system call and is seldom needed.
        if is_awaited {
            shared.freed.notify_all();
            shared.notify.notify_waiters();
        }
    }

    fn attempt(&mut self, state: &mut State, bytes: u64) -> Result<(), MemoryRefusal> {
        if bytes == 0 {
            return Ok(());
        }
        let share = self.account.budget.0.share();
        let of_request = self.account.of_request.load(Ordering::Relaxed);
        if of_request.saturating_add(bytes) > share {
            return Err(MemoryRefusal::TooLarge { share });
        }

        state.take(&self.account, bytes)?;
        self.account.of_request.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        self.gauge.inc_by(bytes.cast_signed());
        Ok(())
    }

    /// Counts a refusal.
    fn noted(&self, taken: Result<(), MemoryRefusal>) -> Result<(), MemoryRefusal> {
        taken.map_err(|refusal| self.account.budget.0.refuse(self.kind, refusal))
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_temporary(taken: &Result<(), MemoryRefusal>) -> bool {
    taken.as_ref().is_err_and(MemoryRefusal::is_temporary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_viewer_has_half_and_all_have_the_budget() {
        let budget = MemoryBudget::of_bytes(100);
        let request = |name: &str| budget.account(name);
        let mut first = request("alice").holder(MemoryUse::Answer);
        let share = 50;
        assert_eq!(first.try_grow(51), Err(MemoryRefusal::TooLarge { share }));
        first.try_grow(40).unwrap();
        let mut second = request("alice").holder(MemoryUse::Query);
        let refusal = second.try_grow(11).unwrap_err();
        assert_eq!(refusal, MemoryRefusal::Share { held: 40, share });
        assert!(refusal.is_temporary());

        let mut of_bob = request("bob").holder(MemoryUse::Query);
        of_bob.try_grow(30).unwrap();
        let mut of_carol = request("carol").holder(MemoryUse::Query);
        let full = |held, limit| Err(MemoryRefusal::Full { held, limit });
        assert_eq!(of_carol.try_grow(6), full(70, 75), "a quarter is reserved");
        let sender = request("sender").with_reserve(true);
        let mut of_sender = sender.holder(MemoryUse::Push);
        assert_eq!(of_sender.try_grow(31), full(70, 100));
        of_sender.try_grow(30).unwrap();

        // A part that was split off stays held when its origin is dropped.
        let part = of_bob.split(20);
        drop((of_bob, of_sender));
        assert_eq!(budget.held_bytes(), 60);
        of_carol.try_grow(11).unwrap();
        of_carol.try_grow(0).unwrap();
        drop((first, second, part, of_carol));
        assert_eq!(budget.held_bytes(), 0);
        let state = budget.0.lock();
        assert!(state.of_viewer.is_empty() && state.held_by_users == 0);
    }

    #[test]
    fn a_request_does_not_wait_for_its_own_memory() {
        let budget = MemoryBudget::of_bytes(100);
        let account = budget.account("alice");
        let query = account.hold(MemoryUse::Query, 40).unwrap();
        let began = Instant::now();
        let answer = account.hold(MemoryUse::Answer, 11);
        assert!(matches!(answer, Err(MemoryRefusal::TooLarge { share: 50 })));

        // Nor does it make others wait for what it holds.
        let other = budget.account("alice").hold(MemoryUse::Query, 10).unwrap();
        let answer = account.hold(MemoryUse::Answer, 5);
        assert!(matches!(answer, Err(MemoryRefusal::Share { .. })));
        assert!(began.elapsed() < PATIENCE / 2);

        drop((query, other));
        account.hold(MemoryUse::Answer, 50).unwrap();
    }

    #[test]
    fn one_viewer_cannot_take_all_waiting_places() {
        let budget = MemoryBudget::of_bytes(100);
        let bob = budget.account("bob");
        let requests: Vec<_> = (0..MAX_WAITING).map(|_| budget.account("alice")).collect();
        let take = |account| WaitingPlace::take(account, &mut budget.0.lock());
        let places: Vec<_> = requests.iter().filter_map(take).collect();
        assert_eq!(places.len(), MAX_WAITING_OF_ONE);
        assert!(take(&bob).is_some());
        drop(places);
        assert!(budget.0.lock().of_viewer.is_empty());
    }

    #[test]
    fn a_holder_waits_until_memory_is_given_back() {
        let budget = MemoryBudget::of_bytes(100);
        let held = budget.account("a").hold(MemoryUse::Answer, 50).unwrap();
        let other = budget.account("b").hold(MemoryUse::Answer, 25).unwrap();
        thread::scope(|threads| {
            let waiting = threads.spawn(|| budget.account("a").hold(MemoryUse::Query, 30));
            // Only then is the thread certain to wait.
            while budget.0.lock().waiting == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            drop(held);
            assert_eq!(waiting.join().unwrap().unwrap().bytes(), 30);
        });
        drop(other);
    }

    #[tokio::test]
    async fn an_asynchronous_holder_waits_too() {
        let budget = MemoryBudget::of_bytes(100);
        let held = budget.account("a").hold(MemoryUse::Answer, 50).unwrap();
        let mut waiting = budget.account("a").holder(MemoryUse::Answer);
        let (taken, ()) = tokio::join!(waiting.grow_soon(30), async {
            while budget.0.lock().waiting == 0 {
                time::sleep(Duration::from_millis(1)).await;
            }
            drop(held);
        });
        taken.unwrap();
        assert_eq!(budget.held_bytes(), 30);
        assert_eq!(budget.0.lock().waiting, 0);
    }
}
