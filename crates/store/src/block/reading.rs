//! What stands for samples where only down-sampled rows are left.
//!
//! A row knows the least, the greatest, the mean, the last and the number of its samples and by how much they grew. Which of
//! them answers depends on the question: the greatest value of a day is that of the rows' greatest ones, not that of their
//! last ones. docs/storage.md has the table.

use super::Resolution;
use crate::{Sample, is_stale};
use takt_model::Timestamp;

/// A query looks back five minutes for a value, so an hour is told as twelve times five minutes.
const STEPS_OF_AN_HOUR: u32 = 12;

/// Which of a row's columns stands for its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// The last value; of an hour the line between its two ends for a counter, the mean for anything else.
    #[default]
    Last,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The mean.
    Mean,
    /// The sum.
    Sum,
    /// As many values as there were samples.
    Count,
    /// A counter that ends at the last value and never fell: what was lost to its restarts is subtracted before.
    Growth,
}

impl Reading {
    /// What a function of PromQL needs of the window that it eats.
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

    /// How many rows one row of a file becomes, as a SQL expression: `step` counts them from the end of the interval.
    pub(super) fn steps(self, resolution: Resolution) -> String {
        match (self, resolution) {
            (Self::Count, _) => "samples".to_owned(),
            (_, Resolution::Hour) => STEPS_OF_AN_HOUR.to_string(),
            (_, Resolution::FiveMinutes | Resolution::Raw) => "1".to_owned(),
        }
    }

    /// The value of each of them; `is_counter` is a condition.
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

    /// By how much the samples grew in each of them.
    pub(super) fn growth(resolution: Resolution) -> String {
        match resolution {
            Resolution::Hour => format!("increase / {STEPS_OF_AN_HOUR}"),
            Resolution::FiveMinutes | Resolution::Raw => "increase".to_owned(),
        }
    }

    /// Two values of one instant as one, that of the earlier block first: rows of one interval that blocks share, or a row and
    /// the sample at its very end.
    pub(crate) fn join(self, earlier: f64, later: f64) -> f64 {
        match self {
            Self::Last | Self::Count | Self::Growth => later,
            // The end of a series is no value.
            _ if is_stale(later) => earlier,
            _ if is_stale(earlier) => later,
            Self::Min => earlier.min(later),
            Self::Max => earlier.max(later),
            Self::Mean => f64::midpoint(earlier, later),
            Self::Sum => earlier + later,
        }
    }
}

/// The samples of a counter that never falls, from its rows in order of time: the instant, the last value and the growth
/// since the row before.
pub(super) fn never_falling(rows: &[(Timestamp, f64, f64)]) -> Vec<Sample> {
    let Some(&(_, last, _)) = rows.last() else {
        return Vec::new();
    };
    // Backwards from the end, so that a sample after the last row goes on from it.
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
