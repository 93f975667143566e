//! The unsealed samples that a statement needs. DuckDB's C API passes no conditions to a table
//! function, so `sql/needed.rs` reads them from the statement's plan.

use super::read::ALL_TIME;
use std::fmt;
use takt_model::Timestamp;

/// Variable of a SQL session with the text of its statement's [`Needed`].
pub(crate) const VARIABLE: &str = "takt_needed";

/// Samples in a range of time, of some metrics or all. Scans may leave other samples out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needed {
    /// First and last time.
    pub range: (Timestamp, Timestamp),
    /// Hashes of metric names; `None` for all metrics.
    pub metrics: Option<Vec<i32>>,
}

impl Needed {
    /// All samples.
    pub const ALL: Self = Self {
        range: ALL_TIME,
        metrics: None,
    };

    /// Returns the samples that this or another scan needs.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let (from, until) = self.range;
        let metrics = self.metrics.zip(other.metrics);
        Self {
            range: (from.min(other.range.0), until.max(other.range.1)),
            metrics: metrics.map(|(mut all, theirs)| {
                // A statement scans each segment, mostly for the same metrics.
                all.extend(theirs);
                all.sort_unstable();
                all.dedup();
                all
            }),
        }
    }

    /// Reads a text that [`fmt::Display`] wrote. Any other text needs all samples.
    pub fn parse(text: &str) -> Self {
        let read = || {
            let mut words = text.split(' ');
            let mut time = || words.next()?.parse().ok().map(Timestamp);
            let range = (time()?, time()?);
            let metrics = match words.next()? {
                "all" => None,
                "of" => Some(words.map(str::parse).collect::<Result<_, _>>().ok()?),
                _ => return None,
            };
            Some(Self { range, metrics })
        };
        read().unwrap_or(Self::ALL)
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.range;
        let metrics = self.metrics.as_ref();
        write!(f, "{} {} {}", from.0, to.0, metrics.map_or("all", |_| "of"))?;
        metrics
            .into_iter()
            .flatten()
            .try_for_each(|metric| write!(f, " {metric}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_range_and_the_metrics() {
        let needed = |from, to, metrics| Needed {
            range: (Timestamp(from), Timestamp(to)),
            metrics,
        };
        for (needed, text) in [
            (needed(-5, 7, None), "-5 7 all"),
            (needed(1, 2, Some(vec![-3, 4])), "1 2 of -3 4"),
            (needed(1, 2, Some(vec![])), "1 2 of"),
        ] {
            assert_eq!(needed.to_string(), text);
            assert_eq!(Needed::parse(text), needed);
        }
        for wrong in ["", "1", "1 2", "1 x all", "1 2 of x", "1 2 some"] {
            assert_eq!(Needed::parse(wrong), Needed::ALL, "{wrong}");
        }
    }

    #[test]
    fn two_scans_need_what_either_needs() {
        for (one, other, both) in [
            ("5 9 of 1", "2 6 of 2 3", "2 9 of 1 2 3"),
            ("5 9 of 2 1", "5 9 of 2 1", "5 9 of 1 2"),
            ("2 9 of 1 2 3", "3 12 all", "2 12 all"),
            ("2 12 all", "4 4 of 1", "2 12 all"),
        ] {
            let found = Needed::parse(one).with(Needed::parse(other));
            assert_eq!(found, Needed::parse(both));
        }
    }
}
