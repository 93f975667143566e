//! Turns data points into series.

use super::messages::{
    AnyValue, ExponentialBuckets, ExponentialPoint, ExportRequest, HistogramPoint, KeyValue,
    Metric, NumberPoint, ResourceMetrics, SummaryPoint, Temporality,
};
use super::names::{Kind, label_name, metric_name};
use crate::memory::{MemoryDenied, MemoryGrant};
use crate::native::known_schema;
use crate::pushed::{Part, PushedHistogram, PushedSample, PushedSeries};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use takt_model::native::{HistogramError, NativeHistogram, SCHEMA_MAX};
use takt_model::{METRIC_NAME, Timestamp};

/// Marks a data point without a recorded value.
const NO_VALUE: u32 = 1;

/// Width of the zero bucket of exponential histograms that do not give one, as in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;

/// The end of a series.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Resource attributes that become the labels `job` and `instance`.
const IDENTIFYING: [&str; 3] = ["service.namespace", "service.name", "service.instance.id"];

/// Settings of the translation.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// Resource attributes that become labels of every series.
    pub promoted: BTreeSet<String>,
}

/// A translated request.
#[derive(Debug, Default)]
pub struct Translated {
    /// The series.
    pub series: PushedSeries,
    /// Number of data points, rejected ones included.
    pub points: usize,
    /// Data points that cannot be stored, by reason.
    pub rejected: BTreeMap<PointError, usize>,
}

/// Why a data point cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum PointError {
    /// The exponential histogram breaks a rule.
    #[error("invalid exponential histogram: {0}")]
    ExponentialHistogram(HistogramError),
    /// The exponential histogram has increases only.
    #[error(
        "exponential histograms with delta temporality are not stored; use cumulative temporality"
    )]
    ExponentialDelta,
    /// A histogram needs one bucket more than bounds.
    #[error("a histogram has a wrong number of buckets, or bounds that do not grow")]
    Buckets,
    /// The point has no number.
    #[error("a data point has no value")]
    NoValue,
    /// The metric has no name.
    #[error("a metric has no name")]
    NoName,
    /// Neither delta nor cumulative.
    #[error("the aggregation temporality is not set")]
    Temporality,
}

type LabelMap = BTreeMap<String, String>;

/// One data point on its way into series.
struct Point<'a, 'm> {
    series: &'a mut PushedSeries,
    memory: &'a mut MemoryGrant<'m>,
    /// Number of the point in the request.
    number: usize,
    at: Timestamp,
    is_delta: bool,
    is_stale: bool,
    labels: LabelMap,
}

impl Point<'_, '_> {
    /// Adds a sample of a series. `extra` is a label of this series only.
    fn add(
        &mut self,
        metric: &str,
        extra: Option<(&str, &str)>,
        value: f64,
    ) -> Result<(), MemoryDenied> {
        self.add_labels(metric, extra)?;
        let value = if self.is_stale { STALE } else { value };
        let sample = PushedSample { at: self.at, value };
        self.memory.push(&mut self.series.samples, sample)?;
        self.end_series()
    }

    /// Adds a native histogram.
    fn add_histogram(
        &mut self,
        metric: &str,
        histogram: NativeHistogram,
    ) -> Result<(), MemoryDenied> {
        self.add_labels(metric, None)?;
        let value = Ok((!self.is_stale).then_some(histogram));
        let histogram = PushedHistogram { at: self.at, value };
        self.memory.push(&mut self.series.histograms, histogram)?;
        self.end_series()
    }

    fn add_labels(
        &mut self,
        metric: &str,
        extra: Option<(&str, &str)>,
    ) -> Result<(), MemoryDenied> {
        let series = &mut *self.series;
        let memory = &mut *self.memory;

        let mut push =
            |name: &str, value: &str| series.push_label(name.as_bytes(), value.as_bytes(), memory);
        // Labels are written in the order of their names, so the two that the map lacks are merged
        // in.
        let mut added = extra;
        let mut name = Some(metric);

        for (label, text) in &self.labels {
            if let Some(metric) = name.take_if(|_| label.as_str() > METRIC_NAME) {
                push(METRIC_NAME, metric)?;
            }
            if let Some((key, value)) = added.take_if(|(key, _)| label.as_str() >= *key) {
                push(key, value)?;
                // The label of the series replaces an attribute of the same name, such as `le`.
                if label == key {
                    continue;
                }
            }
            push(label, text)?;
        }

        if let Some(metric) = name {
            push(METRIC_NAME, metric)?;
        }
        if let Some((key, value)) = added {
            push(key, value)?;
        }
        Ok(())
    }

