//! Down-sampling: one row for all samples of five minutes or an hour.
//!
//! A row carries the end of its interval and covers `(ts - interval, ts]`, like a PromQL range. The
//! increase is that of a counter: the sum of differences between samples, where a smaller value
//! means a reset. The first row of a block continues from the last row of the block before, so
//! nothing is lost between blocks.

use super::Resolution;
use super::write::{Summary, key_fields};
use crate::is_stale;
use duckdb::arrow::array::{
    ArrayRef, Float64Array, Int32Array, RecordBatch, TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use hashbrown::HashMap;
use std::sync::Arc;

/// All samples of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rollup {
    /// End of the interval, in milliseconds since 1970.
    pub at: i64,
    pub samples: u32,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
    pub last: f64,
    pub increase: f64,
}

impl Rollup {
    fn begin(at: i64, value: f64) -> Self {
        Self {
            at,
            samples: 1,
            min: value,
            max: value,
            sum: value,
            last: value,
            increase: 0.0,
        }
    }

    fn add(&mut self, value: f64) {
        self.samples += 1;
        // A NaN counts only without any other value, as in PromQL's min and max.
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value;
        self.last = value;
    }

    /// Mean of the samples.
    pub fn avg(&self) -> f64 {
        self.sum / f64::from(self.samples)
    }
}

/// Returns the rows of one series. Samples are in order of time; `before` is the last value before
/// them, if known.
pub(super) fn roll_up(
    interval: i64,
    mut before: Option<f64>,
    at: &[i64],
    values: &[f64],
    mut row: impl FnMut(Rollup),
) {
    let mut current: Option<Rollup> = None;
    let samples = at
        .iter()
        .zip(values)
        .filter(|&(_, &value)| !is_stale(value));

    for (&at, &value) in samples {
        // A sample at the end of an interval belongs to it, and one at its beginning to the interval before.
        let end = at.saturating_add(interval - 1).div_euclid(interval) * interval;
        let mut rollup = match current.take() {
            Some(mut open) if open.at == end => {
                open.add(value);
                open
            }
            done => {
                done.into_iter().for_each(&mut row);
                Rollup::begin(end, value)
            }
        };

        // A smaller value means that the counter began again at zero.
        if let Some(before) = before {
            rollup.increase += if value >= before {
                value - before
            } else {
                value
            };
        }

        before = Some(value);
        current = Some(rollup);
    }
    current.into_iter().for_each(row);
}

/// Rows to be written.
pub(super) struct RollupColumns {
    interval: i64,
    /// Last value of each series in the block before.
    before: HashMap<u32, f64>,
    metric_hash: Vec<i32>,
    series: Vec<i32>,
    rows: Vec<Rollup>,
    pub summary: Summary,
}

impl RollupColumns {
    pub fn new(resolution: Resolution, before: HashMap<u32, f64>) -> Self {
        Self {
            interval: resolution.milliseconds(),
            before,
            metric_hash: Vec::new(),
            series: Vec::new(),
            rows: Vec::new(),
            summary: Summary::default(),
        }
    }

    pub fn schema() -> SchemaRef {
        let mut fields = key_fields();
        fields.push(Field::new("samples", DataType::Int32, false));
        fields.extend(
            ["min", "max", "avg", "last", "increase"]
                .map(|name| Field::new(name, DataType::Float64, false)),
        );
        Arc::new(Schema::new(fields))
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn push(&mut self, series: u32, metric_hash: i32, at: &[i64], values: &[f64]) {
        let Self { rows, summary, .. } = self;
        roll_up(
            self.interval,
            self.before.get(&series).copied(),
            at,
            values,
            |row| {
                let values = [
                    f64::from(row.samples),
                    row.min,
                    row.max,
                    row.avg(),
                    row.last,
                    row.increase,
                ];
                // The digest is compared with what the file returns when it is read back.
                summary.row(series, metric_hash, row.at, &values);
                rows.push(row);
            },
        );

        let end = self.rows.len();
        self.metric_hash.resize(end, metric_hash);
        self.series.resize(end, series.cast_signed());
    }

    pub fn take(&mut self) -> RecordBatch {
        let rows = std::mem::take(&mut self.rows);
        let floats = |of: fn(&Rollup) -> f64| -> ArrayRef {
            Arc::new(
                rows.iter()
                    .map(of)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .collect::<Float64Array>(),
            )
        };

        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(std::mem::take(&mut self.metric_hash))),
            Arc::new(Int32Array::from(std::mem::take(&mut self.series))),
            Arc::new(TimestampMillisecondArray::from(
                rows.iter().map(|row| row.at).collect::<Vec<_>>(),
            )),
            Arc::new(
                rows.iter()
                    .map(|row| row.samples.cast_signed())
                    .collect::<Int32Array>(),
            ),
            floats(|row| row.min),
            floats(|row| row.max),
            floats(Rollup::avg),
            floats(|row| row.last),
            floats(|row| row.increase),
        ];

