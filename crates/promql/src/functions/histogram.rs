//! Quantiles and fractions of classic histograms: series of cumulative buckets, one a `le`.

use crate::annotations::{About, ForcedBuckets};
use crate::column::Column;
use crate::numbers::{almost_equal, nan_first};
use hashbrown::HashMap;
use takt_model::Timestamp;
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

/// `histogram_quantile(φ, buckets)`; `phi` has one value a step. With `tells_names` the remarks name the metric.
pub(crate) fn quantile(
    phi: &[f64],
    columns: Vec<Column>,
    tells_names: bool,
    times: &[Timestamp],
    about: &mut About<'_>,
) -> Vec<Column> {
    warn_of_quantiles(0, phi, about);
    let quantiles = Quantiles {
        argument: 1,
        tells_names,
        times,
    };
    quantiles.of(phi, columns, about)
}

/// `histogram_quantiles(buckets, label, φ…)`: each quantile in turn, written into the label.
pub(crate) fn quantiles(
    label: &str,
    phis: &[Vec<f64>],
    columns: Vec<Column>,
    tells_names: bool,
    times: &[Timestamp],
    about: &mut About<'_>,
) -> Vec<Column> {
    let quantiles = Quantiles {
        argument: 0,
        tells_names,
        times,
    };
    let mut result = Vec::new();
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
        if !distinct
            .iter()
            .any(|known| known.to_bits() == phi.to_bits())
        {
            distinct.push(*phi);
        }
    }
    let of = |quantile: f64| {
        let mut labels = column.labels.clone();
        labels.set(label, &format_open_metrics(quantile));
        let values = column.values.iter().zip(phi);
        let values =
            values.map(|(value, phi)| value.filter(|_| phi.to_bits() == quantile.to_bits()));
        Column::new(labels, values.collect())
    };
    distinct.into_iter().filter_map(of).collect()
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
    tells_names: bool,
    /// The instant of each step.
    times: &'a [Timestamp],
}

impl Quantiles<'_> {
    fn of(&self, phi: &[f64], columns: Vec<Column>, about: &mut About<'_>) -> Vec<Column> {
        let mut forced = Vec::new();
        let warned = self.tells_names;
        let result = each_histogram(
            columns,
            self.argument,
            warned,
            about,
            |labels, step, buckets| {
                let (quantile, mut fall) = bucket_quantile(phi[step], buckets);
                if let Some(fall) = &mut fall {
                    fall.from = self.times[step];
                    fall.to = self.times[step];
                    let metric = if self.tells_names {
                        labels.metric()
                    } else {
                        ""
                    };
                    forced.push((metric.to_owned(), *fall));
                }
                quantile
            },
        );
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
    tells_names: bool,
    about: &mut About<'_>,
) -> Vec<Column> {
    each_histogram(columns, 2, tells_names, about, |_, step, buckets| {
        bucket_fraction(lower[step], upper[step], buckets)
    })
}

/// Gathers buckets whose labels are equal but for `le` (the name included), and reduces each step's.
fn each_histogram(
    columns: Vec<Column>,
    argument: usize,
    tells_names: bool,
    about: &mut About<'_>,
    mut reduce: impl FnMut(&Labels, usize, &mut Vec<Bucket>) -> f64,
) -> Vec<Column> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut histograms: Vec<Histogram> = Vec::new();
    for mut column in columns {
        let bound = column.labels.remove(BOUND).unwrap_or_default();
        let Ok(bound) = bound.parse::<f64>() else {
            let metric = if tells_names {
                column.labels.metric()
            } else {
                ""
            };
            about.bad_bucket_label(argument, &bound, metric);
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
    let mut buckets = Vec::new();
    let reduced = histograms
        .into_iter()
        .filter_map(|Histogram { labels, parts }| {
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
                    Some(reduce(&labels, step, &mut buckets))
                }
            });
            let values = values.collect();
            Column::new(labels, values)
        });
    reduced.collect()
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
    if at == last {
        return buckets[last - 1].bound;
    }
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
            let joined = forced.map_or(fall, |known| known.join(fall));
            forced = Some(ForcedBuckets { count: 1, ..joined });
            bucket.count = highest;
        } else {
            highest = bucket.count;
        }
    }
    forced
}
