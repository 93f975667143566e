//! Time series in memory, for tests of rules.

use super::{instant, instant_samples};
use std::cell::RefCell;
use takt_alerts::ports::{Query, QueryError, Sample, SampleSink, StoreError};
use takt_alerts::promtest::{Outcome, Storage};
use takt_model::native::NativeHistogram;
use takt_model::{Labels, Timestamp};
use takt_promql::Memory;

/// The time series of one test of rules.
#[derive(Default)]
pub struct InMemory(RefCell<Memory>);

impl Query for InMemory {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        instant(&*self.0.borrow(), expr, at)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        self.instant(expr, Timestamp(0)).map(drop)
    }
}

impl SampleSink for InMemory {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        let mut memory = self.0.borrow_mut();
        // Neighbours with the same labels are added at once; a later one extends the series.
        for series in samples.chunk_by(|a, b| a.labels == b.labels) {
            let values = series.iter().map(|sample| (sample.at, sample.value));
            memory.add(series[0].labels.clone(), values);
        }
        Ok(())
    }
}

impl Storage for InMemory {
    fn write_histograms(
        &self,
        labels: &Labels,
        samples: Vec<(Timestamp, NativeHistogram)>,
    ) -> Result<(), StoreError> {
        self.0.borrow_mut().add_histograms(labels.clone(), samples);
        Ok(())
    }

    fn result(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, Outcome)>, QueryError> {
        let samples = instant_samples(&*self.0.borrow(), expr, at)?.into_iter();
        Ok(samples
            .map(|sample| {
                let float = Outcome::Float(sample.point.value);
                (
                    sample.labels,
                    sample.histogram.map_or(float, Outcome::Histogram),
                )
            })
            .collect())
    }
}
