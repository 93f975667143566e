//! Geometry of the charts; the template draws it.
//!
//! These reports only need four kinds of plain bars. Chart libraries bring a font renderer
//! (plotters) or a JavaScript engine (charming), and their output does not support classes for
//! light and dark themes.

use super::blocks::CAUSES;
use serde::Serialize;
use takt_accounting::efficiency::Split;
use takt_accounting::sheet::Sheet;
use takt_draw::{beside_axis, scale};
use takt_model::words::{amount, percent};

/// A rectangle with its texts.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bar {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// CSS class of the bar.
    pub class: &'static str,
    /// Text beside the bar, on the axis.
    pub name: String,
    /// Text at the end of the bar.
    pub value: String,
    /// Tooltip of the bar.
    pub title: String,
}

/// A line across a chart.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Tick {
    pub at: f64,
    pub name: String,
}

/// A chart.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Chart {
    pub width: f64,
    pub height: f64,
    pub bars: Vec<Bar>,
    pub ticks: Vec<Tick>,
}

const WIDTH: f64 = 720.0;

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Returns one bar in pieces, with the causes of the GPU-hours. `None` if no run was judged.
pub(super) fn split(split: &Split) -> Option<Chart> {
    let held = split.held();

    let mut x = 0.0;
    let piece = |cause: &super::blocks::Cause| {
        let hours = (cause.of)(split);
        let width = hours / held * WIDTH;
        // Leave a thin gap between two pieces.
        let bar = Bar {
            x: round(x),
            y: 0.0,
            // A tiny part would otherwise have no width at all.
            width: round((width - 2.0).max(1.0)),
            height: 34.0,
            class: cause.class,
            name: cause.name.to_owned(),
            // A narrower piece has no room for its share.
            value: if width >= 52.0 {
                percent(hours / held)
            } else {
                String::new()
            },
            title: format!(
                "{}: {} GPU-hours, {}",
                cause.name,
                amount(hours),
                percent(hours / held)
            ),
        };
        x += width;
        // Parts of less than half a thousandth would only be gaps.
        (hours > held * 0.0005).then_some(bar)
    };

    (held > 0.0).then(|| Chart {
        width: WIDTH,
        height: 34.0,
        bars: CAUSES.iter().filter_map(piece).collect(),
        ticks: Vec::new(),
    })
}

const LEFT: f64 = 46.0;
const BASE: f64 = 150.0;

/// Returns the allocated hours per day: GPU-hours, or CPU-hours without GPU-hours.
pub(super) fn days(sheet: &Sheet) -> Option<(&'static str, Chart)> {
    let by_gpu = sheet.days.iter().any(|day| day.gpu_hours > 0.0);

    let of = |at: usize| {
        if by_gpu {
            sheet.days[at].gpu_hours
        } else {
            sheet.days[at].cpu_hours
        }
    };
    let unit = if by_gpu { "GPU-hours" } else { "CPU-hours" };
    // Without any hours, `scale` has no highest value, and the chart is left out.
    let (highest, ticks) = scale((0..sheet.days.len()).map(of).fold(0.0, f64::max))?;
    let step = (WIDTH - LEFT) / sheet.days.len() as f64;

    let bar = |at: usize| {
        let value = of(at);
        let date = &sheet.days[at].date;
        let height = round(value / highest * (BASE - 10.0));
        let day = date
            .rsplit('-')
            .next()
            .unwrap_or_default()
            .trim_start_matches('0')
            .to_owned();
        Bar {
            x: round(LEFT + at as f64 * step + step * 0.12),
            y: round(BASE - height),
            width: round(step * 0.76),
            height,
            class: "used",
            // In a month, there is room for every fifth day.
            name: if sheet.days.len() <= 16 || at.is_multiple_of(5) {
                day
            } else {
                String::new()
            },
            value: String::new(),
            title: format!("{date}: {} {unit}", amount(value)),
        }
    };

    let ticks = ticks.into_iter().map(|value| Tick {
        at: round(BASE - value / highest * (BASE - 10.0)),
        name: beside_axis(value),
    });
    Some((
        unit,
        Chart {
            width: WIDTH,
            height: BASE + 20.0,
            bars: (0..sheet.days.len()).map(bar).collect(),
            ticks: ticks.collect(),
        },
    ))
}

