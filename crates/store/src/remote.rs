//! Samples of another engine: what `[query] remote` names.
//!
//! A store that [reads from](Store::read_from) an engine answers every question about samples from
//! there. It still writes its own samples, and [`Store::own_range`] reads them, so that remote write
//! can send them to the engine.

use crate::select::Meter;
use crate::{Listed, STALE, Sample, SeriesData, SeriesId, Store, StoreError, is_stale};
use hashbrown::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use takt_model::{Labels, Matcher, Timestamp};
use takt_promql::{Budget, Error, SAMPLE_TIME, Selection, SourceError};

/// An engine that has the samples: Prometheus, VictoriaMetrics, Mimir.
///
/// All methods block. Series come in the order of their labels, each label set once, samples in
/// the order of time.
pub trait RemoteEngine: fmt::Debug + Send + Sync {
    /// The samples in `[from, to]`. Engines do not return staleness markers.
    ///
    /// # Errors
    /// If the engine does not answer, refuses, or the meter stops the read.
    fn range(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError>;

    /// The value of each series at each step at which it has one, with the time of the step.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    fn steps(
        &self,
        matchers: &[Matcher],
        steps: Steps,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError>;

    /// The newest sample of each series that has not ended, with its own time, if it is in
    /// `(at - lookback, at]`.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    fn newest(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError>;

    /// Labels of the selected series.
    ///
    /// # Errors
    /// If the engine does not answer or refuses.
    fn series(&self, listed: Listed<'_>) -> Result<Vec<Labels>, RemoteError>;

    /// Label names of the selected series, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    fn label_names(&self, listed: Listed<'_>) -> Result<Vec<String>, RemoteError>;

    /// Values of a label of the selected series, in byte order.
    ///
    /// # Errors
    /// As [`series`](Self::series).
    fn label_values(&self, name: &str, listed: Listed<'_>) -> Result<Vec<String>, RemoteError>;

    /// Asks for nothing: whether the engine answers queries.
    ///
    /// # Errors
    /// If it does not.
    fn probe(&self) -> Result<(), RemoteError>;
}

/// A series of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// Samples in the order of time.
    pub samples: Vec<Sample>,
}

/// Instants of evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// First instant.
    pub first: Timestamp,
    /// Upper bound of the last instant, inclusive.
    pub last: Timestamp,
    /// Milliseconds between two instants; 0 if there is only one.
    pub step_ms: i64,
    /// Milliseconds before each instant in which a sample counts.
    pub lookback_ms: i64,
}

impl Steps {
    /// The instants, in the order of time.
    pub fn times(self) -> impl Iterator<Item = Timestamp> {
        let count = (self.last - self.first)
            .checked_div(self.step_ms)
            .unwrap_or(0)
            .max(0);
        (0..=count).map(move |number| self.first.plus_ms(number.saturating_mul(self.step_ms)))
    }
}

/// Why an engine gave no samples. Each names the engine's address, without password and token.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The caller stopped the read ([`Meter`]).
    #[error("the caller stopped reading samples")]
    GivenUp,
    /// No reply: no connection, a timeout, a broken connection.
    #[error("the engine at {url} (query.remote) does not answer: {error}")]
    Silent {
        /// Address of the engine.
        url: String,
        /// Cause.
        error: String,
    },
    /// The engine refused the query.
    #[error("the engine at {url} (query.remote) refuses: {error}")]
    Refused {
        /// Address of the engine.
        url: String,
        /// Status and the engine's words.
        error: String,
    },
    /// The answer would take too much memory, here or there.
    #[error(
        "the engine at {url} (query.remote) has too many samples for one answer ({error}): select \
         fewer series or a shorter time"
    )]
    TooMuch {
        /// Address of the engine.
        url: String,
        /// The limit that was met.
        error: String,
    },
    /// The answer is not what Prometheus' API documents.
    #[error(
        "the engine at {url} (query.remote) answers in an unknown form: {error}; expected \
         Prometheus' HTTP API below this address"
    )]
    Malformed {
        /// Address of the engine.
        url: String,
        /// The mistake.
        error: String,
    },
    /// A selected series has native histograms, whose buckets the API does not tell exactly.
    #[error(
        "native histograms of the engine at {url} (query.remote) are not supported: select other \
         series"
    )]
    Native {
        /// Address of the engine.
        url: String,
    },
}

impl Store {
    /// Reads samples from `engine` from now on, instead of from this store.
    pub fn read_from(&self, engine: Arc<dyn RemoteEngine>) {
        // A second engine is not used: a reload does not change `[query]`.
        let _ = self.remote.set(engine);
    }

    /// The engine that samples are read from; `None` if they are read from this store.
    pub fn remote(&self) -> Option<&dyn RemoteEngine> {
        self.remote.get().map(Arc::as_ref)
    }
}

/// Series of an engine as the store returns its own. Their numbers count them.
pub(super) fn numbered(found: Vec<RemoteSeries>) -> Vec<SeriesData> {
    let numbers = (0..).map(SeriesId);
    found
        .into_iter()
        .zip(numbers)
        .map(|(RemoteSeries { labels, samples }, id)| SeriesData {
            id,
            labels,
            samples,
        })
        .collect()
}

