//! One sender: finds the columns of its series, checks its samples, and stores them.

mod histograms;

use self::histograms::HistogramPlace;
use super::config::{PushConfig, SenderConfig};
use super::delta::{AddedIncrease, RunningSums};
use super::metrics::{PushMetrics, RejectReason, SenderMetrics};
use super::places::{Place, Places};
use super::replica::Election;
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use takt_model::native::NATIVE_LABEL;
use takt_model::{Labels, Timestamp};
use takt_push::otlp::{PointError, Translated, Translation};
use takt_push::{LabelKey, OneSeries, PushedSample, PushedSeries};
use takt_store::{Column, Group, Placement, PushError, STALE, Sample, Store, is_stale};

/// How far a sample may be ahead of the server's clock, as in Prometheus.
const MAX_AHEAD: Duration = Duration::from_secs(600);

/// Milliseconds of a time in 1973. An earlier one is likely to be in another unit.
const LEAST_MS: u64 = 100_000_000_000;

/// Most labels of a series.
const MAX_LABELS: usize = 64;

/// Longest name of a label, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// Longest value of a label, in bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// Rejected series that a reply describes.
const MAX_EXAMPLES: usize = 3;

/// Longest description of a series in a reply, in characters.
const MAX_EXAMPLE_CHARS: usize = 300;

/// Spellings of one series' labels that are remembered, on average.
const SPELLINGS: usize = 4;

/// Result of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushReport {
    /// Samples that are stored now, native histograms among them.
    pub stored: usize,
    /// Samples that were stored already.
    pub repeated: usize,
    /// Samples of replicas that are not elected.
    pub replica: usize,
    /// How many of all these are native histograms.
    pub histograms: usize,
    /// Rejected samples.
    pub rejected: BTreeMap<RejectReason, usize>,
    /// Descriptions of the first rejected series.
    pub examples: Vec<String>,
    /// Rejected data points of OTLP.
    pub rejected_points: usize,
}

impl PushReport {
    /// Returns a sentence about what was rejected. `None` if nothing was.
    pub fn refusal(&self) -> Option<String> {
        if self.rejected.is_empty() {
            return None;
        }

        let all: usize = self.rejected.values().sum();
        let reasons: Vec<String> = self
            .rejected
            .iter()
            .map(|(reason, count)| format!("{count} {}", reason.name()))
            .collect();

        Some(format!(
            "rejected samples: {all} ({}). First: {}",
            reasons.join(", "),
            self.examples.join("; ")
        ))
    }

    fn reject(&mut self, reason: RejectReason, count: usize, example: impl FnOnce() -> String) {
        *self.rejected.entry(reason).or_default() += count;
        // A request may hold thousands of rejected samples; a few examples suffice to find the mistake.
        if self.examples.len() < MAX_EXAMPLES {
            let example = example().chars().take(MAX_EXAMPLE_CHARS).collect();
            self.examples.push(example);
        }
    }
}

/// A program that pushes samples.
#[derive(Debug)]
pub struct Sender {
    name: String,
    fixed: Labels,
    /// Fixed labels of other senders. A series that has all labels of one of them is theirs.
    foreign: Vec<Labels>,
    cluster: String,
    max_series: usize,
    max_age: Duration,
    replica_label: Option<String>,
    translation: Translation,
    store: Arc<Store>,
    group: Group,
    metrics: SenderMetrics,
    state: Mutex<SenderState>,
}

#[derive(Debug, Default)]
struct SenderState {
    places: Places,
    /// Places of native histograms, by the keys of their labels.
    histograms: HashMap<LabelKey, HistogramPlace>,
    election: Election,
    sums: RunningSums,
}

/// The labels with which a series is stored, and its replica.
type SeriesLabels = (Labels, Option<Arc<str>>);

/// Checked samples of a request.
#[derive(Default)]
struct Checked {
    samples: Vec<(Column, Sample)>,
    /// Number of each sample's series in the request.
    series: Vec<usize>,
    /// Samples that are the parts of one histogram each.
    sets: Vec<Range<usize>>,
    /// Increases that were added to running sums.
    increases: Vec<AddedIncrease>,
}

