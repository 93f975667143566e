//! Functions of one native histogram (`promql/quantile.go`, `histogramVariance`).

use crate::annotations::NativeRemark;
use crate::numbers::Kahan;
use takt_model::native::{NativeBucket, NativeHistogram};

/// `histogram_stdvar`: observations are taken to lie at the geometric mean of their bucket, and in the middle of a custom one.
pub(crate) fn variance(histogram: &NativeHistogram) -> f64 {
    let mean = histogram.sum / histogram.count;
    let mut variance = Kahan::default();
    for bucket in histogram.buckets() {
        let middle = if histogram.is_custom() {
            f64::midpoint(bucket.lower, bucket.upper)
        } else if holds_zero(&bucket) {
            0.0
        } else {
            (bucket.lower * bucket.upper).sqrt().copysign(bucket.upper)
        };
        let delta = middle - mean;

        variance.add(bucket.count * delta * delta);
    }
    variance.total() / histogram.count
}

/// `HistogramQuantile`: exponential within a bucket, linear within the zero bucket and custom ones. From 0.5 on the ranks are counted
/// from above.
pub(crate) fn quantile(phi: f64, histogram: &NativeHistogram) -> (f64, Option<NativeRemark>) {
    if phi < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if phi > 1.0 {
        return (f64::INFINITY, None);
    }
    if histogram.count == 0.0 || phi.is_nan() {
        return (f64::NAN, None);
    }
    // NaN observations are in no bucket: only the ranks from below are known then.
    let has_nan = histogram.sum.is_nan();
    let is_upward = has_nan || phi < 0.5;
    let (rank, buckets): (f64, Vec<NativeBucket>) = if is_upward {
        (phi * histogram.count, histogram.buckets().collect())
    } else {
        let rank = (1.0 - phi) * histogram.count;
        (rank, histogram.buckets().rev().collect())
    };

    let mut count = 0.0;
    let mut found = None;
    for (at, bucket) in buckets.iter().enumerate() {
        count += bucket.count;
        found = Some((at, *bucket));
        if count >= rank {
            break;
        }
    }

    let Some((at, mut bucket)) = found else {
        return (f64::NAN, has_nan.then_some(NativeRemark::QuantileIsNaN));
    };
    if histogram.is_custom() {
        // As with classic buckets: the first one begins at zero, unless it lies below; the last one
        // has no middle.
        if bucket.lower == f64::NEG_INFINITY {
            if bucket.upper <= 0.0 {
                return (bucket.upper, None);
            }
            bucket.lower = 0.0;
        } else if bucket.upper == f64::INFINITY {
            return (bucket.lower, None);
        }
    } else {
        narrow_zero_bucket(&mut bucket, histogram);
    }
    // Float counts may add up to a little more than the total.
    count = count.min(histogram.count);
    if count < rank {
        return if has_nan {
            (f64::NAN, Some(NativeRemark::QuantileIsNaN))
        } else {
            (bucket.upper, None)
        };
    }

    let inside = if is_upward {
        rank - (count - bucket.count)
    } else {
        count - rank
    };
    let rest = buckets[at + 1..].iter().map(|bucket| bucket.count);
    // More observations than buckets hold: the rest is NaN, and counts as above all values.
    let is_skewed = has_nan && count + rest.sum::<f64>() < histogram.count;
    let remark = is_skewed.then_some(NativeRemark::QuantileIsSkewed);
    let share = inside / bucket.count;
    let NativeBucket { lower, upper, .. } = bucket;
    if histogram.is_custom() || holds_zero(&bucket) {
        return (lower + (upper - lower) * share, remark);
    }
    // Exponential buckets are linear in the logarithm of their values.
    let log_lower = lower.abs().log2();
    let log_upper = upper.abs().log2();
    let value = if lower > 0.0 {
        (log_lower + (log_upper - log_lower) * share).exp2()
    } else {
        -(log_upper + (log_lower - log_upper) * (1.0 - share)).exp2()
    };
    (value, remark)
}

/// `HistogramFraction`: the share of observations between two values.
pub(crate) fn fraction(
    lower: f64,
    upper: f64,
    histogram: &NativeHistogram,
) -> (f64, Option<NativeRemark>) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (f64::NAN, None);
    }
    if lower >= upper {
        return (0.0, None);
    }

    let in_buckets: f64 = histogram.buckets().map(|bucket| bucket.count).sum();
    let has_nan = histogram.sum.is_nan();
    // NaN lies in no range, so with NaN the buckets' own total is the end.
    let highest = if has_nan { in_buckets } else { histogram.count };
    let rank = |value| rank_of(value, histogram).unwrap_or(highest).min(highest);
    let remark = has_nan && in_buckets < histogram.count;
    let share = (rank(upper) - rank(lower)) / histogram.count;
    (share, remark.then_some(NativeRemark::FractionWithoutNaN))
}

