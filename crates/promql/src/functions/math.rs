//! Functions of one value.

use crate::numbers::{go_max, go_min};

/// `clamp(v, min, max)`: nothing at all where the bounds are the wrong way round.
pub(crate) fn clamp(value: f64, bounds: &[f64]) -> Option<f64> {
    let min = bounds[0];
    let max = bounds[1];
    // NaN bounds are not the wrong way round; they make NaN of every value.
    if max < min {
        None
    } else {
        Some(go_max(min, go_min(max, value)))
    }
}

/// `clamp_min(v, min)`
pub(crate) fn clamp_min(value: f64, bounds: &[f64]) -> Option<f64> {
    clamp(value, &[bounds[0], f64::INFINITY])
}

/// `clamp_max(v, max)`
pub(crate) fn clamp_max(value: f64, bounds: &[f64]) -> Option<f64> {
    clamp(value, &[f64::NEG_INFINITY, bounds[0]])
}

/// `round(v, to_nearest = 1)`: halves go up. Inverting first costs less accuracy than dividing.
pub(crate) fn round(value: f64, to_nearest: &[f64]) -> Option<f64> {
    let inverse = 1.0 / to_nearest.first().copied().unwrap_or(1.0);
    Some((value * inverse + 0.5).floor() / inverse)
}

/// `sgn(v)`: zero and NaN stay what they are.
pub(crate) fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}