impl Sender {
    pub(super) fn new(
        config: &PushConfig,
        sender: &SenderConfig,
        cluster: &str,
        store: &Arc<Store>,
        metrics: &PushMetrics,
    ) -> Self {
        let promoted = sender.promote_resource_attributes.iter();
        let fixed = sender.fixed_labels();

        // Labels that this sender's own contain are not foreign: each of its series has them.
        let foreign = config
            .senders
            .iter()
            .map(SenderConfig::fixed_labels)
            .filter(|other| !other.is_empty() && !has_all(&fixed, other))
            .collect();

        let metrics = metrics.of(&sender.name);
        // Without a sample since the start, the sender has been silent since then.
        let start = now();
        metrics.newest.set(start.as_seconds());

        Self {
            name: sender.name.clone(),
            fixed,
            foreign,
            cluster: cluster.to_owned(),
            max_series: sender.max_series,
            max_age: config.max_age(),
            replica_label: sender.replica_label.clone(),
            translation: Translation {
                promoted: promoted.cloned().collect(),
            },
            store: Arc::clone(store),
            group: store.pushed_group(),
            metrics,
            state: Mutex::default(),
        }
    }

    /// Name in metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How OTLP of this sender is translated.
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Stores the series of a remote-write request. Returns when they are durable. Blocks.
    ///
    /// # Errors
    /// If samples cannot be written now. Nothing of the request is stored then.
    pub fn store(&self, request: &PushedSeries) -> Result<PushReport, PushError> {
        self.store_after(request, PushReport::default())
    }

    /// Stores the data points of an OTLP request. Returns when they are durable. Blocks.
    ///
    /// # Errors
    /// If samples cannot be written now. Nothing of the request is stored then.
    pub fn store_points(&self, request: &Translated) -> Result<PushReport, PushError> {
        let mut report = PushReport::default();
        for (error, count) in &request.rejected {
            let reason = match error {
                PointError::ExponentialHistogram(_) | PointError::ExponentialDelta => {
                    RejectReason::NativeHistogram
                }
                _ => RejectReason::DataPoint,
            };
            report.reject(reason, *count, || error.to_string());
            report.rejected_points += count;
        }

        // Only OTLP has series of increases.
        self.continue_sums(&request.series)?;
        self.store_after(&request.series, report)
    }

    /// Removes old samples and series from memory.
    pub fn age(&self) {
        let mut state = self.state();

        let dropped: HashSet<Column> = self.group.age(now()).into_iter().collect();
        if !dropped.is_empty() {
            state
                .places
                .retain(|place| place.column.is_none_or(|column| !dropped.contains(&column)));
            dropped.iter().for_each(|&column| state.sums.forget(column));
            state.histograms.retain(|_, place| {
                place.columns.retain(|_, column| !dropped.contains(column));
                !place.columns.is_empty()
            });
        }
        self.metrics.series.set(self.group.series_count() as i64);
    }

    fn store_after(
        &self,
        request: &PushedSeries,
        mut report: PushReport,
    ) -> Result<PushReport, PushError> {
        let mut points = BTreeSet::new();
        let mut state = self.state();

        // While the server's clock is wrong, true samples are neither too old nor too far ahead.
        let now = self.store.database().clock_state().alerting_time();
        let checked = self.check(&mut state, request, now, &mut report, &mut points);

        // The sender repeats a request that failed. Increases that stay in the sums would then count as repeated.
        let placed = self
            .store
            .place_sets(&self.group, &checked.samples, &checked.sets)
            .inspect_err(|_| take_back(&mut state, &checked))?;

        // The lock ends before the wait for the disk, so that other requests of the sender can be placed meanwhile.
        drop(state);
        self.store
            .confirm(&self.group, &placed)
            .inspect_err(|_| take_back(&mut self.state(), &checked))?;

        let mut newest = self.metrics.newest.get();
        let mut sets = checked.sets.iter().peekable();
        for (number, (placement, (series, (_, sample)))) in placed
            .placements
            .iter()
            .zip(checked.series.iter().zip(&checked.samples))
            .enumerate()
        {
            // The sender counts a histogram as one sample; here each of its parts is one.
            while sets.next_if(|set| set.end <= number).is_some() {}
            if let Some(set) = sets.peek().filter(|set| set.start <= number) {
                if set.start < number {
                    // The first part stands for the histogram.
                    continue;
                }
                report.histograms += usize::from(*placement != Placement::Conflicting);
            }

            // A sample ahead of the clock would otherwise hide that the sender falls silent.
            newest = newest.max(sample.at.min(now).as_seconds());

            match placement {
                Placement::New => report.stored += 1,
                Placement::Repeated => report.repeated += 1,
                Placement::Conflicting => {
                    if let Some(one) = request.iter().nth(*series) {
                        points.insert(one.point);
                        report.reject(RejectReason::Conflict, 1, || {
                            self.describe(&one, RejectReason::Conflict, sample.at)
                        });
                    }
                }
            }
        }

        // `target_info` belongs to no data point.
        points.remove(&usize::MAX);
        report.rejected_points += points.len();

        self.count(&report, newest);
        Ok(report)
    }

