//! Formats reports: tables, CSV, Markdown, HTML. Accounting computes the numbers.

mod card_bundle;
mod config;
mod html;
mod letters;
mod sheet;
mod templates;
mod warnings;
mod weekly;

pub use card_bundle::{CardBundle, card_files};
pub use config::ReportsConfig;
pub use letters::{Letter, due, in_short};
pub use sheet::{View, write_sheet};
pub use warnings::{SLACK, Warning, warnings};
pub use weekly::{DAYS as WEEKLY_DAYS, WEEKLY, weekly};

use std::io::{self, Write};
use takt_accounting::{Figures, Row, UsageReport};
use takt_questions::listing::{Column, Listing};

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names of the formats")]
pub enum ReportFormat {
    #[default]
    Table,
    Html,
    Csv,
    Json,
    Md,
}

/// A figure of a usage report: its name in JSON and CSV, and its formats.
struct Figure {
    name: &'static str,
    /// Format for people: hours with one decimal, `?` for unknown GPUs.
    short: Option<fn(&Figures) -> String>,
    /// Exact format for programs.
    exact: fn(&Figures) -> String,
}

/// All figures in the order of the columns.
const FIGURES: &[Figure] = &[
    Figure {
        name: "jobs_submitted",
        short: Some(|f| f.jobs_submitted.to_string()),
        exact: |f| f.jobs_submitted.to_string(),
    },
    Figure {
        name: "jobs_started",
        short: Some(|f| f.jobs_started.to_string()),
        exact: |f| f.jobs_started.to_string(),
    },
    Figure {
        name: "jobs_ended",
        short: Some(|f| f.jobs_ended.to_string()),
        exact: |f| f.jobs_ended.to_string(),
    },
    Figure {
        name: "jobs_running",
        short: Some(|f| f.jobs_running.to_string()),
        exact: |f| f.jobs_running.to_string(),
    },
    Figure {
        name: "jobs_gpu_unknown",
        short: None,
        exact: |f| f.jobs_gpu_unknown.to_string(),
    },
    Figure {
        name: "gpu_seconds",
        short: None,
        exact: |f| f.gpu_seconds.map_or_else(String::new, |n| n.to_string()),
    },
    Figure {
        name: "gpu_hours",
        short: Some(gpu_hours),
        exact: |f| f.gpu_hours.map_or_else(String::new, |n| n.to_string()),
    },
    Figure {
        name: "cpu_seconds",
        short: None,
        exact: |f| f.cpu_seconds.to_string(),
    },
    Figure {
        name: "cpu_hours",
        short: Some(|f| hours(f.cpu_hours)),
        exact: |f| f.cpu_hours.to_string(),
    },
    Figure {
        name: "node_seconds",
        short: None,
        exact: |f| f.node_seconds.to_string(),
    },
    Figure {
        name: "node_hours",
        short: Some(|f| hours(f.node_hours)),
        exact: |f| f.node_hours.to_string(),
    },
    Figure {
        name: "wall_seconds",
        short: None,
        exact: |f| f.wall_seconds.to_string(),
    },
    Figure {
        name: "wall_hours",
        short: Some(|f| hours(f.wall_hours)),
        exact: |f| f.wall_hours.to_string(),
    },
    Figure {
        name: "mem_gib_hours",
        short: Some(|f| hours(f.mem_gib_hours)),
        exact: |f| f.mem_gib_hours.to_string(),
    },
    Figure {
        name: "billing_seconds",
        short: None,
        exact: |f| f.billing_seconds.to_string(),
    },
    Figure {
        name: "billing_hours",
        short: None,
        exact: |f| f.billing_hours.to_string(),
    },
    Figure {
        name: "wait_seconds",
        short: None,
        exact: |f| f.wait_seconds.to_string(),
    },
    Figure {
        name: "wait_hours",
        short: Some(|f| hours(f.wait_hours)),
        exact: |f| f.wait_hours.to_string(),
    },
];

/// Writes a usage report. `width` limits the width of a table, in characters.
pub fn write_usage(
    report: &UsageReport,
    by: &[String],
    format: ReportFormat,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        ReportFormat::Json => {
            // JSON and CSV are for programs: all figures, exact and unrounded.
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)
        }
        ReportFormat::Csv => exact(report, by).write_csv(out),
        ReportFormat::Table => {
            writeln!(out, "{}\n", heading(report))?;
            readable(report, by).write_table(width, out)?;
            notes(report)
                .iter()
                .try_for_each(|note| writeln!(out, "\n{note}"))
        }
        ReportFormat::Md => {
            writeln!(out, "## {}\n", heading(report))?;
            readable(report, by).write_markdown(out)?;
            notes(report)
                .iter()
                .try_for_each(|note| writeln!(out, "\n{note}"))
        }
        ReportFormat::Html => out.write_all(
            html::usage(report, by)
                .map_err(io::Error::other)?
                .as_bytes(),
        ),
    }
}

