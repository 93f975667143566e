//! A walk over several columns of a table at once: which identifiers to ask for next, and what an answer means. No device is
//! trusted to end its tables, or to send identifiers in order.

use super::value::{ObjectId, SnmpValue};
use std::collections::BTreeMap;

/// Most rows of one table. The largest chassis switches have about two thousand ports.
const MAX_ROWS: usize = 4096;

/// Longest index of a row, in arcs. Those of the profiles have up to three.
const MAX_INDEX: usize = 16;

/// The rows of a table by their index. A row has a value for each column; columns that the device lacks stay empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ColumnRows {
    pub rows: BTreeMap<Vec<u32>, Vec<Option<SnmpValue>>>,
    /// Why rows may be missing.
    pub defect: Option<WalkDefect>,
}

impl ColumnRows {
    /// Value of a column in the row with this index.
    pub(crate) fn get(&self, index: &[u32], column: usize) -> Option<&SnmpValue> {
        self.rows.get(index)?.get(column)?.as_ref()
    }
}

/// A fault of a device that ends a walk; the rows until then are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WalkDefect {
    /// The next identifier is not behind the one that was asked for, so the walk would not end.
    #[error("the device repeats rows of a table")]
    NotIncreasing,
    /// The table goes on and on.
    #[error("a table has more than {MAX_ROWS} rows; the others are left out")]
    TooManyRows,
    /// Nothing came, and no end either.
    #[error("the device answers without a value")]
    Empty,
}

/// The state of a walk.
#[derive(Debug)]
pub(crate) struct ColumnWalk {
    columns: Vec<WalkedColumn>,
    found: ColumnRows,
}

#[derive(Debug)]
struct WalkedColumn {
    base: ObjectId,
    /// The last identifier that the device has sent.
    cursor: ObjectId,
    is_done: bool,
}

impl ColumnWalk {
    /// A walk over these columns.
    pub(crate) fn new(columns: &[ObjectId]) -> Self {
        let columns = columns
            .iter()
            .map(|base| WalkedColumn {
                base: base.clone(),
                cursor: base.clone(),
                is_done: false,
            })
            .collect();
        Self {
            columns,
            found: ColumnRows::default(),
        }
    }

    /// The identifiers to ask for what follows them; empty at the end of the walk.
    pub(crate) fn next(&self) -> Vec<ObjectId> {
        let open = self.columns.iter().filter(|column| !column.is_done);
        open.map(|column| column.cursor.clone()).collect()
    }

    /// Takes the answer for all identifiers of [`next`](Self::next): for each of them the first value behind it, then the
    /// second for each, and so on. The device may leave out the end of the answer.
    pub(crate) fn take(&mut self, answer: Vec<(ObjectId, SnmpValue)>) {
        let open: Vec<usize> = (0..self.columns.len())
            .filter(|at| !self.columns[*at].is_done)
            .collect();
        if answer.is_empty() || open.is_empty() {
            return self.end(WalkDefect::Empty);
        }

        for (position, (id, value)) in answer.into_iter().enumerate() {
            let at = open[position % open.len()];
            let column = &mut self.columns[at];
            // Behind its end, a column repeats the end or shows the next one.
            if column.is_done {
                continue;
            }
            let index = id.below(&column.base).filter(|index| !index.is_empty());
            let Some(index) = index.filter(|_| value != SnmpValue::End) else {
                column.is_done = true;
                continue;
            };
            if id <= column.cursor {
                column.is_done = true;
                self.found.defect = Some(WalkDefect::NotIncreasing);
                continue;
            }

            let index = index.to_vec();
            column.cursor = id;
            if index.len() > MAX_INDEX {
                continue;
            }
            let is_full = self.found.rows.len() >= MAX_ROWS;
            if is_full && !self.found.rows.contains_key(&index) {
                return self.end(WalkDefect::TooManyRows);
            }
            let count = self.columns.len();
            let row = self
                .found
                .rows
                .entry(index)
                .or_insert_with(|| vec![None; count]);
            row[at] = (value != SnmpValue::Absent).then_some(value);
        }
    }

    fn end(&mut self, defect: WalkDefect) {
        self.found.defect = Some(defect);
        for column in &mut self.columns {
            column.is_done = true;
        }
    }

