//! The store as a source of samples for PromQL.

use crate::{Reading, Store, is_stale};
use std::time::Duration;
use takt_model::Timestamp;
use takt_promql::{Budget, Error, Selection, SeriesData, Source, SourceError};

impl Source for Store {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error> {
        budget.check()?;
        // Check the number of series before reading any samples.
        budget.series(self.count(selection.matchers))?;
        let from = Timestamp(selection.from_ms);
        let to = Timestamp(selection.to_ms);
        let mut refusal = None;
        let mut meter = |samples| {
            refusal = budget.hold(samples).err();
            refusal.is_none()
        };
        let found = if selection.is_instant() {
            let lookback = selection
                .to_ms
                .saturating_sub(selection.from_ms)
                .saturating_add(1);
            let lookback = Duration::from_millis(u64::try_from(lookback).unwrap_or(0));
            self.instant_metered(selection.matchers, to, lookback, &mut meter)
        } else {
            self.range_metered(
                selection.matchers,
                from,
                to,
                Reading::of_function(selection.function),
                &mut meter,
            )
        };
        match (found, refusal) {
            (Err(_), Some(refusal)) => Err(refusal),
            (Err(error), None) => Err(SourceError(Box::new(error)).into()),
            (Ok(found), _) => Ok(found.into_iter().map(decoded).collect()),
        }
    }
}

fn decoded(series: crate::SeriesData) -> SeriesData {
    let value = |sample: crate::Sample| (!is_stale(sample.value)).then_some(sample.value);
    SeriesData::new(
        series.labels,
        series
            .samples
            .into_iter()
            .map(|sample| (sample.at.0, value(sample))),
    )
}
