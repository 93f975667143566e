//! The content of a report as lines and tables.

mod capacity;
mod people;
mod runs;
mod waste;

use super::View;
use capacity::capacity_table;
pub(super) use capacity::{capacity, judged_waste};
use people::{accounts, budgets, members};
pub(super) use runs::shown_lost;
use runs::{breaches, lost, network, runs};
use takt_accounting::sheet::{Figures, Sheet};
use takt_model::words::{UNKNOWN, amount, count, duration, known, money, month, percent};
use takt_questions::listing::{Column, Listing};
pub(super) use waste::{CAUSES, Cause, coverage, fix_words};
use waste::{causes, fixes, wasters};

/// A part of a report.
pub(super) enum Block {
    /// A title and its table.
    Listing(&'static str, Listing),
    /// A sentence.
    Line(String),
    /// A line to copy.
    Code(String),
}

/// Returns the heading: `alice on lab, October 2026`.
pub(super) fn heading(sheet: &Sheet, view: View) -> String {
    let whose = match sheet.subject.kind() {
        "user" => format!("{} on {}", sheet.subject.name(), sheet.cluster),
        "account" => format!("Account {} on {}", sheet.subject.name(), sheet.cluster),
        _ => sheet.cluster.clone(),
    };

    let what = match view {
        View::Efficiency => "Efficiency of ",
        View::Waste => "Waste of ",
        _ => "",
    };
    format!(
        "{what}{whose}, {}{}",
        month(&sheet.period),
        if sheet.is_open { " so far" } else { "" }
    )
}

/// Returns the blocks of a view, in order.
pub(super) fn blocks(sheet: &Sheet, view: View) -> Vec<Block> {
    // Blocks without content are `None`, and are left out at the end.
    let mut blocks: Vec<Option<Block>> = Vec::new();
    match view {
        View::Efficiency => {
            blocks.push(Some(summary(sheet)));
            blocks.push(runs(sheet));
            blocks.push(network(sheet));
        }

        // The advice follows the waste that it would spare.
        View::Waste => {
            blocks.extend(causes(sheet).into_iter().map(Some));
            blocks.push(wasters(sheet));
            blocks.extend(fixes(sheet).into_iter().map(Some));
            blocks.push(runs(sheet));
            blocks.push(lost(sheet));
            blocks.push(shown_lost(sheet).1.map(Block::Line));
        }
        View::Cluster | View::Account | View::User => {
            blocks.push(Some(summary(sheet)));
            blocks.push(trend(sheet));
            blocks.push(capacity_table(sheet));
            blocks.extend(causes(sheet).into_iter().map(Some));
            blocks.extend(fixes(sheet).into_iter().map(Some));
            blocks.push(budgets(sheet));
            blocks.push(members(sheet));
            blocks.push(accounts(sheet));
            blocks.push(runs(sheet));
            blocks.push(network(sheet));
            blocks.push(lost(sheet));
            blocks.push(shown_lost(sheet).1.map(Block::Line));
            blocks.push(breaches(sheet));
        }
    }

    let notes = sheet.notes.iter().cloned().map(Block::Line);
    blocks.into_iter().flatten().chain(notes).collect()
}

/// Returns the figures of the period as label, value and note. HTML shows them as tiles.
pub(super) fn facts(sheet: &Sheet) -> Vec<(&'static str, String, String)> {
    let Sheet {
        figures, currency, ..
    } = sheet;
    let mut facts = Vec::new();

    if sheet.has_gpus {
        facts.push((
            "GPU-hours",
            amount(figures.gpu_hours),
            change(sheet, |figures| figures.gpu_hours),
        ));
    }
    facts.push((
        "CPU-hours",
        amount(figures.cpu_hours),
        change(sheet, |figures| figures.cpu_hours),
    ));

    // A user's share of GPUs says more than that of CPUs where both are known.
    if let Some(share) = sheet.share.and_then(|share| share.gpu.or(share.cpu)) {
        let rank = sheet
            .rank
            .as_ref()
            .map(|rank| format!("place {} of {}", rank.place, rank.of));
        facts.push(("of the cluster", percent(share), rank.unwrap_or_default()));
    }

    if let Some(utilization) = figures.gpu_utilization {
        let coverage = format!(
            "{} of {} runs measured",
            count(figures.runs_measured),
            count(figures.runs_assessed)
        );
        facts.push(("GPU utilization", percent(utilization), coverage));
    }
    // With GPUs, their utilization is the measure.
    if let Some(ratio) = figures.cpu_ratio.filter(|_| !sheet.has_gpus) {
        facts.push(("of the CPU time used", percent(ratio), String::new()));
    }

    // `held` leaves out GPU-hours of jobs that have not ended: no share of them is known.
    let split = &figures.split_gpu_hours;
    if split.held() > 0.0 {
        let note = split.known_waste().map_or_else(
            || "nothing was measured".to_owned(),
            |wasted| match currency {
                Some(currency) if figures.split_money.held() > 0.0 => {
                    money(figures.split_money.wasted(), currency)
                }
                _ => format!("{} of those judged", percent(wasted / split.held())),
            },
        );
        facts.push((
            "GPU-hours wasted",
            known(judged_waste(figures), amount),
            note,
        ));
    }

    if let Some(currency) = currency {
        facts.push((
            "cost",
            money(figures.money, currency),
            change(sheet, |figures| figures.money),
        ));
    }

    if figures.kwh > 0.0 {
        let co2 = sheet
            .has_co2
            .then(|| format!("{} kg CO₂", amount(figures.co2_kg)));
        facts.push((
            "kWh of the GPUs",
            amount(figures.kwh),
            co2.unwrap_or_default(),
        ));
    }

    if let Some(waiting) = sheet.waiting {
        let others = format!(
            "9 of 10 under {}",
            // At least a second, so that the line never says that waits are under 0.
            duration((waiting.p90_seconds as f64 + 0.5).max(1.0))
        );
        facts.push((
            "median wait",
            duration(waiting.median_seconds as f64),
            others,
        ));
    }

    let failed = match figures.jobs_failed {
        0 => String::new(),
        failed => format!("{} of {} failed", count(failed), count(figures.jobs_ended)),
    };
    facts.push(("runs started", count(figures.jobs_started), failed));
    if figures.credited_gpu_hours > 0.0 {
        facts.push((
            "GPU-hours credited",
            amount(figures.credited_gpu_hours),
            "for faults".to_owned(),
        ));
    }

    facts
}

/// Returns the change against the mean of the previous periods: `+23 % on the mean of the 3 before`. Empty
/// without a period to compare with.
fn change(sheet: &Sheet, of: fn(&Figures) -> f64) -> String {
    let Some((change, periods)) = sheet.change(of) else {
        return String::new();
    };

    let before = match periods {
        1 => "the period before".to_owned(),
        _ => format!("the mean of the {periods} before"),
    };
    // Beyond ten times as much, percents say little.
    if change > 10.0 {
        let times = amount(change + 1.0);
        return format!("{times} times {before}");
    }
    let sign = if change >= 0.0 { "+" } else { "−" };
    format!("{sign}{} on {before}", percent(change.abs()))
}

fn summary(sheet: &Sheet) -> Block {
    let mut listing = Listing::new(&[
        Column::Text("figure"),
        Column::Number("value"),
        Column::Text("note"),
    ]);

    for (name, value, note) in facts(sheet) {
        listing.push(vec![name.to_owned(), value, note]);
    }
    Block::Listing("In short", listing)
}

/// Returns the text of a cell from its row.
type Cell<T> = fn(&T) -> String;

/// Columns for clusters with GPUs.
const OF_GPUS: &[&str] = &[
    "gpu_hours",
    "gpu_utilization",
    "gpus",
    "gpu_util",
    "p95",
    "gpu_mem",
    "kwh",
    "wasted",
    "cause",
];

/// Columns that narrow tables omit, the first ones first.
const OMITTED: &[&str] = &[
    "p95",
    "kwh",
    "gpu_mem",
    "mem",
    "measured",
    "state",
    "cpu",
    "cpu_hours",
    "warning",
    "credited",
    "low_utilization",
    "over_limit",
];

/// Returns a table; `None` without rows. Omits columns without known values.
fn table<'a, T>(
    sheet: &Sheet,
    title: &'static str,
    rows: impl IntoIterator<Item = &'a T>,
    columns: &[(Column, Cell<T>)],
) -> Option<Block>
where
    T: 'a,
{
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| columns.iter().map(|(_, cell)| cell(row)).collect())
        .collect();
    // The first column names the row, and stays even if it is empty.
    let shown: Vec<usize> = (0..columns.len())
        .filter(|at| {
            (sheet.has_gpus || !OF_GPUS.contains(&columns[*at].0.name()))
                && (*at == 0
                    || rows
                        .iter()
                        .any(|row| !["", UNKNOWN].contains(&row[*at].as_str())))
        })
        .collect();

    let headings: Vec<Column> = shown.iter().map(|at| columns[*at].0).collect();
    let mut listing = Listing::new(&headings).omitting(OMITTED);

    rows.iter()
        .for_each(|row| listing.push(shown.iter().map(|at| row[*at].clone()).collect()));
    (!rows.is_empty()).then_some(Block::Listing(title, listing))
}

fn trend(sheet: &Sheet) -> Option<Block> {
    // A table with zeros in all months before says nothing about a trend.
    if sheet.before.iter().all(|figures| figures.cpu_hours == 0.0) {
        return None;
    }
    table(
        sheet,
        "Trend",
        sheet.before.iter().chain([&sheet.figures]),
        &[
            (Column::Text("month"), |figures| {
                let part = if figures.is_partial { " (a part)" } else { "" };
                format!("{}{part}", figures.period)
            }),
            (Column::Number("gpu_hours"), |figures| {
                amount(figures.gpu_hours)
            }),
            (Column::Number("cpu_hours"), |figures| {
                amount(figures.cpu_hours)
            }),
            (Column::Number("runs"), |figures| {
                count(figures.jobs_started)
            }),
            (Column::Number("gpu_utilization"), |figures| {
                known(figures.gpu_utilization, percent)
            }),
            (Column::Number("wasted"), |figures| {
                known(judged_waste(figures), amount)
            }),
        ],
    )
}