/// The selection of a query, from an engine.
pub(super) fn select(
    engine: &dyn RemoteEngine,
    selection: &Selection<'_>,
    budget: &Budget,
) -> Result<Vec<takt_promql::SeriesData>, Error> {
    let mut refusal = None;
    let mut meter = |samples| {
        // The meter can only stop the read. The reason is kept for the answer.
        refusal = budget.hold(samples).err();
        refusal.is_none()
    };
    match (read(engine, selection, &mut meter), refusal) {
        (Err(_), Some(refusal)) => Err(refusal),
        (Err(error), None) => Err(SourceError(Box::new(StoreError::from(error))).into()),
        (Ok(found), _) => Ok(found.into_iter().map(decoded).collect()),
    }
}

fn decoded(series: RemoteSeries) -> takt_promql::SeriesData {
    let value = |sample: Sample| (!is_stale(sample.value)).then_some(sample.value);
    let samples = series
        .samples
        .into_iter()
        .map(|sample| (sample.at, value(sample)));
    takt_promql::SeriesData::new(series.labels, samples)
}

/// Windows read the samples themselves. An instant selector asks for its value at each step: the
/// engine knows where a series ended, and sends one sample a step instead of all.
fn read(
    engine: &dyn RemoteEngine,
    selection: &Selection<'_>,
    meter: Meter<'_>,
) -> Result<Vec<RemoteSeries>, RemoteError> {
    let &Selection {
        matchers,
        from,
        to,
        step_ms,
        lookback_ms,
        ..
    } = selection;

    if selection.range_ms > 0 {
        // A window needs each sample in it.
        return engine.range(matchers, from, to, meter);
    }

    let steps = Steps {
        first: from.plus_ms(lookback_ms - 1),
        last: to,
        step_ms,
        lookback_ms,
    };
    let alive = engine.steps(matchers, steps, meter)?;

    // The values at the steps are enough, unless the time of the sample is asked for.
    if selection.function != SAMPLE_TIME {
        return Ok(alive
            .into_iter()
            .map(|series| {
                let present = series.samples.clone();
                with_ends(series, &present, steps)
            })
            .collect());
    }

    let mut alive: HashMap<Labels, Vec<Sample>> = alive
        .into_iter()
        .map(|series| (series.labels, series.samples))
        .collect();

    let found = engine.range(matchers, from, to, meter)?;
    Ok(found
        .into_iter()
        .filter_map(|series| {
            // A series that is alive at no step has no value to show.
            let present = alive.remove(&series.labels)?;
            Some(with_ends(series, &present, steps))
        })
        .collect())
}

/// The series with a staleness marker at each step that is not in `present` and that an older
/// sample would fill.
fn with_ends(series: RemoteSeries, present: &[Sample], steps: Steps) -> RemoteSeries {
    let mut present = present.iter().map(|sample| sample.at).peekable();
    let mut samples = Vec::with_capacity(series.samples.len());
    let mut rest = series.samples.into_iter().peekable();

    for at in steps.times() {
        while let Some(sample) = rest.next_if(|sample| sample.at <= at) {
            samples.push(sample);
        }
        while present.next_if(|&known| known < at).is_some() {}

        let is_present = present.peek() == Some(&at);
        let last = samples.last().filter(|last| !is_stale(last.value));
        if !is_present && last.is_some_and(|last| at - last.at < steps.lookback_ms) {
            // A sample at the very step has ended in the same millisecond; the marker replaces it.
            samples.pop_if(|last| last.at == at);
            samples.push(Sample { at, value: STALE });
        }
    }

    samples.extend(rest);
    RemoteSeries {
        labels: series.labels,
        samples,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(i64, f64)]) -> RemoteSeries {
        let samples = samples
            .iter()
            .map(|&(at, value)| Sample {
                at: Timestamp(at),
                value,
            })
            .collect();
        RemoteSeries {
            labels: Labels::new(),
            samples,
        }
    }

    fn steps(first: i64, last: i64, step_ms: i64) -> Steps {
        Steps {
            first: Timestamp(first),
            last: Timestamp(last),
            step_ms,
            lookback_ms: 300,
        }
    }

    fn texts(series: &RemoteSeries) -> Vec<String> {
        series
            .samples
            .iter()
            .map(|sample| match is_stale(sample.value) {
                true => format!("{} ends", sample.at.0),
                false => format!("{} {}", sample.at.0, sample.value),
            })
            .collect()
    }

    #[test]
    fn steps_include_the_last_one() {
        let times = |steps: Steps| steps.times().map(|at| at.0).collect::<Vec<_>>();
        assert_eq!(times(steps(100, 100, 0)), [100]);
        assert_eq!(times(steps(100, 300, 100)), [100, 200, 300]);
        assert_eq!(times(steps(100, 299, 100)), [100, 200]);
        assert_eq!(times(steps(100, 50, 100)), [100]);
    }

    #[test]
    fn a_series_ends_where_the_engine_has_no_value() {
        let values = series(&[(100, 1.0), (200, 2.0), (500, 5.0)]);
        let present = values.samples.clone();
        let found = with_ends(values, &present, steps(100, 600, 100));
        let expected = ["100 1", "200 2", "300 ends", "500 5", "600 ends"];
        assert_eq!(texts(&found), expected);
    }

    #[test]
    fn samples_keep_their_own_times() {
        let raw = series(&[(90, 1.0), (190, 2.0), (480, 5.0)]);
        let alive = series(&[(100, 1.0), (200, 2.0), (500, 5.0)]);
        let found = with_ends(raw, &alive.samples, steps(100, 500, 100));
        assert_eq!(texts(&found), ["90 1", "190 2", "300 ends", "480 5"]);
    }
}
