//! Parts of the pages about jobs and usage: cells, addresses, lists of runs, and periods.

mod current;
mod list;
mod period;
mod plain;
mod strips;

pub use current::current_jobs;
pub use list::{columns, runs};
pub use period::PeriodPick;
pub use plain::Plain;
pub use strips::{Strips, strip_of};

use crate::frame::{Cell, href};
use takt_draw::escaped;
use takt_jobs::JobRun;
use takt_model::words::{amount, duration, percent};

const GIB: f64 = (1_u64 << 30) as f64;

/// An address with a query; empty values are left out.
pub fn address(path: &str, query: &[(&str, &str)]) -> String {
    let kept = query.iter().filter(|(_, value)| !value.is_empty());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(kept)
        .finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

/// The job id, with a link to the run's page: a job that was requeued has a newer run, which the address without a time
/// of submission shows.
pub fn job(run: &JobRun) -> Cell {
    let page = href("jobs", &run.job_id);
    // A running job has no newer run: its page stays with it when it is requeued.
    let submit = run.end.map(|_| run.submit.0.to_string());
    let page = address(&page, &[("submit", &submit.unwrap_or_default())]);
    Cell::text(&run.job_id).link(page)
}

/// A user, with a link to the user's page.
pub fn user(name: &str) -> Cell {
    if name.is_empty() {
        Cell::unknown()
    } else {
        Cell::text(name).link(href("people", name))
    }
}

/// An account, with a link to the account's page.
pub fn account(name: &str) -> Cell {
    if name.is_empty() {
        Cell::unknown()
    } else {
        Cell::text(name).link(href("accounts", name))
    }
}

/// A state, coloured; the word says the same.
pub fn state(state: &str) -> Cell {
    Cell::text(state.to_lowercase().replace('_', " ")).class(state_class(state))
}

/// The CSS class of a state: `bad` for a failure, `good` for success.
pub fn state_class(state: &str) -> &'static str {
    // States of a later release are shown as failures, so that they are seen.
    match state {
        "COMPLETED" => "good",
        "RUNNING" | "COMPLETING" | "CONFIGURING" => "running",
        "PENDING" | "SUSPENDED" | "REQUEUED" | "EXPEDITING" => "dim",
        "CANCELLED" | "PREEMPTED" | "REVOKED" => "warn",
        _ => "bad",
    }
}

/// A row with times below the pictures of the column `place`.
pub fn time_row(times: &[String], place: usize, columns: usize) -> Vec<Cell> {
    let times: String = times
        .iter()
        .map(|time| format!("<span>{}</span>", escaped(time)))
        .collect();
    let mut row = vec![Cell::default(); columns];
    row[place] = Cell::picture(format!("<div class=\"ticks\">{times}</div>"));
    row
}

/// A ratio as a percentage.
pub fn share(ratio: Option<f64>) -> Cell {
    Cell::number(ratio, percent)
}

/// Hours, kWh and the like.
pub fn hours(value: Option<f64>) -> Cell {
    Cell::number(value, amount)
}

/// A time in seconds.
pub fn length(seconds: Option<f64>) -> Cell {
    Cell::number(seconds, duration)
}

/// An amount of memory in bytes, shown in GiB.
pub fn memory(bytes: Option<f64>) -> Cell {
    Cell::number(bytes, |bytes| format!("{} GiB", amount(bytes / GIB)))
}
