//! Native histograms with custom buckets from the classic histograms of `load_with_nhcb` (`promqltest`, `convertnhcb`).

use super::command::Load;
use std::collections::BTreeMap;
use takt_model::native::{NativeHistogram, SCHEMA_CUSTOM};
use takt_model::notation::NotedValue;
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// The label with a bucket's upper bound.
const BOUND: &str = "le";

/// The parts of one classic histogram at one instant.
#[derive(Default)]
struct ClassicHistogram {
    /// Bound and cumulative count of each bucket.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

/// The native histograms of a block, by the labels of their series.
pub(super) fn from_classic(load: &Load) -> Vec<(Labels, Vec<(Timestamp, NativeHistogram)>)> {
    let mut found: BTreeMap<Labels, BTreeMap<Timestamp, ClassicHistogram>> = BTreeMap::new();
    for (labels, values) in &load.series {
        let Some((native, part)) = classic_part(labels) else {
            continue;
        };
        let histograms = found.entry(native).or_default();
        for (step, value) in values.iter().enumerate() {
            // A part that is missing or stale at a step leaves the others of that step.
            let NotedValue::Float(value) = value else {
                continue;
            };
            let at = Timestamp(step as i64 * load.step_ms);
            let histogram = histograms.entry(at).or_default();
            match part {
                ClassicPart::Bucket(bound) => histogram.buckets.push((bound, *value)),
                ClassicPart::Count => histogram.count = Some(*value),
                ClassicPart::Sum => histogram.sum = *value,
            }
        }
    }
    found
        .into_iter()
        .map(|(labels, histograms)| {
            let converted = histograms
                .into_iter()
                .filter_map(|(at, classic)| Some((at, classic.converted()?)));
            (labels, converted.collect::<Vec<_>>())
        })
        .filter(|(_, histograms)| !histograms.is_empty())
        .collect()
}

/// What a series of a classic histogram holds.
#[derive(Clone, Copy)]
enum ClassicPart {
    Bucket(f64),
    Count,
    Sum,
}

/// The series of the native histogram, and the part that a classic series is of it.
fn classic_part(labels: &Labels) -> Option<(Labels, ClassicPart)> {
    let metric = labels.metric();
    let (base, part) = if let Some(base) = metric.strip_suffix("_bucket") {
        let bound = labels.get(BOUND)?.parse().ok()?;
        (base, ClassicPart::Bucket(bound))
    } else if let Some(base) = metric.strip_suffix("_count") {
        (base, ClassicPart::Count)
    } else {
        (metric.strip_suffix("_sum")?, ClassicPart::Sum)
    };
    let mut native = labels.clone();
    native.set(METRIC_NAME, base);
    native.remove(BOUND);
    Some((native, part))
}

impl ClassicHistogram {
    /// The native histogram. `None` without buckets and count, and if a bucket has less than the one before.
    fn converted(mut self) -> Option<NativeHistogram> {
        self.buckets
            .sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let highest = self.buckets.last().map(|(_, count)| *count);
        // Without `_count` the last bucket counts everything.
        let count = self.count.or(highest)?;

        // The last bucket is not written down in a native histogram.
        let has_last = self
            .buckets
            .last()
            .is_some_and(|(bound, _)| *bound == f64::INFINITY);
        if !has_last {
            self.buckets.push((f64::INFINITY, count));
        }

        // Classic buckets are cumulative, native ones are not.
        let mut before = 0.0;
        let mut positive = Vec::new();
        for (index, (_, cumulative)) in (0..).zip(&self.buckets) {
            if *cumulative < before {
                return None;
            }
            positive.push((index, cumulative - before));
            before = *cumulative;
        }
        let bounds = self.buckets.iter().map(|(bound, _)| *bound);
        let mut histogram = NativeHistogram {
            schema: SCHEMA_CUSTOM,
            count,
            sum: self.sum,
            positive,
            custom_values: bounds.filter(|bound| bound.is_finite()).collect(),
            ..NativeHistogram::default()
        };
        histogram.compact();
        Some(histogram)
    }
}
