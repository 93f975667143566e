//! Functions of windows that hold native histograms (`histogramRate`, `instantValue` and so on in `promql/functions.go`).

use super::native_extended;
use super::over_time::{Slice, is_change};
use crate::annotations::{HistogramOperation, NativeRemark};
use crate::column::Element;
use crate::source::HistogramPoint;
use crate::syntax::tree::Extension;
use std::iter;
use std::sync::Arc;
use takt_model::Timestamp;
use takt_model::native::{NativeHistogram, ResetHint};

/// A function of a window with histograms, or the reason why there is no result.
pub(crate) fn of_window(
    function: &str,
    slice: &Slice<'_>,
    histograms: &[HistogramPoint],
    floats: fn(&Slice<'_>) -> Option<f64>,
    remarks: &mut Vec<NativeRemark>,
) -> Option<Element> {
    let is_mixed = !slice.points.is_empty();
    let float = |value| Some(Element::Float(value));
    let histogram = |found: NativeHistogram| Some(Element::Histogram(Arc::new(found)));
    match function {
        // Floats and histograms have no common sum, so a target that changes over has no result for
        // one window.
        "rate" | "increase" | "delta" | "avg_over_time" | "sum_over_time" if is_mixed => {
            remarks.push(NativeRemark::Mixed);
            None
        }
        "rate" => histogram(extrapolated(slice, histograms, Slope::RATE, remarks)?),
        "increase" => histogram(extrapolated(slice, histograms, Slope::INCREASE, remarks)?),
        "delta" => histogram(extrapolated(slice, histograms, Slope::DELTA, remarks)?),
        "irate" | "idelta" => between_last_two(slice, histograms, function == "irate", remarks),
        "sum_over_time" => histogram(sum(histograms, remarks)?),
        "avg_over_time" => {
            let mut mean = sum(histograms, remarks)?;
            mean.divide(histograms.len() as f64);
            histogram(mean)
        }
        "count_over_time" => float((slice.points.len() + histograms.len()) as f64),
        "present_over_time" => float(1.0),
        "first_over_time" => Some(element(samples(slice, histograms).next()?)),
        "last_over_time" => Some(element(samples(slice, histograms).last()?)),
        "ts_of_first_over_time" => float(samples(slice, histograms).next()?.0.as_seconds()),
        "ts_of_last_over_time" => float(samples(slice, histograms).last()?.0.as_seconds()),
        "resets" => float(resets(&all(slice, histograms))),
        "changes" => float(changes(&all(slice, histograms))),
        _ if is_mixed => {
            remarks.push(NativeRemark::IgnoredInRange);
            floats(slice).map(Element::Float)
        }
        _ => None,
    }
}

/// As [`of_window`], for a window with the modifier `anchored` or `smoothed`.
pub(crate) fn of_extended_window(
    function: &str,
    extension: Extension,
    slice: &Slice<'_>,
    histograms: &[HistogramPoint],
    remarks: &mut Vec<NativeRemark>,
) -> Option<Element> {
    let slope = match function {
        "rate" => Slope::RATE,
        "increase" => Slope::INCREASE,
        "delta" => Slope::DELTA,
        _ => {
            // The anchor is the last sample up to the start.
            let all = all(slice, histograms);
            let inside = all.partition_point(|(at, _)| *at <= slice.start);
            if inside == all.len() {
                return None;
            }
            let all = &all[inside.saturating_sub(1)..];
            let count = if function == "resets" {
                resets(all)
            } else {
                changes(all)
            };
            return Some(Element::Float(count));
        }
    };

    if !slice.points.is_empty() {
        remarks.push(NativeRemark::Mixed);
        return None;
    }
    let found = native_extended::difference(slice, histograms, slope, extension, remarks)?;
    Some(Element::Histogram(Arc::new(found)))
}

/// The quantity that a slope measures.
#[derive(Clone, Copy)]
pub(super) struct Slope {
    pub is_counter: bool,
    pub is_per_second: bool,
}

impl Slope {
    const RATE: Self = Self {
        is_counter: true,
        is_per_second: true,
    };
    const INCREASE: Self = Self {
        is_counter: true,
        is_per_second: false,
    };
    const DELTA: Self = Self {
        is_counter: false,
        is_per_second: false,
    };
}

/// `extrapolatedRate`: the factor is that of floats, with the count in place of the value.
fn extrapolated(
    slice: &Slice<'_>,
    points: &[HistogramPoint],
    slope: Slope,
    remarks: &mut Vec<NativeRemark>,
) -> Option<NativeHistogram> {
    let [first, .., last] = points else {
        return None;
    };
    let mut difference = difference(points, slope.is_counter, remarks)?;

    let seconds = |ms: i64| ms as f64 / 1e3;
    let covered = seconds(last.at - first.at);
    let distance = covered / (points.len() - 1) as f64;
    // The rule of floats, see `rate.rs`.
    let reach = |gap: f64| {
        if gap >= distance * 1.1 {
            distance / 2.0
        } else {
            gap
        }
    };
    let mut to_start = reach(seconds(first.at - slice.start));
    // A counter cannot have begun before its count was zero.
    if slope.is_counter && difference.count > 0.0 && first.histogram.count >= 0.0 {
        to_start = to_start.min(covered * (first.histogram.count / difference.count));
    }
    let to_end = reach(seconds(slice.end - last.at));
    let mut factor = (covered + to_start + to_end) / covered;
    if slope.is_per_second {
        factor /= seconds(slice.end - slice.start);
    }
    difference.scale(factor);
    Some(difference)
}

/// `histogramRate`: the last histogram less the first, with what a counter lost at its resets. `None` if some have
/// custom buckets and others exponential ones.
fn difference(
    points: &[HistogramPoint],
    is_counter: bool,
    remarks: &mut Vec<NativeRemark>,
) -> Option<NativeHistogram> {
    let is_gauge = |point: &HistogramPoint| point.histogram.hint == ResetHint::Gauge;
    let first = &points[0];
    let last = &points[points.len() - 1];
    if is_counter && points.iter().any(is_gauge) {
        remarks.push(NativeRemark::NotCounter);
    }
    let mut before = Arc::clone(&first.histogram);
    if is_counter && points[1].histogram.is_reset(&before) {
        // The layout of the first histogram does not matter then.
        before = Arc::new(NativeHistogram {
            schema: points[1].histogram.schema,
            custom_values: Arc::clone(&points[1].histogram.custom_values),
            ..NativeHistogram::default()
        });
    }
    // After a reset, only the schemas behind it have to fit.
    let counted = if is_counter {
        &points[1..]
    } else {
        &points[points.len() - 1..]
    };
    if !counted
        .iter()
        .all(|point| point.histogram.has_kind_of(&before))
    {
        remarks.push(NativeRemark::MixedBuckets);
        return None;
    }
    let are_gauges = is_gauge(first) && is_gauge(last);
    if !is_counter && !are_gauges {
        remarks.push(NativeRemark::NotGauge);
    }

    let mut found = (*last.histogram).clone();
    found.reduce_to(before.schema);
    if is_counter {
        let schemas = points[1..]
            .iter()
            .map(|point| point.histogram.schema)
            .min()
            .unwrap_or(found.schema);
        // One resolution for all, or resets between two samples could not be added.
        found.reduce_to(schemas);
    }
    remark_bounds(&found, &before, HistogramOperation::Subtraction, remarks);
    found.subtract(&before);
    if is_counter {
        // Each reset loses the counts before it, which are added back.
        for point in &points[1..] {
            if point.histogram.is_reset(&before) {
                remark_bounds(&found, &before, HistogramOperation::Addition, remarks);
                found.add(&before);
            }
            before = Arc::clone(&point.histogram);
        }
    }
    found.hint = ResetHint::Gauge;
    found.compact();
    Some(found)
}

/// Remarks that an operation is about to bring custom buckets to common bounds.
pub(super) fn remark_bounds(
    one: &NativeHistogram,
    other: &NativeHistogram,
    operation: HistogramOperation,
    remarks: &mut Vec<NativeRemark>,
) {
    if one.differs_in_bounds(other) {
        remarks.push(NativeRemark::BoundsReconciled(operation));
    }
}

/// `instantValue`: the difference of the last two samples, per second for a counter.
fn between_last_two(
    slice: &Slice<'_>,
    histograms: &[HistogramPoint],
    is_counter: bool,
    remarks: &mut Vec<NativeRemark>,
) -> Option<Element> {
    let all: Vec<_> = samples(slice, histograms).collect();
    let [.., (then, before), (now, after)] = all.as_slice() else {
        return None;
    };
    let seconds = (*now - *then) as f64 / 1e3;
    match (before, after) {
        (Found::Float(before), Found::Float(after)) => {
            let has_reset = is_counter && after < before;
            let rose = if has_reset { *after } else { after - before };
            let rose = if is_counter { rose / seconds } else { rose };
            Some(Element::Float(rose))
        }
        (Found::Histogram(before), Found::Histogram(after)) => {
            let are = |hint| before.hint == hint && after.hint == hint;
            let any_gauge = before.hint == ResetHint::Gauge || after.hint == ResetHint::Gauge;
            if is_counter && any_gauge {
                remarks.push(NativeRemark::NotCounter);
            } else if !is_counter && !are(ResetHint::Gauge) {
                remarks.push(NativeRemark::NotGauge);
            }
            let mut found = (***after).clone();
            // After a reset, all of the new histogram is the increase.
            if !is_counter || !after.is_reset(before) {
                if !after.has_kind_of(before) {
                    remarks.push(NativeRemark::MixedBuckets);
                    return None;
                }
                remark_bounds(after, before, HistogramOperation::Subtraction, remarks);
                found.subtract(before);
            }
            found.hint = ResetHint::Gauge;
            found.compact();
            if is_counter {
                found.divide(seconds);
            }
            Some(Element::Histogram(Arc::new(found)))
        }
        _ => {
            remarks.push(NativeRemark::Mixed);
            None
        }
    }
}

fn sum(points: &[HistogramPoint], remarks: &mut Vec<NativeRemark>) -> Option<NativeHistogram> {
    let mut sum = (*points[0].histogram).clone();
    for point in &points[1..] {
        if !sum.has_kind_of(&point.histogram) {
            remarks.push(NativeRemark::MixedBuckets);
            return None;
        }
        let aggregation = HistogramOperation::Aggregation;
        remark_bounds(&sum, &point.histogram, aggregation, remarks);
        sum.add(&point.histogram);
    }
    Some(sum)
}

/// A sample of either kind.
enum Found<'a> {
    Float(f64),
    Histogram(&'a Arc<NativeHistogram>),
}

fn element((_, found): (Timestamp, Found<'_>)) -> Element {
    match found {
        Found::Float(value) => Element::Float(value),
        Found::Histogram(histogram) => Element::Histogram(Arc::clone(histogram)),
    }
}

/// All samples in the order of time.
fn samples<'a>(
    slice: &Slice<'a>,
    histograms: &'a [HistogramPoint],
) -> impl Iterator<Item = (Timestamp, Found<'a>)> {
    let mut points = slice.points.iter().peekable();
    let mut histograms = histograms.iter().peekable();
    iter::from_fn(move || {
        let next = histograms.peek().map(|next| next.at);
        // At equal times the histogram comes first.
        let point = points.next_if(|point| next.is_none_or(|next| point.at < next));
        if let Some(point) = point {
            return Some((point.at, Found::Float(point.value)));
        }
        let next = histograms.next()?;
        Some((next.at, Found::Histogram(&next.histogram)))
    })
}

fn resets(all: &[(Timestamp, Found<'_>)]) -> f64 {
    let fell = |before, after| after < before;
    pairs(all, fell, |before, after| after.is_reset(before))
}

fn changes(all: &[(Timestamp, Found<'_>)]) -> f64 {
    pairs(all, is_change, |before, after| !after.is_same(before))
}

fn all<'a>(slice: &Slice<'a>, histograms: &'a [HistogramPoint]) -> Vec<(Timestamp, Found<'a>)> {
    samples(slice, histograms).collect()
}

/// How many neighbours differ in kind, or in the given way.
fn pairs(
    all: &[(Timestamp, Found<'_>)],
    floats: fn(f64, f64) -> bool,
    both: fn(&NativeHistogram, &NativeHistogram) -> bool,
) -> f64 {
    all.windows(2)
        .filter(|pair| match (&pair[0].1, &pair[1].1) {
            (Found::Float(before), Found::Float(after)) => floats(*before, *after),
            (Found::Histogram(before), Found::Histogram(after)) => both(before, after),
            _ => true,
        })
        .count() as f64
}
