//! What a block is called: `2026-11-21T13-00_12-15.0`.
//!
//! The date is for people. The numbers are those of the segments whose samples the block holds, so the names alone say
//! which block stands in for which: one that holds the segments of another has replaced it, and of two with the same
//! segments the later edition counts. Nothing else has to be written down, and a rename publishes a block.

use jiff::tz::TimeZone;
use std::fmt;
use std::str::FromStr;
use takt_model::Timestamp;

/// The time between two rows of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// Every sample as it was scraped.
    Raw,
    /// One row for five minutes.
    FiveMinutes,
    /// One row an hour.
    Hour,
}

impl Resolution {
    /// All, the finest first.
    pub const ALL: [Self; 3] = [Self::Raw, Self::FiveMinutes, Self::Hour];

    /// The folder of its blocks, and its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
        }
    }

    /// Milliseconds of one row; 1 for raw samples.
    pub fn milliseconds(self) -> i64 {
        match self {
            Self::Raw => 1,
            Self::FiveMinutes => 300_000,
            Self::Hour => 3_600_000,
        }
    }
}

/// The name of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// When its first sample was taken, to the minute.
    date: String,
    /// The first segment in it.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// Counts up when a block is written anew without some series.
    pub edition: u32,
}

impl Name {
    pub fn new(from: Timestamp, first: u32, last: u32, edition: u32) -> Self {
        let at = jiff::Timestamp::from_millisecond(from.0)
            .unwrap_or_default()
            .to_zoned(TimeZone::UTC);
        Self {
            date: at.strftime("%Y-%m-%dT%H-%M").to_string(),
            first,
            last,
            edition,
        }
    }

    /// Whether this block has the segments of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether this block has what `other` has, and so stands in for it.
    pub fn replaces(&self, other: &Self) -> bool {
        let is_same = self.first == other.first && self.last == other.last;
        self.covers(other) && (!is_same || self.edition > other.edition)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}_{}-{}.{}",
            self.date, self.first, self.last, self.edition
        )
    }
}

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parse = || {
            let (date, rest) = text.split_once('_')?;
            let (segments, edition) = rest.split_once('.')?;
            let (first, last) = segments.split_once('-')?;
            let name = Self {
                date: date.to_owned(),
                first: first.parse().ok()?,
                last: last.parse().ok()?,
                edition: edition.parse().ok()?,
            };
            (name.first <= name.last && name.to_string() == text).then_some(name)
        };
        parse().ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let name = Name::new(Timestamp(1_795_266_000_000), 12, 15, 1);
        assert_eq!(name.to_string(), "2026-11-21T13-00_12-15.1");
        assert_eq!(name.to_string().parse(), Ok(name));
        for other in [
            "",
            "2026",
            "x_1-2",
            "x_2-1.0",
            "x_01-2.0",
            "x_1-2.0.damaged",
            "x_-1-2.0",
        ] {
            assert_eq!(other.parse::<Name>(), Err(()), "{other}");
        }
    }

    #[test]
    fn a_block_of_more_segments_or_of_a_later_edition_replaces() {
        for (one, other, replaces) in [
            ("x_1-4.0", "x_2-3.0", true),
            ("x_2-3.0", "x_1-4.0", false),
            ("x_1-4.1", "x_1-4.0", true),
            ("x_1-4.0", "x_1-4.0", false),
            ("x_1-4.0", "x_1-3.7", true),
            ("x_1-4.0", "x_4-5.0", false),
        ] {
            assert_eq!(name(one).replaces(&name(other)), replaces, "{one} {other}");
        }
    }
}