/// How many observations lie below a value. `None` above all buckets.
fn rank_of(value: f64, histogram: &NativeHistogram) -> Option<f64> {
    let mut rank = 0.0;
    for mut bucket in histogram.buckets() {
        let is_linear = histogram.is_custom() || holds_zero(&bucket);
        if histogram.is_custom() {
            // Observations lie above zero, unless a bound says otherwise; that of zero does not, as in Prometheus.
            if holds_zero(&bucket) {
                bucket.lower = 0.0;
            }
        } else if is_linear {
            narrow_zero_bucket(&mut bucket, histogram);
        }
        let NativeBucket {
            lower,
            upper,
            count,
            ..
        } = bucket;
        if lower >= value {
            return Some(rank);
        }
        // Where the observations of an endless bucket lie is unknown: all count as below a value in it.
        if lower == f64::NEG_INFINITY && upper > value {
            return Some(count);
        }

        if upper > value {
            let share = if is_linear {
                (value - lower) / (upper - lower)
            } else {
                let position = value.abs().log2();
                let log_lower = lower.abs().log2();
                let log_upper = upper.abs().log2();
                if value > 0.0 {
                    (position - log_lower) / (log_upper - log_lower)
                } else {
                    1.0 - (position - log_upper) / (log_lower - log_upper)
                }
            };
            return Some(rank + count * share);
        }
        rank += count;
    }
    None
}

fn holds_zero(bucket: &NativeBucket) -> bool {
    bucket.lower <= 0.0 && bucket.upper >= 0.0
}

/// A histogram of positive observations has none below zero in its zero bucket, and the other way round.
fn narrow_zero_bucket(bucket: &mut NativeBucket, histogram: &NativeHistogram) {
    if !(bucket.lower < 0.0 && bucket.upper > 0.0) {
        return;
    }
    if histogram.negative.is_empty() && !histogram.positive.is_empty() {
        bucket.lower = 0.0;
    } else if histogram.positive.is_empty() && !histogram.negative.is_empty() {
        bucket.upper = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> NativeHistogram {
        NativeHistogram {
            count: 8.0,
            sum: 20.0,
            zero_threshold: 0.5,
            zero_count: 2.0,
            positive: vec![(1, 4.0), (3, 2.0)],
            ..NativeHistogram::default()
        }
    }

    #[test]
    fn quantiles_are_exponential_within_a_bucket() {
        let of = |phi| quantile(phi, &histogram()).0;
        // Two of eight lie in the zero bucket, which has nothing below zero.
        assert_eq!(of(0.125), 0.25);
        assert_eq!(of(0.25), 0.5);
        assert!((of(0.5) - 2.0_f64.sqrt()).abs() < 1e-12);
        assert!((of(0.875) - 32.0_f64.sqrt()).abs() < 1e-12);
        assert!((of(1.0) - 8.0).abs() < 1e-12);
        assert_eq!(of(-1.0), f64::NEG_INFINITY);
        assert_eq!(of(2.0), f64::INFINITY);
        assert!(of(f64::NAN).is_nan());
        assert!(quantile(0.5, &NativeHistogram::default()).0.is_nan());
    }

    #[test]
    fn fractions_invert_quantiles() {
        let of = |lower, upper| fraction(lower, upper, &histogram()).0;
        assert_eq!(of(f64::NEG_INFINITY, 0.25), 0.125);
        assert!((of(0.0, 2.0_f64.sqrt()) - 0.5).abs() < 1e-12);
        // No bucket lies between 2 and 4.
        assert_eq!(of(2.0, 4.0), 0.0);
        assert_eq!(of(4.0, f64::INFINITY), 0.25);
        assert_eq!(of(3.0, 1.0), 0.0);
    }

    #[test]
    fn nan_observations_are_remarked() {
        let mut histogram = histogram();
        histogram.sum = f64::NAN;
        // Two observations more than the buckets hold.
        histogram.count = 10.0;
        let skewed = Some(NativeRemark::QuantileIsSkewed);
        assert_eq!(quantile(0.2, &histogram), (0.5, skewed));
        let (value, remark) = quantile(0.9, &histogram);
        assert!(value.is_nan());
        assert_eq!(remark, Some(NativeRemark::QuantileIsNaN));
        let all = fraction(f64::NEG_INFINITY, f64::INFINITY, &histogram);
        assert_eq!(all, (0.8, Some(NativeRemark::FractionWithoutNaN)));
    }
}
