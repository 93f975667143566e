//! Things that happen at an instant, such as an XID in the kernel log.

use crate::{Labels, Timestamp};
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl EventKind {
            /// Every kind there is.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The word for it in rules, labels and on the wire.
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
    /// The BMC wrote of something that failed, or is about to, into its event log.
    HardwareLog "hardware_log",
}

/// One thing that happened on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises with every event of a node, over restarts too, though not by one. A reader that was away asks for what came
    /// after the last one it saw.
    pub id: u64,
    /// When it happened, by the node's clock.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// Where: `uuid`, `pci_bus_id`, `xid`, `device`, whatever the kind has.
    #[serde(with = "as_map")]
    pub labels: Labels,
    /// The line that told it, as it was written.
    pub message: String,
}

/// On the wire labels are an object, as everybody expects.
mod as_map {
    use crate::Labels;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(labels.iter())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
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
    fn a_kind_is_read_by_the_name_it_is_written_with() {
        for kind in EventKind::ALL {
            let word: StrDeserializer<'_, Error> = kind.name().into_deserializer();
            assert_eq!(EventKind::deserialize(word), Ok(*kind));
        }
    }
}
