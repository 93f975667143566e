//! `/sql`: ask with SQL; recipes; the tables beside.

use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value as Template, context};
use serde_json::Value;
use takt_access::Need;
use takt_questions::SqlQuestion;
use takt_store::sql::{RECIPES, TABLES};

pub const PAGE: Page = Page::new("/sql", include_str!("sql.html"), show)
    .menu(Group::System, "SQL")
    .needs(Need::Samples)
    .filters(&["q"])
    .rows();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let statement = visit.get("q").unwrap_or_default().to_owned();
    let ask = |statement: &str| {
        visit.ask(&SqlQuestion {
            statement: statement.to_owned(),
        })
    };
    // A failing schema must not hide the error of the statement.
    let schema = ask(TABLES).map(|rows| rows.rows).unwrap_or_default();
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
                // The first row may have NULL.
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
