//! Slopes of native histograms in windows that reach beyond their range (`extendedHistogramRate` of `promql/functions.go`).

use super::native_window::{Slope, remark_bounds};
use super::over_time::Slice;
use crate::annotations::{HistogramOperation, NativeRemark};
use crate::source::HistogramPoint;
use crate::syntax::tree::Extension;
use takt_model::Timestamp;
use takt_model::native::{NativeHistogram, ResetHint};

/// The difference between both ends of the range, with what a counter lost at its resets.
pub(super) fn difference(
    slice: &Slice<'_>,
    points: &[HistogramPoint],
    slope: Slope,
    extension: Extension,
    remarks: &mut Vec<NativeRemark>,
) -> Option<NativeHistogram> {
    let start = slice.start;
    let end = slice.end;
    let is_smoothed = extension == Extension::Smoothed;
    let mut last = points.len().checked_sub(1)?;
    let first = points[..last]
        .partition_point(|point| point.at <= start)
        .saturating_sub(1);
    if is_smoothed {
        last = points[..last].partition_point(|point| point.at < end);
    }
    if points[last].at <= start || (is_smoothed && points[first].at > end) {
        return None;
    }

    let is_gauge = |histogram: &NativeHistogram| histogram.hint == ResetHint::Gauge;
    let mut inside = points[first..]
        .iter()
        .take((last + 1).saturating_sub(first));
    if slope.is_counter && inside.any(|point| is_gauge(&point.histogram)) {
        remarks.push(NativeRemark::NotCounter);
    }
    // Exponential and custom buckets have no difference, and none between them.
    let mut used = points[first..]
        .iter()
        .take((last + 1).saturating_sub(first));
    let kind = &points[first].histogram;
    if !used.all(|point| point.histogram.has_kind_of(kind)) {
        remarks.push(NativeRemark::MixedBuckets);
        return None;
    }

    let starts_between = is_smoothed && points[first].at < start;
    let left = if starts_between {
        interpolated(&points[first], &points[first + 1], start, slope.is_counter)
    } else {
        (*points[first].histogram).clone()
    };
    let right = if is_smoothed && last > 0 && points[last].at > end {
        interpolated(&points[last - 1], &points[last], end, slope.is_counter)
    } else {
        (*points[last].histogram).clone()
    };

    let are_gauges = is_gauge(&left) && is_gauge(&right);
    if !slope.is_counter && !are_gauges {
        remarks.push(NativeRemark::NotGauge);
    }

    let mut found = right.clone();
    remark_bounds(&found, &left, HistogramOperation::Subtraction, remarks);
    found.subtract(&left);
    if slope.is_counter {
        // A reset before the left end is part of the interpolation.
        let begin: &NativeHistogram = &points[first + usize::from(starts_between)].histogram;
        // Then the value at the start was interpolated from zero.
        let spans_reset = starts_between && begin.is_reset(&points[first].histogram);
        let mut before: &NativeHistogram = if spans_reset { begin } else { &left };
        let next = first + 1 + usize::from(spans_reset);
        if next <= last {
            for point in &points[next..last] {
                if point.histogram.is_reset(before) {
                    found.add(before);
                }
                before = &point.histogram;
            }
            if right.is_reset(before) {
                found.add(before);
            }
        }
    }

    if slope.is_per_second {
        found.divide((end - start) as f64 / 1e3);
    }
    // A difference may fall from step to step.
    found.hint = ResetHint::Gauge;
    found.compact();
    Some(found)
}

/// The histogram between two samples at an instant. A counter that fell is taken to have begun at zero.
fn interpolated(
    before: &HistogramPoint,
    after: &HistogramPoint,
    at: Timestamp,
    is_counter: bool,
) -> NativeHistogram {
    let mut found = (*after.histogram).clone();
    if at == after.at {
        return found;
    }
    let share = (at - before.at) as f64 / (after.at - before.at) as f64;
    if is_counter && found.is_reset(&before.histogram) {
        found.scale(share);
    } else {
        found.subtract(&before.histogram);
        found.scale(share);
        found.add(&before.histogram);
    }
    found
}
