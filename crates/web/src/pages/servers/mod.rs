//! `/servers`: the clusters of several servers in one table.

use super::work::{hours, length, memory, share};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use minijinja::{Value as Context, context};
use serde_json::Value;
use takt_access::Need;
use takt_api::PageState;
use takt_model::shown::shell_word;
use takt_questions::{ServerState, ViewAnswer, ViewOf, ViewQuestion};

pub const PAGE: Page = Page::new("/servers", include_str!("servers.html"), show)
    .menu(Group::Now, "All servers")
    .listed_if(has_servers)
    .filters(&["of", "server", "user", "account", "state", "month", "by"])
    .rows()
    .needs(Need::AllUsers);

/// The subjects: name in the address, heading.
const SUBJECTS: [(&str, &str, ViewOf); 6] = [
    ("overview", "Overview", ViewOf::Overview),
    ("nodes", "Nodes", ViewOf::Nodes),
    ("gpus", "GPUs", ViewOf::Gpus),
    ("jobs", "Jobs", ViewOf::Jobs),
    ("usage", "Usage", ViewOf::Usage),
    ("fairshare", "Fair share", ViewOf::Fairshare),
];

fn has_servers(site: &PageState) -> bool {
    !site.config.view.is_empty()
}

fn show(visit: &Visit) -> Result<Content, PageError> {
    let asked = visit.get("of").unwrap_or("overview");
    let Some((subject, heading, of)) = SUBJECTS.iter().find(|(name, ..)| *name == asked) else {
        let known = SUBJECTS.map(|(name, ..)| name).join(", ");
        return Err(
            PageError::wrong(format!("of={asked}: expected one of {known}."))
                .next("/servers", "Overview"),
        );
    };
    let text = |name: &str| visit.get(name).map(str::to_owned);
    // Without servers, the page says how to configure them.
    let answer = if has_servers(&visit.site) {
        visit.ask(&ViewQuestion {
            of: *of,
            server: text("server"),
            user: text("user"),
            account: text("account"),
            state: text("state"),
            month: text("month"),
            by: text("by"),
            ..ViewQuestion::default()
        })?
    } else {
        ViewAnswer::default()
    };

    let links: Vec<Context> = SUBJECTS
        .iter()
        .map(|(name, heading, _)| {
            context! {
                name => heading,
                // The columns of one subject are not those of another, so sorting is dropped.
                address => visit.address(&[("of", name), ("sort", "")]),
                is_current => name == subject,
            }
        })
        .collect();
    let silent: Vec<&ServerState> = answer
        .servers
        .iter()
        .filter(|one| one.error.is_some())
        .collect();

    let values = context! {
        heading,
        links,
        has_servers => has_servers(&visit.site),
        silent => Context::from_serialize(&silent),
        asked => answer.servers.len(),
        command => format!("takt view {}", shell_word(subject)),
    };

    let table = table(visit, subject, &answer)?;
    Ok(Content::new("All servers", values).table(table))
}

fn table(visit: &Visit, subject: &str, answer: &ViewAnswer) -> Result<Table, PageError> {
    // JSON has the kind of each value; a column with one number is a column of numbers.
    let is_number = |at: usize| answer.rows.iter().map(|row| &row[at]).any(Value::is_number);
    let headings = answer.columns.iter().enumerate().map(|(at, name)| Column {
        heading: heading(name).into(),
        ..Column::named(name.clone(), is_number(at))
    });
    let rows = answer
        .rows
        .iter()
        .map(|row| {
            let server = row.first().and_then(Value::as_str).unwrap_or_default();
            // Rows name their server; the sum of all has none.
            let server = answer.servers.iter().find(|one| one.name == server);
            answer
                .columns
                .iter()
                .zip(row)
                .map(|(column, value)| cell(column, value, server))
                .collect::<Vec<_>>()
        })
        .collect();

    let answered = answer
        .servers
        .iter()
        .filter(|one| one.error.is_none())
        .count();
    let caption = format!("{subject}, {answered} of {} servers", answer.servers.len());
    Table::new(visit, "servers", caption, headings.collect(), rows)
}

/// The heading of a column: its name in words. The unit of a ratio, of bytes or of a time is in its cells.
fn heading(name: &str) -> String {
    let text = ["_ratio", "_bytes", "_seconds"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit))
        .unwrap_or(name)
        .split('_')
        .map(|word| match word {
            "gpu" => "GPU",
            "gpus" => "GPUs",
            "cpu" => "CPU",
            "id" => "ID",
            "uuid" => "UUID",
            "qos" => "QOS",
            word => word,
        })
        .collect::<Vec<_>>()
        .join(" ");

    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// A value as its column wants it, with a link to the page of its server.
fn cell(column: &str, value: &Value, server: Option<&ServerState>) -> Cell {
    let number = value.as_f64();
    let cell = match column {
        "cpu_busy_ratio" | "utilization_ratio" => share(number),
        "memory_used_bytes" | "memory_total_bytes" => memory(number),
        "idle_seconds" => length(number),
        "submit" | "start" | "end" => {
            let at = value.as_str().and_then(|text| text.parse().ok());
            Cell::time(at.map(|at: jiff::Timestamp| at.into()))
        }
        _ => match value {
            Value::Null => Cell::unknown(),
            Value::String(text) => Cell::text(text),
            Value::Bool(value) => Cell::text(if *value { "yes" } else { "no" }),
            value => match value.as_u64() {
                Some(count) => Cell::count(count),
                None => hours(number),
            },
        },
    };

    let (Some(server), Some(name)) = (server, value.as_str()) else {
        return cell;
    };
    // Names of users and nodes are those of their server, so its pages are linked.
    let page = match column {
        "server" => "/".to_owned(),
        "node" => href("nodes", name),
        "uuid" => href("gpus", name),
        "job_id" => href("jobs", name),
        "user" => href("people", name),
        "account" => href("accounts", name),
        _ => return cell,
    };
    cell.link(format!("{}{page}", server.url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_words() {
        for (name, expected) in [
            ("nodes_up", "Nodes up"),
            ("gpus_busy", "GPUs busy"),
            ("cpu_busy_ratio", "CPU busy"),
            ("memory_used_bytes", "Memory used"),
            ("idle_seconds", "Idle"),
            ("job_id", "Job ID"),
            ("server", "Server"),
        ] {
            assert_eq!(heading(name), expected);
        }
    }
}
