//! `/alerts/history`: alerts that ended, with their duration.

use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use minijinja::context;
use takt_model::words;
use takt_questions::{EndedAlertView, EndedAlertsQuestion};

pub const PAGE: Page = Page::new("/alerts/history", include_str!("history.html"), show)
    .filters(&["name", "node", "severity"])
    .ranges()
    .rows();

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

    let text = |name: &str| visit.get(name).map(str::to_owned);
    let ended = visit.ask(&EndedAlertsQuestion {
        from: range.from,
        to: Some(range.to),
        name: text("name"),
        node: text("node"),
        severity: text("severity"),
        limit: None,
    })?;

    let rows = ended.into_iter().map(row);
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

fn row(ended: EndedAlertView) -> Vec<Cell> {
    let others = ended
        .labels
        .iter()
        // Labels with a column of their own.
        .filter(|(name, _)| !["alertname", "severity", "node", "cluster"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"));
    let severity = Cell::text(&ended.severity);
    vec![
        Cell::text(&ended.name),
        if ended.severity == "critical" {
            severity.class("bad")
        } else {
            severity
        },
        match ended.labels.get("node") {
            Some(node) => Cell::text(node).link(href("nodes", node)),
            None => Cell::unknown(),
        },
        Cell::time(Some(ended.from)),
        Cell::time(Some(ended.to)),
        Cell::number(Some(ended.lasted_seconds as f64), words::duration),
        Cell::text(others.collect::<Vec<_>>().join(" ")).class("wrap"),
    ]
}
