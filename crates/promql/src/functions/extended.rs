//! Functions of windows that reach beyond their range: `anchored` and `smoothed` (`extendedRate` of
//! `promql/functions.go`).
//!
//! An anchored window begins with the last sample before the range, within the look-back. A smoothed one also has the
//! samples around its ends, between which it interpolates. Nothing is extrapolated, so an increase of whole numbers is a
//! whole number.

use super::over_time::{Slice, changes, resets};
use crate::source::Point;
use crate::syntax::tree::Extension;
use std::ops::Range;
use takt_model::Timestamp;

type WindowFn = fn(&Slice<'_>) -> Option<f64>;

const ANCHORED: &[(&str, WindowFn)] = &[
    ("changes", |slice| changes(&anchored(slice)?)),
    ("delta", |slice| difference(slice, false, false)),
    ("increase", |slice| difference(slice, false, true)),
    ("rate", |slice| per_second(slice, false)),
    ("resets", |slice| resets(&anchored(slice)?)),
];
const SMOOTHED: &[(&str, WindowFn)] = &[
    ("delta", |slice| difference(slice, true, false)),
    ("increase", |slice| difference(slice, true, true)),
    ("rate", |slice| per_second(slice, true)),
];

/// The implementation of a function for an extended window, or the reason why the function has none.
pub(crate) fn extended(function: &str, extension: Extension) -> Result<WindowFn, String> {
    let all = match extension {
        Extension::Anchored => ANCHORED,
        Extension::Smoothed => SMOOTHED,
    };
    all.iter()
        .find(|(name, _)| *name == function)
        .map(|(_, body)| *body)
        .ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            format!(
                "{} modifier can only be used with: {} - not with {function}",
                extension.name(),
                names.join(", ")
            )
        })
}

/// The samples of an extended range with a value at each end, for a query that is nothing but a window (`extendFloats`).
pub(crate) fn extended_points(
    points: &[Point],
    start: Timestamp,
    end: Timestamp,
    extension: Extension,
) -> Vec<Point> {
    let is_smoothed = extension == Extension::Smoothed;
    let Some(ends) = Ends::of(points, start, end, is_smoothed, false) else {
        return Vec::new();
    };
    let at_end = |at, value| [Point { at, value }];
    let inside = &points[ends.inside.clone()];
    let left = at_end(start, ends.left);
    let right = at_end(end, ends.right);
    [&left, inside, &right].concat()
}

/// The value between two samples at an instant. A counter that fell is taken to have begun at zero.
pub(crate) fn interpolated(before: &Point, after: &Point, at: Timestamp, counter: bool) -> f64 {
    let begin = if counter && after.value < before.value {
        0.0
    } else {
        before.value
    };
    let share = |ms: i64| ms as f64;
    begin + (after.value - begin) * share(at - before.at) / share(after.at - before.at)
}

/// The values at the ends of a range, and the samples strictly inside.
struct Ends {
    left: f64,
    right: f64,
    inside: Range<usize>,
}

impl Ends {
    /// `None` if the points have nothing to measure.
    fn of(
        points: &[Point],
        start: Timestamp,
        end: Timestamp,
        smoothed: bool,
        counter: bool,
    ) -> Option<Self> {
        let mut last = points.len().checked_sub(1)?;
        // The last sample up to the start, or else the first one of all.
        let first = points[..last]
            .partition_point(|point| point.at <= start)
            .saturating_sub(1);

        if smoothed {
            last = points[..last].partition_point(|point| point.at < end);
        }

        // All samples lie on one side of the range.
        if points[last].at <= start || (smoothed && points[first].at > end) {
            return None;
        }

        let left = if smoothed && points[first].at < start {
            interpolated(&points[first], &points[first + 1], start, counter)
        } else {
            points[first].value
        };
        let right = if smoothed && last > 0 && points[last].at > end {
            interpolated(&points[last - 1], &points[last], end, counter)
        } else {
            points[last].value
        };

        let begin = first + usize::from(points[first].at <= start);
        let end = last + usize::from(points[last].at < end);

        Some(Self {
            left,
            right,
            inside: begin..end.max(begin),
        })
    }
}

/// The difference between the values at both ends, with what a counter lost at its resets.
fn difference(slice: &Slice<'_>, smoothed: bool, counter: bool) -> Option<f64> {
    let start = slice.start;
    let end = slice.end;
    let ends = Ends::of(slice.points, start, end, smoothed, counter)?;
    let mut difference = ends.right - ends.left;
    if counter {
        let inside = slice.points[ends.inside].iter().map(|point| point.value);
        let mut before = ends.left;
        for value in inside.chain([ends.right]) {
            // A reset: the value before it is lost from the difference of the ends.
            if value < before {
                difference += before;
            }
            before = value;
        }
    }
    Some(difference)
}

fn per_second(slice: &Slice<'_>, smoothed: bool) -> Option<f64> {
    let seconds = (slice.end - slice.start) as f64 / 1e3;
    Some(difference(slice, smoothed, true)? / seconds)
}

/// The window from its anchor on; `None` without a sample inside the range.
fn anchored<'a>(slice: &Slice<'a>) -> Option<Slice<'a>> {
    let inside = slice
        .points
        .partition_point(|point| point.at <= slice.start);
    // Without a sample up to the start, the first one inside is the anchor.
    let points = &slice.points[inside.saturating_sub(1)..];
    (inside < slice.points.len()).then_some(Slice { points, ..*slice })
}