        RecordBatch::try_new(Self::schema(), columns)
            .expect("nine columns of one length and of the schema's types")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::STALE;
    use proptest::prelude::*;

    fn rows(interval: i64, samples: &[(i64, f64)]) -> Vec<Rollup> {
        let (at, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
        let mut rows = Vec::new();
        roll_up(interval, None, &at, &values, |row| rows.push(row));
        rows
    }

    #[test]
    fn an_interval_is_open_on_the_left_and_a_reset_begins_at_zero() {
        // A staleness marker is no sample, and 2 after 9 is a reset.
        let found = rows(
            10,
            &[
                (10, 5.0),
                (11, 6.0),
                (15, 9.0),
                (16, STALE),
                (20, 2.0),
                (35, 3.0),
            ],
        );
        let row = |at, samples, min, max, sum, last, increase| Rollup {
            at,
            samples,
            min,
            max,
            sum,
            last,
            increase,
        };
        assert_eq!(
            found,
            [
                row(10, 1, 5.0, 5.0, 5.0, 5.0, 0.0),
                row(20, 3, 2.0, 9.0, 17.0, 2.0, 6.0),
                row(40, 1, 3.0, 3.0, 3.0, 3.0, 1.0),
            ]
        );
        assert!((found[1].avg() - 17.0 / 3.0).abs() < 1e-12);

        // Intervals before 1970 end at their upper bound, too.
        assert_eq!(
            rows(10, &[(-3, 1.0), (0, 2.0)])
                .iter()
                .map(|row| row.at)
                .collect::<Vec<_>>(),
            [0]
        );
    }

    proptest! {
        #[test]
        fn increases_do_not_depend_on_block_limits(
            steps in proptest::collection::vec((1_i64..20, 0_u32..100), 1..80),
            cut in 0_usize..80,
        ) {
            let mut at = 0;
            let samples: Vec<(i64, f64)> = steps.iter().map(|&(step, value)| { at += step; (at, f64::from(value)) }).collect();
            let growth = |before, samples: &[(i64, f64)]| {
                let (at, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
                let mut growth = 0.0;
                roll_up(10, before, &at, &values, |row| growth += row.increase);
                growth
            };
            // Another block begins at the cut, with the last value of the one before.
            let (one, other) = samples.split_at(cut.min(samples.len()));
            let before = one.last().map(|&(_, value)| value);
            prop_assert_eq!(growth(None, one) + growth(before, other), growth(None, &samples));
        }

        #[test]
        fn hourly_rows_combine_five_minute_rows(
            steps in proptest::collection::vec((1_i64..900_000, -100_i32..100), 1..80)
        ) {
            let mut at = 0;
            let samples: Vec<(i64, f64)> = steps.iter().map(|&(step, value)| { at += step; (at, f64::from(value)) }).collect();
            let fine = rows(300_000, &samples);
            let coarse = rows(3_600_000, &samples);

            prop_assert_eq!(fine.iter().map(|row| row.samples).sum::<u32>() as usize, samples.len());
            for row in coarse {
                let part: Vec<_> = fine.iter().filter(|f| f.at > row.at - 3_600_000 && f.at <= row.at).collect();
                prop_assert_eq!(part.iter().map(|f| f.samples).sum::<u32>(), row.samples);
                prop_assert_eq!(part.iter().map(|f| f.min).fold(f64::INFINITY, f64::min), row.min);
                prop_assert_eq!(part.iter().map(|f| f.max).fold(f64::NEG_INFINITY, f64::max), row.max);
                prop_assert_eq!(part.last().map(|f| f.last), Some(row.last));
                prop_assert!((part.iter().map(|f| f.increase).sum::<f64>() - row.increase).abs() < 1e-9);
            }
        }
    }
}
