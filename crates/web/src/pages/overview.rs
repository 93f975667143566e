//! `/`: the cluster now, at a glance, from three nodes to three hundred.

use super::alerts::{active_incidents, lost_gpus, troubles, unasked};
use super::work::current_jobs;
use crate::frame::{self, Content, Group, Page, PageError, Visit};
use crate::pictures::{self, state_class, state_words};
use minijinja::{Value, context};
use takt_model::words;
use takt_questions::{
    ClusterQuestion, GpuNow, IdleHolder, NodeNow, StripRow, StripsAnswer, StripsQuestion,
};

pub const PAGE: Page = Page::new("/", include_str!("overview.html"), show)
    .menu(Group::Now, "Overview")
    .filters(&["range"])
    .live();

/// Largest cluster whose GPUs are listed one by one.
const LISTED_NODES: usize = 6;

/// Largest cluster whose heat map has a row for each GPU.
const GPU_ROWS_NODES: usize = 60;

/// Nodes that share a name in the heat map of a larger cluster.
const BLOCK: usize = 10;

/// Jobs with idle GPUs, and incidents, that the page names.
const NAMED: usize = 8;

/// Lengths of the heat map, in hours.
const LENGTHS: [(&str, u32); 3] = [("6h", 6), ("24h", 24), ("7d", 168)];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let length = visit.get("range").unwrap_or("24h");
    let hours = LENGTHS
        .iter()
        .find(|(name, _)| *name == length)
        .ok_or_else(|| {
            PageError::wrong(
                "The overview shows the last 6h, 24h or 7d. Older times: the page of a node.",
            )
            .next("/", "The last 24 hours")
            .next("/nodes", "All nodes")
        })?;

    let cluster = visit.ask(&ClusterQuestion::default())?;
    // A large cluster has a row for each node, as its GPUs would be too many for the screen.
    let is_large = cluster.nodes.len() > GPU_ROWS_NODES;
    let strips = visit.ask(&StripsQuestion {
        hours: hours.1,
        by_node: is_large,
        ..StripsQuestion::default()
    })?;

    let incidents: Vec<_> = active_incidents(visit, &cluster)?
        .into_iter()
        .filter(|view| !view.incident.is_of_owner)
        .collect();
    let lost = lost_gpus(&cluster, &incidents);
    let troubles = troubles(&cluster, &incidents);
    let critical = incidents
        .iter()
        .filter(|view| view.incident.severity == "critical")
        .count();

    let needing = incidents.len() + lost.len() + troubles.len();

    // A program has no jobs of its own.
    let mine = match visit.viewer.user() {
        Some(user) => current_jobs(visit, Some(user), None, "Your running and waiting jobs")?,
        None => None,
    };

    let is_listed = cluster.nodes.len() <= LISTED_NODES;
    let ranges: Vec<Value> = LENGTHS
        .iter()
        .map(|(name, _)| {
            context! {
                name,
                address => visit.address(&[("range", name)]),
                is_current => *name == length,
            }
        })
        .collect();

    // Nodes are listed with their GPUs, or shown as tiles, never both.
    let nodes = |are_shown: bool, show: &dyn Fn(&NodeNow) -> Value| -> Vec<Value> {
        pictures::gpus_first(&cluster.nodes)
            .filter(|_| are_shown)
            .map(show)
            .collect()
    };

    let values = context! {
        counts => cluster.gpus,
        nodes_up => cluster.nodes_up,
        nodes_unscraped => cluster.nodes_unscraped,
        nodes_all => cluster.nodes.len(),
        jobs_running => cluster.jobs_running,
        jobs_pending => cluster.jobs_pending,
        capacity => pictures::capacity(&cluster.nodes, true),
        needing,
        unasked => unasked(visit),
        critical,
        other => incidents.len() - critical,
        incidents_more => incidents.len().saturating_sub(NAMED),
        incidents => incidents.into_iter().take(NAMED).collect::<Vec<_>>(),
        lost,
        troubles,
        idle => cluster
            .idle
            .iter()
            .take(NAMED)
            .map(idle)
            .collect::<Vec<_>>(),
        idle_more => cluster.idle.len().saturating_sub(NAMED),
        listed => nodes(is_listed, &|node: &NodeNow| listed(node, &strips)),
        tiles => nodes(!is_listed, &tile),
        map => if is_listed { Vec::new() } else { map(&strips, is_large) },
        ticks => ticks(&strips, visit),
        ranges,
        length,
        mine,
    };
    Ok(Content::new("Overview", values))
}

