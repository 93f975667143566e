//! The pictures of a job's page.

use crate::frame::{PageError, Visit};
use crate::pages::work::strip_of;
use takt_accounting::efficiency::Curve;
use takt_draw::{Chart, Picture, Span, lanes, sheet};
use takt_model::UnixTime;
use takt_model::words::{duration, known, percent};
use takt_questions::{GpuReport, JobReport, NodeReport};

/// Bytes as GiB.
pub(super) const GIB: (f64, &str) = (1.0 / (1 << 30) as f64, " GiB");

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

        Self::ALL
            .into_iter()
            .find(|one| one.key() == asked)
            .ok_or_else(|| {
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
    fn most<'g>(self, gpus: impl Iterator<Item = &'g GpuReport>) -> f64 {
        // One scale for all GPUs, or a row could not be compared with the next.
        gpus.filter_map(|gpu| match self {
            Self::Utilization => Some(1.0),
            Self::Memory => gpu.memory_total_bytes,
            Self::Power => gpu.power.0.iter().copied().flatten().reduce(f64::max),
        })
        .reduce(f64::max)
        .unwrap_or(1.0)
    }

    /// Factor from a value to the number that people read, and its unit.
    fn shown(self) -> (f64, &'static str) {
        match self {
            Self::Utilization => (100.0, " %"),
            Self::Memory => GIB,
            Self::Power => (1.0, " W"),
        }
    }
}

/// Properties that all curves of a job have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// Reading of the GPUs.
    pub metric: Metric,
    /// Value of the full height.
    pub most: f64,
    /// Begin and end, UTC seconds.
    pub time: (i64, i64),
    /// Utilization below which a GPU is idle.
    pub idle_below: f64,
}

impl Scene {
    pub fn of(report: &JobReport, metric: Metric, idle_below: f64) -> Self {
        let gpus = || report.by_node.iter().flat_map(|node| &node.gpus);
        // A job that has not begun has no axis; its curves are empty.
        let time = report.axis.map_or((0, 1), |axis| {
            (axis.from.whole_seconds().0, axis.to().whole_seconds().0)
        });
        Self {
            metric,
            most: metric.most(gpus()),
            time,
            idle_below,
        }
    }

    /// The curve of one GPU: an area with its idle streaks behind, or a strip of colour.
    pub fn row(&self, gpu: &GpuReport, as_strip: bool, name: &str) -> String {
        let curve = self.metric.curve(gpu);
        if !curve.is_measured() {
            return "not measured".to_owned();
        }
        if as_strip {
            // Only utilization has a threshold below which a GPU is idle.
            let below = (self.metric == Metric::Utilization).then_some(self.idle_below);
            strip_of(curve, self.most, below, label(gpu, name))
        } else {
            self.chart(gpu, name).inline()
        }
    }

    fn chart<'g>(&self, gpu: &'g GpuReport, name: &str) -> Chart<'g> {
        Chart {
            values: &self.metric.curve(gpu).0,
            most: self.most,
            time: self.time,
            marked: &gpu.idle_streaks,
            label: label(gpu, name),
            shown: self.metric.shown(),
        }
    }

    /// All GPUs below each other, for `.svg`.
    pub fn sheet(&self, report: &JobReport, ticks: &[(f64, String)]) -> Picture {
        let rows: Vec<_> = report
            .by_node
            .iter()
            .flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)))
            // The picture of a job with thousands of GPUs would be too large to show.
            .take(MOST_IN_SHEET)
            .map(|(node, gpu)| {
                let name = gpu_name(node, gpu);
                let figures = format!(
                    "busy {}, idle {}",
                    known(gpu.utilization_mean, percent),
                    known(gpu.idle_ratio, percent)
                );
                let chart = self.chart(gpu, &name);
                (format!("GPU {name}"), figures, chart)
            })
            .collect();

        let run = &report.run;
        let title = format!("{} of job {}", self.metric.name(), run.job_id);
        sheet(&title, &rows, ticks)
    }

    /// A curve of a node; `None` if it was not measured. `most` is the value of the full height, if
    /// the job has a limit for it.
    pub fn of_node(
        &self,
        curve: &Curve,
        most: Option<f64>,
        shown: (f64, &'static str),
        label: &str,
    ) -> Option<String> {
        // A curve above the limit stays inside of the picture.
        let highest = curve.0.iter().copied().flatten().reduce(f64::max)?;
        let chart = Chart {
            values: &curve.0,
            most: most.unwrap_or(0.0).max(highest),
            time: self.time,
            marked: &[],
            label: label.to_owned(),
            shown,
        };
        Some(chart.inline())
    }
}

/// GPUs in a picture that stands alone.
const MOST_IN_SHEET: usize = 64;

/// Node and index of a GPU.
pub(super) fn gpu_name(node: &NodeReport, gpu: &GpuReport) -> String {
    let of_node = gpu.index.as_deref().or(gpu.uuid.as_deref());
    format!("{} GPU {}", node.node, of_node.unwrap_or("–"))
}

fn label(gpu: &GpuReport, name: &str) -> String {
    format!(
        "GPU {name}: busy {}, idle {} of the time",
        known(gpu.utilization_mean, percent),
        known(gpu.idle_ratio, percent)
    )
}

/// Waiting, run and the rest of the time limit as a line.
pub(super) fn life(report: &JobReport, now: UnixTime) -> Option<String> {
    let run = &report.run;
    let begin = run.submit;
    let start = run.start?;
    let end = run.end.unwrap_or(now);
    // A job may outlast its limit by a grace time, so the line ends with the later one.
    let last = run
        .timelimit
        .and_then(|limit| Some(start + i64::try_from(limit).ok()?))
        .unwrap_or(end)
        .max(end);
    let length = (last - begin).max(1) as f64;

    let place = |at: UnixTime| (at - begin) as f64 / length;
    let span = |from: UnixTime, to: UnixTime, class: &'static str, words: &str| Span {
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
    // Screen readers read the label, which has all figures.
    let label = spans
        .iter()
        .map(|span| span.title.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    Some(lanes(&[spans], 12, label).inline("life"))
}
