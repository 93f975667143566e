//! A native histogram as a set of floats, the form in which the store keeps it.
//!
//! Each part is a series of its own with the reserved label [`NATIVE_LABEL`], so that sealing, merging, retention and SQL need
//! to know nothing of histograms. A part that is zero is left out, except the count: a histogram exists at a time if its
//! count does. Custom buckets are all kept, because their bounds are known from them.

use super::{HistogramError, NativeHistogram, ResetHint};
use std::fmt;
use std::iter;
use std::num::{ParseFloatError, ParseIntError};
use std::str::FromStr;

/// The label with the name of the part. No other series may have it.
pub const NATIVE_LABEL: &str = "__native__";

/// Hints that a layout can hold.
const HINTS: i32 = 4;

/// A part of a native histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NativePart {
    /// Number of observations.
    Count,
    /// Sum of the observations.
    Sum,
    /// Four times the schema, plus the number of the hint.
    Layout,
    /// Observations in the zero bucket.
    ZeroCount,
    /// Largest absolute value in the zero bucket.
    ZeroThreshold,
    /// Observations in a positive bucket.
    Positive(i32),
    /// Observations in a negative bucket.
    Negative(i32),
    /// Observations in the custom bucket up to this bound.
    Custom(BucketBound),
}

/// Upper bound of a custom bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketBound(u64);

impl BucketBound {
    /// The bound of this value.
    pub fn new(bound: f64) -> Self {
        Self(bound.to_bits())
    }

    /// The value.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl fmt::Display for NativePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("count"),
            Self::Sum => f.write_str("sum"),
            Self::Layout => f.write_str("layout"),
            Self::ZeroCount => f.write_str("zero"),
            Self::ZeroThreshold => f.write_str("zero_threshold"),
            Self::Positive(index) => write!(f, "p{index}"),
            Self::Negative(index) => write!(f, "n{index}"),
            Self::Custom(bound) => write!(f, "b{}", bound.value()),
        }
    }
}

/// The text names no part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a part of a native histogram")]
pub struct UnknownPart;

impl From<ParseIntError> for UnknownPart {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl From<ParseFloatError> for UnknownPart {
    fn from(_: ParseFloatError) -> Self {
        Self
    }
}

impl FromStr for NativePart {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        Ok(match text {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "layout" => Self::Layout,
            "zero" => Self::ZeroCount,
            "zero_threshold" => Self::ZeroThreshold,
            _ => match text.split_at_checked(1) {
                Some(("p", index)) => Self::Positive(index.parse()?),
                Some(("n", index)) => Self::Negative(index.parse()?),
                Some(("b", bound)) => Self::Custom(BucketBound::new(bound.parse()?)),
                _ => return Err(UnknownPart),
            },
        })
    }
}

impl NativeHistogram {
    /// The parts that are not zero, the count first.
    pub fn parts(&self) -> impl Iterator<Item = (NativePart, f64)> + '_ {
        let hint = match self.hint {
            ResetHint::Unknown => 0,
            ResetHint::Reset => 1,
            ResetHint::Gauge => 2,
        };
        // One number for both, because a part costs a series of its own.
        let layout = f64::from(self.schema * HINTS + hint);
        let others = [
            (NativePart::Layout, layout),
            (NativePart::Sum, self.sum),
            (NativePart::ZeroCount, self.zero_count),
            (NativePart::ZeroThreshold, self.zero_threshold),
        ];

        let exponential: &[(i32, f64)] = if self.is_custom() {
            &[]
        } else {
            &self.positive
        };
        let positive = exponential
            .iter()
            .map(|&(index, count)| (NativePart::Positive(index), count));
        let negative = self
            .negative
            .iter()
            .map(|&(index, count)| (NativePart::Negative(index), count));
        let others = others
            .into_iter()
            .chain(positive)
            .chain(negative)
            .filter(|(_, value)| *value != 0.0);
        iter::once((NativePart::Count, self.count))
            .chain(others)
            .chain(self.custom_parts())
    }

    /// All custom buckets, the empty ones, too.
    fn custom_parts(&self) -> impl Iterator<Item = (NativePart, f64)> + '_ {
        let bounds = self.custom_values.iter().copied().chain([f64::INFINITY]);
        let bounds = bounds.take(if self.is_custom() { usize::MAX } else { 0 });
        bounds.zip(0..).map(move |(bound, index)| {
            let found = self
                .positive
                .binary_search_by_key(&index, |bucket| bucket.0);
            let count = found.map_or(0.0, |at| self.positive[at].1);
            (NativePart::Custom(BucketBound::new(bound)), count)
        })
    }
}

/// Gathers the parts of one histogram.
#[derive(Debug, Default)]
pub struct HistogramParts {
    histogram: NativeHistogram,
    layout: f64,
    /// Bound and count of custom buckets.
    custom: Vec<(f64, f64)>,
}

impl HistogramParts {
    /// Adds a part.
    pub fn add(&mut self, part: NativePart, value: f64) {
        let histogram = &mut self.histogram;
        match part {
            NativePart::Count => histogram.count = value,
            NativePart::Sum => histogram.sum = value,
            NativePart::Layout => self.layout = value,
            NativePart::ZeroCount => histogram.zero_count = value,
            NativePart::ZeroThreshold => histogram.zero_threshold = value,
            NativePart::Positive(index) => histogram.positive.push((index, value)),
            NativePart::Negative(index) => histogram.negative.push((index, value)),
            NativePart::Custom(bound) => self.custom.push((bound.value(), value)),
        }
    }

