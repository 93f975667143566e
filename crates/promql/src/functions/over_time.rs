//! Functions of the samples in one window.

use crate::numbers::{self, Kahan, Mean};
use crate::source::Point;
use takt_model::Timestamp;

/// The samples of one series in one window, with what else a function may ask for.
#[derive(Debug)]
pub(crate) struct Slice<'a> {
    /// After `start`, up to `end`; never empty.
    pub points: &'a [Point],
    /// Left end of the window, itself outside.
    pub start: Timestamp,
    /// Right end, itself inside.
    pub end: Timestamp,
    /// The instant of evaluation: not `end` where the selector is shifted.
    pub now: Timestamp,
    /// The scalar arguments at this step.
    pub scalars: &'a [f64],
}

impl Slice<'_> {
    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().map(|point| point.value)
    }

    fn first_point(&self) -> Point {
        self.points[0]
    }

    fn last_point(&self) -> Point {
        self.points[self.points.len() - 1]
    }
}

/// `avg_over_time`
pub(crate) fn avg(slice: &Slice<'_>) -> Option<f64> {
    let mut mean = Mean::of(slice.first_point().value);
    slice.values().skip(1).for_each(|value| mean.add(value));
    Some(mean.value())
}

/// `sum_over_time`
pub(crate) fn sum(slice: &Slice<'_>) -> Option<f64> {
    let mut kahan = Kahan::default();
    slice.values().for_each(|value| kahan.add(value));
    Some(kahan.total())
}

/// `count_over_time`
pub(crate) fn count(slice: &Slice<'_>) -> Option<f64> {
    Some(slice.points.len() as f64)
}

/// `present_over_time`: a window without samples is not asked.
pub(crate) fn present(_: &Slice<'_>) -> Option<f64> {
    Some(1.0)
}

/// `first_over_time`
pub(crate) fn first(slice: &Slice<'_>) -> Option<f64> {
    Some(slice.first_point().value)
}

/// `last_over_time`
pub(crate) fn last(slice: &Slice<'_>) -> Option<f64> {
    Some(slice.last_point().value)
}

/// `max_over_time`: NaN only where there is nothing else.
pub(crate) fn max(slice: &Slice<'_>) -> Option<f64> {
    Some(extreme(slice, |value, best| value > best).value)
}

/// `min_over_time`: NaN only where there is nothing else.
pub(crate) fn min(slice: &Slice<'_>) -> Option<f64> {
    Some(extreme(slice, |value, best| value < best).value)
}

/// `ts_of_first_over_time`
pub(crate) fn instant_of_first(slice: &Slice<'_>) -> Option<f64> {
    Some(slice.first_point().at.as_seconds())
}

/// `ts_of_last_over_time`
pub(crate) fn instant_of_last(slice: &Slice<'_>) -> Option<f64> {
    Some(slice.last_point().at.as_seconds())
}

/// `ts_of_max_over_time`: the latest of equals.
pub(crate) fn instant_of_max(slice: &Slice<'_>) -> Option<f64> {
    Some(extreme(slice, |value, best| value >= best).at.as_seconds())
}

/// `ts_of_min_over_time`: the latest of equals.
pub(crate) fn instant_of_min(slice: &Slice<'_>) -> Option<f64> {
    Some(extreme(slice, |value, best| value <= best).at.as_seconds())
}

fn extreme(slice: &Slice<'_>, better: fn(f64, f64) -> bool) -> Point {
    slice
        .points
        .iter()
        .fold(slice.first_point(), |best, point| {
            // A NaN at the beginning gives way to any number.
            if better(point.value, best.value) || best.value.is_nan() {
                *point
            } else {
                best
            }
        })
}

/// `stdvar_over_time`: Welford's algorithm with compensated sums.
pub(crate) fn stdvar(slice: &Slice<'_>) -> Option<f64> {
    let mut mean = Kahan::default();
    let mut squares = Kahan::default();
    // Compensated, because the small differences of large values would be lost in rounding.
    for (at, value) in slice.values().enumerate() {
        let delta = value - mean.total();
        mean.add(delta / (at + 1) as f64);
        squares.add(delta * (value - mean.total()));
    }
    Some(squares.total() / slice.points.len() as f64)
}

/// `quantile_over_time(φ, …)`
pub(crate) fn quantile(slice: &Slice<'_>) -> Option<f64> {
    Some(numbers::quantile(
        slice.scalars[0],
        &mut slice.values().collect::<Vec<_>>(),
    ))
}

/// `mad_over_time`: the median of the distances from the median. A NaN leaves the median undefined.
pub(crate) fn mad(slice: &Slice<'_>) -> Option<f64> {
    if slice.values().any(f64::is_nan) {
        return Some(f64::NAN);
    }
    let mut values: Vec<f64> = slice.values().collect();
    let median = numbers::quantile(0.5, &mut values);
    values
        .iter_mut()
        .for_each(|value| *value = (*value - median).abs());
    Some(numbers::quantile(0.5, &mut values))
}

/// Whether two values differ. NaN does not differ from NaN.
pub(crate) fn is_change(before: f64, after: f64) -> bool {
    after != before && !(after.is_nan() && before.is_nan())
}

/// `changes`: NaN does not differ from NaN.
pub(crate) fn changes(slice: &Slice<'_>) -> Option<f64> {
    Some(
        slice
            .points
            .windows(2)
            .filter(|pair| is_change(pair[0].value, pair[1].value))
            .count() as f64,
    )
}

/// `resets`: how often a counter fell.
pub(crate) fn resets(slice: &Slice<'_>) -> Option<f64> {
    Some(
        slice
            .points
            .windows(2)
            .filter(|pair| pair[1].value < pair[0].value)
            .count() as f64,
    )
}

/// `double_exponential_smoothing(…, sf, tf)`, Holt's linear trend: the factors were checked to lie between 0 and 1.
pub(crate) fn smooth(slice: &Slice<'_>) -> Option<f64> {
    let smoothing = slice.scalars[0];
    let trend = slice.scalars[1];
    let [first, second, ..] = slice.points else {
        return None;
    };
    let mut before = 0.0;
    let mut level = first.value;
    let mut slope = second.value - first.value;
    for (at, value) in slice.values().enumerate().skip(1) {
        // The first slope is the difference of the first two samples.
        if at > 1 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + slope);
        (before, level) = (level, next);
    }
    Some(level)
}
