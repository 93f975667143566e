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

/// Nodes that do not answer, then nodes with GPUs that nothing measures, then other nodes that Slurm does not use, of
/// those that no incident names.
pub fn troubles(cluster: &ClusterAnswer, incidents: &[IncidentView]) -> Vec<Trouble> {
    let unnamed = cluster
        .nodes
        .iter()
        .filter(|node| !is_named(incidents, "node", &node.node));

    let silent = unnamed
        .clone()
        .filter(|node| !node.is_up && !node.is_unscraped)
        .map(|node| Trouble::of(node, "does not answer".to_owned()));
    // After a start, nothing is scraped yet.
    let is_scraped = cluster.nodes.iter().any(|node| !node.is_unscraped);
    let unseen = unnamed
        .clone()
        .filter(|node| is_scraped && (node.is_up || node.is_unscraped))
        .filter_map(|node| {
            let count = node.unseen_gpus();
            let of_slurm = match count {
                0 => return None,
                1 => "1 GPU of Slurm's is not measured".to_owned(),
                _ => format!("{count} GPUs of Slurm's are not measured"),
            };
            let why = match node {
                _ if node.is_unscraped => ": no target names the node",
                _ if count == node.gpus.len() => ": no driver?",
                _ => ": the exporter does not see them all",
            };
            Some(Trouble::of(node, format!("{of_slurm}{why}")))
        });
    let unused = unnamed
        .filter(|node| node.is_up || node.is_unscraped)
        .filter_map(|node| {
            let state = node
                .state
                .as_deref()
                .filter(|_| pictures::is_unused(node))?;
            let reason = node.reason.as_deref().filter(|reason| !reason.is_empty());
            let state = state.to_lowercase().replace('_', " ");
            let text = reason.map_or_else(|| state.clone(), |reason| format!("{state}: {reason}"));
            Some(Trouble::of(node, text))
        });
    silent.chain(unseen).chain(unused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_questions::GpuNow;

    #[test]
    fn gpus_that_only_slurm_knows_are_named() {
        let unseen = |number: u32| GpuNow {
            uuid: format!("unknown-{number}"),
            ..GpuNow::default()
        };
        let node = |name: &str, is_up, is_unscraped, gpus| NodeNow {
            node: name.to_owned(),
            is_up,
            is_unscraped,
            gpus,
            ..NodeNow::default()
        };
        let cluster = ClusterAnswer {
            nodes: vec![
                node("g01", true, false, vec![unseen(0), unseen(1)]),
                node("g02", true, false, vec![GpuNow::default(), unseen(1)]),
                node("g03", false, true, vec![unseen(0)]),
                node("g04", false, true, Vec::new()),
            ],
            ..ClusterAnswer::default()
        };
        let named = |cluster: &ClusterAnswer| -> Vec<String> {
            let found = troubles(cluster, &[]).into_iter();
            found
                .map(|one| format!("{} {}", one.name, one.text))
                .collect()
        };
        assert_eq!(
            named(&cluster),
            [
                "g01 2 GPUs of Slurm's are not measured: no driver?",
                "g02 1 GPU of Slurm's is not measured: the exporter does not see them all",
                "g03 1 GPU of Slurm's is not measured: no target names the node",
            ]
        );
        let starting = ClusterAnswer {
            nodes: cluster.nodes[2..].to_vec(),
            ..ClusterAnswer::default()
        };
        assert_eq!(named(&starting), Vec::<String>::new());
    }
}
