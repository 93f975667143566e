//! Events of a node, such as an XID in the kernel log.

use crate::{Labels, Timestamp};
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// Kind of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl EventKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Name of the kind in rules, labels and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// The NVIDIA driver reported an error by its XID.
    Xid "xid",
    /// The driver of an NVSwitch reported an error by its SXid.
    Sxid "sxid",
    /// A GPU fell off the bus without an XID of its own.
    GpuLost "gpu_lost",
    /// The driver could not initialise a GPU.
    GpuInitFailed "gpu_init_failed",
    /// The kernel killed a process for lack of memory.
    OomKill "oom_kill",
    /// A task was blocked for longer than the kernel's limit.
    HungTask "hung_task",
    /// A CPU was stuck in the kernel.
    Lockup "lockup",
    /// The kernel itself failed: an oops, a BUG or a panic.
    KernelFault "kernel_fault",
    /// An NFS server does not answer.
    NfsNotResponding "nfs_not_responding",
    /// An NFS server answers again.
    NfsResponding "nfs_responding",
    /// A lock on an NFS server was lost when the server came back.
    NfsLockLost "nfs_lock_lost",
    /// A network link went down.
    LinkDown "link_down",
    /// A network link came up.
    LinkUp "link_up",
    /// A network link came up slower than both sides can: the cable carries no more.
    LinkDownshift "link_downshift",
    /// A memory controller reported an error, corrected or not.
    MemoryError "memory_error",
    /// The CPU reported a hardware error.
    MachineCheck "machine_check",
    /// A PCI Express device or port reported an error.
    PcieError "pcie_error",
    /// A CPU became too hot and was slowed down.
    CpuThrottled "cpu_throttled",
    /// A disk failed a request or did not answer.
    DiskError "disk_error",
    /// A file system found an error in itself.
    FilesystemError "filesystem_error",
    /// A file system stopped taking writes after an error.
    FilesystemReadonly "filesystem_readonly",
    /// The BMC logged a failure, or a predicted one, in its event log.
    HardwareLog "hardware_log",
}

/// An event of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Increases with every event of a node, also across restarts, but not always by one. Readers
    /// request the events after the last id they know.
    pub id: u64,
    /// Time of the event, by the node's clock.
    pub at: Timestamp,
    /// Kind of the event.
    pub kind: EventKind,
    /// Labels that identify the source: `uuid`, `pci_bus_id`, `xid` or `device`, depending on the
    /// kind.
    #[serde(with = "as_map")]
    pub labels: Labels,
    /// The original log line.
    pub message: String,
}

/// Serializes labels as a JSON object.
mod as_map {
    use crate::Labels;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<S>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
    {
        serializer.collect_map(labels.iter())
    }

    pub fn deserialize<'de, D>(deserializer: D) -> Result<Labels, D::Error>
    where
        D: Deserializer<'de>,
    {
        Ok(BTreeMap::<String, String>::deserialize(deserializer)?
            .into_iter()
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error, StrDeserializer};
    use serde::de::{Deserialize, IntoDeserializer};

    #[test]
    fn kinds_round_trip_by_name() {
        for kind in EventKind::ALL {
            let word: StrDeserializer<'_, Error> = kind.name().into_deserializer();
            assert_eq!(EventKind::deserialize(word), Ok(*kind));
        }
    }
}
