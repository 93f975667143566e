//! Segments: the samples between two seals.
//!
//! The writer appends to the newest segment. When that segment is old or large enough, the writer
//! begins the next one; the compactor seals the complete segment into a block and deletes it. A
//! late sample needs no special case: it goes into the segment that is newest when the sample
//! arrives.
//!
//! A segment is a file ([`crate::unsealed`]). Earlier versions wrote a table of `hot.duckdb`
//! instead; such tables are read until they are sealed.

mod reader;
mod state;
mod writer;

pub(crate) use reader::read_range;
pub(crate) use state::{OpenSegment, load};
pub use writer::Health;
pub(crate) use writer::SampleWriter;

use takt_model::Timestamp;

/// Number of a segment. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment(pub u32);

impl Segment {
    /// Name of its table in `hot.duckdb`, if an earlier version wrote it.
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
