//! `/nodes`: all nodes, with their state, use and GPUs.

use crate::frame::{self, Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use crate::pictures;
use minijinja::context;
use takt_jobs::NodeState;
use takt_model::words;
use takt_questions::{ClusterQuestion, GpuState, NodeNow, StripsQuestion, did_you_mean};

pub const PAGE: Page = Page::new("/nodes", include_str!("nodes.html"), show)
    .menu(Group::Now, "Nodes")
    .filters(&["node", "state", "gpu_model"])
    .rows()
    .live();

const COLUMNS: &[Column] = &[
    Column::text("node", "node"),
    Column::text("state", "state"),
    Column::picture("strip", "last 24 h"),
    Column::number("gpus", "GPUs"),
    Column::number("busy", "busy"),
    Column::number("idle", "held and idle"),
    Column::number("lost", "lost").minor(),
    Column::text("gpu_model", "model").minor(),
    Column::number("cpu_busy_ratio", "CPU").minor(),
    Column::number("memory_used_ratio", "memory").minor(),
    Column::number("power_watts", "GPU power").unit("W").minor(),
    Column::text("reason", "reason").minor(),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let cluster = visit.ask(&ClusterQuestion::default())?;
    if let Some(asked) = visit.get("state") {
        check_state(asked, &cluster.nodes)?;
    }

    let strips = visit.ask(&StripsQuestion {
        by_node: true,
        ..StripsQuestion::default()
    })?;
    // A part of the name is enough, in any case.
    let has = |wanted: Option<&str>, text: &str| {
        wanted.is_none_or(|wanted| text.to_lowercase().contains(&wanted.to_lowercase()))
    };
    let wanted = |node: &&NodeNow| {
        has(visit.get("node"), &node.node)
            && has(visit.get("state"), state(node))
            && visit
                .get("gpu_model")
                .is_none_or(|model| node.gpus.iter().any(|gpu| has(Some(model), &gpu.model)))
    };

    let row = |node: &NodeNow| {
        let count = |state| node.gpus.iter().filter(|gpu| gpu.state == state).count() as u64;
        let strip = strips
            .rows
            .iter()
            .find(|row| row.node == node.node)
            .map_or_else(Cell::unknown, |row| {
                let label = format!(
                    "Mean utilization of the GPUs of {} over the last 24 hours",
                    node.node
                );
                Cell::picture(pictures::strips([row], 14, 14, label).inline("strip"))
            });
        let shown = |count: u64, class| {
            let cell = Cell::count(count);
            if count > 0 { cell.class(class) } else { cell }
        };

        let watts: Vec<f64> = node.gpus.iter().filter_map(|gpu| gpu.power_watts).collect();
        let memory = node.memory_used_bytes.zip(node.memory_total_bytes);
        vec![
            Cell::text(&node.node).link(href("nodes", &node.node)),
            Cell::text(state(node)).class(if node.is_up || node.is_unscraped {
                ""
            } else {
                "bad"
            }),
            strip,
            Cell::count(node.gpus.len() as u64),
            Cell::count(count(GpuState::Busy)),
            shown(count(GpuState::Idle), "warn"),
            shown(count(GpuState::Lost), "bad"),
            Cell::text(node.gpus.first().map_or("", |gpu| &gpu.model)),
            Cell::number(node.cpu_busy_ratio, words::percent),
            Cell::number(memory.map(|(used, total)| used / total), words::percent),
            Cell::number(
                // The sum of no measurement is unknown, not 0.
                (!watts.is_empty()).then(|| watts.iter().sum()),
                words::amount,
            ),
            Cell::text(node.reason.as_deref().unwrap_or_default()).class("wrap"),
        ]
    };

    let mut nodes: Vec<&NodeNow> = cluster.nodes.iter().filter(wanted).collect();
    nodes.sort_by(|a, b| {
        let names = || frame::natural(&a.node, &b.node);
        trouble(a).cmp(&trouble(b)).then_with(names)
    });
    let caption = format!("{} of {} nodes", nodes.len(), cluster.nodes.len());
    let rows = nodes.into_iter().map(row).collect();
    let table = Table::new(visit, "list", caption, COLUMNS.to_vec(), rows)?;

    let field = |name: &str, label: &str| {
        context! {
            name,
            label,
            value => visit.get(name).unwrap_or_default(),
        }
    };
    let values = context! {
        fields => [
            field("node", "name"),
            field("state", "state"),
            field("gpu_model", "GPU model"),
        ],
    };
    Ok(Content::new("Nodes", values).table(table))
}

/// Place of a node by its trouble, the worst first.
fn trouble(node: &NodeNow) -> u8 {
    let has_lost = node.gpus.iter().any(|gpu| gpu.state == GpuState::Lost);
    match node {
        _ if !node.is_up && !node.is_unscraped => 0,
        _ if has_lost => 1,
        _ if pictures::is_unused(node) => 2,
        _ => 3,
    }
}

/// State of a node whose exporter does not answer.
const SILENT: &str = "does not answer";

/// State of a node that Slurm does not have.
const UP: &str = "up";

/// State of a node in one word or Slurm's words.
fn state(node: &NodeNow) -> &str {
    match &node.state {
        _ if !node.is_up && !node.is_unscraped => SILENT,
        Some(state) => state,
        None => UP,
    }
}

/// Refuses a part of a state that no node has and none can have: a misspelt one must not show an empty
/// list.
fn check_state(asked: &str, nodes: &[NodeNow]) -> Result<(), PageError> {
    let has = |state: &str, part: &str| state.to_lowercase().contains(&part.to_lowercase());
    let is_of_slurm = |part: &str| NodeState::spellings().any(|known| has(known, part));
    let is_known = [SILENT, UP].iter().any(|known| has(known, asked))
        // Slurm joins a state and its flags with plus signs.
        || asked.split('+').all(is_of_slurm)
        // A state of a later release, which some node has.
        || nodes.iter().any(|node| has(state(node), asked));
    if is_known {
        return Ok(());
    }

    let near = did_you_mean(asked, NodeState::spellings());
    let text = format!(
        "Nodes have no state '{asked}'{near} This filter expects '{SILENT}', '{UP}', or Slurm's words such as \
         idle, mixed, allocated, drain or down.",
        near = if near.is_empty() { "." } else { &near },
    );
    Err(PageError::wrong(text).next("/nodes", "All nodes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_questions::GpuNow;

    #[test]
    fn nodes_in_trouble_come_first() {
        let node = |is_up, state: &str, gpu| NodeNow {
            is_up,
            state: Some(state.to_owned()),
            gpus: vec![GpuNow {
                state: gpu,
                ..GpuNow::default()
            }],
            ..NodeNow::default()
        };
        let places = [
            node(false, "DOWN*", GpuState::Unknown),
            node(true, "MIXED+DRAIN", GpuState::Lost),
            node(true, "IDLE+DRAIN", GpuState::Drained),
            node(true, "MIXED", GpuState::Idle),
        ]
        .map(|node| trouble(&node));
        assert_eq!(places, [0, 1, 2, 3]);
    }

    #[test]
    fn a_state_that_no_node_can_have_is_refused() {
        // A state with a word that Takt does not know.
        let nodes = [NodeNow {
            is_up: true,
            state: Some("IDLE+HIBERNATED".to_owned()),
            ..NodeNow::default()
        }];
        // Parts of states, in any case, and a state that no node has now.
        for known in [
            "idle",
            "IDLE+DRAIN",
            "drain",
            "does not",
            "up",
            "hibernated",
            "powered_down",
        ] {
            assert_eq!(check_state(known, &nodes), Ok(()), "{known}");
        }
        // A word that is near to none, and one with two letters exchanged.
        for (unknown, near) in [("foo", "'foo'."), ("drian", "did you mean DRAIN")] {
            let error = check_state(unknown, &nodes).unwrap_err();
            assert!(error.reason().contains(near), "{}", error.reason());
            assert!(error.reason().contains("idle, mixed"), "{}", error.reason());
        }
    }
}
