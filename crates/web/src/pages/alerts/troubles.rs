//! What is broken and no incident names: its alert has not fired yet, or there is no rule for it.

use super::IncidentView;
use crate::frame::{Visit, href};
use crate::pictures;
use serde::Serialize;
use takt_collector::scrape::TargetHealth;
use takt_questions::{ClusterAnswer, GpuState, NodeNow};

/// A line about something that is broken.
#[derive(Debug, Clone, Serialize)]
pub struct Trouble {
    href: String,
    name: String,
    text: String,
}

impl Trouble {
    fn of(node: &NodeNow, text: String) -> Self {
        Self {
            href: href("nodes", &node.node),
            name: node.node.clone(),
            text,
        }
    }
}

fn is_named(incidents: &[IncidentView], label: &str, value: &str) -> bool {
    incidents
        .iter()
        .any(|view| view.incident.names(label, value))
}

/// Nodes with lost GPUs that no incident names.
pub fn lost_gpus(cluster: &ClusterAnswer, incidents: &[IncidentView]) -> Vec<Trouble> {
    cluster
        .nodes
        .iter()
        .filter_map(|node| {
            // A GPU without an index was never measured, so its UUID has to do.
            let names: Vec<String> = node
                .gpus
                .iter()
                .filter(|gpu| {
                    gpu.state == GpuState::Lost && !is_named(incidents, "uuid", &gpu.uuid)
                })
                .map(|gpu| {
                    let reason = gpu.reason.as_deref().unwrap_or("lost");
                    let name = if gpu.index.is_empty() {
                        &gpu.uuid
                    } else {
                        &gpu.index
                    };
                    format!("GPU {name} {reason}")
                })
                .collect();
            (!names.is_empty()).then(|| Trouble::of(node, names.join(", ")))
        })
        .collect()
}

/// Number of targets that were not asked yet: after a start, nobody knows whether something is wrong.
pub fn unasked(visit: &Visit) -> usize {
    let targets = visit.site.scrape.targets().into_iter();
    targets
        .filter(|target| target.health == TargetHealth::Unknown)
        .count()
}

/// Nodes that do not answer, then other nodes that Slurm does not use, of those that no incident names.
pub fn troubles(cluster: &ClusterAnswer, incidents: &[IncidentView]) -> Vec<Trouble> {
    let unnamed = cluster
        .nodes
        .iter()
        .filter(|node| !is_named(incidents, "node", &node.node));

    let silent = unnamed
        .clone()
        .filter(|node| !node.is_up)
        .map(|node| Trouble::of(node, "does not answer".to_owned()));
    // Slurm does not use a silent node either, so it is listed once.
    let unused = unnamed.filter(|node| node.is_up).filter_map(|node| {
        let state = node
            .state
            .as_deref()
            .filter(|_| pictures::is_unused(node))?;
        let reason = node.reason.as_deref().filter(|reason| !reason.is_empty());
        let state = state.to_lowercase().replace('_', " ");
        let text = reason.map_or_else(|| state.clone(), |reason| format!("{state}: {reason}"));
        Some(Trouble::of(node, text))
    });
    silent.chain(unused).collect()
}
