//! Native histograms with exponential or custom buckets, as in Prometheus (`model/histogram`).
//!
//! Custom buckets have bounds of their own, such as those of a classic histogram: bucket `i` holds observations above bound `i-1` up
//! to bound `i`, and the last one those above all bounds.
//!
//! Exponential bucket `i` of schema `s` holds observations in `(base^(i-1), base^i]` with `base = 2^(2^-s)`, and their mirror image for negative
//! observations. The zero bucket holds observations whose absolute value is at most the zero threshold.

mod arithmetic;
mod custom;
mod parts;

pub use parts::{BucketBound, HistogramParts, NATIVE_LABEL, NativePart};

use crate::format_g;
use std::fmt;
use std::sync::Arc;

/// Coarsest schema.
pub const SCHEMA_MIN: i32 = -4;
/// Finest schema.
pub const SCHEMA_MAX: i32 = 8;
/// Finest schema that the format reserves. Such histograms are reduced to [`SCHEMA_MAX`].
pub const SCHEMA_RESERVED: i32 = 52;
/// Schema of histograms with custom buckets.
pub const SCHEMA_CUSTOM: i32 = -53;

/// Share of the count by which the sum of buckets may exceed it, because floats are rounded.
const ROUNDING: f64 = 1e-9;

/// Whether a histogram continues the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetHint {
    /// A comparison has to show it.
    #[default]
    Unknown,
    /// The counts began again at zero.
    Reset,
    /// The counts may fall: the histogram is not a counter.
    Gauge,
}

/// A native histogram. Buckets are sorted by index and have no zero counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NativeHistogram {
    /// Resolution, [`SCHEMA_MIN`] to [`SCHEMA_MAX`].
    pub schema: i32,
    /// Whether the histogram continues the one before it.
    pub hint: ResetHint,
    /// Number of observations, including NaN, which no bucket holds.
    pub count: f64,
    /// Sum of the observations.
    pub sum: f64,
    /// Largest absolute value in the zero bucket.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: f64,
    /// Index and count of buckets for positive observations.
    pub positive: Vec<(i32, f64)>,
    /// Index and count of buckets for negative observations.
    pub negative: Vec<(i32, f64)>,
    /// Upper bounds of custom buckets, ascending and finite; empty with other schemas. Custom buckets are all in `positive`.
    pub custom_values: Arc<[f64]>,
}

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NativeBucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Whether the lower bound belongs to the bucket.
    pub has_lower: bool,
    /// Whether the upper bound belongs to the bucket.
    pub has_upper: bool,
    /// Number of observations.
    pub count: f64,
}

/// Why a histogram is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum HistogramError {
    /// The bounds of custom buckets do not ascend, or a bucket lies outside of them.
    #[error(
        "custom buckets need ascending finite bounds, and have neither a zero bucket nor negative buckets"
    )]
    CustomBuckets,
    /// The schema is neither exponential nor custom.
    #[error("schema {0} is neither in the range -4 to 8 nor -53")]
    Schema(i32),
    /// The spans describe another number of buckets.
    #[error("the spans describe another number of buckets than there are counts")]
    Spans,
    /// A count is negative or NaN.
    #[error("a count is negative or not a number")]
    Count,
    /// The buckets have more observations than the histogram, or, without NaN, less.
    #[error("the counts of the buckets do not add up to the count")]
    Total,
    /// The zero threshold is negative or not finite.
    #[error("the zero threshold is negative or not finite")]
    Threshold,
}

/// Returns the upper bound of the positive bucket `index`.
pub fn bucket_bound(schema: i32, index: i32) -> f64 {
    let exponent = f64::from(index) * (-f64::from(schema)).exp2();
    // The largest float is less than 2^1024; the bucket after it holds infinity.
    if exponent == 1024.0 {
        f64::MAX
    } else {
        exponent.exp2()
    }
}

impl NativeHistogram {
    /// Checks counts and threshold. A histogram of whole numbers has to add up exactly.
    ///
    /// # Errors
    /// The first rule that the histogram breaks.
    pub fn validate(&self, is_whole: bool) -> Result<(), HistogramError> {
        if !self.is_custom() && !(SCHEMA_MIN..=SCHEMA_MAX).contains(&self.schema) {
            return Err(HistogramError::Schema(self.schema));
        }
        if !self.has_valid_bounds() {
            return Err(HistogramError::CustomBuckets);
        }
        if !self.zero_threshold.is_finite() || self.zero_threshold < 0.0 {
            return Err(HistogramError::Threshold);
        }
        let mut counts = self
            .positive
            .iter()
            .chain(&self.negative)
            .map(|(_, count)| *count)
            .chain([self.count, self.zero_count]);
        if !counts.all(|count| count >= 0.0) {
            return Err(HistogramError::Count);
        }
        // NaN observations count, but have no bucket; only a sum of NaN shows that there were some.
        let is_less = is_whole && !self.sum.is_nan() && self.total() < self.count;
        if is_less || !self.adds_up() {
            return Err(HistogramError::Total);
        }
        Ok(())
    }

