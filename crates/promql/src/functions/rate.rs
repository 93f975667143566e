//! Slopes: what a counter or gauge did within a window.

use super::over_time::Slice;
use crate::numbers::Kahan;
use crate::source::Point;
use takt_model::Timestamp;

/// `rate`: increase per second.
pub(crate) fn rate(slice: &Slice<'_>) -> Option<f64> {
    extrapolated(slice, true, true)
}

/// `increase`
pub(crate) fn increase(slice: &Slice<'_>) -> Option<f64> {
    extrapolated(slice, true, false)
}

/// `delta`: as `increase`, for a gauge.
pub(crate) fn delta(slice: &Slice<'_>) -> Option<f64> {
    extrapolated(slice, false, false)
}

/// The difference between the last and the first sample, stretched to the window (`extrapolatedRate`).
///
/// Scrapes seldom fall on the ends of the window. Where the outermost sample is nearer to an end than 1.1 times the mean
/// distance of samples, the series is taken to reach that end; otherwise it is taken to begin or end half a distance
/// beyond its sample. A counter is never stretched to before the instant at which it would have been zero.
fn extrapolated(slice: &Slice<'_>, counter: bool, per_second: bool) -> Option<f64> {
    let [first, .., last] = slice.points else {
        return None;
    };
    let mut difference = last.value - first.value;
    if counter {
        // After a reset the counter began at zero, so all that it had before counts as well.
        difference = slice
            .points
            .windows(2)
            .filter(|pair| pair[1].value < pair[0].value)
            .fold(difference, |sum, pair| sum + pair[0].value);
    }

    let covered = seconds(last.at - first.at);
    let distance = covered / (slice.points.len() - 1) as f64;
    // A gap of somewhat more than a scrape interval is jitter; a longer one shows where the series
    // began or ended.
    let reach = |gap: f64| {
        if gap >= distance * 1.1 {
            distance / 2.0
        } else {
            gap
        }
    };

    let mut to_start = reach(seconds(first.at - slice.start));
    if counter && difference > 0.0 && first.value >= 0.0 {
        to_start = to_start.min(covered * (first.value / difference));
    }

    let to_end = reach(seconds(slice.end - last.at));
    let mut factor = (covered + to_start + to_end) / covered;
    if per_second {
        factor /= seconds(slice.end - slice.start);
    }
    Some(difference * factor)
}

/// `irate`: the slope between the last two samples of a counter.
pub(crate) fn irate(slice: &Slice<'_>) -> Option<f64> {
    let [.., before, last] = slice.points else {
        return None;
    };
    // After a reset the counter began at zero.
    let rose = if last.value < before.value {
        last.value
    } else {
        last.value - before.value
    };
    Some(rose / seconds(last.at - before.at))
}

/// `idelta`: the difference between the last two samples.
pub(crate) fn idelta(slice: &Slice<'_>) -> Option<f64> {
    let [.., before, last] = slice.points else {
        return None;
    };
    Some(last.value - before.value)
}

/// `deriv`: the slope of the regression line. Instants count from the first sample, which keeps them small.
pub(crate) fn deriv(slice: &Slice<'_>) -> Option<f64> {
    let [first, _, ..] = slice.points else {
        return None;
    };
    Some(regression(slice.points, first.at).0)
}

/// `predict_linear(…, t)`: the regression line `t` seconds after the instant of evaluation.
pub(crate) fn predict_linear(slice: &Slice<'_>) -> Option<f64> {
    let [_, _, ..] = slice.points else {
        return None;
    };
    let (slope, intercept) = regression(slice.points, slice.now);
    Some(slope * slice.scalars[0] + intercept)
}

/// Slope and value at `origin` of the least-squares line (`linearRegression`).
fn regression(points: &[Point], origin: Timestamp) -> (f64, f64) {
    let level = points[0].value;
    // A constant has slope zero exactly, without the rounding of the sums below.
    if points[1..].iter().all(|point| point.value == level) {
        return if level.is_infinite() {
            (f64::NAN, f64::NAN)
        } else {
            (0.0, level)
        };
    }

    let [mut sum_x, mut sum_y, mut sum_xy, mut sum_x2] = [Kahan::default(); 4];
    for point in points {
        let x = seconds(point.at - origin);
        sum_x.add(x);
        sum_y.add(point.value);
        sum_xy.add(x * point.value);
        sum_x2.add(x * x);
    }

    let n = points.len() as f64;
    let [sum_x, sum_y, sum_xy, sum_x2] = [sum_x, sum_y, sum_xy, sum_x2].map(Kahan::total);
    let covariance = sum_xy - sum_x * sum_y / n;
    let variance = sum_x2 - sum_x * sum_x / n;
    let slope = covariance / variance;
    (slope, sum_y / n - slope * sum_x / n)
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1e3
}
