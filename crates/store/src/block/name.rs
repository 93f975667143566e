//! Block names: `2026-11-21T13-00_12-15.0`.
//!
//! The date is for people. The numbers are the first and last segment of the samples, then the
//! edition. The names alone show which block replaces which: a block replaces all blocks whose
//! segments it covers, and of two blocks with the same segments the later edition is valid. A
//! rename is therefore enough to publish a block.

use jiff::tz::TimeZone;
use std::fmt;
use std::str::FromStr;
use takt_model::Timestamp;

/// Interval between the rows of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// All samples as scraped.
    Raw,
    /// One row per five minutes.
    FiveMinutes,
    /// One row per hour.
    Hour,
}

impl Resolution {
    /// All resolutions, the finest first.
    pub const ALL: [Self; 3] = [Self::Raw, Self::FiveMinutes, Self::Hour];

    /// Name of the resolution and of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
        }
    }

    /// Length of a row's interval, in milliseconds; 1 for raw samples.
    pub fn milliseconds(self) -> i64 {
        match self {
            Self::Raw => 1,
            Self::FiveMinutes => 300_000,
            Self::Hour => 3_600_000,
        }
    }
}

/// Name of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockName {
    /// Time of the first sample, to the minute.
    date: String,
    /// First segment.
    pub first: u32,
    /// Last segment.
    pub last: u32,
    /// Number of times that the block was rewritten without some series.
    pub edition: u32,
}

impl BlockName {
    pub fn new(from: Timestamp, first: u32, last: u32, edition: u32) -> Self {
        let at = jiff::Timestamp::try_from(from)
            .unwrap_or_default()
            .to_zoned(TimeZone::UTC);
        Self {
            date: at.strftime("%Y-%m-%dT%H-%M").to_string(),
            first,
            last,
            edition,
        }
    }

    /// Returns whether this block covers the segments of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns whether this block replaces `other`.
    pub fn replaces(&self, other: &Self) -> bool {
        let is_same = self.first == other.first && self.last == other.last;
        self.covers(other) && (!is_same || self.edition > other.edition)
    }
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}_{}-{}.{}",
            self.date, self.first, self.last, self.edition
        )
    }
}

impl FromStr for BlockName {
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

    fn name(text: &str) -> BlockName {
        text.parse().unwrap()
    }

    #[test]
    fn names_round_trip_and_others_are_rejected() {
        let name = BlockName::new(Timestamp(1_795_266_000_000), 12, 15, 1);
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
            assert_eq!(other.parse::<BlockName>(), Err(()), "{other}");
        }
    }

    #[test]
    fn a_block_of_more_segments_or_a_later_edition_replaces_others() {
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