/// Returns the heading: `Usage of lab, 2026-10-01 to 2026-11-01, end exclusive (Europe/Oslo)`.
fn heading(report: &UsageReport) -> String {
    let [from, to] = [&report.from, &report.to].map(|at| day_or_time(at));
    format!(
        "Usage of {}, {from} to {to}, end exclusive ({})",
        report.cluster, report.timezone
    )
}

/// The date of an RFC 3339 time at midnight; other times are unchanged.
fn day_or_time(at: &str) -> &str {
    match at.split_once('T') {
        // A period begins at midnight in its own time zone, so the offset behind the time does not matter.
        Some((day, time)) if time.starts_with("00:00:00") => day,
        _ => at,
    }
}

/// Returns notes about the completeness of the figures.
fn notes(report: &UsageReport) -> Vec<String> {
    let unknown = report.totals.jobs_gpu_unknown;
    match unknown {
        0 => Vec::new(),
        1 => vec!["The GPUs of 1 run are unknown and not in the sums.".into()],
        _ => vec![format!(
            "The GPUs of {unknown} runs are unknown and not in the sums."
        )],
    }
}

/// Returns the figures for people. Omits columns that are empty in the whole period (GPUs, or
/// memory that Slurm counts).
fn shown(
    report: &UsageReport,
) -> impl Iterator<Item = (&'static str, fn(&Figures) -> String)> + use<> {
    let totals = &report.totals;
    // Unknown GPUs are a reason to show the column: its sum may be incomplete.
    let no_gpus = totals.gpu_seconds == Some(0) && totals.jobs_gpu_unknown == 0;
    let no_memory = totals.mem_gib_hours == 0.0;
    let is_had =
        move |name: &str| !(name == "gpu_hours" && no_gpus || name == "mem_gib_hours" && no_memory);

    FIGURES
        .iter()
        .filter(move |figure| is_had(figure.name))
        .filter_map(|figure| Some((column_heading(figure.name), figure.short?)))
}

/// Returns a figure's heading for people. `jobs_running` counts the runs that were active at some
/// time of the period; in a finished month its name would mean that they still run.
fn column_heading(name: &'static str) -> &'static str {
    if name == "jobs_running" {
        "jobs_active"
    } else {
        name
    }
}

/// Columns that a narrow table omits, the first ones first.
const OMITTED: &[&str] = &[
    "jobs_submitted",
    "node_hours",
    "jobs_ended",
    "mem_gib_hours",
    "wall_hours",
    "jobs_active",
    "jobs_started",
    "wait_hours",
];

fn readable(report: &UsageReport, by: &[String]) -> Listing {
    let figures = || shown(report);
    let columns = by
        .iter()
        .map(|key| Column::Text(key_name(key)))
        .chain(figures().map(|(name, _)| Column::Number(name)))
        .collect::<Vec<_>>();

    let mut listing = Listing::new(&columns).omitting(OMITTED);

    let cells = |figures_of: &Figures| {
        figures()
            .map(|(_, write)| write(figures_of))
            .collect::<Vec<_>>()
    };
    for row in &report.rows {
        listing.push(group_cells(row).chain(cells(&row.figures)).collect());
    }
    // A sum of one row would repeat it. Without rows, it shows that nothing was found.
    if report.rows.len() != 1 {
        let total = by
            .iter()
            .enumerate()
            .map(|(at, _)| {
                if at == 0 {
                    "all".to_owned()
                } else {
                    String::new()
                }
            })
            .chain(cells(&report.totals))
            .collect();
        listing.push(total);
    }
    listing
}

fn exact(report: &UsageReport, by: &[String]) -> Listing {
    let columns = by
        .iter()
        .map(|key| Column::Text(key_name(key)))
        .chain(FIGURES.iter().map(|f| Column::Number(f.name)))
        .collect::<Vec<_>>();

    let mut listing = Listing::new(&columns);
    for row in &report.rows {
        listing.push(
            group_cells(row)
                .chain(FIGURES.iter().map(|figure| (figure.exact)(&row.figures)))
                .collect(),
        );
    }
    listing
}

fn group_cells(row: &Row) -> impl Iterator<Item = String> {
    row.group
        .0
        .iter()
        // A job without an account has no value for the key.
        .map(|(_, value)| value.clone().unwrap_or_else(|| "-".into()))
}

/// Returns accounting's name of the key.
fn key_name(key: &str) -> &'static str {
    takt_accounting::GroupBy::ALL
        .iter()
        .find(|(name, _)| *name == key)
        .map_or("", |(name, _)| name)
}

fn gpu_hours(figures: &Figures) -> String {
    figures.gpu_hours.map_or_else(|| "?".into(), hours)
}

/// Formats hours with one decimal. A little is not 0.
fn hours(hours: f64) -> String {
    if hours > 0.0 && hours < 0.05 {
        "<0.1".to_owned()
    } else {
        format!("{hours:.1}")
    }
}
