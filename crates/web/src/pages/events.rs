//! `/events`: what happened, in one line of time.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use minijinja::context;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use takt_jobs::NodeState;
use takt_model::{UnixTime, words};
use takt_questions::{ClusterEvent, EVENT_KINDS, EventsQuestion};

pub const PAGE: Page = Page::new("/events", include_str!("events.html"), show)
    .menu(Group::System, "Events")
    .filters(&["node", "uuid", "kind"])
    .ranges()
    .rows();

const COLUMNS: &[Column] = &[
    Column::text("time", "time"),
    Column::text("kind", "kind"),
    Column::text("node", "node"),
    Column::text("name", "what"),
    Column::number("lasted_seconds", "lasted"),
    Column::text("severity", "severity"),
    Column::text("gpu", "GPU"),
    Column::text("text", "details"),
    Column::text("uuid", "UUID").minor(),
];

/// Nodes and GPUs that the rankings name.
const RANKED: usize = 5;

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

    let now = UnixTime::from(visit.now);
    let rows = events.iter().map(|event| row(event, now)).collect();
    let table = Table::new(visit, "list", "Newest first", COLUMNS.to_vec(), rows)?;

    let value = |name: &str| visit.get(name).unwrap_or_default();
    let values = context! {
        down => down(&events, now).into_iter().take(RANKED).collect::<Vec<_>>(),
        xids => xids(&events).into_iter().take(RANKED).collect::<Vec<_>>(),
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
                choices => EVENT_KINDS,
            },
        ],
    };
    Ok(Content::new("Events", values).table(table))
}

/// A node that could not be used for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct DownNode {
    node: String,
    /// How often it became unusable.
    times: u64,
    seconds: i64,
    lasted: String,
    /// Whether it still is.
    is_now: bool,
}

/// Returns the nodes that went down, were drained or failed within the events, the longest first. A state that lasts counts until
/// now.
fn down(events: &[ClusterEvent], now: UnixTime) -> Vec<DownNode> {
    let mut nodes: BTreeMap<&str, DownNode> = BTreeMap::new();
    for event in events.iter().filter(|event| is_down(event)) {
        let node = nodes.entry(&event.node).or_insert_with(|| DownNode {
            node: event.node.clone(),
            times: 0,
            seconds: 0,
            lasted: String::new(),
            is_now: false,
        });
        node.times += 1;
        node.seconds += lasted(event, now).unwrap_or(0);
        // A state without an end lasts until now.
        node.is_now |= event.until.is_none();
    }

    let mut nodes: Vec<DownNode> = nodes.into_values().collect();
    nodes.sort_by_key(|node| Reverse(node.seconds));
    for node in &mut nodes {
        node.lasted = words::duration(node.seconds as f64);
    }
    nodes
}

fn is_down(event: &ClusterEvent) -> bool {
    event.kind == "node" && NodeState::parse(&event.name).condition().is_unavailable()
}

/// Seconds for which a state of a node lasted; `None` for events without an end.
fn lasted(event: &ClusterEvent, now: UnixTime) -> Option<i64> {
    (event.kind == "node").then(|| (event.until.unwrap_or(now) - event.at).max(0))
}

/// A GPU with XIDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct GpuXids {
    uuid: String,
    index: Option<String>,
    node: String,
    count: u64,
    /// Number of each XID: `XID 79` and 2.
    kinds: BTreeMap<String, u64>,
    last: UnixTime,
}

/// Returns the GPUs with XIDs, those with most first.
fn xids(events: &[ClusterEvent]) -> Vec<GpuXids> {
    let mut gpus: BTreeMap<&str, GpuXids> = BTreeMap::new();

    let of_xid = events
        .iter()
        .filter(|event| event.kind == "hardware" && event.name.starts_with("XID "));
    for event in of_xid {
        // A message of the kernel may name a card that no exporter knows.
        let Some(uuid) = &event.uuid else { continue };
        let gpu = gpus.entry(uuid).or_insert_with(|| GpuXids {
            uuid: uuid.clone(),
            index: event.gpu_index.clone(),
            node: event.node.clone(),
            count: 0,
            kinds: BTreeMap::new(),
            last: event.at,
        });
        gpu.count += 1;
        gpu.last = gpu.last.max(event.at);
        *gpu.kinds.entry(event.name.clone()).or_default() += 1;
    }
    let mut gpus: Vec<GpuXids> = gpus.into_values().collect();
    // Among GPUs with equal counts, the one with the latest XID is first.
    gpus.sort_by_key(|gpu| (Reverse(gpu.count), Reverse(gpu.last)));
    gpus
}

fn row(event: &ClusterEvent, now: UnixTime) -> Vec<Cell> {
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
        Cell::number(
            lasted(event, now).map(|seconds| seconds as f64),
            words::duration,
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, name: &str, at: i64, until: Option<i64>, on: &str) -> ClusterEvent {
        ClusterEvent {
            at: UnixTime(at),
            until: until.map(UnixTime),
            kind: kind.to_owned(),
            node: "g01".to_owned(),
            uuid: (!on.is_empty()).then(|| on.to_owned()),
            gpu_index: None,
            name: name.to_owned(),
            severity: String::new(),
            text: String::new(),
            fingerprint: None,
            user: None,
        }
    }

    #[test]
    fn a_node_is_down_for_the_sum_of_its_unusable_states() {
        // Newest first, as the answer has them; the alert of the same name is no state of the node.
        let events = [
            event("node", "DOWN*", 800, None, ""),
            event("node", "IDLE", 500, Some(800), ""),
            event("node", "IDLE+DRAIN", 100, Some(500), ""),
            event("alert", "DOWN", 0, None, ""),
        ];

        let found = down(&events, UnixTime(1000));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].times, found[0].seconds), (2, 600));
        assert!(found[0].is_now);
        // A node that was idle only is not listed.
        assert!(down(&events[1..2], UnixTime(1000)).is_empty());
    }

    #[test]
    fn the_gpu_with_most_xids_comes_first() {
        // A second event of another kind, and an XID without a card.
        let events = [
            event("hardware", "XID 79", 30, None, "A"),
            event("hardware", "XID 13", 20, None, "B"),
            event("hardware", "XID 13", 10, None, "B"),
            event("hardware", "link down", 9, None, "A"),
            event("hardware", "XID 13", 8, None, ""),
        ];

        let found = xids(&events);
        let counts: Vec<_> = found
            .iter()
            .map(|gpu| (gpu.uuid.as_str(), gpu.count, gpu.last.0))
            .collect();
        assert_eq!(counts, [("B", 2, 20), ("A", 1, 30)]);
        assert_eq!(found[0].kinds, BTreeMap::from([("XID 13".to_owned(), 2)]));
    }
}
