//! The pictures of a job's page.

use crate::frame::{PageError, Visit};
use std::fmt::Write as _;
use takt_accounting::efficiency::Curve;
use takt_draw::{Cell, Picture, Span, area, heat, lanes};
use takt_server::answers::{GpuReport, JobReport, NodeReport};
use takt_server::reports::words::{duration, known, percent};

/// A reading of the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Utilization,
    Memory,
    Power,
}

impl Metric {
    pub const ALL: [Self; 3] = [Self::Utilization, Self::Memory, Self::Power];

    /// The reading that the address asks for.
    pub fn of(visit: &Visit) -> Result<Self, PageError> {
        let asked = visit.get("metric").unwrap_or("utilization");
        let found = Self::ALL.into_iter().find(|one| one.key() == asked);
        found.ok_or_else(|| {
            PageError::wrong(format!(
                "GPUs have no reading '{asked}' here. Readings: utilization, memory, power."
            ))
            .next(&visit.address(&[("metric", "")]), "Utilization")
        })
    }

    pub fn key(self) -> &'static str {
        match self {
            Self::Utilization => "utilization",
            Self::Memory => "memory",
            Self::Power => "power",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Utilization => "GPU utilization",
            Self::Memory => "GPU memory",
            Self::Power => "GPU power",
        }
    }

    fn curve(self, gpu: &GpuReport) -> &Curve {
        match self {
            Self::Utilization => &gpu.utilization,
            Self::Memory => &gpu.memory,
            Self::Power => &gpu.power,
        }
    }

    /// The value of the full height: 100 %, all memory, or the highest power.
    pub fn most(self, gpus: &[(&NodeReport, &GpuReport)]) -> f64 {
        let highest = |of: &dyn Fn(&GpuReport) -> Option<f64>| {
            let values = gpus.iter().filter_map(|(_, gpu)| of(gpu));
            values.reduce(f64::max).unwrap_or(1.0)
        };
        match self {
            Self::Utilization => 1.0,
            Self::Memory => highest(&|gpu| gpu.memory_total_bytes),
            Self::Power => highest(&|gpu| gpu.power.0.iter().copied().flatten().reduce(f64::max)),
        }
    }
}

/// The curve of one GPU: an area with its idle streaks behind, or a strip of colour.
pub(super) fn row_picture(
    gpu: &GpuReport,
    metric: Metric,
    most: f64,
    as_strip: bool,
    name: &str,
) -> String {
    let curve = metric.curve(gpu);
    let label = format!(
        "GPU {name}: busy {}, idle {} of the time",
        known(gpu.utilization_mean, percent),
        known(gpu.idle_ratio, percent)
    );
    if !curve.is_measured() {
        return "not measured".to_owned();
    }
    if as_strip {
        let cell = |value: &Option<f64>| match value {
            None => Cell::Unknown,
            Some(value) if metric == Metric::Utilization && *value < 0.05 => Cell::Idle,
            Some(value) => Cell::Busy(value / most),
        };
        let row = curve.0.iter().map(cell).collect();
        return heat(&[row], 14, 14, label).inline("strip");
    }
    let drawn = area(&curve.0, most);
    let mut body = String::new();
    let steps = curve.0.len().max(1) as f64;
    let x = |step: usize| (step as f64 / steps * f64::from(drawn.width)).round() as u32;
    for (from, to) in &gpu.idle_streaks {
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<rect class=\"idle\" x=\"{}\" width=\"{}\" height=\"{}\"/>",
            x(*from),
            x(*to).saturating_sub(x(*from)),
            drawn.height
        );
    }
    let _ = write!(body, "<path class=\"area\" d=\"{}\"/>", drawn.d);
    let picture = Picture {
        width: drawn.width,
        height: drawn.height,
        label,
        body,
    };
    picture.inline("curve")
}

/// The mean of all GPUs, for `.svg`.
pub(super) fn curve(gpus: &[(&NodeReport, &GpuReport)], metric: Metric, label: &str) -> Picture {
    let curves: Vec<&Curve> = gpus.iter().map(|(_, gpu)| metric.curve(gpu)).collect();
    let drawn = area(&Curve::mean(&curves).0, metric.most(gpus));
    Picture {
        width: drawn.width,
        height: drawn.height,
        label: label.to_owned(),
        body: format!("<path class=\"area\" d=\"{}\"/>", drawn.d),
    }
}

/// A curve of a node; `None` if it was not measured.
pub(super) fn node_row(curve: &Curve, label: &str) -> Option<String> {
    let most = curve.0.iter().copied().flatten().reduce(f64::max)?;
    let drawn = area(&curve.0, most);
    let picture = Picture {
        width: drawn.width,
        height: drawn.height,
        label: label.to_owned(),
        body: format!("<path class=\"area\" d=\"{}\"/>", drawn.d),
    };
    Some(picture.inline("curve"))
}

/// Waiting, run and the rest of the time limit as a line.
pub(super) fn life(report: &JobReport, now: i64) -> Option<String> {
    let run = &report.run;
    let begin = run.submit;
    let start = run.start?;
    let end = run.end.unwrap_or(now);
    let limit = run
        .timelimit
        .and_then(|limit| start.checked_add_unsigned(limit));
    let last = limit.unwrap_or(end).max(end);
    let length = (last - begin).max(1) as f64;
    let place = |at: i64| (at - begin) as f64 / length;
    let span = |from: i64, to: i64, class: &'static str, words: &str| Span {
        from: place(from),
        to: place(to),
        class,
        title: format!("{words} {}", duration((to - from) as f64)),
        href: None,
    };
    let mut spans = Vec::new();
    if start > begin {
        spans.push(span(begin, start, "none", "waited"));
    }
    spans.push(span(start, end, "used", "ran"));
    if last > end {
        spans.push(span(end, last, "reserved", "left of its limit:"));
    }
    let label = spans
        .iter()
        .map(|span| span.title.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    Some(lanes(&[spans], 12, label).inline("life"))
}
