//! `/nodes`: all nodes, with their state, use and GPUs.

use crate::frame::{self, Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use crate::pictures;
use minijinja::context;
use takt_model::words;
use takt_questions::{ClusterQuestion, GpuState, NodeNow, StripsQuestion};

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
    let strips = visit.ask(&StripsQuestion {
        by_node: true,
        ..StripsQuestion::default()
    })?;
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
            Cell::text(state(node)).class(if node.is_up { "" } else { "bad" }),
            strip,
            Cell::count(node.gpus.len() as u64),
            Cell::count(count(GpuState::Busy)),
            shown(count(GpuState::Idle), "warn"),
            shown(count(GpuState::Lost), "bad"),
            Cell::text(node.gpus.first().map_or("", |gpu| &gpu.model)),
            Cell::number(node.cpu_busy_ratio, words::percent),
            Cell::number(memory.map(|(used, total)| used / total), words::percent),
            Cell::number(
                (!watts.is_empty()).then(|| watts.iter().sum()),
                words::amount,
            ),
            Cell::text(node.reason.as_deref().unwrap_or_default()).class("wrap"),
        ]
    };
    let mut nodes: Vec<&NodeNow> = cluster.nodes.iter().filter(wanted).collect();
    nodes.sort_by(|a, b| frame::natural(&a.node, &b.node));
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

/// State of a node in one word or Slurm's words.
fn state(node: &NodeNow) -> &str {
    match &node.state {
        _ if !node.is_up => "does not answer",
        Some(state) => state,
        None => "up",
    }
}
