//! Arithmetic as Go and Prometheus do it, where Rust's differs or has none.

use takt_model::non_finite;
pub use takt_model::{exponential, format_g};

/// Kahan's sum with Neumaier's improvement (`util/kahansum`). A sum that overflows keeps no compensation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kahan {
    pub sum: f64,
    pub compensation: f64,
}

impl Kahan {
    pub fn add(&mut self, value: f64) {
        let total = self.sum + value;
        if total.is_infinite() {
            // Infinity less infinity is NaN, which would spoil the sum.
            self.compensation = 0.0;
        // Neumaier: the smaller of the two loses digits, whichever it is.
        } else if self.sum.abs() >= value.abs() {
            self.compensation += (self.sum - total) + value;
        } else {
            self.compensation += (value - total) + self.sum;
        }
        self.sum = total;
    }

    pub fn total(self) -> f64 {
        self.sum + self.compensation
    }
}

/// A mean that survives sums beyond the range of floats: a plain Kahan sum until it would overflow, an incremental mean
/// from there on (`promql/functions.go`, `funcAvgOverTime`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    /// The sum, or the mean once `incremental`.
    kahan: Kahan,
    count: f64,
    incremental: bool,
}

impl Mean {
    pub fn of(first: f64) -> Self {
        Self {
            kahan: Kahan {
                sum: first,
                compensation: 0.0,
            },
            count: 1.0,
            incremental: false,
        }
    }

    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.incremental {
            let mut next = self.kahan;
            next.add(value);
            if !next.sum.is_infinite() {
                self.kahan = next;
                return;
            }
            self.incremental = true;
            self.kahan.sum /= self.count - 1.0;
            self.kahan.compensation /= self.count - 1.0;
        }
        let kept = (self.count - 1.0) / self.count;
        self.kahan.sum *= kept;
        self.kahan.compensation *= kept;
        self.kahan.add(value / self.count);
    }

    pub fn value(self) -> f64 {
        if self.incremental {
            self.kahan.total()
        } else {
            // Each part by itself: the sum of both may overflow where the mean does not.
            self.kahan.sum / self.count + self.kahan.compensation / self.count
        }
    }
}

/// Go's `math.Max`: NaN wins over everything but +Inf.
pub fn go_max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// Go's `math.Min`: NaN wins over everything but -Inf.
pub fn go_min(a: f64, b: f64) -> f64 {
    -go_max(-a, -b)
}

/// The quantile of unsorted values; NaN counts as smallest (`promql/quantile.go`, `quantile`).
pub fn quantile(phi: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || phi.is_nan() {
        return f64::NAN;
    }
    if phi < 0.0 {
        return f64::NEG_INFINITY;
    }
    if phi > 1.0 {
        return f64::INFINITY;
    }
    values.sort_unstable_by(nan_first);

    // Linear interpolation between the two values around the rank.
    let rank = phi * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

/// Ascending, NaN before all numbers.
pub fn nan_first(a: &f64, b: &f64) -> std::cmp::Ordering {
    a.partial_cmp(b)
        .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Whether two floats differ by less than rounding explains (`util/almost`, `Equal`).
pub fn almost_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }

    // Near 0 a relative difference says nothing, so the smallest normal float is the measure there.
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

/// A float as `count_values` writes it into a label: shortest digits, never an exponent.
pub fn format_f(value: f64) -> String {
    if value.is_finite() {
        format!("{value}")
    } else {
        non_finite(value).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kahan_keeps_what_a_plain_sum_loses() {
        // A plain sum loses both ones in 1e100 and gives 0; Kahan's without Neumaier's step does
        // so, too.
        let mut kahan = Kahan::default();
        [1.0, 1e100, 1.0, -1e100]
            .into_iter()
            .for_each(|value| kahan.add(value));
        assert_eq!(kahan.total(), 2.0);
    }

    #[test]
    fn a_mean_survives_overflow() {
        let mut mean = Mean::of(f64::MAX);
        mean.add(f64::MAX);
        mean.add(f64::MAX);
        assert!(almost_equal(mean.value(), f64::MAX, 1e-12));
    }

    #[test]
    fn prints_as_go_does() {
        let texts = [2.0, -0.5, 1e21, 1e20, 1e-5, 0.0001, f64::NAN, f64::INFINITY].map(format_g);
        assert_eq!(
            texts,
            [
                "2", "-0.5", "1e+21", "1e+20", "1e-05", "0.0001", "NaN", "+Inf"
            ]
        );
        assert_eq!(format_f(1e21), "1000000000000000000000");
    }

    #[test]
    fn min_and_max_let_nan_through() {
        assert!(go_max(f64::NAN, 1.0).is_nan() && go_min(1.0, f64::NAN).is_nan());
        assert_eq!(go_max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert_eq!(go_min(f64::NAN, f64::NEG_INFINITY), f64::NEG_INFINITY);
    }
}
