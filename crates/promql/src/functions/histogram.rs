//! Quantiles and fractions of histograms. A classic one is a set of series of cumulative buckets, one a `le`; a native one
//! is a single series.

use super::native;
use crate::annotations::{About, ForcedBuckets, NativeRemark};
use crate::column::{Column, Histograms};
use crate::numbers::{almost_equal, nan_first};
use hashbrown::HashMap;
use std::mem;
use takt_model::Timestamp;
use takt_model::native::NativeHistogram;
use takt_model::{Labels, format_open_metrics};

/// The label with a bucket's upper bound.
const BOUND: &str = "le";
/// Counts that differ by less, relatively, do so by rounding.
const ROUNDING: f64 = 1e-12;

/// One histogram over all steps: the bound and the counts of each bucket.
struct Histogram {
    labels: Labels,
    parts: Vec<(f64, Vec<Option<f64>>)>,
}

/// One bucket at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    bound: f64,
    /// Observations up to the bound.
    count: f64,
}

/// `histogram_quantile(φ, buckets)`; `phi` has one value a step. With `with_names` the remarks name the metric.
pub(crate) fn quantile(
    phi: &[f64],
    columns: Vec<Column>,
    with_names: bool,
    times: &[Timestamp],
    about: &mut About<'_>,
) -> Vec<Column> {
    warn_of_quantiles(0, phi, about);
    let quantiles = Quantiles {
        argument: 1,
        with_names,
        times,
    };
    quantiles.of(phi, columns, about)
}

/// `histogram_quantiles(buckets, label, φ…)`: each quantile in turn, written into the label.
pub(crate) fn quantiles(
    label: &str,
    phis: &[Vec<f64>],
    columns: Vec<Column>,
    with_names: bool,
    times: &[Timestamp],
    about: &mut About<'_>,
) -> Vec<Column> {
    let quantiles = Quantiles {
        argument: 0,
        with_names,
        times,
    };
    let mut result = Vec::new();
    // Columns are cloned for each quantile, because a reduction consumes them; their labels are
    // shared.
    for (nth, phi) in phis.iter().enumerate() {
        warn_of_quantiles(2 + nth, phi, about);
        for column in quantiles.of(phi, columns.clone(), about) {
            result.extend(by_quantile(label, phi, column));
        }
    }
    result
}

/// A column for each distinct quantile, as the quantile may differ from step to step.
fn by_quantile(label: &str, phi: &[f64], column: Column) -> Vec<Column> {
    let mut distinct: Vec<f64> = Vec::new();
    for phi in phi {
        // By bits: NaN is a quantile, too, though an invalid one.
        if !distinct
            .iter()
            .any(|known| known.to_bits() == phi.to_bits())
        {
            distinct.push(*phi);
        }
    }

    distinct
        .into_iter()
        .filter_map(|quantile| {
            let mut labels = column.labels.clone();
            labels.set(label, &format_open_metrics(quantile));
            let values = column
                .values
                .iter()
                .zip(phi)
                .map(|(value, phi)| value.filter(|_| phi.to_bits() == quantile.to_bits()))
                .collect();
            Column::new(labels, values)
        })
        .collect()
}

fn warn_of_quantiles(argument: usize, phi: &[f64], about: &mut About<'_>) {
    for invalid in phi.iter().filter(|phi| !(0.0..=1.0).contains(*phi)) {
        about.invalid_quantile(argument, *invalid);
    }
}

/// The properties that the quantiles of one call share.
struct Quantiles<'a> {
    /// Number of the argument with the buckets.
    argument: usize,
    with_names: bool,
    /// The instant of each step.
    times: &'a [Timestamp],
}

impl Quantiles<'_> {
    fn of(&self, phi: &[f64], columns: Vec<Column>, about: &mut About<'_>) -> Vec<Column> {
        let mut forced = Vec::new();
        let input = Input {
            argument: self.argument,
            with_names: self.with_names,
        };

        let native = |step: usize, histogram: &_| native::quantile(phi[step], histogram);

        let result = input.each(columns, about, native, |labels, step, buckets| {
            let (quantile, mut fall) = bucket_quantile(phi[step], buckets);
            if let Some(fall) = &mut fall {
                fall.from = self.times[step];
                fall.to = self.times[step];
                let metric = if self.with_names { labels.metric() } else { "" };
                forced.push((metric.to_owned(), *fall));
            }
            quantile
        });

        // After the reduction, which holds `about` itself.
        for (metric, buckets) in forced {
            about.forced_monotonicity(self.argument, &metric, buckets);
        }
        result
    }
}

