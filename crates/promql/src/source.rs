//! The interface between PromQL and the store.

use crate::budget::Budget;
use crate::error::Error;
use takt_model::Labels;
use takt_model::Matcher;
use takt_model::Timestamp;

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
    /// The function of the window; `""` for an instant selector.
    pub function: &'a str,
}

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

/// One series with its samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeriesData {
    /// Labels, `__name__` included.
    pub labels: Labels,
    /// Ascending, no instant twice.
    pub points: Vec<Point>,
    /// Instants at which the series ended for the time being, ascending. Usually none.
    pub stale: Vec<Timestamp>,
}

impl SeriesData {
    /// From samples in the order of time; `None` is a staleness marker.
    pub fn new(
        labels: Labels,
        samples: impl IntoIterator<Item = (Timestamp, Option<f64>)>,
    ) -> Self {
        let (mut points, mut stale) = (Vec::new(), Vec::new());
        for (at, value) in samples {
            match value {
                Some(value) => points.push(Point { at, value }),
                None => stale.push(at),
            }
        }
        Self {
            labels,
            points,
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
        // In the order of labels, as results of tests are compared with a Prometheus'.
        let place = self
            .series
            .binary_search_by(|series| series.labels.cmp(&labels));
        let mut all: std::collections::BTreeMap<Timestamp, Option<f64>> = match place {
            Ok(at) => {
                let old = self.series.remove(at);
                let points = old.points.iter().map(|point| (point.at, Some(point.value)));
                points
                    .chain(old.stale.iter().map(|at| (*at, None)))
                    .collect()
            }
            Err(_) => Default::default(),
        };
        all.extend(samples);
        let (Ok(place) | Err(place)) = place;
        self.series.insert(place, SeriesData::new(labels, all));
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
        let fitting = self.series.iter().filter(|s| {
            selection
                .matchers
                .iter()
                .all(|m| m.accepts_labels(&s.labels))
        });
        fitting
            .map(|series| {
                let points: Vec<Point> = series
                    .points
                    .iter()
                    .filter(|p| wanted(p.at))
                    .copied()
                    .collect();
                budget.hold(points.len())?;
                let stale = series
                    .stale
                    .iter()
                    .filter(|at| wanted(**at))
                    .copied()
                    .collect();
                Ok(SeriesData {
                    labels: series.labels.clone(),
                    points,
                    stale,
                })
            })
            .collect()
    }
}
