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

/// An increase that was added, and what it was added to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AddedIncrease {
    column: Column,
    at: Timestamp,
    before: Sum,
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

    /// Adds an increase. Returns the sum, and what takes it back; `None` if the increase, or a later one, was added
    /// before.
    pub fn add(
        &mut self,
        column: Column,
        at: Timestamp,
        increase: f64,
    ) -> Option<(f64, AddedIncrease)> {
        let sum = self.0.entry(column).or_insert(Sum {
            at: Timestamp(i64::MIN),
            value: 0.0,
        });

        if at <= sum.at {
            return None;
        }

        let before = *sum;
        sum.at = at;
        sum.value += increase;
        let added = AddedIncrease { column, at, before };
        Some((sum.value, added))
    }

    /// Takes back an increase whose sample could not be stored, so that its repetition counts. Of several, the newest
    /// first. An increase to which another was added stays: the sum of the later sample has it.
    pub fn take_back(&mut self, added: AddedIncrease) {
        if let Some(sum) = self.0.get_mut(&added.column)
            && sum.at == added.at
        {
            *sum = added.before;
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
        let mut add = |column, at, increase| {
            let added = sums.add(column, Timestamp(at), increase);
            added.map(|(sum, _)| sum)
        };
        assert_eq!(add(column, 10, 2.0), Some(2.0));
        assert_eq!(add(column, 10, 2.0), None);
        assert_eq!(add(column, 20, 3.0), Some(5.0));
        assert_eq!(add(Column::at(4), 20, 1.0), Some(1.0));
        sums.forget(column);
        let mut add = |at, increase| Some(sums.add(column, Timestamp(at), increase)?.0);
        assert_eq!(add(30, 1.0), Some(1.0));
        sums.resume(column, Timestamp(40), 7.0);
        let mut add = |at, increase| Some(sums.add(column, Timestamp(at), increase)?.0);
        assert_eq!(add(40, 2.0), None);
        assert_eq!(add(50, 2.0), Some(9.0));
    }

    #[test]
    fn increases_that_could_not_be_stored_are_added_when_they_come_again() {
        let mut sums = RunningSums::default();
        let column = Column::at(3);
        let mut add = |at, increase| sums.add(column, Timestamp(at), increase).unwrap();
        assert_eq!(add(10, 2.0).0, 2.0);
        // Two of one request, which the store did not take.
        let failed = [add(20, 3.0).1, add(25, 4.0).1];
        failed.into_iter().rev().for_each(|one| sums.take_back(one));

        let mut add = |at, increase| sums.add(column, Timestamp(at), increase).unwrap();
        // An earlier one than those, too.
        assert_eq!(add(15, 1.0).0, 3.0);
        assert_eq!(add(20, 3.0).0, 6.0);
        let (sum, first) = add(25, 4.0);
        assert_eq!(sum, 10.0);

        // The next request was stored meanwhile: its sum has the increase of the one that failed.
        assert_eq!(add(30, 1.0).0, 11.0);
        sums.take_back(first);
        assert_eq!(sums.add(column, Timestamp(25), 4.0), None);
        assert_eq!(sums.add(column, Timestamp(40), 1.0).unwrap().0, 12.0);
    }
}