    fn count(&self, report: &PushReport, newest: f64) {
        let metrics = &self.metrics;
        metrics.samples.inc_by(report.stored as u64);
        metrics.repeated.inc_by(report.repeated as u64);
        metrics.replica.inc_by(report.replica as u64);

        for (reason, count) in &report.rejected {
            metrics.reject(*reason, *count);
        }

        metrics.newest.set(newest);
        metrics.series.set(self.group.series_count() as i64);

        if let Some(refusal) = report.refusal() {
            tracing::debug!(sender = self.name, refusal, "rejected pushed samples");
        }
    }

    /// Continues the stored sums of series that are pushed as increases, after a restart.
    fn continue_sums(&self, request: &PushedSeries) -> Result<(), PushError> {
        let now = now();
        let state = &mut *self.state();

        let mut unknown = Vec::new();
        // `check` reports the series that are refused here.
        for series in request.iter().filter(|series| series.is_delta) {
            if let Ok(Some(column)) = self.place_of(state, &series, now)
                && !state.sums.knows(column)
            {
                unknown.push(column);
            }
        }

        if unknown.is_empty() {
            return Ok(());
        }

        let since = now.minus(self.max_age);
        let stored = self.store.newest(&self.group, &unknown, since)?;

        for (column, sample) in stored {
            // A staleness marker is no sum that an increase can be added to.
            if sample.value.is_finite() {
                state.sums.resume(column, sample.at, sample.value);
            }
        }
        Ok(())
    }

    /// Checks the samples of a request, and finds their columns.
    fn check(
        &self,
        state: &mut SenderState,
        request: &PushedSeries,
        now: Timestamp,
        report: &mut PushReport,
        points: &mut BTreeSet<usize>,
    ) -> Checked {
        let mut checked = Checked::default();
        checked.samples.reserve(request.sample_count());
        checked.series.reserve(request.sample_count());
        for (number, series) in request.iter().enumerate() {
            for given in series.histograms {
                let error = match self.check_histogram(state, &series, given, now, &mut checked) {
                    Ok(true) => None,
                    Ok(false) => {
                        report.replica += 1;
                        report.histograms += 1;
                        None
                    }
                    Err(error) => Some(error),
                };
                // Each part of a histogram has a sample, and all of them belong to one series of the request.
                checked.series.resize(checked.samples.len(), number);
                if let Some((reason, example)) = error {
                    report.reject(reason, 1, || example);
                    points.insert(series.point);
                }
            }

            if series.samples.is_empty() {
                continue;
            }

            let column = match self.place_of(state, &series, now) {
                Ok(Some(column)) => column,
                Ok(None) => {
                    report.replica += series.samples.len();
                    continue;
                }
                Err((reason, example)) => {
                    report.reject(reason, series.samples.len(), || example);
                    points.insert(series.point);
                    continue;
                }
            };

            for given in series.samples {
                match self.check_time(given.at, now) {
                    Ok(()) => {}
                    Err(reason) => {
                        report.reject(reason, 1, || self.describe(&series, reason, given.at));
                        points.insert(series.point);
                        continue;
                    }
                }

                let mut sample = plain_sample(*given);
                if series.is_delta {
                    match state.sums.add(column, sample.at, sample.value) {
                        Some((sum, added)) => {
                            sample.value = sum;
                            checked.increases.push(added);
                        }
                        None => {
                            report.repeated += 1;
                            continue;
                        }
                    }
                }

                checked.samples.push((column, sample));
                checked.series.push(number);
            }
        }
        checked
    }

    /// Describes a rejected sample.
    fn describe(&self, series: &OneSeries<'_>, reason: RejectReason, at: Timestamp) -> String {
        let labels = match series.labels() {
            Ok(labels) => labels.to_string(),
            Err(error) => error.to_string(),
        };

        let limit = match reason {
            RejectReason::TooOld => format!(" ({} hours)", self.max_age.as_secs() / 3600),
            _ => String::new(),
        };

        let hint = if at.0.unsigned_abs() < LEAST_MS {
            "; times are in milliseconds (OTLP: nanoseconds), this one may be in another unit"
        } else {
            ""
        };

        let words = reason.words();
        format!("{labels} at {}: {words}{limit}{hint}", time_text(at))
    }