    fn end_series(&mut self) -> Result<(), MemoryDenied> {
        let part = Part {
            // A staleness marker is no increase that could be added.
            is_delta: self.is_delta && !self.is_stale,
            point: self.number,
            ..Part::default()
        };
        self.series.end_series(part, self.memory)
    }
}

impl Translation {
    /// The labels of a series are written for each of its samples, and those of a histogram for each
    /// of its buckets: this is how a small request can become large.
    pub(super) fn translate(
        &self,
        request: &ExportRequest,
        memory: &mut MemoryGrant<'_>,
    ) -> Result<Translated, MemoryDenied> {
        let mut found = Translated::default();
        for resource in &request.resource_metrics {
            self.resource(resource, &mut found, memory)?;
        }
        Ok(found)
    }

    fn resource(
        &self,
        given: &ResourceMetrics,
        found: &mut Translated,
        memory: &mut MemoryGrant<'_>,
    ) -> Result<(), MemoryDenied> {
        let attributes: Vec<&KeyValue> = given
            .resource
            .iter()
            .flat_map(|one| &one.attributes)
            .collect();

        // Once for all points of the resource.
        let common = self.common_labels(&attributes);
        let mut newest = None;
        for metric in given.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            newest = newest.max(add_metric(metric, &common, found, memory)?);
        }

        // Without points, a resource has nothing that its `target_info` could be joined with.
        if let Some(at) = newest {
            add_target_info(&attributes, at, found, memory)?;
        }
        Ok(())
    }

    /// Labels of every series of a resource: `job`, `instance` and the promoted attributes.
    fn common_labels(&self, attributes: &[&KeyValue]) -> LabelMap {
        let promoted = attributes
            .iter()
            .filter(|one| self.promoted.contains(&one.key))
            .copied();
        let mut labels = label_map(promoted);
        labels.extend(identity(attributes));
        labels
    }
}

/// The labels `job` and `instance`, where the resource has their attributes.
fn identity(attributes: &[&KeyValue]) -> impl Iterator<Item = (String, String)> {
    let [namespace, name, instance] = IDENTIFYING.map(|key| {
        let found = attributes.iter().find(|one| one.key == key)?;
        Some(text_of(found.value.as_ref()?).into_owned()).filter(|text| !text.is_empty())
    });
    let job = name.map(|name| match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    });
    let job = job.map(|job| ("job".to_owned(), job));
    let instance = instance.map(|instance| ("instance".to_owned(), instance));
    job.into_iter().chain(instance)
}

/// Adds the series `target_info` with the other attributes of a resource.
fn add_target_info(
    attributes: &[&KeyValue],
    at: Timestamp,
    found: &mut Translated,
    memory: &mut MemoryGrant<'_>,
) -> Result<(), MemoryDenied> {
    let others = attributes
        .iter()
        .filter(|one| !IDENTIFYING.contains(&one.key.as_str()))
        .copied();

    let mut labels = label_map(others);
    let identity: LabelMap = identity(attributes).collect();
    // As in Prometheus: without `job` and `instance` it could be joined with nothing.
    if labels.is_empty() || identity.is_empty() {
        return Ok(());
    }

    labels.extend(identity);
    let mut point = Point {
        series: &mut found.series,
        memory,
        // The number of no data point.
        number: usize::MAX,
        at,
        is_delta: false,
        is_stale: false,
        labels,
    };

    point.add("target_info", None, 1.0)
}

/// Adds the points of a metric. Returns the time of the newest one.
fn add_metric(
    metric: &Metric,
    common: &LabelMap,
    found: &mut Translated,
    memory: &mut MemoryGrant<'_>,
) -> Result<Option<Timestamp>, MemoryDenied> {
    let mut adder = PointAdder {
        common,
        found,
        memory,
        newest: None,
        temporality: Temporality::Cumulative,
    };

    let name = |kind| metric_name(&metric.name, &metric.unit, kind);

    if let Some(gauge) = &metric.gauge {
        adder.numbers(&name(Kind::Gauge), &gauge.data_points)?;
    }
    if let Some(sum) = &metric.sum {
        adder.temporality = sum.aggregation_temporality();
        let kind = if sum.is_monotonic {
            Kind::Counter
        } else {
            Kind::Other
        };
        adder.numbers(&name(kind), &sum.data_points)?;
    }
    if let Some(histogram) = &metric.histogram {
        adder.temporality = histogram.aggregation_temporality();
        adder.histograms(&name(Kind::Other), &histogram.data_points)?;
    }
    if let Some(summary) = &metric.summary {
        // Summaries have no temporality: their counts are totals.
        adder.temporality = Temporality::Cumulative;
        adder.summaries(&name(Kind::Other), &summary.data_points)?;
    }
    if let Some(histogram) = &metric.exponential_histogram {
        adder.temporality = histogram.aggregation_temporality();
        adder.exponential_histograms(&name(Kind::Other), &histogram.data_points)?;
    }

    Ok(adder.newest)
}

