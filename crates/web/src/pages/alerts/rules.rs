//! `/alerts/rules`: the rules over samples, with their state.

use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit};
use minijinja::context;
use takt_model::words;
use takt_questions::RulesQuestion;

pub const PAGE: Page = Page::new("/alerts/rules", include_str!("rules.html"), show)
    .filters(&["name", "state"])
    .rows();

const COLUMNS: &[Column] = &[
    Column::text("name", "rule"),
    Column::text("state", "state"),
    Column::number("firing", "firing"),
    Column::number("pending", "pending"),
    Column::number("for_seconds", "for"),
    Column::text("expr", "condition (PromQL)"),
    Column::text("group", "group").minor(),
    Column::text("error", "last error"),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let rules = visit.ask(&RulesQuestion {})?;
    let rows: Vec<_> = rules
        .iter()
        .filter(|rule| {
            let name = visit
                .get("name")
                .is_none_or(|name| rule.name.to_lowercase().contains(&name.to_lowercase()));
            name && visit.get("state").is_none_or(|state| rule.state() == state)
        })
        .map(|rule| {
            let state = Cell::text(rule.state());
            vec![
                Cell::text(&rule.name).link(format!("/alerts/history?name={}", rule.name)),
                if matches!(rule.state(), "ok" | "pending") {
                    state
                } else {
                    state.class("bad")
                },
                Cell::count(rule.firing),
                Cell::count(rule.pending),
                Cell::number(Some(rule.for_seconds), words::duration),
                Cell::text(&rule.expr).class("wrap code"),
                Cell::text(&rule.group),
                Cell::text(rule.error.as_deref().unwrap_or_default()).class("wrap"),
            ]
        })
        .collect();

    let caption = format!("{} of {} alerting rules", rows.len(), rules.len());
    let table = Table::new(visit, "list", caption, COLUMNS.to_vec(), rows)?;

    let value = |name: &str| visit.get(name).unwrap_or_default();
    let states = ["firing", "pending", "ok", "failed"];
    let values = context! {
        fields => [
            context! {
                name => "name",
                label => "name",
                value => value("name"),
            },
            context! {
                name => "state",
                label => "state",
                value => value("state"),
                choices => states,
            },
        ],
    };
    Ok(Content::new("Alert rules", values).table(table))
}
