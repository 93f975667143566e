//! The samples of the last minutes, as the real PromQL reads them.

use crate::queries;
use std::collections::{BTreeMap, VecDeque};
use takt_alerts::ports::{Query, QueryError, Sample, SampleSink, StoreError};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::{Budget, Error, Selection, SeriesData, Source};

/// Samples of a series that are kept: more than the lookback of five minutes needs.
const SAMPLES_KEPT: usize = 32;

/// Samples by series, in the order of time; `None` ends the series for the time being.
#[derive(Debug, Default)]
pub struct Samples {
    series: BTreeMap<Labels, VecDeque<(Timestamp, Option<f64>)>>,
    /// Whether queries fail.
    pub is_broken: bool,
}

/// Labels of a series of a node.
pub fn of_node(metric: &str, node: &str) -> Labels {
    let pairs = [(METRIC_NAME, metric), ("instance", node), ("node", node)];
    pairs.into_iter().collect()
}

impl Samples {
    /// Adds a sample. As in the store, one that is not newer than the last is not stored.
    pub fn add(&mut self, labels: &Labels, at: Timestamp, value: Option<f64>) {
        let samples = self.series.entry(labels.clone()).or_default();
        // The store refuses it, so the simulation must, too.
        if samples.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }

        samples.push_back((at, value));
        if samples.len() > SAMPLES_KEPT {
            samples.pop_front();
        }
    }

    /// Drops what is later than a time: the clock was set back, and the store continues there.
    pub fn forget_after(&mut self, at: Timestamp) {
        for samples in self.series.values_mut() {
            samples.retain(|(when, _)| *when <= at);
        }
    }
}

impl Source for Samples {
    fn select(&self, selection: &Selection<'_>, _: &Budget) -> Result<Vec<SeriesData>, Error> {
        let wanted = |at: Timestamp| selection.from <= at && at <= selection.to;
        let found = self.series.iter().filter(|(labels, _)| {
            let mut matchers = selection.matchers.iter();
            matchers.all(|matcher| matcher.accepts_labels(labels))
        });
        let data = found.map(|(labels, samples)| {
            let inside = samples.iter().filter(|(at, _)| wanted(*at)).copied();
            SeriesData::new(labels.clone(), inside)
        });
        Ok(data.collect())
    }
}

impl Query for Samples {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        if self.is_broken {
            return Err(QueryError("the store does not answer".to_owned()));
        }
        queries::instant(self, expr, at)
    }

    fn check(&self, _: &str) -> Result<(), QueryError> {
        Ok(())
    }
}

impl SampleSink for Samples {
    /// No rule here reads what rules write.
    fn write(&self, _: &[Sample]) -> Result<(), StoreError> {
        Ok(())
    }
}
