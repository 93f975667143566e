//! The use of the capacity, and waste in GPU hours.

use super::{Block, table};
use takt_accounting::sheet::{Figures, Sheet};
use takt_model::words::{amount, percent};
use takt_questions::listing::Column;

/// Returns the wasted GPU-hours. `None` if nothing was measured.
pub(crate) fn judged_waste(figures: &Figures) -> Option<f64> {
    figures.split_gpu_hours.known_waste()
}

/// Returns the split of all GPU-hours of the cluster (without GPUs: all CPU-hours): name, amount
/// and ratio, with a heading. `None` if the capacity is unknown.
pub(crate) fn capacity(sheet: &Sheet) -> Option<(&'static str, Vec<[String; 3]>)> {
    // On a cluster with GPUs, the CPUs' capacity would say little.
    let (resource, row) = match (&sheet.gpu_capacity, &sheet.cpu_capacity) {
        (Some(row), _) => ("GPU", row),
        (None, Some(row)) if !sheet.has_gpus => ("CPU", row),
        _ => return None,
    };
    // Stranded time is a part of the idle time, so it follows the parts that add up to the whole.
    let stranded = (
        "stranded: idle, but the node's CPUs or memory were allocated",
        row.stranded.unwrap_or(0),
    );

    let parts = row
        .parts()
        .into_iter()
        .chain([stranded])
        .filter(|(_, seconds)| *seconds > 0)
        .map(|(name, seconds)| {
            [
                name.to_owned(),
                amount(seconds as f64 / 3600.0),
                row.ratio((name, seconds)).map_or_else(String::new, percent),
            ]
        })
        .collect();
    Some((resource, parts))
}

pub(super) fn capacity_table(sheet: &Sheet) -> Option<Block> {
    let (resource, rows) = capacity(sheet)?;
    let (title, of, hours) = match resource {
        "GPU" => ("Capacity of the GPUs", "the_gpus", "gpu_hours"),
        _ => ("Capacity of the CPUs", "the_cpus", "cpu_hours"),
    };
    table(
        sheet,
        title,
        &rows,
        &[
            (Column::Text(of), |[name, ..]| name.clone()),
            (Column::Number(hours), |[_, hours, _]| hours.clone()),
            (Column::Number("share"), |[.., share]| share.clone()),
        ],
    )
}