/// `histogram_fraction(lower, upper, buckets)`
pub(crate) fn fraction(
    lower: &[f64],
    upper: &[f64],
    columns: Vec<Column>,
    with_names: bool,
    about: &mut About<'_>,
) -> Vec<Column> {
    let input = Input {
        argument: 2,
        with_names,
    };
    let native = |step: usize, histogram: &_| native::fraction(lower[step], upper[step], histogram);
    input.each(columns, about, native, |_, step, buckets| {
        bucket_fraction(lower[step], upper[step], buckets)
    })
}

/// The argument with the histograms.
#[derive(Clone, Copy)]
struct Input {
    /// Number of the argument.
    argument: usize,
    /// Whether remarks name the metric.
    with_names: bool,
}

impl Input {
    /// Reduces each histogram at each step: the native ones, and the classic ones, whose buckets have labels that are equal
    /// but for `le` (the name included). Where both have the same labels, neither has a result.
    fn each(
        self,
        columns: Vec<Column>,
        about: &mut About<'_>,
        native: impl Fn(usize, &NativeHistogram) -> (f64, Option<NativeRemark>),
        mut classic: impl FnMut(&Labels, usize, &mut Vec<Bucket>) -> f64,
    ) -> Vec<Column> {
        let mut natives: Vec<(Labels, Histograms)> = Vec::new();
        let mut places: HashMap<Labels, usize> = HashMap::new();
        let mut histograms: Vec<Histogram> = Vec::new();

        for mut column in columns {
            if column.has_histograms() {
                let labels = column.labels.clone();
                natives.push((labels, mem::take(&mut column.histograms)));
                // A series may have histograms at some steps and buckets at others, while a target
                // changes over.
                let Some(floats) = column.unless_empty() else {
                    continue;
                };
                column = floats;
            }

            let bound = column.labels.remove(BOUND).unwrap_or_default();
            // A series without `le` is no bucket; one bad series must not cost the histogram.
            let Ok(bound) = bound.parse::<f64>() else {
                about.bad_bucket_label(self.argument, &bound, self.name_of(&column.labels));
                continue;
            };

            let place = *places.entry(column.labels.clone()).or_insert_with(|| {
                histograms.push(Histogram {
                    labels: column.labels,
                    parts: Vec::new(),
                });
                histograms.len() - 1
            });
            histograms[place].parts.push((bound, column.values));
        }

        let mut reduced = Vec::new();
        for (labels, mut found) in natives {
            if let Some(&place) = places.get(&labels) {
                self.remove_both(&mut found, &mut histograms[place], about);
            }

            let mut reduce = |(step, histogram): (usize, &Option<_>)| {
                let (value, remark) = native(step, histogram.as_deref()?);
                if let Some(remark) = remark {
                    about.native(remark, self.name_of(&labels));
                }
                Some(value)
            };
            let values = found.iter().enumerate().map(&mut reduce).collect();
            reduced.extend(Column::new(labels, values));
        }

        let mut buckets = Vec::new();
        for Histogram { labels, parts } in histograms {
            let steps = parts.first().map_or(0, |(_, values)| values.len());
            let values = (0..steps).map(|step| {
                buckets.clear();
                let present = parts.iter().filter_map(|(bound, values)| {
                    Some(Bucket {
                        bound: *bound,
                        count: values[step]?,
                    })
                });
                buckets.extend(present);
                if buckets.is_empty() {
                    None
                } else {
                    Some(classic(&labels, step, &mut buckets))
                }
            });

            let values = values.collect();
            reduced.extend(Column::new(labels, values));
        }
        reduced
    }

    /// Removes the steps that both a native and a classic histogram have.
    fn remove_both(self, native: &mut Histograms, classic: &mut Histogram, about: &mut About<'_>) {
        for (step, histogram) in native.iter_mut().enumerate() {
            let parts = classic.parts.iter();
            let is_both = histogram.is_some() && parts.clone().any(|(_, v)| v[step].is_some());
            if is_both {
                about.mixed_histograms(self.argument, self.name_of(&classic.labels));
                *histogram = None;
                classic
                    .parts
                    .iter_mut()
                    .for_each(|(_, values)| values[step] = None);
            }
        }
    }

    fn name_of(self, labels: &Labels) -> &str {
        if self.with_names { labels.metric() } else { "" }
    }
}

/// `BucketQuantile` of `promql/quantile.go`: the quantile, and the buckets that fell.
fn bucket_quantile(phi: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<ForcedBuckets>) {
    if !(0.0..=1.0).contains(&phi) || !sorted_up_to_infinity(buckets) {
        return (quantile_without_buckets(phi), None);
    }
    let forced = make_monotonic(buckets);
    (interpolated(phi, buckets), forced)
}