/// Returns the allocated and the wasted hours per month.
pub(super) fn months(sheet: &Sheet) -> Option<(&'static str, Chart)> {
    let months: Vec<_> = sheet.before.iter().chain([&sheet.figures]).collect();
    let by_gpu = months.iter().any(|month| month.gpu_hours > 0.0);
    let hours = |at: usize| {
        if by_gpu {
            months[at].gpu_hours
        } else {
            months[at].cpu_hours
        }
    };

    let longest = (0..months.len()).map(hours).fold(0.0, f64::max);
    // A chart with one bar compares nothing.
    let before: f64 = sheet.before.iter().map(|month| month.cpu_hours).sum();
    if longest <= 0.0 || before <= 0.0 {
        return None;
    }
    let mut bars = Vec::new();
    for (at, month) in months.iter().enumerate() {
        let y = at as f64 * 30.0;
        let width = hours(at) / longest * 470.0;
        let wasted = if by_gpu {
            // The waste is a part of the bar, so it must not be longer.
            month.split_gpu_hours.wasted().min(hours(at))
        } else {
            0.0
        };
        let utilization = month
            .gpu_utilization
            .map(|ratio| format!(", {} utilization", percent(ratio)));
        let bar = |x: f64, width: f64, class: &'static str, value: String, title: String| Bar {
            x: round(x),
            y,
            width: round(width),
            height: 20.0,
            class,
            // The two bars of a month share its name.
            name: if class == "used" {
                month.period.chars().take(10).collect()
            } else {
                String::new()
            },
            value,
            title,
        };
        let words = format!("{}{}", amount(hours(at)), utilization.unwrap_or_default());
        bars.push(bar(
            90.0,
            width,
            "used",
            words.clone(),
            format!("{}: {words}", month.period),
        ));

        let part = wasted / longest * 470.0;
        // Below a pixel, the bar would not be seen.
        if part >= 1.0 {
            let title = format!("{}: {} GPU-hours wasted", month.period, amount(wasted));
            bars.push(bar(90.0 + width - part, part, "idle", String::new(), title));
        }
    }

    let unit = if by_gpu { "GPU-hours" } else { "CPU-hours" };
    Some((
        unit,
        Chart {
            width: WIDTH,
            height: months.len() as f64 * 30.0,
            bars,
            ticks: Vec::new(),
        },
    ))
}

/// Returns names and hours, the largest first, with the own name highlighted.
pub(super) fn names(rows: impl Iterator<Item = (String, f64, bool)>) -> Option<Chart> {
    let rows: Vec<_> = rows.filter(|(_, hours, _)| *hours > 0.0).collect();

    let longest = rows.iter().map(|(_, hours, _)| *hours).fold(0.0, f64::max);
    // At least one unit, so that the smallest bar is seen.
    let bars = rows
        .iter()
        .enumerate()
        .map(|(at, (name, hours, is_own))| Bar {
            x: 190.0,
            y: at as f64 * 24.0,
            width: round((hours / longest * 440.0).max(1.0)),
            height: 16.0,
            class: if *is_own { "used" } else { "other" },
            name: shortened(name),
            value: amount(*hours),
            title: format!("{name}: {}", amount(*hours)),
        });
    (longest > 0.0).then(|| Chart {
        width: WIDTH,
        height: rows.len() as f64 * 24.0,
        bars: bars.collect(),
        ticks: Vec::new(),
    })
}

/// Shortens a name to the space beside a bar.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=26 => name.to_owned(),
        _ => name.chars().take(25).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_split_fill_the_bar() {
        let chart = split(&Split {
            used: 60.0,
            idle: 30.0,
            unmeasured: 10.0,
            ..Split::default()
        })
        .unwrap();
        assert_eq!(
            chart.bars.iter().map(|bar| bar.class).collect::<Vec<_>>(),
            ["used", "idle", "unknown"]
        );
        let end = chart.bars.last().map(|bar| bar.x + bar.width).unwrap();
        // The gap behind the last piece is part of its width.
        assert!((end - (WIDTH - 2.0)).abs() < 0.2, "{end}");
        assert!(split(&Split::default()).is_none());
    }
}
