//! `/nodes/N`: one node: its GPUs, who holds them, and what happened to it.

use super::alerts::firing;
use crate::frame::{self, Cell, Column, Content, Page, PageError, Table, Visit, href, person};
use crate::history;
use crate::pictures::{self, state_class, state_words};
use minijinja::{Value, context};
use takt_model::words;
use takt_questions::{
    ClusterQuestion, EventsQuestion, GpuHolder, GpuNow, NodeNow, StripsAnswer, StripsQuestion,
};

pub const PAGE: Page = Page::new("/nodes/{node}", include_str!("node.html"), show)
    .ranges()
    .rows()
    .live();

/// Events that the page names; the list of events has all.
const EVENTS: usize = 20;

const COLUMNS: &[Column] = &[
    Column::text("gpu", "GPU"),
    Column::text("state", "state"),
    Column::picture("strip", "last 7 days"),
    Column::number("utilization_ratio", "use"),
    Column::text("held_by", "held by"),
    Column::number("memory_used_bytes", "memory").unit("GiB"),
    Column::number("temperature_celsius", "temperature")
        .unit("°C")
        .minor(),
    Column::number("power_watts", "power").unit("W").minor(),
    Column::text("processes", "processes").minor(),
    Column::text("uuid", "UUID").minor(),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let name = visit.parameter("node").to_owned();
    let cluster = visit.ask(&ClusterQuestion {
        node: Some(name.clone()),
        ..ClusterQuestion::default()
    })?;

    let range = visit.range("24h")?;
    let events = visit.ask(&EventsQuestion {
        from: range.from,
        to: range.to,
        node: Some(name.clone()),
        ..EventsQuestion::default()
    })?;

    let node = match cluster.nodes.into_iter().find(|node| node.node == name) {
        Some(node) => node,
        None if events.is_empty() => {
            return Err(PageError::unknown("node", &name).next("/nodes", "All nodes"));
        }
        // The node is gone, but its history is known.
        None => NodeNow {
            node: name.clone(),
            ..Default::default()
        },
    };

    let strips = visit.ask(&StripsQuestion {
        hours: 168,
        steps: 336,
        node: Some(name.clone()),
        ..StripsQuestion::default()
    })?;

    let rows = node
        .gpus
        .iter()
        .map(|gpu| row(&name, gpu, &strips))
        .collect();
    let caption = format!("GPUs of {name} now");
    let table = Table::new(visit, "gpus", caption, COLUMNS.to_vec(), rows)?;

    let alerts: Vec<_> = firing(visit)?
        .into_iter()
        .filter(|alert| alert.names("node", &name))
        .collect();
    // The page shows why the node does not answer, as the exporter's target has it.
    let error = visit
        .site
        .scrape
        .targets()
        .into_iter()
        .find(|target| target.labels.get("node") == Some(&name) && target.error.is_some());

    let memory = node.memory_used_bytes.zip(node.memory_total_bytes);
    let past = history::of(visit, &range, Some(&name), None)?;

    // A GPU without jobs in the range has no lane.
    let lane = |gpu: &GpuNow| {
        let label = format!("GPU {} of {name}", gpu.index);
        let picture = history::lane(&past, &gpu.uuid, &label)?;
        Some(context! { index => gpu.index, uuid => gpu.uuid, picture })
    };

    let values = context! {
        node => node.node,
        is_up => node.is_up || node.is_unscraped,
        error => error.as_ref().and_then(|target| target.failure(visit.viewer.sees_all())),
        state => node.state,
        reason => node.reason,
        words => pictures::words(&node),
        capacity => pictures::capacity(std::slice::from_ref(&node), false),
        cpu => node.cpu_busy_ratio.map(words::percent),
        memory => memory
            .map(|(used, total)| format!("{} of {} GiB", gib(used), gib(total))),
        ticks => frame::ticks(strips.from, strips.to, visit.zone()),
        alerts,
        events => events.iter().take(EVENTS).collect::<Vec<_>>(),
        events_more => events.len().saturating_sub(EVENTS),
        charts => history::charts(&past),
        lanes => node.gpus.iter().filter_map(lane).collect::<Vec<Value>>(),
        axis => range.ticks(visit.zone()),
        range,
    };

    Ok(Content::new(name, values)
        .table(table)
        .picture(pictures::strips(
            &strips.rows,
            12,
            10,
            "Utilization of each GPU over seven days".to_owned(),
        )))
}

fn gib(bytes: f64) -> String {
    words::amount(bytes / f64::from(1 << 30))
}

fn row(node: &str, gpu: &GpuNow, strips: &StripsAnswer) -> Vec<Cell> {
    let strip = strips
        .rows
        .iter()
        .find(|row| row.uuid == gpu.uuid)
        .map_or_else(Cell::unknown, |row| {
            let label = format!("Utilization of GPU {} of {node} over seven days", gpu.index);
            Cell::picture(pictures::strips([row], 14, 14, label).inline("strip long"))
        });

    let state = match gpu.idle_seconds {
        Some(idle) if idle > 0 => {
            format!("{} {}", state_words(gpu), words::duration(idle as f64))
        }
        _ => state_words(gpu),
    };

    let holders: Vec<String> = gpu
        .holders
        .iter()
        .map(|GpuHolder { holder, .. }| {
            format!(
                "{} {}",
                holder.job_id.as_deref().unwrap_or("no job:"),
                holder.user
            )
        })
        .collect();
    // A cell has one link: the first holder's.
    let first = gpu.holders.first().map(|held| &held.holder);
    let held = Cell::text(holders.join(", "));
    let held = match first.map(|holder| (&holder.job_id, &holder.user)) {
        Some((Some(job), _)) => held.link(href("jobs", job)),
        Some((None, user)) => match person(user) {
            Some(address) => held.link(address),
            None => held,
        },
        _ => held,
    };

    let number = |value: f64| format!("{value:.0}");
    vec![
        Cell::text(if gpu.index.is_empty() {
            "?"
        } else {
            &gpu.index
        })
        .link(href("gpus", &gpu.uuid)),
        Cell::text(state).class(state_class(gpu.state)),
        strip,
        Cell::number(gpu.utilization_ratio, words::percent),
        held,
        Cell::number(gpu.memory_used_bytes, gib),
        Cell::number(gpu.temperature_celsius, number),
        Cell::number(gpu.power_watts, number),
        Cell::text(gpu.processes.join(", ")),
        Cell::text(&gpu.uuid),
    ]
}
