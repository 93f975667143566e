//! Arithmetic of native histograms: what differs between two of them is brought to the coarser of both first.

use super::{NativeHistogram, ResetHint, SCHEMA_CUSTOM, bucket_bound};

impl NativeHistogram {
    /// Adds another histogram of the same [kind](Self::has_kind_of).
    pub fn add(&mut self, other: &Self) {
        self.combine(other, 1.0);
    }

    /// Subtracts another histogram of the same [kind](Self::has_kind_of). Counts may become negative.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, -1.0);
    }

    /// Multiplies all counts and the sum.
    pub fn scale(&mut self, factor: f64) {
        self.map_counts(|count| count * factor);
        // Negative counts are no counter, so later steps must not look for resets.
        if factor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. Dividing by zero removes all buckets but the zero bucket.
    pub fn divide(&mut self, by: f64) {
        self.map_counts(|count| count / by);
        if by == 0.0 {
            self.positive.clear();
            self.negative.clear();
        } else if by < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Removes buckets without observations.
    pub fn compact(&mut self) {
        self.positive.retain(|(_, count)| *count != 0.0);
        self.negative.retain(|(_, count)| *count != 0.0);
    }

    /// Joins buckets until the schema is at most this one.
    pub fn reduce_to(&mut self, schema: i32) {
        let halvings = self.schema.saturating_sub(schema);
        if halvings <= 0 || schema == SCHEMA_CUSTOM {
            return;
        }
        // A shift of 32 or more would overflow; after 31 all indices are 0 or 1.
        let halvings = halvings.cast_unsigned().min(31);
        for buckets in [&mut self.positive, &mut self.negative] {
            for (index, _) in buckets.iter_mut() {
                // Bucket i ends at base^i, so the buckets 1 and 2 become 1, and 0 and -1 become 0.
                *index = (index.saturating_sub(1) >> halvings) + 1;
            }
            // Indices ascend, so joined buckets are neighbours.
            buckets.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                if is_same {
                    kept.1 += next.1;
                }
                is_same
            });
        }
        self.schema = schema;
    }

    /// Whether both have the same layout and the same counts. NaN equals NaN.
    pub fn is_same(&self, other: &Self) -> bool {
        // Compared by bits: NaN is not equal to itself.
        let bits = |histogram: &Self| {
            [histogram.count, histogram.sum, histogram.zero_count].map(f64::to_bits)
        };
        self.schema == other.schema
            && bits(self) == bits(other)
            && self.zero_threshold == other.zero_threshold
            && self.positive == other.positive
            && self.negative == other.negative
            && self.custom_values == other.custom_values
    }

    /// Whether a counter began again between `before` and this histogram (`DetectReset`).
    pub fn is_reset(&self, before: &Self) -> bool {
        if self.hint == ResetHint::Reset {
            return true;
        }
        if !self.has_kind_of(before) {
            return true;
        }

        if self.differs_in_bounds(before) {
            let common = self.common_bounds(before);
            let [mut now, mut then] = [self.clone(), before.clone()];
            now.rebound(&common);
            then.rebound(&common);
            return now.is_reset(&then);
        }

        // A counter never gets finer by itself: Prometheus clients only reduce the resolution until
        // they reset.
        let is_finer = self.schema > before.schema || self.zero_threshold < before.zero_threshold;
        if self.count < before.count || is_finer {
            return true;
        }

        // The zero bucket must cover whole buckets of the earlier histogram, or its count cannot be
        // compared.
        let (zero_count, threshold) = before.zero_count_up_to(self.zero_threshold);
        if threshold != self.zero_threshold || self.zero_count < zero_count {
            return true;
        }

        let mut before = before.clone();
        before.reduce_to(self.schema);
        let fell = |now: &[(i32, f64)], then: &[(i32, f64)]| {
            then.iter().any(|&(index, count)| {
                // Buckets within the zero bucket are part of its count, which was compared above.
                let is_outside =
                    self.is_custom() || bucket_bound(self.schema, index) > self.zero_threshold;
                let found = now.binary_search_by_key(&index, |(index, _)| *index);
                is_outside && found.map_or(0.0, |at| now[at].1) < count
            })
        };
        fell(&self.positive, &before.positive) || fell(&self.negative, &before.negative)
    }

    fn map_counts(&mut self, change: impl Fn(f64) -> f64) {
        let counts = self
            .positive
            .iter_mut()
            .chain(&mut self.negative)
            .map(|(_, count)| count);

        let others = [&mut self.count, &mut self.sum, &mut self.zero_count];
        counts
            .chain(others)
            .for_each(|count| *count = change(*count));
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        // A gauge stays one in every sum; of two different counters, nothing is known.
        self.hint = match (self.hint, other.hint) {
            (one, two) if one == two => one,
            (ResetHint::Gauge, _) | (_, ResetHint::Gauge) => ResetHint::Gauge,
            _ => ResetHint::Unknown,
        };
        if self.is_custom() && other.is_custom() {
            self.combine_custom(other, sign);
            return;
        }

        let zero_count = self.widen_zero_bucket(other);
        self.zero_count += sign * zero_count;
        self.count += sign * other.count;
        self.sum += sign * other.sum;

        self.reduce_to(other.schema);
        let reduced;
        let other = if other.schema > self.schema {
            let mut coarse = other.clone();
            coarse.reduce_to(self.schema);
            reduced = coarse;
            &reduced
        } else {
            other
        };

        // The other's buckets within the zero bucket were counted with it.
        let threshold = self.zero_threshold;
        let schema = self.schema;
        let outside = |bucket: &&(i32, f64)| bucket_bound(schema, bucket.0) > threshold;
        let merged = |own: &[(i32, f64)], other: &[(i32, f64)]| {
            merge(own, other.iter().filter(outside), sign)
        };
        self.positive = merged(&self.positive, &other.positive);
        self.negative = merged(&self.negative, &other.negative);
    }

    fn combine_custom(&mut self, other: &Self, sign: f64) {
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        if !self.differs_in_bounds(other) {
            self.positive = merge(&self.positive, other.positive.iter(), sign);
            return;
        }

        let common = self.common_bounds(other);
        let mut other = other.clone();
        self.rebound(&common);
        other.rebound(&common);
        self.positive = merge(&self.positive, other.positive.iter(), sign);
    }

    /// Widens the zero bucket until the other histogram can have the same one. Returns the count of the other's.
    fn widen_zero_bucket(&mut self, other: &Self) -> f64 {
        let mut zero_count = other.zero_count;
        let mut threshold = other.zero_threshold;
        // Each may have to grow to the end of a bucket that the other's threshold cuts, so both
        // take turns until they agree.
        while threshold != self.zero_threshold {
            if self.zero_threshold > threshold {
                (zero_count, threshold) = other.zero_count_up_to(self.zero_threshold);
            }
            if threshold > self.zero_threshold {
                (self.zero_count, self.zero_threshold) = self.zero_count_up_to(threshold);
                let schema = self.schema;
                let threshold = self.zero_threshold;
                let is_outside = |bucket: &(i32, f64)| {
                    bucket_bound(schema, bucket.0.saturating_sub(1)) >= threshold
                };
                self.positive.retain(is_outside);
                self.negative.retain(is_outside);
            }
        }
        zero_count
    }

    /// The count that a wider zero bucket would have, and its threshold: the given one, or the bound of the bucket
    /// in which that lies (`zeroCountForLargerThreshold`).
    fn zero_count_up_to(&self, threshold: f64) -> (f64, f64) {
        if threshold <= self.zero_threshold {
            return (self.zero_count, self.zero_threshold);
        }
        let mut threshold = threshold;
        loop {
            let mut widest = threshold;
            let mut zero_count = self.zero_count;
            for buckets in [&self.positive, &self.negative] {
                for &(index, count) in buckets {
                    // Buckets ascend: the first one that begins beyond the threshold ends the
                    // search.
                    if bucket_bound(self.schema, index.saturating_sub(1)) >= threshold {
                        break;
                    }
                    zero_count += count;
                    widest = widest.max(bucket_bound(self.schema, index));
                }
            }

            if widest == threshold {
                return (zero_count, threshold);
            }
            threshold = widest;
        }
    }
}

