//! Things that happen at an instant, such as an XID in the kernel log.

use crate::{Labels, Timestamp};
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The NVIDIA driver reported an error by its XID.
    Xid,
    /// A GPU fell off the bus without an XID of its own.
    GpuLost,
    /// The kernel killed a process for lack of memory.
    OomKill,
    /// A task was blocked for longer than the kernel's limit.
    HungTask,
    /// An NFS server does not answer.
    NfsNotResponding,
    /// A network link went down.
    LinkDown,
}

/// One thing that happened on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises by one with every event of a node; a reader that was away asks for what came after the last one it saw.
    pub id: u64,
    /// When it happened, by the node's clock.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// Where: `uuid`, `pci_bus_id`, `xid`, `device`, whatever the kind has.
    pub labels: Labels,
    /// The line that told it, as it was written.
    pub message: String,
}
