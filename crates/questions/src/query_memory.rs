//! The memory of a request, in the account of its viewer, and that of a PromQL query.

use std::sync::{Arc, Mutex, PoisonError};
use takt_access::{Role, Viewer};
use takt_promql::{Error, QueryMemory};
use takt_store::{HeldMemory, MemoryAccount, MemoryBudget, MemoryRefusal, MemoryUse};

/// Returns the account of one request of a viewer. All that is held for the same user, or the same
/// address where the user is unknown, counts together.
pub fn account_of(memory: &MemoryBudget, viewer: &Viewer) -> MemoryAccount {
    // Administrators may use the reserve, so that they can look while others fill the memory.
    let is_admin = viewer.role() == Role::Admin;
    memory.account(viewer.caller()).with_reserve(is_admin)
}

/// Holds the memory of an evaluation.
#[derive(Debug)]
struct EvaluationMemory(Mutex<HeldMemory>);

/// Returns the memory of one evaluation, which this account holds until it is dropped.
pub fn evaluation_memory(account: &MemoryAccount) -> Arc<dyn QueryMemory> {
    let held = account.holder(MemoryUse::Query);
    Arc::new(EvaluationMemory(Mutex::new(held)))
}

impl QueryMemory for EvaluationMemory {
    fn hold(&self, bytes: u64) -> Result<(), Error> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.grow_to(bytes).map_err(memory_error)
    }
}

/// The error of a query without memory.
pub fn memory_error(refusal: MemoryRefusal) -> Error {
    if refusal.is_temporary() {
        Error::Unavailable(refusal.to_string())
    } else {
        Error::Execution(refusal.to_string())
    }
}
