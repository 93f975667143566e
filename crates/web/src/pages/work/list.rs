//! Lists of runs.

use super::{account, hours, job, length, share, state, user};
use crate::frame::{Cell, Column, href};
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_questions::ListedRun;

/// The columns of a list of runs. Their keys are those by which the server sorts.
pub fn columns() -> Vec<Column> {
    vec![
        Column::text("job_id", "Job"),
        Column::text("name", "Name"),
        Column::text("user", "User"),
        Column::text("account", "Account").minor(),
        Column::text("partition", "Partition").minor(),
        Column::text("state", "State"),
        Column::text("submit", "Submitted").minor(),
        Column::text("start", "Started").minor(),
        Column::number("length", "Ran"),
        Column::number("gpus", "GPUs"),
        Column::number("utilization", "GPUs busy"),
        Column::number("waste", "Wasted").unit("GPU\u{2011}h"),
        Column::text("nodes", "Nodes").minor(),
        Column::text("reason", "Reason").minor(),
    ]
}

/// The rows of a list of runs.
pub fn runs(listed: &[ListedRun], now: UnixTime) -> Vec<Vec<Cell>> {
    listed.iter().map(|one| row(one, now)).collect()
}

fn row(one: &ListedRun, now: UnixTime) -> Vec<Cell> {
    let run = &one.run;
    let used = one.used.filter(|used| used.is_measured);
    // A running job has run until now.
    let ran = run
        .start
        .map(|start| run.end.unwrap_or(now).since(start) as f64);

    let waste = used.and_then(|used| used.wasted_gpu_hours);
    let wasteful = used
        .and_then(|used| used.gpu_hours)
        .zip(waste)
        .is_some_and(|(held, wasted)| wasted > held / 2.0);

    let why = one.waiting.as_ref();
    vec![
        job(run),
        Cell::text(run.name.clone().unwrap_or_default()),
        user(&run.user),
        account(&run.account),
        Cell::text(&run.partition),
        state_of(one),
        Cell::time(Some(run.submit)),
        Cell::time(run.start),
        length(ran),
        gpus(one),
        share(used.and_then(|used| used.gpu_utilization)),
        hours(waste).class(if wasteful { "warn" } else { "" }),
        nodes(run),
        Cell::text(why.map_or(String::new(), |why| why.reason.clone())),
    ]
}

/// The state; of a pending job with Slurm's reason.
fn state_of(one: &ListedRun) -> Cell {
    let cell = state(&one.run.state);
    match &one.waiting {
        Some(why) => Cell {
            text: format!("{} ({})", cell.text, why.reason),
            ..cell
        },
        None => cell,
    }
}

fn gpus(one: &ListedRun) -> Cell {
    one.gpus().map_or_else(Cell::unknown, Cell::count)
}

/// The nodes, with a link if it is one node.
fn nodes(run: &JobRun) -> Cell {
    let list = run.node_list.as_deref().unwrap_or_default();

    let cell = Cell::text(list);
    if list.is_empty() || list.contains(['[', ',']) {
        cell
    } else {
        cell.link(href("nodes", list))
    }
}