struct PointAdder<'a, 'm> {
    common: &'a LabelMap,
    found: &'a mut Translated,
    memory: &'a mut MemoryGrant<'m>,
    newest: Option<Timestamp>,
    temporality: Temporality,
}

impl<'m> PointAdder<'_, 'm> {
    /// Counts a point, and the reason why it cannot be stored.
    fn next<T>(&mut self, checked: Result<T, PointError>) -> Option<T> {
        self.found.points += 1;
        checked
            .inspect_err(|error| *self.found.rejected.entry(*error).or_default() += 1)
            .ok()
    }

    fn check(&self, name: &str) -> Result<(), PointError> {
        if name.is_empty() {
            Err(PointError::NoName)
        } else if self.temporality == Temporality::Unspecified {
            Err(PointError::Temporality)
        } else {
            Ok(())
        }
    }

    fn point(&mut self, nanoseconds: u64, attributes: &[KeyValue], flags: u32) -> Point<'_, 'm> {
        let at = Timestamp((nanoseconds / 1_000_000).cast_signed());
        self.newest = self.newest.max(Some(at));

        let mut labels = label_map(attributes);
        let common = self
            .common
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        // Labels of the resource replace attributes of the point, which could pretend to be another
        // job.
        labels.extend(common);

        Point {
            number: self.found.points - 1,
            series: &mut self.found.series,
            memory: self.memory,
            at,
            is_delta: self.temporality == Temporality::Delta,
            is_stale: flags & NO_VALUE != 0,
            labels,
        }
    }

    fn numbers(&mut self, name: &str, points: &[NumberPoint]) -> Result<(), MemoryDenied> {
        for given in points {
            let value = given
                .as_double
                .or(given.as_int.map(|number| number as f64))
                // A point without a recorded value needs no number: a staleness marker takes its
                // place.
                .or((given.flags & NO_VALUE != 0).then_some(0.0));

            let checked = self
                .check(name)
                .and_then(|()| value.ok_or(PointError::NoValue));
            let Some(value) = self.next(checked) else {
                continue;
            };

            self.point(given.time_unix_nano, &given.attributes, given.flags)
                .add(name, None, value)?;
        }
        Ok(())
    }

    fn histograms(&mut self, name: &str, points: &[HistogramPoint]) -> Result<(), MemoryDenied> {
        for given in points {
            let checked = self.check(name).and_then(|()| check_buckets(given));
            if self.next(checked).is_none() {
                continue;
            }

            let mut point = self.point(given.time_unix_nano, &given.attributes, given.flags);
            let bucket = format!("{name}_bucket");
            let mut count = 0_u64;
            for (bound, in_bucket) in given.explicit_bounds.iter().zip(&given.bucket_counts) {
                // OTLP counts each bucket by itself, Prometheus all below the bound.
                count = count.saturating_add(*in_bucket);
                let bound = plain(*bound);
                point.add(&bucket, Some(("le", &bound)), count as f64)?;
            }

            point.add(&bucket, Some(("le", "+Inf")), given.count as f64)?;
            point.add(&format!("{name}_count"), None, given.count as f64)?;
            // Histograms with negative observations have no sum.
            if let Some(sum) = given.sum {
                point.add(&format!("{name}_sum"), None, sum)?;
            }
        }
        Ok(())
    }

    fn exponential_histograms(
        &mut self,
        name: &str,
        points: &[ExponentialPoint],
    ) -> Result<(), MemoryDenied> {
        let is_delta = self.temporality == Temporality::Delta;
        for given in points {
            let temporality = if is_delta {
                Err(PointError::ExponentialDelta)
            } else {
                Ok(())
            };

            let histogram = native_histogram(given).map_err(PointError::ExponentialHistogram);
            let checked = self.check(name).and(temporality).and(histogram);
            let Some(histogram) = self.next(checked) else {
                continue;
            };

            self.point(given.time_unix_nano, &given.attributes, given.flags)
                .add_histogram(name, histogram)?;
        }
        Ok(())
    }

    fn summaries(&mut self, name: &str, points: &[SummaryPoint]) -> Result<(), MemoryDenied> {
        for given in points {
            let checked = self.check(name);
            if self.next(checked).is_none() {
                continue;
            }

            let mut point = self.point(given.time_unix_nano, &given.attributes, given.flags);
            for one in &given.quantile_values {
                let quantile = plain(one.quantile);
                point.add(name, Some(("quantile", &quantile)), one.value)?;
            }

            point.add(&format!("{name}_count"), None, given.count as f64)?;
            point.add(&format!("{name}_sum"), None, given.sum)?;
        }
        Ok(())
    }
}

