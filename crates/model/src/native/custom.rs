//! Custom buckets.

use super::{NativeBucket, NativeHistogram, SCHEMA_CUSTOM};
use std::sync::Arc;

impl NativeHistogram {
    /// Whether it has custom buckets.
    pub fn is_custom(&self) -> bool {
        self.schema == SCHEMA_CUSTOM
    }

    /// Whether both have custom buckets, or neither: others have no sum and no difference.
    pub fn has_kind_of(&self, other: &Self) -> bool {
        self.is_custom() == other.is_custom()
    }

    /// Whether both have custom buckets, with different bounds. Together they keep the bounds that both have.
    pub fn differs_in_bounds(&self, other: &Self) -> bool {
        self.is_custom() && other.is_custom() && self.custom_values != other.custom_values
    }

    pub(super) fn has_valid_bounds(&self) -> bool {
        if !self.is_custom() {
            return self.custom_values.is_empty();
        }
        let bounds = &self.custom_values;
        // The bucket after the last bound holds what is above all bounds.
        let last = i32::try_from(bounds.len()).unwrap_or(i32::MAX);
        bounds.iter().all(|bound| bound.is_finite())
            && bounds.is_sorted_by(|one, next| one < next)
            && self
                .positive
                .iter()
                .all(|(index, _)| (0..=last).contains(index))
            && self.negative.is_empty()
            && self.zero_count == 0.0
            && self.zero_threshold == 0.0
    }

    pub(super) fn custom_bucket(&self, index: i32, count: f64) -> NativeBucket {
        let bound = |index: i32| {
            let index = usize::try_from(index).ok()?;
            self.custom_values.get(index).copied()
        };
        NativeBucket {
            lower: match index {
                ..=0 => f64::NEG_INFINITY,
                _ => bound(index - 1).unwrap_or(f64::INFINITY),
            },
            upper: bound(index).unwrap_or(f64::INFINITY),
            // The first bucket begins at -Inf and includes it.
            has_lower: index == 0,
            has_upper: true,
            count,
        }
    }

    /// Joins buckets until the bounds are these, a part of the own ones.
    pub(super) fn rebound(&mut self, bounds: &Arc<[f64]>) {
        for (index, _) in &mut self.positive {
            let own = usize::try_from(*index)
                .ok()
                .and_then(|index| self.custom_values.get(index));
            // The new bucket is the one of the first kept bound that is not below the own one;
            // without such a bound, the last.
            let place = own.map_or(bounds.len(), |own| {
                bounds.partition_point(|bound| bound < own)
            });
            *index = i32::try_from(place).unwrap_or(i32::MAX);
        }
        self.positive.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
        self.custom_values = Arc::clone(bounds);
    }

    /// The bounds that both have.
    pub(super) fn common_bounds(&self, other: &Self) -> Arc<[f64]> {
        let is_common = |bound: &&f64| other.custom_values.contains(bound);
        self.custom_values
            .iter()
            .filter(is_common)
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bounds: &[f64], counts: &[f64]) -> NativeHistogram {
        let count = counts.iter().sum();
        let mut histogram = NativeHistogram {
            schema: SCHEMA_CUSTOM,
            count,
            sum: count,
            positive: (0..).zip(counts.iter().copied()).collect(),
            custom_values: bounds.into(),
            ..NativeHistogram::default()
        };
        histogram.compact();
        histogram
    }

    #[test]
    fn buckets_lie_between_their_bounds() {
        let histogram = of(&[1.0, 2.5], &[1.0, 2.0, 3.0]);
        assert_eq!(histogram.validate(true), Ok(()));
        assert_eq!(
            histogram.to_string(),
            "{count:6, sum:6, [-Inf,1]:1, (1,2.5]:2, (2.5,+Inf]:3}"
        );
        for bad in [
            of(&[1.0, 1.0], &[1.0]),
            of(&[f64::INFINITY], &[1.0]),
            of(&[1.0], &[0.0, 0.0, 1.0]),
        ] {
            assert!(bad.validate(true).is_err(), "{bad}");
        }
    }

    /// As Prometheus 3.14 adds, subtracts and compares them.
    #[test]
    fn different_bounds_become_the_common_ones() {
        let one = of(&[1.0, 2.0, 5.0], &[4.0, 8.0, 4.0, 8.0]);
        let other = of(&[2.0, 5.0, 7.0], &[1.0, 2.0, 1.0, 2.0]);
        assert!(one.differs_in_bounds(&other));

        let mut sum = one.clone();
        sum.add(&other);
        assert_eq!(sum, of(&[2.0, 5.0], &[13.0, 6.0, 11.0]));
        let mut difference = one.clone();
        difference.subtract(&other);
        assert_eq!(difference, of(&[2.0, 5.0], &[11.0, 2.0, 5.0]));
        assert!(!one.is_same(&other));
        assert!(other.is_reset(&one));
        assert!(!one.is_reset(&other));
        assert!(one.is_reset(&NativeHistogram::default()));
    }
}
