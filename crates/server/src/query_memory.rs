//! The memory of a PromQL query, in the account of the request that asks it.

use std::sync::{Arc, Mutex, PoisonError};
use takt_promql::{Error, QueryMemory};
use takt_store::{HeldMemory, MemoryAccount, MemoryRefusal, MemoryUse};

/// Holds the memory of an evaluation.
#[derive(Debug)]
struct EvaluationMemory(Mutex<HeldMemory>);

/// Returns the memory of one evaluation, which this account holds until it is dropped.
pub(crate) fn evaluation_memory(account: &MemoryAccount) -> Arc<dyn QueryMemory> {
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
pub(crate) fn memory_error(refusal: MemoryRefusal) -> Error {
    if refusal.is_temporary() {
        Error::Unavailable(refusal.to_string())
    } else {
        Error::Execution(refusal.to_string())
    }
}
