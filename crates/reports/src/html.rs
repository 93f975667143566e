//! A usage report as one HTML file: no script, no other file; prints well, light and dark.

use super::{group_cells, heading, hours, key_name, notes, shown, templates};
use minijinja::context;
use serde::Serialize;
use takt_accounting::{Figures, Row, UsageReport};

/// Maximum number of bars in a chart; the table has all rows.
const BARS: usize = 15;
/// Height of a bar with its gap, and width of the longest bar, in SVG units.
const BAR_HEIGHT: usize = 20;
const BAR_WIDTH: f64 = 470.0;

#[derive(Serialize)]
struct Cell {
    text: String,
    number: bool,
}

#[derive(Serialize)]
struct Chart {
    title: &'static str,
    height: usize,
    bars: Vec<Bar>,
}

#[derive(Serialize)]
struct Bar {
    name: String,
    y: usize,
    width: f64,
    value: String,
}

/// Renders the report.
pub fn usage(report: &UsageReport, by: &[String]) -> Result<String, minijinja::Error> {
    let mut templates = templates::of_pages();
    templates.add_template("usage.html", include_str!("usage.html"))?;

    let charts = [
        chart("GPU-hours", &report.rows, |figures| {
            figures.gpu_hours.unwrap_or(0.0)
        }),
        chart("CPU-hours", &report.rows, |figures| figures.cpu_hours),
    ];

    let heads: Vec<_> = (by.iter().map(|key| (key_name(key).to_owned(), false)))
        .chain(shown(report).map(|(name, _)| (name.replace('_', " "), true)))
        .map(|(name, number)| context! { name, number })
        .collect();
    // The sum of a single row would repeat it.
    let total = (report.rows.len() > 1).then(|| {
        let names = by
            .iter()
            .enumerate()
            .map(|(at, _)| if at == 0 { "all".into() } else { String::new() });
        cells(report, names, &report.totals)
    });

    templates.get_template("usage.html")?.render(context! {
        heading => heading(report),
        cluster => report.cluster,
        from => report.from,
        to => report.to,
        timezone => report.timezone,
        sums => sums(report),
        charts => charts.into_iter().flatten().collect::<Vec<_>>(),
        heads,
        rows => report
            .rows
            .iter()
            .map(|row| cells(report, group_cells(row), &row.figures))
            .collect::<Vec<_>>(),
        total,
        notes => notes(report),
    })
}

fn cells(
    report: &UsageReport,
    group: impl Iterator<Item = String>,
    figures: &Figures,
) -> Vec<Cell> {
    let numbers = shown(report).map(|(_, write)| Cell {
        text: write(figures),
        number: true,
    });
    group
        .map(|text| Cell {
            text,
            number: false,
        })
        .chain(numbers)
        .collect()
}

fn sums(report: &UsageReport) -> Vec<minijinja::Value> {
    let totals = &report.totals;
    let gpu_hours = shown(report)
        .find(|(name, _)| *name == "gpu_hours")
        .map(|(_, write)| ("GPU-hours", write(totals)));
    let others = [
        ("CPU-hours", hours(totals.cpu_hours)),
        ("runs started", totals.jobs_started.to_string()),
        ("hours waited, all runs", hours(totals.wait_hours)),
    ];
    (gpu_hours.into_iter().chain(others))
        .map(|(name, value)| context! { name, value })
        .collect()
}

/// Returns a chart; `None` if all values are 0.
fn chart(title: &'static str, rows: &[Row], of: fn(&Figures) -> f64) -> Option<Chart> {
    let mut values: Vec<(String, f64)> = rows
        .iter()
        .map(|row| {
            (
                group_cells(row).collect::<Vec<_>>().join(" · "),
                of(&row.figures),
            )
        })
        .collect();

    values.retain(|(_, value)| *value > 0.0);
    // The longest bars first, since only some of them are drawn.
    values.sort_by(|a, b| b.1.total_cmp(&a.1));
    // Without a positive value, no bar has a length to compare with.
    let longest = values.first()?.1;
    let bars: Vec<Bar> = (values.into_iter().take(BARS).enumerate())
        .map(|(at, (name, value))| Bar {
            name: shortened(&name),
            y: at * BAR_HEIGHT,
            // One decimal of a unit is finer than a screen, and keeps the file small.
            width: (value / longest * BAR_WIDTH * 10.0).round() / 10.0,
            value: hours(value),
        })
        .collect();
    Some(Chart {
        title,
        height: bars.len() * BAR_HEIGHT,
        bars,
    })
}

/// Shortens a name to the space beside a bar.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=22 => name.to_owned(),
        _ => name.chars().take(21).chain(['…']).collect(),
    }
}
