//! `/sql`: ask with SQL; recipes; the tables beside.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value as Template, context};
use serde_json::Value;
use takt_access::Need;
use takt_server::answers::SqlQuestion;

pub const PAGE: Page = Page::new("/sql", include_str!("sql.html"), show)
    .menu(Group::System, "SQL")
    .needs(Need::Samples)
    .filters(&["q"])
    .rows();

/// Statements to start from: name and text.
const RECIPES: [(&str, &str); 5] = [
    (
        "GPU-hours by user this month",
        "SELECT \"user\", round(sum(gpu_seconds) / 3600, 1) AS gpu_hours FROM job_usage\nWHERE start_time >= date_trunc('month', current_date)\nGROUP BY \"user\" ORDER BY gpu_hours DESC",
    ),
    (
        "GPUs by model",
        "SELECT model, count(*) AS gpus FROM gpus GROUP BY model ORDER BY gpus DESC",
    ),
    (
        "jobs that failed today",
        "SELECT job_id, \"user\", state, end_time, exit_code FROM jobs\nWHERE end_time >= current_date AND state <> 'COMPLETED' ORDER BY end_time DESC",
    ),
    (
        "why jobs wait",
        "SELECT reason, count(*) AS jobs FROM job_reasons\nWHERE last_seen > (SELECT max(last_seen) FROM job_reasons) - INTERVAL 5 MINUTES\nGROUP BY reason ORDER BY jobs DESC",
    ),
    (
        "alerts of the last week",
        "SELECT alertname, count(*) AS fired FROM alert_transitions\nWHERE state_after = 'firing' AND happened_at > current_date - 7\nGROUP BY alertname ORDER BY fired DESC",
    ),
];

/// Lists the views and their columns.
const SCHEMA: &str = "SELECT table_name, string_agg(column_name, ', ' ORDER BY ordinal_position) AS columns
FROM information_schema.columns WHERE table_schema = 'main' AND table_catalog = 'memory' GROUP BY table_name ORDER BY table_name";

fn show(visit: &Visit) -> Result<Content, PageError> {
    let statement = visit.get("q").unwrap_or_default().to_owned();
    let ask = |statement: &str| {
        visit.ask(&SqlQuestion {
            statement: statement.to_owned(),
        })
    };
    let schema = ask(SCHEMA).map(|rows| rows.rows).unwrap_or_default();
    let recipes: Vec<Template> = RECIPES
        .iter()
        .map(|(name, text)| context! { name, address => visit.address(&[("q", text)]) })
        .collect();
    let mut values = context! { statement, recipes, schema };
    if statement.is_empty() {
        return Ok(Content::new("SQL", values));
    }
    match ask(&statement) {
        // The statement stays on the page, so it can be mended.
        Err(error) => {
            values = context! { error => error.reason(), ..values };
            Ok(Content::new("SQL", values))
        }
        Ok(rows) => {
            let columns = rows.columns.iter().enumerate().map(|(at, name)| {
                let is_number = rows.rows.iter().any(|row| row[at].is_number());
                Column::named(name.clone(), is_number)
            });
            let cells = rows.rows.iter().map(|row| row.iter().map(cell).collect());
            let caption = format!(
                "{}{} rows",
                if rows.truncated { "first " } else { "" },
                rows.rows.len()
            );
            let table = Table::new(visit, "rows", caption, columns.collect(), cells.collect())?;
            Ok(Content::new("SQL", values).table(table))
        }
    }
}

fn cell(value: &Value) -> Cell {
    let text = match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Cell::exact(text, value.clone())
}
