//! The store as a source of samples for PromQL.

use crate::{Reading, Store, is_stale, native, remote};
use hashbrown::HashMap;
use std::mem;
use std::time::Duration;
use takt_model::native::NATIVE_LABEL;
use takt_model::{Labels, MatchOp, Matcher, is_normal_spelling, normal_spelling};
use takt_promql::{Budget, Error, Selection, SeriesData, Source, SourceError};

impl Source for Store {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<SeriesData>, Error> {
        if let Some(engine) = self.remote() {
            return remote::select(engine, selection, budget);
        }
        let reading = Reading::of_function(selection.function);
        let found = self.read(selection, selection.matchers, reading, budget)?;
        let mut found = one_spelling(found.into_iter().map(decoded).collect());
        let names_parts = |one: &Matcher| one.name() == NATIVE_LABEL;
        if self.has_histograms() && !selection.matchers.iter().any(names_parts) {
            let mut matchers = selection.matchers.to_vec();
            matchers.extend(Matcher::new(NATIVE_LABEL, MatchOp::NotEqual, ""));
            let parts = self.read(selection, &matchers, Reading::Last, budget)?;
            native::add_histograms(&mut found, parts);
        }
        Ok(found)
    }
}

impl Store {
    fn read(
        &self,
        selection: &Selection<'_>,
        matchers: &[Matcher],
        reading: Reading,
        budget: &Budget,
    ) -> Result<Vec<crate::SeriesData>, Error> {
        budget.check()?;
        // Check the number of series before reading any samples.
        budget.hold_series(self.count(matchers))?;
        let Selection { from, to, .. } = *selection;
        let mut refusal = None;
        let mut meter = |samples| {
            refusal = budget.hold(samples).err();
            refusal.is_none()
        };

        let found = if selection.is_instant() {
            let lookback = (to - from).saturating_add(1);
            let lookback = Duration::from_millis(u64::try_from(lookback).unwrap_or(0));
            self.instant_metered(matchers, to, lookback, &mut meter)
        } else {
            self.range_metered(matchers, from, to, reading, &mut meter)
        };

        match (found, refusal) {
            (Err(_), Some(refusal)) => Err(refusal),
            (Err(error), None) => Err(SourceError(Box::new(error)).into()),
            (Ok(found), _) => Ok(found),
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
            .map(|sample| (sample.at, value(sample))),
    )
}

/// Joins series that continue each other under another spelling of `le` or `quantile`.
///
/// Earlier versions of Takt kept the target's spelling `1`, so a series ends at the update and
/// another one with `1.0` begins. Rates and quantiles see one series with the new spelling. Series
/// that overlap in time stay apart: they come from a target that uses both spellings.
fn one_spelling(mut found: Vec<SeriesData>) -> Vec<SeriesData> {
    let is_respelled = |series: &SeriesData| {
        float_label(&series.labels).is_some_and(|(_, value)| !is_normal_spelling(value))
    };

    if !found.iter().any(is_respelled) {
        return found;
    }

    let mut places: HashMap<Labels, Vec<usize>> = HashMap::new();
    for (place, series) in found.iter().enumerate() {
        if let Some(labels) = normal_labels(&series.labels) {
            places.entry(labels).or_default().push(place);
        }
    }

    let mut joined = vec![false; found.len()];
    for (labels, mut parts) in places {
        let first = |place: usize| found[place].points.first().map(|point| point.at);
        parts.retain(|&place| first(place).is_some());
        parts.sort_by_key(|&place| first(place));

        let ends_before = |pair: &[usize]| {
            let last = found[pair[0]].points.last().map(|point| point.at);
            last < first(pair[1])
        };
        if parts.len() < 2 || !parts.windows(2).all(ends_before) {
            continue;
        }

        let mut whole = SeriesData {
            labels,
            ..SeriesData::default()
        };
        for &place in &parts {
            let part = mem::take(&mut found[place]);
            // The end of the old spelling is not an end of the series.
            let begin = part.points.first().map(|point| point.at);
            whole.stale.retain(|&at| Some(at) < begin);
            whole.points.extend(part.points);
            whole.stale.extend(part.stale);
            joined[place] = true;
        }

        // The order of the answer is that of the oldest series.
        let place = parts.iter().copied().min().unwrap_or_default();
        found[place] = whole;
        joined[place] = false;
    }

    let mut joined = joined.into_iter();
    found.retain(|_| !joined.next().unwrap_or_default());
    found
}

/// The labels with their float label in its normal spelling; `None` without a float label.
fn normal_labels(labels: &Labels) -> Option<Labels> {
    let (name, value) = float_label(labels)?;
    let mut normal = labels.clone();
    normal.set(name, &normal_spelling(value)?);
    Some(normal)
}

fn float_label(labels: &Labels) -> Option<(&str, &str)> {
    ["le", "quantile"]
        .into_iter()
        .find_map(|name| Some((name, labels.get(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::Timestamp;

    fn series(bound: &str, samples: &[(i64, Option<f64>)]) -> SeriesData {
        let labels = [("__name__", "x_bucket"), ("le", bound)];
        let samples = samples.iter().map(|&(at, value)| (Timestamp(at), value));
        SeriesData::new(labels.into_iter().collect(), samples)
    }

    fn bounds(found: &[SeriesData]) -> Vec<&str> {
        found
            .iter()
            .filter_map(|one| one.labels.get("le"))
            .collect()
    }

    #[test]
    fn a_series_goes_on_under_its_new_spelling() {
        let old = series("1", &[(1, Some(1.0)), (2, Some(2.0)), (3, None)]);
        let infinite = series("+Inf", &[(1, Some(9.0)), (4, Some(10.0))]);
        let new = series("1.0", &[(3, Some(3.0)), (4, Some(4.0)), (5, None)]);
        let found = one_spelling(vec![old, infinite.clone(), new]);
        let whole = [1, 2, 3, 4].map(|at| (at, Some(at as f64)));
        let mut expected = series("1.0", &whole);
        expected.stale = vec![Timestamp(5)];
        assert_eq!(found, [expected, infinite]);
    }

    #[test]
    fn series_of_one_time_or_one_spelling_stay_as_they_are() {
        let both = [
            series("1", &[(1, Some(1.0)), (3, Some(2.0))]),
            series("1.0", &[(3, Some(1.0))]),
        ];
        assert_eq!(one_spelling(both.to_vec()), both);
        let old = [
            series("1", &[(1, Some(1.0))]),
            series("2", &[(1, Some(2.0))]),
            series("x", &[(1, Some(2.0))]),
        ];
        assert_eq!(bounds(&one_spelling(old.to_vec())), ["1", "2", "x"]);
    }
}
