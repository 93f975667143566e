//! Single jobs: the costliest, those limited by the network, lost hours, breaches.

use super::{Block, table};
use takt_accounting::sheet::{LostRow, Sheet};
use takt_model::words::{amount, duration, known, percent};
use takt_questions::listing::Column;

pub(super) fn runs(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        if sheet.has_gpus {
            "Runs, the most wasted first"
        } else {
            "Runs"
        },
        &sheet.runs,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Text("state"), |run| run.state.clone()),
            (Column::Number("hours"), |run| amount(run.hours)),
            (Column::Number("gpus"), |run| {
                run.gpus
                    .map_or_else(|| "?".to_owned(), |gpus| gpus.to_string())
            }),
            (Column::Number("measured"), |run| percent(run.coverage)),
            (Column::Number("gpu_util"), |run| {
                known(run.gpu_utilization, percent)
            }),
            (Column::Number("p95"), |run| {
                known(run.gpu_utilization_p95, percent)
            }),
            (Column::Number("gpu_mem"), |run| {
                known(run.gpu_memory_peak_ratio, percent)
            }),
            (Column::Number("cpu"), |run| known(run.cpu_ratio, percent)),
            (Column::Number("mem"), |run| {
                known(run.memory_ratio, percent)
            }),
            (Column::Number("kwh"), |run| known(run.kwh, amount)),
            (Column::Number("wasted"), |run| {
                known(run.split_gpu_hours.known_waste(), amount)
            }),
            (Column::Text("cause"), |run| run.cause.clone()),
        ],
    )
}

pub(super) fn network(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Runs whose GPUs waited for the network",
        &sheet.network_bound,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Number("nodes"), |run| run.nodes.to_string()),
            (Column::Number("waited_for_the_link"), |run| {
                percent(run.link_bound)
            }),
            (Column::Number("gpu_util"), |run| {
                known(run.gpu_utilization, percent)
            }),
            (Column::Number("on_one_node"), |run| {
                known(run.single_node_utilization, percent)
            }),
        ],
    )
}

/// Returns the largest runs that a fault ended, limited for a page, and a note about the omitted
/// runs.
pub(crate) fn shown_lost(sheet: &Sheet) -> (&[LostRow], Option<String>) {
    const MOST: usize = 20;

    let (shown, others) = sheet.lost.split_at(sheet.lost.len().min(MOST));
    let more = (!others.is_empty()).then(|| {
        format!(
            "{} smaller ones are not listed; JSON has all.",
            others.len()
        )
    });
    (shown, more)
}

pub(super) fn lost(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        if sheet.has_gpus {
            "Lost to faults of nodes and GPUs"
        } else {
            "Lost to faults of nodes"
        },
        shown_lost(sheet).0,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Text("fault"), |run| run.fault.clone()),
            (Column::Text("nodes"), |run| run.nodes.clone()),
            (Column::Number("gpu_hours"), |run| amount(run.gpu_hours)),
            (Column::Number("cpu_hours"), |run| amount(run.cpu_hours)),
            (Column::Text("credited"), |run| {
                if run.is_credited { "yes" } else { "no" }.to_owned()
            }),
        ],
    )
}

pub(super) fn breaches(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Runs outside the allowed hours",
        &sheet.breaches,
        &[
            (Column::Text("rule"), |breach| breach.window.clone()),
            (Column::Text("job_id"), |breach| breach.job_id.clone()),
            (Column::Text("name"), |breach| {
                breach.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |breach| breach.user.clone()),
            (Column::Text("nodes"), |breach| breach.nodes.join(",")),
            (Column::Text("time"), |breach| {
                duration(breach.seconds as f64)
            }),
        ],
    )
}
