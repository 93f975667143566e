//! Segments: the tables of `hot.duckdb` that hold the samples of the last hours.
//!
//! The writer appends to the newest segment. When that segment is old or large enough, the writer
//! begins the next one; the compactor seals the complete segment into a block and drops its table.
//! Nothing is deleted from the middle of a table. A late sample needs no special case: it goes into
//! the segment that is newest when the sample arrives.

mod reader;
mod state;
mod writer;

pub(crate) use reader::read_range;
pub(crate) use state::{load, open_segment};
pub use writer::Health;
pub(crate) use writer::SampleWriter;

use takt_model::Timestamp;

/// Number of a segment. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment(pub u32);

impl Segment {
    /// Name of its table in `hot.duckdb`.
    pub fn table(self) -> String {
        match self.0 {
            // The table that existed before segments were introduced.
            0 => "samples".to_owned(),
            number => format!("samples_{number}"),
        }
    }

    /// Returns the segment stored in a table, `None` for other tables.
    pub fn of(table: &str) -> Option<Self> {
        let number = match table {
            "samples" => 0,
            other => other.strip_prefix("samples_")?.parse().ok()?,
        };
        Some(Self(number)).filter(|segment| segment.table() == table)
    }

    /// SQL that creates the table: append-only, in order of time, without an index. A NULL value
    /// marks the end of a series, because DuckDB does not preserve the bits of Prometheus'
    /// staleness marker, a NaN.
    pub fn create(self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS hot.{} (series INTEGER NOT NULL, ts TIMESTAMP_MS NOT NULL, value DOUBLE)",
            self.table()
        )
    }
}

/// Returns a time as a literal of the column's type, so that DuckDB can skip row groups.
pub(crate) fn instant(at: Timestamp) -> String {
    // Range of DuckDB's epoch_ms: about the years -290,000 to 290,000.
    const LIMIT: i64 = 9_000_000_000_000_000;
    format!("epoch_ms({})::TIMESTAMP_MS", at.0.clamp(-LIMIT, LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_segment() {
        for number in [0, 1, 12] {
            assert_eq!(Segment::of(&Segment(number).table()), Some(Segment(number)));
        }
        for other in ["series", "samples_", "samples_0", "samples_01", "samples_x"] {
            assert_eq!(Segment::of(other), None, "{other}");
        }
    }
}
