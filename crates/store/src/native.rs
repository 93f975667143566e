//! Native histograms: from their parts, which are stored as series of floats, to histograms.

use crate::{Sample, SeriesData, is_stale};
use hashbrown::HashMap;
use std::sync::Arc;
use takt_model::native::{HistogramParts, NATIVE_LABEL, NativePart};
use takt_model::{Labels, Timestamp};
use takt_promql::HistogramPoint;

/// The parts of one series of histograms.
#[derive(Debug, Default)]
struct PartsOfSeries {
    labels: Labels,
    count: Vec<Sample>,
    others: Vec<(NativePart, Vec<Sample>)>,
}

/// Adds the histograms that parts make up to the series with the same labels.
pub(crate) fn add_histograms(found: &mut Vec<takt_promql::SeriesData>, parts: Vec<SeriesData>) {
    if parts.is_empty() {
        return;
    }

    let mut places: HashMap<Labels, usize> = found
        .iter()
        .map(|series| series.labels.clone())
        .zip(0..)
        .collect();

    for series in by_series(parts) {
        // A series may have had floats before, or have them in between.
        let place = *places.entry(series.labels.clone()).or_insert(found.len());
        if place == found.len() {
            found.push(takt_promql::SeriesData {
                labels: series.labels.clone(),
                ..Default::default()
            });
        }

        let target = &mut found[place];
        target.histograms = histograms(&series, &mut target.stale);
        // The markers of the floats are among them.
        target.stale.sort_unstable();
    }
}

/// Groups parts by the labels of their series, in the order in which these first appear.
fn by_series(parts: Vec<SeriesData>) -> Vec<PartsOfSeries> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut all: Vec<PartsOfSeries> = Vec::new();
    for SeriesData {
        mut labels,
        samples,
        ..
    } in parts
    {
        // Parts of a later version are skipped.
        let Ok(part) = labels.remove(NATIVE_LABEL).unwrap_or_default().parse() else {
            continue;
        };

        let place = *places.entry(labels.clone()).or_insert(all.len());
        if place == all.len() {
            all.push(PartsOfSeries {
                labels,
                ..PartsOfSeries::default()
            });
        }

        if part == NativePart::Count {
            all[place].count = samples;
        } else {
            all[place].others.push((part, samples));
        }
    }
    all
}

/// The histograms of a series. One exists at each time at which its count does. Parts that do not belong together are left out:
/// a row of down-sampled values has the last value of each part, which may come from different histograms.
fn histograms(series: &PartsOfSeries, stale: &mut Vec<Timestamp>) -> Vec<HistogramPoint> {
    let mut cursors = vec![0_usize; series.others.len()];
    let mut found = Vec::with_capacity(series.count.len());
    for count in &series.count {
        if is_stale(count.value) {
            // The count ends with its histogram, so one marker is enough.
            stale.push(count.at);
            continue;
        }

        let mut parts = HistogramParts::default();
        parts.add(NativePart::Count, count.value);
        for (cursor, (part, samples)) in cursors.iter_mut().zip(&series.others) {
            while samples.get(*cursor).is_some_and(|next| next.at < count.at) {
                *cursor += 1;
            }
            // A bucket that was empty at this time has no sample.
            let sample = samples.get(*cursor).filter(|next| next.at == count.at);
            if let Some(sample) = sample.filter(|sample| !is_stale(sample.value)) {
                parts.add(*part, sample.value);
            }
        }

        if let Ok(histogram) = parts.histogram() {
            found.push(HistogramPoint {
                at: count.at,
                histogram: Arc::new(histogram),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{STALE, SeriesId};
    use takt_model::METRIC_NAME;

    fn part(name: &str, samples: &[(i64, f64)]) -> SeriesData {
        let samples = samples
            .iter()
            .map(|&(at, value)| Sample {
                at: Timestamp(at),
                value,
            })
            .collect();
        SeriesData {
            id: SeriesId(0),
            labels: [(METRIC_NAME, "x"), (NATIVE_LABEL, name)]
                .into_iter()
                .collect(),
            samples,
        }
    }

    #[test]
    fn a_histogram_has_the_parts_of_its_time() {
        let parts = vec![
            part("p1", &[(1, 2.0), (3, STALE), (4, 9.0)]),
            part("count", &[(1, 2.0), (2, 3.0), (3, STALE), (4, 5.0)]),
            part("p2", &[(2, 3.0)]),
            part("sum", &[(1, 7.0), (2, f64::NAN), (4, 1.0)]),
            part("unknown", &[(1, 7.0)]),
        ];
        let labels: Labels = [(METRIC_NAME, "x")].into_iter().collect();
        let floats = [(Timestamp(0), Some(1.0))];
        let mut found = vec![takt_promql::SeriesData::new(labels, floats)];
        add_histograms(&mut found, parts);
        let [series] = &found[..] else {
            panic!("{found:?}")
        };
        let shown: Vec<String> = series
            .histograms
            .iter()
            .map(|point| format!("{} {}", point.at.0, point.histogram))
            .collect();
        // At 4 the bucket has more observations than the count.
        let expected = [
            "1 {count:2, sum:7, (1,2]:2}",
            "2 {count:3, sum:NaN, (2,4]:3}",
        ];
        assert_eq!(shown, expected);
        assert_eq!(series.stale, [Timestamp(3)]);
        assert_eq!(series.points.len(), 1);
    }
}
