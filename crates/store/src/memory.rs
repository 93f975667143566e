//! One budget of memory for everything that clients make a server hold: queries and their answers,
//! until they are read; statements; pushed requests.
//!
//! Each holder takes bytes before it allocates them and gives them back when it drops them. Of one
//! viewer, all holders together have half of the budget. Who finds too little waits a moment, and is
//! then refused: answers that are being read, and queries that end, free memory soon.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time;

/// Time that a holder waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// Holders that wait for memory at the same time; more are refused at once.
const MAX_WAITING: usize = 64;

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
    /// One holder wants more than a viewer may have: waiting does not help.
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
        "your other queries and unread answers hold {} of the {} MiB that one user may have: read or \
         end them, and try again",
        held >> 20, share >> 20
    )]
    Share {
        /// What the viewer holds, in bytes.
        held: u64,
        /// What a viewer may have, in bytes.
        share: u64,
    },
    /// The whole budget is in use.
    #[error(
        "queries and answers hold {} of {} MiB (server.memory_budget_mib): try again",
        held >> 20, limit >> 20
    )]
    Full {
        /// What all hold, in bytes.
        held: u64,
        /// The budget, in bytes.
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
    of_viewer: HashMap<Arc<str>, u64>,
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
             the budget), share (one user had half of it), full (all of it was in use)",
            refused.clone(),
        );
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

    /// Returns the account of a viewer. An equal name is the same viewer.
    pub fn account(&self, viewer: impl Into<Arc<str>>) -> MemoryAccount {
        MemoryAccount {
            budget: self.clone(),
            viewer: viewer.into(),
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
    /// Adds bytes of a viewer, if there is room for them.
    fn take(
        &mut self,
        shared: &Shared,
        viewer: &Arc<str>,
        bytes: u64,
    ) -> Result<(), MemoryRefusal> {
        let held = self.of_viewer.get(viewer).copied().unwrap_or(0);
        let share = shared.share();
        if held.saturating_add(bytes) > share {
            return Err(MemoryRefusal::Share { held, share });
        }
        if self.held.saturating_add(bytes) > shared.limit {
            let held = self.held;
            let limit = shared.limit;
            return Err(MemoryRefusal::Full { held, limit });
        }
        self.held += bytes;
        *self.of_viewer.entry(Arc::clone(viewer)).or_default() += bytes;
        Ok(())
    }

    fn give_back(&mut self, viewer: &Arc<str>, bytes: u64) {
        self.held -= bytes;
        if let Some(held) = self.of_viewer.get_mut(viewer) {
            *held -= bytes;
            if *held == 0 {
                self.of_viewer.remove(viewer);
            }
        }
    }
}

/// One viewer's part of the budget.
#[derive(Debug, Clone)]
pub struct MemoryAccount {
    budget: MemoryBudget,
    viewer: Arc<str>,
}

impl Default for MemoryAccount {
    /// An account without a limit, for commands and tests.
    fn default() -> Self {
        MemoryBudget::default().account("")
    }
}

impl MemoryAccount {
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
            taken: 0,
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
    /// With the parts that were split off.
    taken: u64,
    gauge: Gauge,
}

/// A place among those that wait.
struct WaitingPlace<'s>(&'s Shared);

impl<'s> WaitingPlace<'s> {
    fn take(shared: &'s Shared, state: &mut State) -> Option<Self> {
        (state.waiting < MAX_WAITING).then(|| {
            state.waiting += 1;
            Self(shared)
        })
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
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
        let shared = Arc::clone(&self.account.budget.0);
        self.attempt(&mut shared.lock(), &shared, bytes)
            .map_err(|refusal| shared.refuse(self.kind, refusal))
    }