    /// Returns the rows.
    pub(crate) fn finish(self) -> ColumnRows {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ObjectId {
        ObjectId::parse(text).unwrap()
    }

    fn answer(of: &[(&str, i64)]) -> Vec<(ObjectId, SnmpValue)> {
        let value = |(text, number): &(&str, i64)| (id(text), SnmpValue::Integer(*number));
        of.iter().map(value).collect()
    }

    fn walk() -> ColumnWalk {
        ColumnWalk::new(&[id("1.1"), id("1.2")])
    }

    #[test]
    fn columns_of_different_lengths_come_together() {
        let mut walk = walk();
        // The second column lacks row 2, and its end shows the next column.
        walk.take(answer(&[
            ("1.1.1", 11),
            ("1.2.1", 21),
            ("1.1.2", 12),
            ("1.2.3", 23),
        ]));
        assert_eq!(walk.next(), [id("1.1.2"), id("1.2.3")]);
        walk.take(answer(&[
            ("1.1.3", 13),
            ("1.3.1", 31),
            ("1.2.1", 21),
            ("1.3.2", 32),
        ]));
        assert!(walk.next().is_empty());

        let found = walk.finish();
        assert_eq!(found.defect, None);
        let number = |row: u32, column| found.get(&[row], column).and_then(SnmpValue::code);
        assert_eq!((number(1, 0), number(1, 1)), (Some(11), Some(21)));
        assert_eq!((number(2, 0), number(2, 1)), (Some(12), None));
        assert_eq!((number(3, 0), number(3, 1)), (Some(13), Some(23)));
        assert_eq!(number(4, 0), None);
    }

    #[test]
    fn an_answer_may_be_cut_within_a_row() {
        let mut walk = walk();
        walk.take(answer(&[("1.1.1", 11), ("1.2.1", 21), ("1.1.2", 12)]));
        assert_eq!(walk.next(), [id("1.1.2"), id("1.2.1")]);
    }

    #[test]
    fn the_end_of_the_view_may_come_many_times() {
        let mut walk = walk();
        let ends = ["1.1.1", "1.2.1"].map(|text| (id(text), SnmpValue::End));
        walk.take(answer(&[("1.1.1", 11), ("1.2.1", 21)]));
        walk.take(ends.iter().cycle().take(50).cloned().collect());
        assert!(walk.next().is_empty());
        assert_eq!(walk.finish().defect, None);
    }

    #[test]
    fn identifiers_that_do_not_increase_end_their_column_only() {
        for repeated in ["1.1.2", "1.1.1", "1.1"] {
            let mut walk = walk();
            walk.take(answer(&[("1.1.2", 11), ("1.2.1", 21)]));
            walk.take(answer(&[(repeated, 1), ("1.2.2", 22)]));
            assert_eq!(walk.next(), [id("1.2.2")], "{repeated}");
        }
        let mut walk = ColumnWalk::new(&[id("1.1")]);
        walk.take(answer(&[("1.1.5", 1), ("1.1.4", 2)]));
        let found = walk.finish();
        assert_eq!(found.defect, Some(WalkDefect::NotIncreasing));
        assert_eq!(found.rows.len(), 1);
    }

    #[test]
    fn an_endless_table_and_an_empty_answer_end_the_walk() {
        let mut walk = ColumnWalk::new(&[id("1.1")]);
        let mut answers = 0;
        while !walk.next().is_empty() {
            answers += 1;
            let from: u32 = answers * 25;
            let rows =
                (from..from + 25).map(|row| (ObjectId(vec![1, 1, row]), SnmpValue::Integer(1)));
            walk.take(rows.collect());
            assert!(answers < 1000);
        }
        let found = walk.finish();
        assert_eq!(found.defect, Some(WalkDefect::TooManyRows));
        assert_eq!(found.rows.len(), MAX_ROWS);

        let mut walk = ColumnWalk::new(&[id("1.1")]);
        walk.take(Vec::new());
        assert!(walk.next().is_empty());
        assert_eq!(walk.finish().defect, Some(WalkDefect::Empty));
    }

    #[test]
    fn endless_indices_are_left_out() {
        let mut walk = ColumnWalk::new(&[id("1.1")]);
        let long = ObjectId([1, 1].into_iter().chain([7; 100]).collect());
        walk.take(vec![(long.clone(), SnmpValue::Integer(1))]);
        assert_eq!(walk.next(), [long]);
        assert!(walk.finish().rows.is_empty());
    }
}
