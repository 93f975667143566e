//! Nodes: capacity and state of each node, and changes of state.

use crate::Amounts;
use takt_model::UnixTime;

/// A node, as Slurm last reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Slurm's NodeName.
    pub node: String,
    /// Slurm's state: base state and flags.
    pub state: String,
    /// Reason of a drained or down node, if set.
    pub reason: Option<String>,
    /// User who set the reason.
    pub reason_by: Option<String>,
    /// Time at which the reason was set.
    pub reason_at: Option<UnixTime>,
    /// Partitions that contain the node.
    pub partitions: Vec<String>,
    /// CPUs, GPUs and memory of the node.
    pub has: Amounts,
    /// GPU type in Slurm's words (`a100`). Several types are joined with `+`. `None` if Slurm does not name it.
    pub gpu_model: Option<String>,
    /// Whether Slurm tracks the node's GPUs as TRES.
    pub counts_gpus: bool,
}

/// An interval in which a node was unavailable, or in which the cluster had a certain size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// Slurm's NodeName. Empty for the cluster.
    pub node: String,
    /// Slurm's state.
    pub state: String,
    /// Reason, if set.
    pub reason: Option<String>,
    /// Capacity of the node or the cluster.
    pub has: Amounts,
    /// Start.
    pub from: UnixTime,
    /// End. `None` while the interval lasts.
    pub to: Option<UnixTime>,
}

/// Returns whether Slurm tracks the GPUs of all these nodes as TRES.
pub fn gpus_are_counted(nodes: &[Node]) -> bool {
    nodes
        .iter()
        .all(|node| node.counts_gpus || node.has.gpus == 0)
}