    fn check_time(&self, at: Timestamp, now: Timestamp) -> Result<(), RejectReason> {
        if at > now.plus(MAX_AHEAD) {
            Err(RejectReason::Future)
        } else if at < now.minus(self.max_age) {
            Err(RejectReason::TooOld)
        } else {
            Ok(())
        }
    }

    /// Returns the column of a series. `None` if another replica is elected.
    fn place_of(
        &self,
        state: &mut SenderState,
        given: &OneSeries<'_>,
        now: Timestamp,
    ) -> Result<Option<Column>, (RejectReason, String)> {
        if let Some(Place { column, replica }) = state.places.get(given.key) {
            let is_elected = replica
                .as_ref()
                .is_none_or(|replica| state.election.accepts(replica, now));
            if !is_elected {
                return Ok(None);
            }

            // The column is missing if another replica was elected when the series came first.
            if column.is_some() {
                return Ok(*column);
            }
        }

        let (labels, replica) = self.labels_of(given)?;
        let is_elected = replica
            .as_ref()
            .is_none_or(|replica| state.election.accepts(replica, now));

        let column = if is_elected {
            Some(self.new_column(labels)?)
        } else {
            None
        };

        // A key depends on the order of the labels, so `max_series` does not bound the number of keys.
        if state.places.len() > SPELLINGS * self.max_series {
            state.places.clear();
        }

        state.places.insert(given.key, Place { column, replica });
        Ok(column)
    }

    /// Labels with which a series is stored, and its replica.
    fn labels_of(&self, given: &OneSeries<'_>) -> Result<SeriesLabels, (RejectReason, String)> {
        let mut labels = given
            .labels()
            .map_err(|error| (RejectReason::Labels, error.to_string()))?;

        check_limits(&labels)?;

        let replica = self
            .replica_label
            .as_ref()
            .and_then(|name| labels.remove(name));

        // The fixed labels replace those of the request, so that no sender can pose as another.
        for (name, value) in self.fixed.iter() {
            labels.set(name, value);
        }

        if labels.get("cluster").is_none() {
            labels.set("cluster", &self.cluster);
        }

        // The labels of another sender identify its series, as long as only that sender can write them.
        if self.foreign.iter().any(|other| has_all(&labels, other)) {
            let reason = RejectReason::OtherWriter;
            return Err((reason, format!("{labels}: {}", reason.words())));
        }

        Ok((labels, replica))
    }

    fn new_column(&self, labels: Labels) -> Result<Column, (RejectReason, String)> {
        // A known series adds none: its labels may come in another order, or their place was forgotten.
        if self.group.series_count() >= self.max_series && !self.group.has_series(&labels) {
            let reason = RejectReason::SeriesLimit;
            return Err((reason, format!("{labels}: {}", reason.words())));
        }

        self.group.column(&labels).ok_or_else(|| {
            let reason = RejectReason::OtherWriter;
            (reason, format!("{labels}: {}", reason.words()))
        })
    }

    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes back the increases of samples that could not be stored.
fn take_back(state: &mut SenderState, checked: &Checked) {
    for &added in checked.increases.iter().rev() {
        state.sums.take_back(added);
    }
}

/// Whether `labels` has all of `others`.
fn has_all(labels: &Labels, others: &Labels) -> bool {
    others
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

fn check_limits(labels: &Labels) -> Result<(), (RejectReason, String)> {
    let refused = |text| Err((RejectReason::Labels, text));

    if labels.len() > MAX_LABELS {
        let found = labels.len();
        let metric = labels.metric();
        return refused(format!(
            "{metric} has {found} labels; the limit is {MAX_LABELS}"
        ));
    }

    // Such a series would be read as a part of a native histogram.
    if labels.get(NATIVE_LABEL).is_some() {
        return refused(format!("the label {NATIVE_LABEL} is reserved"));
    }

    for (name, value) in labels.iter() {
        for (what, text, limit) in [
            ("name", name, MAX_NAME_BYTES),
            ("value", value, MAX_VALUE_BYTES),
        ] {
            if text.len() > limit {
                let found = text.len();
                return refused(format!(
                    "a label's {what} has {found} bytes; the limit is {limit}"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the sample with the store's NaN: other payloads than the staleness marker's mean
/// nothing.
fn plain_sample(given: PushedSample) -> Sample {
    let value = if is_stale(given.value) {
        STALE
    } else if given.value.is_nan() {
        f64::NAN
    } else {
        given.value
    };

    Sample {
        at: given.at,
        value,
    }
}

/// Writes the time of a sample as RFC 3339. The number as it came, if it is none of the calendar.
fn time_text(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests;
