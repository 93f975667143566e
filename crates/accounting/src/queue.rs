//! The queue: free resources by node, and the jobs that fit on them.

use crate::capacity::NodeCapacity;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_jobs::{Amounts, JobRun, nodelist};

/// Free resources of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeNode {
    /// Node name.
    pub node: String,
    /// Slurm's state.
    pub state: String,
    /// Whether jobs can start on the node: it is neither down, drained nor kept for others.
    pub is_usable: bool,
    /// CPUs of the node.
    pub cpus: u64,
    /// GPUs of the node.
    pub gpus: u64,
    /// Memory of the node, in bytes.
    pub mem_bytes: u64,
    /// CPUs that no run holds.
    pub free_cpus: u64,
    /// GPUs that no run holds.
    pub free_gpus: u64,
    /// Memory that no run holds, in bytes.
    pub free_mem_bytes: u64,
}

/// Largest requests that fit now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeNow {
    /// Free GPUs on all usable nodes that also have a free CPU.
    pub gpus: u64,
    /// Largest number of free GPUs on one usable node with a free CPU.
    pub gpus_on_one_node: u64,
    /// Free CPUs on all usable nodes.
    pub cpus: u64,
    /// Largest number of free CPUs on one usable node.
    pub cpus_on_one_node: u64,
    /// Largest free memory of one usable node, in bytes.
    pub mem_bytes_on_one_node: u64,
    /// Free GPUs of usable nodes without a free CPU: no job can have them.
    pub stranded_gpus: u64,
}

/// Returns the free resources of each node while `running` hold theirs. A run on several nodes is
/// split evenly, because Slurm's split is not recorded.
pub fn free_nodes<'r>(
    nodes: impl IntoIterator<Item = (NodeCapacity, String, bool)>,
    running: impl IntoIterator<Item = &'r JobRun>,
) -> Vec<FreeNode> {
    let mut held: HashMap<String, Amounts> = HashMap::new();
    for run in running {
        let names = run
            .node_list
            .as_deref()
            .and_then(|list| nodelist::expand(list).ok())
            .unwrap_or_default();
        let count = names.len() as u64;
        for (at, name) in names.into_iter().enumerate() {
            // The remainder goes to the first nodes, so that the parts add up.
            let part = |amount: Option<u64>| {
                let amount = amount.unwrap_or(0);
                amount / count + u64::from((at as u64) < amount % count)
            };

            let sum = held.entry(name).or_default();
            sum.cpus += part(run.cpus);
            sum.gpus += part(run.gpus);
            sum.mem_bytes += part(run.mem_bytes);
        }
    }

    nodes
        .into_iter()
        .map(|(NodeCapacity { node, amounts }, state, is_usable)| {
            let held = held.get(&node).copied().unwrap_or_default();
            FreeNode {
                state,
                is_usable,
                cpus: amounts.cpus,
                gpus: amounts.gpus,
                mem_bytes: amounts.mem_bytes,
                free_cpus: amounts.cpus.saturating_sub(held.cpus),
                free_gpus: amounts.gpus.saturating_sub(held.gpus),
                free_mem_bytes: amounts.mem_bytes.saturating_sub(held.mem_bytes),
                node,
            }
        })
        .collect()
}

/// Returns the largest requests that fit on the usable nodes.
pub fn free_now(nodes: &[FreeNode]) -> FreeNow {
    let mut free = FreeNow::default();
    for node in nodes.iter().filter(|node| node.is_usable) {
        // A job needs at least one CPU.
        if node.free_cpus == 0 {
            free.stranded_gpus += node.free_gpus;
        } else {
            free.gpus += node.free_gpus;
            free.gpus_on_one_node = free.gpus_on_one_node.max(node.free_gpus);
        }
        free.cpus += node.free_cpus;
        free.cpus_on_one_node = free.cpus_on_one_node.max(node.free_cpus);
        free.mem_bytes_on_one_node = free.mem_bytes_on_one_node.max(node.free_mem_bytes);
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_hold_is_not_free_and_gpus_without_a_cpu_are_stranded() {
        let node = |name: &str, usable: bool| {
            let amounts = Amounts {
                cpus: 8,
                gpus: 2,
                mem_bytes: 100,
            };
            let node = name.to_owned();
            (NodeCapacity { node, amounts }, "MIXED".to_owned(), usable)
        };
        let run = |list: &str, cpus, gpus| JobRun {
            node_list: Some(list.into()),
            cpus: Some(cpus),
            gpus: Some(gpus),
            mem_bytes: Some(40),
            ..JobRun::default()
        };
        let nodes = [node("g1", true), node("g2", true), node("g3", false)];
        // Nine CPUs over two nodes are five and four, and three GPUs are two and one.
        let free = free_nodes(nodes, &[run("g[1-2]", 9, 3), run("g2", 4, 0)]);
        let amounts: Vec<_> = free
            .iter()
            .map(|node| (node.free_cpus, node.free_gpus, node.free_mem_bytes))
            .collect();
        assert_eq!(amounts, [(3, 0, 80), (0, 1, 40), (8, 2, 100)]);
        assert_eq!(
            free_now(&free),
            FreeNow {
                gpus: 0,
                gpus_on_one_node: 0,
                cpus: 3,
                cpus_on_one_node: 3,
                mem_bytes_on_one_node: 80,
                stranded_gpus: 1,
            }
        );
    }
}
