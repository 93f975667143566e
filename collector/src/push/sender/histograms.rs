//! Native histograms: from a pushed histogram to the samples of its parts.

use super::{Checked, RejectReason, SPELLINGS, Sender, SenderState};
use hashbrown::HashMap;
use std::sync::Arc;
use takt_model::native::{NATIVE_LABEL, NativePart};
use takt_model::{Labels, Timestamp};
use takt_push::{OneSeries, PushedHistogram};
use takt_store::{Column, STALE, Sample};

/// Where the parts of a series of native histograms go.
#[derive(Debug)]
pub(super) struct HistogramPlace {
    labels: Labels,
    replica: Option<Arc<str>>,
    pub columns: HashMap<NativePart, Column>,
}

impl Sender {
    /// Checks a native histogram and adds its parts. Returns `false` if another replica is elected.
    pub(super) fn check_histogram(
        &self,
        state: &mut SenderState,
        series: &OneSeries<'_>,
        given: &PushedHistogram,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<bool, (RejectReason, String)> {
        let refused = |reason: RejectReason| (reason, self.describe(series, reason, given.at));

        let value = given.value.as_ref().map_err(|error| {
            let (reason, text) = refused(RejectReason::NativeHistogram);
            (reason, format!("{text}: {error}"))
        })?;

        self.check_time(given.at, now).map_err(refused)?;

        if !state.histograms.contains_key(&series.key) {
            // As for plain samples, `max_series` does not bound the number of keys.
            if state.histograms.len() > SPELLINGS * self.max_series {
                state.histograms.clear();
            }

            let (labels, replica) = self.labels_of(series)?;
            let place = HistogramPlace {
                labels,
                replica,
                columns: HashMap::new(),
            };
            state.histograms.insert(series.key, place);
        }

        let SenderState {
            histograms,
            election,
            ..
        } = state;
        let Some(place) = histograms.get_mut(&series.key) else {
            return Ok(false);
        };

        let replica = place.replica.as_ref();
        if !replica.is_none_or(|replica| election.accepts(replica, now)) {
            return Ok(false);
        }

        // A staleness marker has no buckets. The count carries it for the whole histogram.
        let parts: Vec<(NativePart, f64)> = match value {
            Some(histogram) => histogram.parts().collect(),
            None => vec![(NativePart::Count, STALE)],
        };

        // Columns are found before the samples are added: a part that is refused must leave no half of a histogram.
        let mut columns = Vec::with_capacity(parts.len());
        for (part, value) in parts {
            let column = match place.columns.get(&part) {
                Some(column) => *column,
                None => {
                    let mut labels = place.labels.clone();
                    labels.set(NATIVE_LABEL, &part.to_string());
                    let column = self.new_column(labels)?;
                    place.columns.insert(part, column);
                    column
                }
            };

            columns.push((
                column,
                Sample {
                    at: given.at,
                    value,
                },
            ));
        }

        let first = checked.samples.len();
        checked.samples.extend(columns);
        checked.sets.push(first..checked.samples.len());
        Ok(true)
    }
}