/// The native histogram of a point. The upper bound of OTLP's bucket 0 is that of bucket 1 here.
fn native_histogram(point: &ExponentialPoint) -> Result<NativeHistogram, HistogramError> {
    let buckets = |given: &Option<ExponentialBuckets>| {
        let Some(given) = given else {
            return Ok(Vec::new());
        };

        // In 64 bits: the offset may be the largest of 32.
        let buckets = (i64::from(given.offset) + 1..).zip(&given.bucket_counts);
        buckets
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| {
                let index = i32::try_from(index).map_err(|_| HistogramError::Spans)?;
                Ok((index, *count as f64))
            })
            .collect::<Result<Vec<_>, _>>()
    };

    let zero_threshold = if point.zero_threshold == 0.0 {
        ZERO_THRESHOLD
    } else {
        point.zero_threshold
    };

    let mut histogram = NativeHistogram {
        schema: known_schema(i64::from(point.scale))?,
        count: point.count as f64,
        sum: point.sum.unwrap_or(0.0),
        zero_threshold,
        zero_count: point.zero_count as f64,
        positive: buckets(&point.positive)?,
        negative: buckets(&point.negative)?,
        ..NativeHistogram::default()
    };

    // The scale -53 would be taken for the number of custom buckets.
    if histogram.is_custom() {
        return Err(HistogramError::Schema(histogram.schema));
    }
    histogram.reduce_to(SCHEMA_MAX);
    if histogram.sum.is_nan() {
        histogram.sum = f64::NAN;
    }
    histogram.validate(true)?;

    Ok(histogram)
}

/// Checks that the buckets are whole. A histogram without buckets has a count and a sum only.
fn check_buckets(point: &HistogramPoint) -> Result<(), PointError> {
    let counts = &point.bucket_counts;
    let bounds = &point.explicit_bounds;
    // Checked, because a sum that wraps could equal the count.
    let total = counts
        .iter()
        .try_fold(0_u64, |sum, &one| sum.checked_add(one));
    let is_whole = counts.is_empty() && bounds.is_empty()
        || counts.len() == bounds.len() + 1 && total == Some(point.count);
    if is_whole && bounds.is_sorted_by(|one, next| one < next) {
        Ok(())
    } else {
        Err(PointError::Buckets)
    }
}

/// Labels of attributes. The values of attributes that become the same label are joined with `;`
/// in the order of their keys.
fn label_map<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> LabelMap {
    let mut attributes: Vec<&KeyValue> = attributes.into_iter().collect();
    attributes.sort_by_key(|one| &one.key);

    let mut labels = LabelMap::new();
    for one in attributes {
        let value = one.value.as_ref().map(text_of).unwrap_or_default();
        let name = label_name(&one.key);
        // An attribute must not rename the metric.
        if name.is_empty() || name == METRIC_NAME || value.is_empty() {
            continue;
        }

        let text = labels.entry(name).or_default();
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(&value);
    }

    labels
}

/// The text of an attribute's value. Lists and maps are JSON.
fn text_of(value: &AnyValue) -> Cow<'_, str> {
    if let Some(text) = &value.string_value {
        return text.into();
    }
    if let Some(value) = value.bool_value {
        return value.to_string().into();
    }
    if let Some(number) = value.int_value {
        return number.to_string().into();
    }
    if let Some(number) = value.double_value {
        return plain(number).into();
    }
    if let Some(bytes) = &value.bytes_value {
        return BASE64_STANDARD.encode(bytes).into();
    }
    if value.array_value.is_some() || value.kvlist_value.is_some() {
        return json_of(value).to_string().into();
    }
    "".into()
}

fn json_of(value: &AnyValue) -> serde_json::Value {
    use serde_json::Value;
    if let Some(list) = &value.array_value {
        return list.values.iter().map(json_of).collect();
    }
    if let Some(list) = &value.kvlist_value {
        return list
            .values
            .iter()
            .map(|one| {
                let value = one.value.as_ref().map_or(Value::Null, json_of);
                (one.key.clone(), value)
            })
            .collect();
    }
    if let Some(value) = value.bool_value {
        value.into()
    } else if let Some(number) = value.int_value {
        number.into()
    } else if let Some(number) = value.double_value {
        number.into()
    } else {
        text_of(value).into()
    }
}

/// A number without an exponent, as Prometheus writes it in labels.
fn plain(number: f64) -> String {
    let mut text = String::new();
    if number.is_infinite() {
        text.push_str(if number > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a text cannot fail.
        let _ = write!(text, "{number}");
    }
    text
}
