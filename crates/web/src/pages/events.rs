//! `/events`: what happened, in one line of time.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use minijinja::context;
use takt_questions::{ClusterEvent, EventsQuestion};

pub const PAGE: Page = Page::new("/events", include_str!("events.html"), show)
    .menu(Group::System, "Events")
    .filters(&["node", "uuid", "kind"])
    .rows();

const COLUMNS: &[Column] = &[
    Column::text("time", "time"),
    Column::text("kind", "kind"),
    Column::text("node", "node"),
    Column::text("name", "what"),
    Column::text("severity", "severity"),
    Column::text("gpu", "GPU"),
    Column::text("text", "details"),
    Column::text("uuid", "UUID").minor(),
];

/// Kinds that the filter offers.
const KINDS: [&str; 4] = ["alert", "resolved", "hardware", "node"];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let range = visit.range("24h")?;
    let text = |name: &str| visit.get(name).map(str::to_owned);
    let events = visit.ask(&EventsQuestion {
        from: range.from,
        to: range.to,
        node: text("node"),
        uuid: text("uuid"),
        kind: text("kind"),
        cluster: None,
    })?;
    let rows = events.iter().map(row).collect();
    let table = Table::new(visit, "list", "Newest first", COLUMNS.to_vec(), rows)?;
    let value = |name: &str| visit.get(name).unwrap_or_default();
    let values = context! {
        range,
        fields => [
            context! {
                name => "node",
                label => "node",
                value => value("node"),
            },
            context! {
                name => "kind",
                label => "kind",
                value => value("kind"),
                choices => KINDS,
            },
        ],
    };
    Ok(Content::new("Events", values).table(table))
}

fn row(event: &ClusterEvent) -> Vec<Cell> {
    let name = match event.kind.as_str() {
        "node" => Cell::text(event.name.to_lowercase()),
        "hardware" => Cell::text(&event.name),
        _ => Cell::text(&event.name).link(format!("/alerts/history?name={}", event.name)),
    };
    let node = match event.node.as_str() {
        "" => Cell::unknown(),
        // An alert about a job names all its nodes.
        several if several.contains(',') => Cell::text(several),
        node => Cell::text(node).link(href("nodes", node)),
    };
    let gpu = event.uuid.as_deref().map(|uuid| {
        let name = event.gpu_index.as_deref().unwrap_or(uuid);
        Cell::text(name).link(href("gpus", uuid))
    });
    let uuid = event.uuid.as_deref().map(Cell::text);
    vec![
        Cell::time(Some(event.at)),
        Cell::text(match event.kind.as_str() {
            "node" => "node state",
            "alert" => "alert fires",
            "hardware" => "hardware",
            _ => "alert ended",
        }),
        node,
        name,
        Cell::text(&event.severity).class(if event.severity == "critical" {
            "bad"
        } else {
            ""
        }),
        gpu.unwrap_or_default(),
        Cell::text(&event.text).class("wrap"),
        uuid.unwrap_or_default(),
    ]
}