fn quantile_without_buckets(phi: f64) -> f64 {
    if phi.is_nan() {
        return f64::NAN;
    }
    if phi < 0.0 {
        return f64::NEG_INFINITY;
    }
    if phi > 1.0 {
        return f64::INFINITY;
    }
    f64::NAN
}

/// The quantile of sorted, monotonic buckets, linear within a bucket.
fn interpolated(phi: f64, buckets: &[Bucket]) -> f64 {
    let last = buckets.len() - 1;
    if last == 0 || buckets[last].count == 0.0 {
        return f64::NAN;
    }

    let rank = phi * buckets[last].count;
    // With NaN counts nothing reaches the rank, and the last bucket is taken.
    let at = buckets[..last]
        .partition_point(|bucket| !matches!(bucket.count.partial_cmp(&rank), Some(o) if o.is_ge()));

    // The endless bucket has no upper bound to interpolate to, so its lower one is the best known.
    if at == last {
        return buckets[last - 1].bound;
    }
    // The first bucket has no lower bound; with a positive upper one, observations are taken to be
    // above zero.
    if at == 0 && buckets[0].bound <= 0.0 {
        return buckets[0].bound;
    }

    let below = if at > 0 {
        buckets[at - 1]
    } else {
        Bucket {
            bound: 0.0,
            count: 0.0,
        }
    };

    let share = (rank - below.count) / (buckets[at].count - below.count);
    below.bound + (buckets[at].bound - below.bound) * share
}

/// `BucketFraction` of `promql/quantile.go`.
fn bucket_fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if !sorted_up_to_infinity(buckets) {
        return f64::NAN;
    }
    let total = buckets[buckets.len() - 1].count;
    if total == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }

    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets) - rank_of(lower, buckets)) / total
}

/// How many observations lie below a value, linear within a bucket. Nothing is known within an endless one, so the
/// first counts whole and the last not at all.
fn rank_of(value: f64, buckets: &[Bucket]) -> f64 {
    let total = buckets[buckets.len() - 1].count;
    let mut below = Bucket {
        bound: if buckets[0].bound > 0.0 {
            0.0
        } else {
            f64::NEG_INFINITY
        },
        count: 0.0,
    };

    for bucket in buckets {
        if below.bound >= value {
            return below.count.min(total);
        }
        if bucket.bound > value {
            let inside =
                (bucket.count - below.count) * (value - below.bound) / (bucket.bound - below.bound);
            let rank = if below.bound == f64::NEG_INFINITY {
                bucket.count
            } else {
                below.count + inside
            };
            return rank.min(total);
        }
        below = *bucket;
    }
    total
}

/// Sorts by bound and joins equal bounds; whether the last bound is infinite, without which the total is not known.
fn sorted_up_to_infinity(buckets: &mut Vec<Bucket>) -> bool {
    buckets.sort_by(|a, b| nan_first(&a.bound, &b.bound));
    buckets.dedup_by(|later, earlier| {
        let same = later.bound == earlier.bound;
        if same {
            // Two spellings of one bound, such as `1` and `1.0`.
            earlier.count += later.count;
        }
        same
    });
    buckets
        .last()
        .is_some_and(|bucket| bucket.bound == f64::INFINITY)
}

/// Cumulative counts cannot fall; where they do (torn scrapes, rounding) the higher one holds
/// (`ensureMonotonicAndIgnoreSmallDeltas`). Returns the buckets that fell by more than rounding explains.
fn make_monotonic(buckets: &mut [Bucket]) -> Option<ForcedBuckets> {
    let mut forced: Option<ForcedBuckets> = None;
    let mut highest = buckets[0].count;

    for bucket in &mut buckets[1..] {
        // `rate` and `sum` round each bucket by itself, so tiny falls are normal and not remarked.
        if almost_equal(highest, bucket.count, ROUNDING) {
            bucket.count = highest;
        } else if bucket.count < highest {
            let fall = ForcedBuckets {
                from: Timestamp(0),
                to: Timestamp(0),
                min_bound: bucket.bound,
                max_bound: bucket.bound,
                max_fall: highest - bucket.count,
                count: 1,
            };
            // One histogram at one step counts once, however many of its buckets fell.
            let joined = forced.map_or(fall, |known| known.join(fall));
            forced = Some(ForcedBuckets { count: 1, ..joined });
            bucket.count = highest;
        } else {
            highest = bucket.count;
        }
    }
    forced
}
