//! The store as PromQL sees it.

use super::promql::{Budget, Error, Selection, SeriesData, Source, SourceError};
use crate::store::{self, Store, is_stale};
use takt_model::Timestamp;

impl Source for Store {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error> {
        budget.check()?;
        // Before anything is read: what is far too much shall not be read first.
        budget.series(self.count(selection.matchers))?;
        let (from, to) = (Timestamp(selection.from_ms), Timestamp(selection.to_ms));
        let found = self.range(selection.matchers, from, to).map_err(|error| SourceError(Box::new(error)))?;
        found.into_iter().map(|series| budget.check().map(|()| decoded(series))).collect()
    }
}

fn decoded(series: store::SeriesData) -> SeriesData {
    let value = |sample: store::Sample| (!is_stale(sample.value)).then_some(sample.value);
    SeriesData::new(series.labels, series.samples.into_iter().map(|sample| (sample.at.0, value(sample))))
}
