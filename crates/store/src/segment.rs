//! Segments: the tables that hot samples are in.
//!
//! Samples go into the newest segment. From time to time a new one is begun; the one before is then complete, is sealed
//! into a block as a whole, and its table is dropped. So nothing is ever deleted from the middle of a table, and a
//! sample that comes late is no special case: it is in the segment of the time when it came.

/// The number of a segment; numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment(pub u32);

impl Segment {
    /// Its table in `hot.duckdb`.
    pub fn table(self) -> String {
        match self.0 {
            // What was there before there were segments.
            0 => "samples".to_owned(),
            number => format!("samples_{number}"),
        }
    }

    /// The segment of a table.
    pub fn of(table: &str) -> Option<Self> {
        let number = match table {
            "samples" => 0,
            other => other.strip_prefix("samples_")?.parse().ok()?,
        };
        Some(Self(number)).filter(|segment| segment.table() == table)
    }

    /// The statement that makes its table: append-only, in order of time, no index. A NULL value says that the series
    /// ended here (Prometheus' staleness marker, which DuckDB could not keep as a NaN).
    pub fn create(self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS hot.{} (series INTEGER NOT NULL, ts TIMESTAMP_MS NOT NULL, value DOUBLE)",
            self.table()
        )
    }
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
