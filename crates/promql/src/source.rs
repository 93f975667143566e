//! The interface between PromQL and the store.

use crate::budget::Budget;
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;
use takt_model::Labels;
use takt_model::Matcher;
use takt_model::Timestamp;
use takt_model::native::NativeHistogram;

/// A supplier of samples: memory, files or down-sampled days.
pub trait Source: Sync {
    /// The series that fit all matchers, with their samples from `from` to `to`, both included. For a single evaluation of an
    /// instant selector ([`Selection::is_instant`]) the newest sample is enough.
    ///
    /// The order of the series is always the same, as sums of floats depend on it; each label set comes once. A source charges
    /// samples to the budget before it reads more ([`Budget::hold`]), so that it does not read far too much. After the deadline
    /// matchers accept nothing, and the caller discards the result.
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error>;
}

/// The samples that a query selects.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// Conditions. A selected series fits all of them.
    pub matchers: &'a [Matcher],
    /// First instant, included.
    pub from: Timestamp,
    /// Last instant, included.
    pub to: Timestamp,
    /// Milliseconds between two evaluations; 0 where there is only one.
    pub step_ms: i64,
    /// Width of the window, 0 for an instant selector. With `step_ms` and `function` a source may choose a resolution.
    pub range_ms: i64,
    /// Milliseconds before each evaluation in which the newest sample of an instant selector counts.
    pub lookback_ms: i64,
    /// The function of the window. For an instant selector `""`, or [`SAMPLE_TIME`] if the samples' own instants count.
    pub function: &'a str,
}

/// [`Selection::function`] of an instant selector whose samples' own instants are wanted, not only their values.
pub const SAMPLE_TIME: &str = "timestamp";

impl Selection<'_> {
    /// Whether only the value at `to` is wanted.
    pub fn is_instant(&self) -> bool {
        self.step_ms == 0 && self.range_ms == 0
    }
}

/// The store's own failure; the cause is kept for the log.
#[derive(Debug, thiserror::Error)]
#[error("cannot read samples")]
pub struct SourceError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Time of the sample.
    pub at: Timestamp,
    /// Any float, NaN included; staleness is not a value.
    pub value: f64,
}

/// A native histogram at an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramPoint {
    /// Time of the sample.
    pub at: Timestamp,
    /// The histogram.
    pub histogram: Arc<NativeHistogram>,
}

/// One series with its samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeriesData {
    /// Labels, `__name__` included.
    pub labels: Labels,
    /// Ascending, no instant twice.
    pub points: Vec<Point>,
    /// Ascending; no instant that `points` has. Usually none.
    pub histograms: Vec<HistogramPoint>,
    /// Instants at which the series ended for the time being, ascending. Usually none.
    pub stale: Vec<Timestamp>,
}

impl SeriesData {
    /// From samples in the order of time; `None` is a staleness marker.
    pub fn new(
        labels: Labels,
        samples: impl IntoIterator<Item = (Timestamp, Option<f64>)>,
    ) -> Self {
        let samples = samples.into_iter();
        // Nearly all samples are points; a list that doubles would take up to twice the memory.
        let mut points = Vec::with_capacity(samples.size_hint().0);
        let mut stale = Vec::new();
        for (at, value) in samples {
            match value {
                Some(value) => points.push(Point { at, value }),
                None => stale.push(at),
            }
        }
        Self {
            labels,
            points,
            histograms: Vec::new(),
            stale,
        }
    }
}

/// Series in memory, for tests and scripts.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    series: Vec<SeriesData>,
}

impl Memory {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds samples, in any order; a later one at the same instant wins. `None` is a staleness marker.
    pub fn add(
        &mut self,
        labels: Labels,
        samples: impl IntoIterator<Item = (Timestamp, Option<f64>)>,
    ) {
        let series = self.series_of(labels);
        let points = series
            .points
            .iter()
            .map(|point| (point.at, Some(point.value)));
        let stale = series.stale.iter().map(|at| (*at, None));
        let mut all: BTreeMap<Timestamp, Option<f64>> = points.chain(stale).collect();
        all.extend(samples);
        let added = SeriesData::new(Labels::new(), all);
        series.points = added.points;
        series.stale = added.stale;
    }

    /// Adds native histograms, in any order.
    pub fn add_histograms(
        &mut self,
        labels: Labels,
        samples: impl IntoIterator<Item = (Timestamp, NativeHistogram)>,
    ) {
        let all = &mut self.series_of(labels).histograms;
        all.extend(samples.into_iter().map(|(at, histogram)| HistogramPoint {
            at,
            histogram: Arc::new(histogram),
        }));
        all.sort_by_key(|point| point.at);
    }

    /// The series with these labels, a new one if there is none.
    fn series_of(&mut self, labels: Labels) -> &mut SeriesData {
        // In the order of labels, as results of tests are compared with a Prometheus'.
        let place = self
            .series
            .binary_search_by(|series| series.labels.cmp(&labels));
        let place = place.unwrap_or_else(|place| {
            let new = SeriesData {
                labels,
                ..SeriesData::default()
            };
            self.series.insert(place, new);
            place
        });
        &mut self.series[place]
    }

    /// Removes all series.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// All series.
    pub fn series(&self) -> &[SeriesData] {
        &self.series
    }
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error> {
        let wanted = |at: Timestamp| selection.from <= at && at <= selection.to;
        self.series
            .iter()
            .filter(|s| {
                selection
                    .matchers
                    .iter()
                    .all(|m| m.accepts_labels(&s.labels))
            })
            .map(|series| {
                let points: Vec<Point> = series
                    .points
                    .iter()
                    .filter(|p| wanted(p.at))
                    .copied()
                    .collect();
                let histograms: Vec<HistogramPoint> = series
                    .histograms
                    .iter()
                    .filter(|point| wanted(point.at))
                    .cloned()
                    .collect();
                budget.hold(points.len() + histograms.len())?;
                let stale = series
                    .stale
                    .iter()
                    .filter(|at| wanted(**at))
                    .copied()
                    .collect();
                Ok(SeriesData {
                    labels: series.labels.clone(),
                    points,
                    histograms,
                    stale,
                })
            })
            .collect()
    }
}
