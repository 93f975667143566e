//! CPUs, GPUs and memory of a node, a reservation or a job.

use serde::{Deserialize, Serialize};

/// An amount of each resource that is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is what it is called")]
pub struct Amounts {
    pub cpus: u64,
    pub gpus: u64,
    pub mem_bytes: u64,
}
