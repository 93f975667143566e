//! CPUs, GPUs and memory of a node, a reservation or a job.

use serde::{Deserialize, Serialize};

/// Amounts of the resources that accounting counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is what it is called")]
pub struct Amounts {
    pub cpus: u64,
    pub gpus: u64,
    pub mem_bytes: u64,
}