    /// Number of observations in all buckets.
    pub fn total(&self) -> f64 {
        let buckets = self.positive.iter().chain(&self.negative);
        self.zero_count + buckets.map(|(_, count)| count).sum::<f64>()
    }

    /// Whether the buckets have no more observations than the histogram.
    pub fn adds_up(&self) -> bool {
        self.total() <= self.count * (1.0 + ROUNDING)
    }

    /// Number of buckets, the zero bucket among them.
    pub fn bucket_count(&self) -> usize {
        self.positive.len() + self.negative.len() + 1
    }

    /// The buckets from the lowest to the highest. The zero bucket is left out where it is empty.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = NativeBucket> + '_ {
        // Stored from zero outwards, so the negative ones come in reverse.
        let negative = self.negative.iter().rev().map(|&(index, count)| {
            let bucket = self.positive_bucket(index, count);
            NativeBucket {
                lower: -bucket.upper,
                upper: -bucket.lower,
                has_lower: true,
                has_upper: false,
                count,
            }
        });
        let zero = (self.zero_count > 0.0).then_some(NativeBucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            has_lower: true,
            has_upper: true,
            count: self.zero_count,
        });
        let positive = self
            .positive
            .iter()
            .map(|&(index, count)| self.positive_bucket(index, count));
        negative.chain(zero).chain(positive)
    }

    fn positive_bucket(&self, index: i32, count: f64) -> NativeBucket {
        if self.is_custom() {
            return self.custom_bucket(index, count);
        }

        let lower = bucket_bound(self.schema, index.saturating_sub(1));
        NativeBucket {
            // The zero bucket takes its part of a bucket that it overlaps.
            lower: lower.max(self.zero_threshold),
            upper: bucket_bound(self.schema, index),
            has_lower: false,
            has_upper: true,
            count,
        }
    }
}

/// `{count:3, sum:4, (1,2]:3}`, as in Prometheus.
impl fmt::Display for NativeHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = format_g(self.count);
        write!(f, "{{count:{count}, sum:{}", format_g(self.sum))?;
        for bucket in self.buckets() {
            let open = if bucket.has_lower { '[' } else { '(' };
            let close = if bucket.has_upper { ']' } else { ')' };
            let lower = format_g(bucket.lower);
            let upper = format_g(bucket.upper);
            let count = format_g(bucket.count);
            write!(f, ", {open}{lower},{upper}{close}:{count}")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_powers_of_the_base() {
        assert_eq!(bucket_bound(0, 0), 1.0);
        assert_eq!(bucket_bound(0, 3), 8.0);
        assert_eq!(bucket_bound(0, -1), 0.5);
        assert_eq!(bucket_bound(-4, 1), 65536.0);
        assert!((bucket_bound(1, 1) - 2.0_f64.sqrt()).abs() < 1e-15);
        // The last finite bucket of a schema ends at the largest float instead of 2^1024.
        assert_eq!(bucket_bound(8, 1024 << 8), f64::MAX);
        assert_eq!(bucket_bound(8, (1024 << 8) + 1), f64::INFINITY);
        assert_eq!(bucket_bound(-4, 64), f64::MAX);
        assert_eq!(bucket_bound(8, i32::MIN), 0.0);
    }

    fn histogram() -> NativeHistogram {
        NativeHistogram {
            schema: 0,
            count: 10.0,
            sum: 12.5,
            zero_threshold: 0.25,
            zero_count: 2.0,
            positive: vec![(0, 1.0), (2, 4.0)],
            negative: vec![(1, 3.0)],
            ..NativeHistogram::default()
        }
    }

    #[test]
    fn buckets_are_listed_from_the_lowest() {
        let text = "{count:10, sum:12.5, [-2,-1):3, [-0.25,0.25]:2, (0.5,1]:1, (2,4]:4}";
        assert_eq!(histogram().to_string(), text);
    }

    #[test]
    fn each_rule_is_checked() {
        assert_eq!(histogram().validate(true), Ok(()));
        type Change = fn(&mut NativeHistogram);
        let changes: [(Change, HistogramError); 10] = [
            (|h| h.schema = 9, HistogramError::Schema(9)),
            (|h| h.schema = -5, HistogramError::Schema(-5)),
            (|h| h.schema = -53, HistogramError::CustomBuckets),
            (
                |h| h.custom_values = [1.0].into(),
                HistogramError::CustomBuckets,
            ),
            (|h| h.positive[0].1 = -1.0, HistogramError::Count),
            (|h| h.zero_count = f64::NAN, HistogramError::Count),
            (|h| h.count = 9.0, HistogramError::Total),
            (|h| h.count = 11.0, HistogramError::Total),
            (|h| h.zero_threshold = -1.0, HistogramError::Threshold),
            (
                |h| h.zero_threshold = f64::INFINITY,
                HistogramError::Threshold,
            ),
        ];
        for (change, error) in changes {
            let mut changed = histogram();
            change(&mut changed);
            assert_eq!(changed.validate(true), Err(error));
        }
        // NaN is in no bucket, and rounded counts may be less.
        let mut more = histogram();
        more.count = 11.0;
        assert_eq!(more.validate(false), Ok(()));
        more.sum = f64::NAN;
        assert_eq!(more.validate(true), Ok(()));
    }
}
