//! Running sums of series that are pushed as increases.

use hashbrown::HashMap;
use takt_model::Timestamp;
use takt_store::Column;

/// Sum of a series, and the time of its newest increase.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sum {
    at: Timestamp,
    value: f64,
}

/// Sums of all series. They begin with zero, or with the sum that was stored before a restart.
#[derive(Debug, Default)]
pub(super) struct RunningSums(HashMap<Column, Sum>);

impl RunningSums {
    /// Whether the sum of a series is known.
    pub fn knows(&self, column: Column) -> bool {
        self.0.contains_key(&column)
    }

    /// Continues a sum that was stored.
    pub fn resume(&mut self, column: Column, at: Timestamp, value: f64) {
        self.0.insert(column, Sum { at, value });
    }

    /// Adds an increase. Returns the sum; `None` if the increase, or a later one, was added before.
    pub fn add(&mut self, column: Column, at: Timestamp, increase: f64) -> Option<f64> {
        let sum = self.0.entry(column).or_insert(Sum {
            at: Timestamp(i64::MIN),
            value: 0.0,
        });

        if at <= sum.at {
            return None;
        }

        sum.at = at;
        sum.value += increase;
        Some(sum.value)
    }

    /// Takes back an increase whose sample could not be stored.
    pub fn take_back(&mut self, column: Column, at: Timestamp, increase: f64) {
        if let Some(sum) = self.0.get_mut(&column) {
            sum.value -= increase;
            if sum.at == at {
                sum.at = at.minus(std::time::Duration::from_millis(1));
            }
        }
    }

    /// Forgets a series.
    pub fn forget(&mut self, column: Column) {
        self.0.remove(&column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increase_that_comes_again_is_added_once() {
        let mut sums = RunningSums::default();
        let column = Column::at(3);
        assert_eq!(sums.add(column, Timestamp(10), 2.0), Some(2.0));
        assert_eq!(sums.add(column, Timestamp(10), 2.0), None);
        assert_eq!(sums.add(column, Timestamp(20), 3.0), Some(5.0));
        assert_eq!(sums.add(Column::at(4), Timestamp(20), 1.0), Some(1.0));
        // The store could not take the sample; the sender repeats it.
        sums.take_back(column, Timestamp(20), 3.0);
        assert_eq!(sums.add(column, Timestamp(20), 3.0), Some(5.0));
        sums.forget(column);
        assert_eq!(sums.add(column, Timestamp(30), 1.0), Some(1.0));
        sums.resume(column, Timestamp(40), 7.0);
        assert_eq!(sums.add(column, Timestamp(40), 2.0), None);
        assert_eq!(sums.add(column, Timestamp(50), 2.0), Some(9.0));
    }
}