/// Two lists of buckets as one.
fn merge<'a>(
    own: &[(i32, f64)],
    other: impl Iterator<Item = &'a (i32, f64)>,
    sign: f64,
) -> Vec<(i32, f64)> {
    let mut merged = Vec::with_capacity(own.len());
    let mut own = own.iter().copied().peekable();
    for &(index, count) in other {
        while let Some(bucket) = own.next_if(|bucket| bucket.0 < index) {
            merged.push(bucket);
        }
        let known = own.next_if(|bucket| bucket.0 == index);
        merged.push((index, known.map_or(0.0, |bucket| bucket.1) + sign * count));
    }
    merged.extend(own);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: i32, positive: &[(i32, f64)]) -> NativeHistogram {
        let count = positive.iter().map(|(_, count)| count).sum();
        NativeHistogram {
            schema,
            count,
            sum: count,
            positive: positive.to_vec(),
            ..NativeHistogram::default()
        }
    }

    #[test]
    fn the_coarser_schema_wins() {
        let mut fine = of(1, &[(-1, 1.0), (0, 2.0), (1, 3.0), (2, 4.0), (5, 1.0)]);
        fine.add(&of(0, &[(1, 10.0), (4, 1.0)]));
        // (-1, 0] of schema 1 is 0 of schema 0, and so on.
        assert_eq!(fine, of(0, &[(0, 3.0), (1, 17.0), (3, 1.0), (4, 1.0)]));

        let mut coarse = of(0, &[(1, 10.0)]);
        coarse.subtract(&of(1, &[(1, 3.0), (2, 4.0)]));
        assert_eq!(coarse, of(0, &[(1, 3.0)]));
    }

    #[test]
    fn a_zero_bucket_swallows_the_buckets_that_it_overlaps() {
        let mut narrow = of(0, &[(-1, 1.0), (0, 2.0), (3, 3.0)]);
        let mut wide = of(0, &[(3, 1.0)]);
        wide.zero_threshold = 0.75;
        wide.zero_count = 5.0;
        wide.count += 5.0;

        narrow.add(&wide);
        // 0.75 lies in the bucket (0.5, 1].
        assert_eq!(narrow.zero_threshold, 1.0);
        assert_eq!(narrow.zero_count, 8.0);
        assert_eq!(narrow.positive, [(3, 4.0)]);
        assert_eq!(narrow.count, narrow.total());
    }

    #[test]
    fn resets_are_seen_in_each_part() {
        let before = of(1, &[(1, 1.0), (4, 2.0)]);
        assert!(!before.is_reset(&before));
        assert!(!of(1, &[(0, 1.0), (1, 1.0), (4, 2.0)]).is_reset(&before));
        assert!(of(1, &[(1, 3.0)]).is_reset(&before));
        assert!(of(1, &[(1, 1.0), (4, 1.0), (5, 9.0)]).is_reset(&before));
        assert!(of(2, &[(1, 1.0), (8, 9.0)]).is_reset(&before));
        // A coarser schema alone is none.
        assert!(!of(0, &[(1, 1.0), (2, 2.0)]).is_reset(&before));
        let mut reset = before.clone();
        reset.hint = ResetHint::Reset;
        assert!(reset.is_reset(&before));
        // A wider zero bucket is none while it begins at a bucket's bound.
        let mut wider = of(1, &[(4, 2.0)]);
        wider.zero_threshold = bucket_bound(1, 1);
        wider.zero_count = 1.0;
        wider.count = 3.0;
        assert!(!wider.is_reset(&before));
        wider.zero_threshold = 1.2;
        assert!(wider.is_reset(&before));
    }

    #[test]
    fn factors_change_all_counts() {
        let mut scaled = of(0, &[(1, 2.0)]);
        scaled.scale(-0.5);
        assert_eq!(scaled.count, -1.0);
        assert_eq!(scaled.sum, -1.0);
        assert_eq!(&*scaled.positive, &[(1, -1.0)][..]);
        assert_eq!(scaled.hint, ResetHint::Gauge);

        scaled.divide(0.0);
        assert_eq!(scaled.count, f64::NEG_INFINITY);
        assert_eq!(scaled.positive.len(), 0);
    }
}