    /// The histogram.
    ///
    /// # Errors
    /// If the parts do not belong together: down-sampling joined parts of different histograms.
    pub fn histogram(self) -> Result<NativeHistogram, HistogramError> {
        let mut histogram = self.histogram;
        // An average of two layouts shows that down-sampling mixed histograms.
        if self.layout.fract() != 0.0 {
            return Err(HistogramError::Schema(self.layout as i32));
        }
        let layout = self.layout as i32;
        // Euclidean, because schemas may be negative while hints are not.
        histogram.schema = layout.div_euclid(HINTS);
        histogram.hint = match layout.rem_euclid(HINTS) {
            1 => ResetHint::Reset,
            2 => ResetHint::Gauge,
            _ => ResetHint::Unknown,
        };

        // The store returns series in any order; the bounds give custom buckets their indices.
        let mut custom = self.custom;
        custom.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
        let bounds = custom.iter().map(|(bound, _)| *bound);
        histogram.custom_values = bounds.filter(|bound| bound.is_finite()).collect();
        let counts = (0..).zip(custom.iter().map(|(_, count)| *count));
        histogram.positive.extend(counts);
        histogram.compact();
        histogram.positive.sort_unstable_by_key(|(index, _)| *index);
        histogram.negative.sort_unstable_by_key(|(index, _)| *index);

        // Not as whole numbers: down-sampled counts are averages.
        histogram.validate(false)?;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SCHEMA_CUSTOM;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn histogram() -> impl Strategy<Value = NativeHistogram> {
        let buckets = || prop::collection::btree_map(any::<i32>(), 1_u32..1000, 0..6);
        let hint = prop_oneof![
            Just(ResetHint::Unknown),
            Just(ResetHint::Reset),
            Just(ResetHint::Gauge)
        ];
        let rest = (-4..=8_i32, hint, any::<f64>(), 0_u32..9, 0.0..1e9_f64);
        (rest, buckets(), buckets()).prop_map(
            |((schema, hint, sum, zero_count, zero_threshold), positive, negative)| {
                let floats = |buckets: BTreeMap<i32, u32>| {
                    buckets
                        .into_iter()
                        .map(|(index, count)| (index, f64::from(count)))
                        .collect()
                };
                let mut histogram = NativeHistogram {
                    schema,
                    hint,
                    count: 0.0,
                    sum,
                    zero_threshold,
                    zero_count: f64::from(zero_count),
                    positive: floats(positive),
                    negative: floats(negative),
                    ..NativeHistogram::default()
                };
                histogram.count = histogram.total();
                histogram
            },
        )
    }

    proptest! {
        #[test]
        fn parts_make_the_same_histogram_in_any_order(
            histogram in histogram(),
            turn in 0_usize..9,
        ) {
            let mut parts: Vec<_> = histogram.parts().collect();
            prop_assert_eq!(parts[0].0, NativePart::Count);
            let turn = turn % parts.len();
            parts.rotate_left(turn);
            let mut gathered = HistogramParts::default();
            for (part, value) in parts {
                prop_assert_eq!(part.to_string().parse(), Ok(part));
                gathered.add(part, value);
            }
            let found = gathered.histogram().unwrap();
            prop_assert!(found.is_same(&histogram) || histogram.sum == 0.0);
            prop_assert_eq!(found.hint, histogram.hint);
        }

        #[test]
        fn any_parts_make_a_histogram_or_an_error(
            // A damaged store can hold parts of any names and values.
            parts in prop::collection::vec(("[a-z0-9-]{0,5}", any::<f64>()), 0..9),
        ) {
            let mut gathered = HistogramParts::default();
            for (part, value) in parts {
                if let Ok(part) = part.parse() {
                    gathered.add(part, value);
                }
            }
            if let Ok(histogram) = gathered.histogram() {
                prop_assert_eq!(histogram.validate(false), Ok(()));
            }
        }
    }

    #[test]
    fn parts_of_two_histograms_are_refused() {
        let mut parts = HistogramParts::default();
        parts.add(NativePart::Count, 3.0);
        parts.add(NativePart::Positive(1), 3.0);
        parts.add(NativePart::Positive(2), 1.0);
        assert_eq!(parts.histogram(), Err(HistogramError::Total));
        let mut parts = HistogramParts::default();
        parts.add(NativePart::Count, 3.0);
        // Half way between two layouts, as an average of both would be.
        parts.add(NativePart::Layout, 4.5);
        assert!(matches!(parts.histogram(), Err(HistogramError::Schema(_))));
    }

    #[test]
    fn custom_buckets_keep_their_bounds() {
        let histogram = NativeHistogram {
            schema: SCHEMA_CUSTOM,
            count: 3.0,
            sum: 4.0,
            positive: vec![(1, 2.0), (3, 1.0)],
            custom_values: [-0.5, 1.0, 1e300].into(),
            ..NativeHistogram::default()
        };
        let mut parts = HistogramParts::default();
        for (part, value) in histogram.parts() {
            parts.add(part.to_string().parse().unwrap(), value);
        }
        assert_eq!(parts.histogram(), Ok(histogram));
    }
}