    /// Takes more bytes; waits for them where there are too few. Blocks.
    ///
    /// # Errors
    /// If there are too few for [`PATIENCE`].
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        let shared = Arc::clone(&self.account.budget.0);
        let deadline = Instant::now() + PATIENCE;
        let mut state = shared.lock();
        let mut taken = self.attempt(&mut state, &shared, bytes);
        if is_temporary(&taken) && state.waiting < MAX_WAITING {
            state.waiting += 1;
            while is_temporary(&taken) && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                state = shared
                    .freed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                taken = self.attempt(&mut state, &shared, bytes);
            }
            state.waiting -= 1;
        }
        drop(state);
        taken.map_err(|refusal| shared.refuse(self.kind, refusal))
    }

    /// Takes more bytes; waits for them where there are too few, without blocking the thread.
    ///
    /// # Errors
    /// If there are too few for [`PATIENCE`].
    pub async fn grow_soon(&mut self, bytes: u64) -> Result<(), MemoryRefusal> {
        let shared = Arc::clone(&self.account.budget.0);
        let mut taken = self.attempt(&mut shared.lock(), &shared, bytes);
        if is_temporary(&taken) {
            let place = WaitingPlace::take(&shared, &mut shared.lock());
            let waited = async {
                while is_temporary(&taken) && place.is_some() {
                    let freed = shared.notify.notified();
                    taken = self.attempt(&mut shared.lock(), &shared, bytes);
                    if is_temporary(&taken) {
                        freed.await;
                    }
                }
            };
            // After the time, the last refusal stays.
            let _ = time::timeout(PATIENCE, waited).await;
        }
        taken.map_err(|refusal| shared.refuse(self.kind, refusal))
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
            taken: bytes,
            gauge: self.gauge.clone(),
        }
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.taken = 0;
        let bytes = mem::take(&mut self.bytes);
        if bytes == 0 {
            return;
        }
        let shared = &self.account.budget.0;
        let mut state = shared.lock();
        state.give_back(&self.account.viewer, bytes);
        let is_awaited = state.waiting > 0;
        drop(state);
        self.gauge.dec_by(bytes.cast_signed());
        if is_awaited {
            shared.freed.notify_all();
            shared.notify.notify_waiters();
        }
    }

    fn attempt(
        &mut self,
        state: &mut State,
        shared: &Shared,
        bytes: u64,
    ) -> Result<(), MemoryRefusal> {
        let share = shared.share();
        if self.taken.saturating_add(bytes) > share {
            return Err(MemoryRefusal::TooLarge { share });
        }
        state.take(shared, &self.account.viewer, bytes)?;
        self.bytes += bytes;
        self.taken += bytes;
        self.gauge.inc_by(bytes.cast_signed());
        Ok(())
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
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| budget.account(name));
        let mut first = alice.holder(MemoryUse::Answer);
        assert_eq!(
            first.try_grow(51),
            Err(MemoryRefusal::TooLarge { share: 50 })
        );
        first.try_grow(40).unwrap();
        let mut second = alice.holder(MemoryUse::Query);
        let refusal = second.try_grow(11).unwrap_err();
        assert_eq!(
            refusal,
            MemoryRefusal::Share {
                held: 40,
                share: 50
            }
        );
        assert!(refusal.is_temporary());
        let mut of_bob = bob.holder(MemoryUse::Push);
        of_bob.try_grow(50).unwrap();
        let mut of_carol = carol.holder(MemoryUse::Push);
        let refused = of_carol.try_grow(11);
        assert_eq!(
            refused,
            Err(MemoryRefusal::Full {
                held: 90,
                limit: 100
            })
        );
        let part = of_bob.split(20);
        drop(of_bob);
        assert_eq!(budget.held_bytes(), 60);
        of_carol.try_grow(11).unwrap();
        drop((first, second, part, of_carol));
        assert_eq!(budget.held_bytes(), 0);
        assert!(budget.0.lock().of_viewer.is_empty());
    }

    #[test]
    fn a_holder_waits_until_memory_is_given_back() {
        let budget = MemoryBudget::of_bytes(100);
        let held = budget.account("a").hold(MemoryUse::Answer, 50).unwrap();
        let other = budget.account("b").hold(MemoryUse::Answer, 50).unwrap();
        thread::scope(|threads| {
            let waiting = threads.spawn(|| budget.account("a").hold(MemoryUse::Query, 30));
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