fn idle(held: &IdleHolder) -> Value {
    let user = &held.holder.user;
    context! {
        job => held.holder.job_id,
        user,
        gpus => held.gpus,
        idle => held.idle_gpus,
        since => words::duration(held.idle_seconds as f64),
        is_new => held.idle_seconds == 0,
        nodes => held.nodes.iter().take(3).collect::<Vec<_>>(),
        more => held.nodes.len().saturating_sub(3),
    }
}

fn tile(node: &NodeNow) -> Value {
    context! {
        node => node.node,
        words => pictures::words(node),
        picture => pictures::tile(node),
        class => pictures::tile_class(node),
    }
}

/// A node of a small cluster: each GPU with its figures and its strip.
fn listed(node: &NodeNow, strips: &StripsAnswer) -> Value {
    let of = |gpu: &GpuNow| {
        let row = strips
            .rows
            .iter()
            .find(|row| row.uuid == gpu.uuid && row.node == node.node);
        let strip = row.map(|row| {
            let label = format!(
                "Utilization of GPU {} of {} over time",
                gpu.index, node.node
            );
            pictures::strips([row], 12, 12, label).inline("strip")
        });

        let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes);
        let idle_for = gpu.idle_seconds.filter(|seconds| *seconds > 0);
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        context! {
            uuid => gpu.uuid,
            index => gpu.index,
            model => gpu.model,
            state => state_words(gpu),
            class => state_class(gpu.state),
            utilization => words::known(gpu.utilization_ratio, words::percent),
            width => gpu.utilization_ratio.map(|ratio| (ratio * 100.0).round()),
            memory => memory.map_or_else(
                || words::UNKNOWN.to_owned(),
                |(used, total)| format!("{:.0} / {:.0}", gib(used), gib(total)),
            ),
            celsius => words::known(gpu.temperature_celsius, |value| {
                format!("{value:.0}")
            }),
            watts => words::known(gpu.power_watts, |value| format!("{value:.0}")),
            idle => idle_for.map(|seconds| words::duration(seconds as f64)),
            holders => gpu.holders,
            processes => gpu.processes.iter().take(2).collect::<Vec<_>>(),
            strip,
        }
    };

    let memory = node.memory_used_bytes.zip(node.memory_total_bytes);
    context! {
        node => node.node,
        is_up => node.is_up,
        is_unscraped => node.is_unscraped,
        state => node.state.as_ref().map(|state| state.to_lowercase()),
        cpu => node.cpu_busy_ratio.map(words::percent),
        memory => memory.map(|(used, total)| words::percent(used / total)),
        words => pictures::words(node),
        gpus => node.gpus.iter().map(of).collect::<Vec<_>>(),
    }
}

/// A block of the heat map: a node with a row for each GPU, or several nodes with a row each.
fn map(strips: &StripsAnswer, is_large: bool) -> Vec<Value> {
    // Neighbours by name share a block of the picture.
    let blocks: Vec<&[StripRow]> = if is_large {
        strips.rows.chunks(BLOCK).collect()
    } else {
        strips.rows.chunk_by(|a, b| a.node == b.node).collect()
    };
    blocks
        .into_iter()
        .filter_map(|rows| {
            let first = rows.first()?;
            let last = rows.last()?;
            let name = if is_large {
                format!("{} – {}", first.node, last.node)
            } else {
                first.node.clone()
            };

            let label = format!("Utilization over time, {name}");
            let picture = pictures::strips(rows, 3, 2, label);
            Some(context! {
                name => first.node,
                picture => picture.inline(&format!("rows r{}", rows.len().min(16))),
            })
        })
        .collect()
}

/// Marks of the time axis.
fn ticks(strips: &StripsAnswer, visit: &Visit) -> Vec<(f64, String)> {
    frame::ticks(strips.from, strips.to, visit.zone())
}
