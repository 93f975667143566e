//! Values of queries over down-sampled rows.
//!
//! A row stores minimum, maximum, mean, last value, number and increase of its samples. The
//! function of the query selects the column: the maximum of a day is the maximum of the rows'
//! maxima, not of their last values. docs/storage.md has the table.

use super::Resolution;
use crate::{Sample, is_stale};
use takt_model::Timestamp;

/// Number of values for a row of an hour: queries look back five minutes for a value.
const STEPS_OF_AN_HOUR: u32 = 12;

/// Column of a row that replaces its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// The last value. For rows of an hour: the line between both ends for a counter, the mean for
    /// other metrics.
    #[default]
    Last,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The mean.
    Mean,
    /// The sum.
    Sum,
    /// One value for each sample.
    Count,
    /// A counter without resets that ends at the last value: the increases before a reset are
    /// subtracted from earlier values.
    Growth,
}

impl Reading {
    /// Returns the column that a PromQL function over a range needs.
    pub fn of_function(name: &str) -> Self {
        match name {
            "min_over_time" => Self::Min,
            "max_over_time" => Self::Max,
            "avg_over_time" => Self::Mean,
            "sum_over_time" => Self::Sum,
            "count_over_time" => Self::Count,
            "rate" | "increase" | "irate" => Self::Growth,
            _ => Self::Last,
        }
    }

    /// SQL for the number of values that a row becomes. The column `step` counts them from the end
    /// of the interval.
    pub(super) fn steps(self, resolution: Resolution) -> String {
        match (self, resolution) {
            (Self::Count, _) => "samples".to_owned(),
            (_, Resolution::Hour) => STEPS_OF_AN_HOUR.to_string(),
            (_, Resolution::FiveMinutes | Resolution::Raw) => "1".to_owned(),
        }
    }

    /// SQL for each of these values. `is_counter` is a SQL condition.
    pub(super) fn value(self, resolution: Resolution, is_counter: &str) -> String {
        let steps = if resolution == Resolution::Hour {
            STEPS_OF_AN_HOUR
        } else {
            1
        };

        match self {
            Self::Last if resolution == Resolution::Hour => {
                format!(
                    "CASE WHEN {is_counter} THEN greatest(last - increase * step / {steps}, 0) ELSE avg END"
                )
            }
            Self::Last | Self::Growth => "last".to_owned(),
            Self::Min => "min".to_owned(),
            Self::Max => "max".to_owned(),
            Self::Mean | Self::Count => "avg".to_owned(),
            Self::Sum => format!("avg * samples / {steps}"),
        }
    }

    /// SQL for the increase in each of these values.
    pub(super) fn growth(resolution: Resolution) -> String {
        match resolution {
            Resolution::Hour => format!("increase / {STEPS_OF_AN_HOUR}"),
            Resolution::FiveMinutes | Resolution::Raw => "increase".to_owned(),
        }
    }

    /// Joins two values of the same time, the one from the earlier block first. This happens if
    /// blocks share an interval, or if a sample lies on the end of a row's interval.
    pub(crate) fn join(self, earlier: f64, later: f64) -> f64 {
        match self {
            Self::Last | Self::Count | Self::Growth => later,
            // A staleness marker is not a value.
            _ if is_stale(later) => earlier,
            _ if is_stale(earlier) => later,
            Self::Min => earlier.min(later),
            Self::Max => earlier.max(later),
            Self::Mean => f64::midpoint(earlier, later),
            Self::Sum => earlier + later,
        }
    }
}

/// Returns the samples of a counter without resets, from rows in order of time: timestamp, last
/// value, and increase since the row before.
pub(super) fn never_falling(rows: &[(Timestamp, f64, f64)]) -> Vec<Sample> {
    let Some(&(_, last, _)) = rows.last() else {
        return Vec::new();
    };
    // Backwards from the last value, so that a raw sample after the last row continues the counter.
    let mut value = last;
    let mut samples: Vec<Sample> = Vec::with_capacity(rows.len());
    for &(at, _, growth) in rows.iter().rev() {
        if samples.last().is_none_or(|sample| sample.at != at) {
            samples.push(Sample { at, value });
        }
        value -= growth;
    }
    samples.reverse();
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_restarted_within_a_row_does_not_fall() {
        let at = Timestamp;
        let rows = [
            (at(10), 90.0, 20.0),
            (at(20), 5.0, 15.0),
            (at(30), 8.0, 3.0),
            (at(30), 9.0, 1.0),
        ];
        let found: Vec<_> = never_falling(&rows)
            .iter()
            .map(|sample| (sample.at.0, sample.value))
            .collect();
        assert_eq!(found, [(10, -10.0), (20, 5.0), (30, 9.0)]);
        assert_eq!(never_falling(&[]), []);
    }
}
