//! The interface between PromQL and the store.

use crate::budget::Budget;
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;
use takt_model::Timestamp;
use takt_model::native::NativeHistogram;
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher};

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
    /// By the name of the metric; each list in the order of labels, as results of tests are compared with a Prometheus'.
    metrics: BTreeMap<String, Vec<SeriesData>>,
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
        for (at, value) in samples {
            series.set(at, value);
        }
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
        let metric = self.metrics.entry(labels.metric().to_owned()).or_default();
        let place = metric.binary_search_by(|series| series.labels.cmp(&labels));
        let place = place.unwrap_or_else(|place| {
            let new = SeriesData {
                labels,
                ..SeriesData::default()
            };
            metric.insert(place, new);
            place
        });
        &mut metric[place]
    }

    /// Removes all series.
    pub fn clear(&mut self) {
        self.metrics.clear();
    }

    /// The series that fit all matchers, in the order of labels.
    fn fitting(&self, matchers: &[Matcher]) -> Vec<&SeriesData> {
        let fits = |series: &&SeriesData| matchers.iter().all(|m| m.accepts_labels(&series.labels));
        let metric = matchers
            .iter()
            .find(|m| m.name() == METRIC_NAME && m.op() == MatchOp::Equal);

        // Nearly all selectors name a metric, and then only its series are walked.
        if let Some(metric) = metric {
            let series = self.metrics.get(metric.value()).into_iter().flatten();
            return series.filter(fits).collect();
        }
        let mut found: Vec<_> = self.metrics.values().flatten().filter(fits).collect();
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        found
    }
}

impl SeriesData {
    /// Sets the sample at an instant. Usually it is the newest one.
    fn set(&mut self, at: Timestamp, value: Option<f64>) {
        let place = place_of(&self.points, at, |point| point.at);
        let stale = place_of(&self.stale, at, |stale| *stale);

        // An instant has either a value or a marker, whichever came last.
        match (value, place, stale) {
            (Some(value), Ok(place), _) => self.points[place].value = value,
            (Some(value), Err(place), stale) => {
                self.points.insert(place, Point { at, value });
                if let Ok(stale) = stale {
                    self.stale.remove(stale);
                }
            }
            (None, place, Err(stale)) => {
                self.stale.insert(stale, at);
                if let Ok(place) = place {
                    self.points.remove(place);
                }
            }
            (None, _, Ok(_)) => {}
        }
    }
}

/// Where an instant is in a sorted list, or where it belongs.
fn place_of<T>(list: &[T], at: Timestamp, of: impl Fn(&T) -> Timestamp) -> Result<usize, usize> {
    match list.last() {
        // The newest sample is appended without a search.
        Some(last) if of(last) >= at => list.binary_search_by_key(&at, of),
        _ => Err(list.len()),
    }
}

/// The part of a sorted list within two instants, both included.
fn within<T>(list: &[T], from: Timestamp, to: Timestamp, of: impl Fn(&T) -> Timestamp) -> &[T] {
    let begin = list.partition_point(|one| of(one) < from);
    let end = list.partition_point(|one| of(one) <= to);
    // `from` may lie after `to`, at the ends of time.
    &list[begin..end.max(begin)]
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error> {
        let &Selection { from, to, .. } = selection;
        self.fitting(selection.matchers)
            .into_iter()
            .map(|series| {
                let points = within(&series.points, from, to, |point| point.at);
                let histograms = within(&series.histograms, from, to, |point| point.at);
                budget.hold(points.len() + histograms.len())?;
                Ok(SeriesData {
                    labels: series.labels.clone(),
                    points: points.to_vec(),
                    histograms: histograms.to_vec(),
                    stale: within(&series.stale, from, to, |at| *at).to_vec(),
                })
            })
            .collect()
    }
}
