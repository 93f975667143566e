//! `/alerts/history`: alerts that ended, with their duration.

use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use minijinja::context;
use std::collections::BTreeMap;
use takt_model::Timestamp;
use takt_server::reports::words;
use takt_store::EndedAlert;

pub const PAGE: Page = Page::new("/alerts/history", include_str!("history.html"), show)
    .filters(&["name", "node", "severity"])
    .rows();

/// Maximum number of episodes that are read.
const MOST: usize = 10_000;

const COLUMNS: &[Column] = &[
    Column::text("name", "alert"),
    Column::text("severity", "severity"),
    Column::text("node", "node"),
    Column::text("from", "from"),
    Column::text("to", "to"),
    Column::number("seconds", "lasted"),
    Column::text("labels", "labels").minor(),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let range = visit.range("30d")?;
    let ended = EndedAlert::since(visit.site.store.database(), range.from.into(), MOST)?;
    let rows = ended.into_iter().filter_map(|ended| {
        let [name, severity, _, labels] = ended.texts;
        let [from, to] = ended.period.map(Timestamp::whole_seconds);
        let labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap_or_default();
        let hidden = super::is_hidden(&visit.viewer, &labels);
        let node = labels.get("node").cloned().unwrap_or_default();
        let is_wanted =
            |field: &str, value: &str| visit.get(field).is_none_or(|wanted| wanted == value);
        let is_shown = from < range.to
            && severity != "none"
            && is_wanted("name", &name)
            && is_wanted("node", &node)
            && is_wanted("severity", &severity);
        let others = labels
            .iter()
            .filter(|(label, _)| !hidden || !super::OF_JOB.contains(&label.as_str()))
            .filter(|(label, _)| {
                !["alertname", "severity", "node", "cluster"].contains(&label.as_str())
            })
            .map(|(label, value)| format!("{label}={value}"));
        is_shown.then(|| {
            vec![
                Cell::text(name),
                Cell::text(&severity).class(if severity == "critical" { "bad" } else { "" }),
                if node.is_empty() {
                    Cell::unknown()
                } else {
                    Cell::text(&node).link(href("nodes", &node))
                },
                Cell::time(Some(from)),
                Cell::time(Some(to)),
                Cell::number(Some((to - from) as f64), words::duration),
                Cell::text(others.collect::<Vec<_>>().join(" ")).class("wrap"),
            ]
        })
    });
    let table = Table::new(
        visit,
        "list",
        "Newest first",
        COLUMNS.to_vec(),
        rows.collect(),
    )?;
    let field = |name: &str| {
        let value = visit.get(name).unwrap_or_default();
        context! {
            name,
            label => name,
            value,
            size => 16,
        }
    };
    let values = context! {
        range,
        fields => ["name", "node", "severity"].map(field),
    };
    Ok(Content::new("Alert history", values).table(table))
}
