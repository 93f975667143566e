//! Reservations: nodes reserved for some users or for maintenance.

use crate::{Amounts, nodelist};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_model::UnixTime;

/// One reservation of resources for a period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Reservation name.
    pub name: String,
    /// Slurm's flags, separated by commas: `MAINT`, `IGNORE_JOBS`, …
    pub flags: String,
    /// Reserved nodes, as Slurm writes them.
    pub node_list: Option<String>,
    /// Number of reserved CPUs.
    pub cpus: u64,
    /// Number of reserved GPUs, if Slurm lists them.
    pub gpus: Option<u64>,
    /// Accounts and users that may use the reservation.
    pub owners: Vec<Owner>,
    /// Start.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

/// An account, or one of its users, that may use a reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// Account. Empty if Slurm names a user only.
    pub account: String,
    /// Unix user. `None` for the whole account.
    pub user: Option<String>,
}

impl Reservation {
    /// Returns whether the reservation is for maintenance.
    pub fn is_maintenance(&self) -> bool {
        self.says("MAINT")
    }

    /// Returns whether jobs keep running on its nodes (`IGNORE_JOBS`).
    pub fn ignores_jobs(&self) -> bool {
        self.says("IGNORE_JOBS")
    }

    fn says(&self, flag: &str) -> bool {
        self.flags.split(',').any(|word| word == flag)
    }

    /// Returns the names of the reserved nodes. Empty if Slurm's list is invalid.
    pub fn nodes(&self) -> Vec<String> {
        self.node_list
            .as_deref()
            .and_then(|list| nodelist::expand(list).ok())
            .unwrap_or_default()
    }

    /// Returns the reserved amounts. If Slurm lists no GPUs, all GPUs of the nodes count when all
    /// their CPUs are reserved.
    pub fn amounts(&self, nodes: &HashMap<&str, Amounts>) -> Amounts {
        let gpus = self.gpus.unwrap_or_else(|| {
            // One unknown node makes the sum unknown, so that it cannot match by chance.
            let known: Option<Vec<&Amounts>> = self
                .nodes()
                .iter()
                .map(|name| nodes.get(name.as_str()))
                .collect();
            let known = known.unwrap_or_default();
            let cpus: u64 = known.iter().map(|node| node.cpus).sum();
            // Part of the CPUs leaves open which GPUs are reserved; 0 claims none.
            if cpus == self.cpus {
                known.iter().map(|node| node.gpus).sum()
            } else {
                0
            }
        });
        Amounts {
            cpus: self.cpus,
            gpus,
            mem_bytes: 0,
        }
    }
}
