//! `/jobs`: runs by filters, page by page.

use super::work::{Strips, columns, runs};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::context;
use serde::Serialize;
use takt_draw::escaped;
use takt_model::UnixTime;
use takt_model::shown::shell_word;
use takt_questions::{JobsQuestion, ListedRun, STATES};
use takt_store::JobSort;

pub const PAGE: Page = Page::new("/jobs", include_str!("jobs.html"), show)
    .menu(Group::Work, "Jobs")
    .filters(FILTERS)
    .days()
    .rows();

const FILTERS: &[&str] = &[
    "user",
    "account",
    "partition",
    "state",
    "node",
    "gpu_model",
    "name",
    "min_gpus",
    "waste",
    "after",
];

/// Runs on a page without a `limit` in its address.
const USUAL: usize = 50;

/// Largest `limit` of a page.
const MOST: usize = 500;

/// Largest number of runs in a file.
const MOST_IN_FILE: usize = 50_000;

/// Tabs above the list: states and name.
const TABS: &[(&str, &str)] = &[
    ("", "all"),
    ("RUNNING", "running"),
    ("PENDING", "waiting"),
    ("COMPLETED", "completed"),
    (
        "FAILED,OUT_OF_MEMORY,TIMEOUT,NODE_FAIL,BOOT_FAIL,DEADLINE",
        "failed",
    ),
];

#[derive(Serialize)]
struct Tab {
    name: &'static str,
    address: String,
    is_current: bool,
}

#[derive(Serialize)]
struct Field {
    name: &'static str,
    label: &'static str,
    value: String,
    size: usize,
    choices: Vec<&'static str>,
}

fn show(visit: &Visit) -> Result<Content, PageError> {
    let text = |name: &str| visit.get(name).map(str::to_owned);
    // The list is in an order of the server; other names are the table's columns.
    let sort = visit.get("sort").filter(|sort| {
        let name = sort.trim_start_matches('-');
        JobSort::ALL.iter().any(|(known, _)| *known == name)
    });

    let asked = visit.number("limit")?;
    let limit = if visit.is_file() {
        MOST_IN_FILE
    } else {
        asked.unwrap_or(USUAL).clamp(1, MOST)
    };
    let question = JobsQuestion {
        cluster: Some(visit.site.cluster.to_string()),
        user: text("user"),
        account: text("account"),
        partition: text("partition"),
        state: text("state"),
        node: text("node"),
        gpu_model: text("gpu_model"),
        from: text("from"),
        to: text("to"),
        name: text("name"),
        min_gpus: visit.number("min_gpus")?,
        min_waste: visit.number("waste")?,
        sort: sort.map(str::to_owned),
        after: text("after"),
        // One more than is shown reveals whether a next page has any.
        limit: limit + 1,
        job_id: None,
    };
    let mut found = visit
        .ask(&question)
        .map_err(|error| error.next("/jobs", "All jobs"))?;

    let has_more = found.len() > limit;
    found.truncate(limit);

    let next = found
        .last()
        .and_then(|one| one.cursor.clone())
        .filter(|_| has_more)
        .map(|cursor| visit.address(&[("after", &cursor)]));

    let rows = runs(&found, UnixTime::from(visit.now));
    // A file has all columns, and no strips.
    let (columns, rows) = if visit.is_file() {
        (columns(), rows)
    } else {
        on_page(rows, &found, &Strips::of(visit, &found)?)
    };

    let caption = if has_more || visit.get("after").is_some() {
        format!("{} jobs of a longer list", found.len())
    } else {
        format!("{} jobs", found.len())
    };

    let state = visit.get("state").unwrap_or_default();
    let tabs: Vec<Tab> = TABS
        .iter()
        .map(|(states, name)| Tab {
            name,
            // A cursor belongs to the list of one filter, so it is dropped.
            address: visit.address(&[("state", states), ("after", "")]),
            is_current: *states == state,
        })
        .collect();

    let values = context! {
        tabs,
        fields => fields(visit),
        next,
        first => visit.get("after").map(|_| visit.address(&[("after", "")])),
        command => command(visit),
    };
    let table = Table::new(visit, "jobs", caption, columns, rows)?;
    Ok(Content::new("Jobs", values).table(table))
}

/// The columns and rows of the page: without those that the state and the user's page show, and
/// with a box for the comparison.
fn on_page(
    mut rows: Vec<Vec<Cell>>,
    found: &[ListedRun],
    strips: &Strips,
) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let mut all = columns();
    // Strips are added first: they look for their place by the columns.
    strips.add(&mut all, &mut rows, found);
    let is_kept = |column: &Column| !["account", "submit", "reason"].contains(&&*column.key);
    let kept: Vec<bool> = all.iter().map(is_kept).collect();
    for (cells, one) in rows.iter_mut().zip(found) {
        let mut kept = kept.iter();
        cells.retain(|_| kept.next().copied().unwrap_or(false));
        cells.push(tick(&one.run.job_id));
    }
    let mut columns = all;
    columns.retain(is_kept);
    columns.push(Column::picture("compare", "Compare"));
    (columns, rows)
}

/// A box that chooses a job for the comparison.
fn tick(job_id: &str) -> Cell {
    // The id is a part of the HTML, which the template does not escape.
    let id = escaped(job_id);
    Cell::picture(format!(
        "<input type=\"checkbox\" form=\"compare\" name=\"jobs\" value=\"{id}\" \
         aria-label=\"Compare job {id}\">"
    ))
}

fn fields(visit: &Visit) -> Vec<Field> {
    let field = |name: &'static str, label: &'static str, size: usize| Field {
        name,
        label,
        value: visit.get(name).unwrap_or_default().to_owned(),
        size,
        choices: Vec::new(),
    };
    vec![
        field("user", "user", 8),
        field("account", "account", 8),
        field("partition", "partition", 8),
        // States are chosen, the others are typed.
        Field {
            choices: STATES.iter().map(|(_, name)| *name).collect(),
            ..field("state", "state", 10)
        },
        field("node", "node", 8),
        field("gpu_model", "GPU model", 8),
        field("name", "name contains", 10),
        field("min_gpus", "GPUs at least", 3),
        field("waste", "GPU-hours wasted at least", 4),
        field("from", "from", 11),
        field("to", "to", 11),
    ]
}

/// The command with the same filters, as far as it has them.
fn command(visit: &Visit) -> String {
    let mut command = "takt jobs".to_owned();
    for name in ["user", "state"] {
        if let Some(value) = visit.get(name) {
            command.push_str(&format!(" --{name} {}", shell_word(value)));
        }
    }
    command
}
