//! Literal times with a zone. DuckDB's type for them needs rules of time zones that source builds lack, so
//! literals are converted here, with the meaning that PostgreSQL gives them in a session at UTC.

use super::Translator;
use crate::parameter::parse_instant;
use crate::token::Kind;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// A literal while its casts and conversions are followed.
#[derive(Clone, Copy)]
enum Moment {
    /// `timestamptz`: a point in time.
    Instant(Timestamp),
    /// `timestamp`: what a clock shows.
    Clock(DateTime),
}

/// The two types of times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MomentType {
    Instant,
    Clock,
}

/// Names of the types, longer ones before their beginnings.
const TYPES: &[(&[&str], MomentType)] = &[
    (&["timestamp", "with", "time", "zone"], MomentType::Instant),
    (&["timestamp", "without", "time", "zone"], MomentType::Clock),
    (&["timestamptz"], MomentType::Instant),
    (&["timestamp"], MomentType::Clock),
];

/// Names of UTC, in lower case.
const UTC: &[&str] = &["utc", "etc/utc", "gmt", "z", "zulu"];

impl Translator<'_, '_> {
    /// Translates `timestamptz '2026-10-01 00:00+02' AT TIME ZONE 'Europe/Oslo'` and the like to the time in UTC, or on
    /// the clocks of that zone.
    pub(super) fn moment(&mut self, at: usize) -> Option<usize> {
        let prefix = self.moment_type(at);
        let (text_at, text) = match prefix {
            Some((_, after)) => self.significant(after)?,
            None => (at, self.tokens[at]),
        };
        let text = literal_text(text.kind, text.text)?;
        let mut at = text_at + 1;

        let mut moment = match prefix {
            Some((kind, _)) => read(text, kind)?,
            None => {
                // PostgreSQL takes a bare text before `AT TIME ZONE` for an instant.
                let cast = self.cast(at);
                let (kind, after) = cast.unwrap_or((MomentType::Instant, at));
                if cast.is_none() && self.zone(at).is_none() {
                    return None;
                }
                at = after;
                read(text, kind)?
            }
        };
        let mut has_zone = matches!(moment, Moment::Instant(_));

        loop {
            if let Some((kind, after)) = self.cast(at) {
                moment = moment.cast(kind)?;
                has_zone |= kind == MomentType::Instant;
                at = after;
            } else if let Some((zone, after)) = self.zone(at) {
                // An unknown zone leaves the statement as it is, and DuckDB reports it.
                moment = moment.at(&TimeZone::get(zone).ok()?)?;
                has_zone = true;
                at = after;
            } else {
                break;
            }
        }

        // DuckDB reads times without a zone itself.
        if !has_zone {
            return None;
        }
        self.out
            .push_str(&format!("make_timestamp({})", moment.microseconds()?));
        Some(at)
    }

    /// Translates `AT TIME ZONE 'UTC'` after other expressions to a cast: all times are UTC.
    pub(super) fn utc(&mut self, at: usize) -> Option<usize> {
        let (zone, after) = self.zone(at)?;
        UTC.contains(&zone.to_ascii_lowercase().as_str())
            .then(|| self.out.push_str("::timestamp"))?;
        Some(after)
    }

    fn moment_type(&self, at: usize) -> Option<(MomentType, usize)> {
        TYPES
            .iter()
            .find_map(|(words, kind)| Some((*kind, self.phrase(at, words)?)))
    }

    /// Returns the type after `::`.
    fn cast(&self, at: usize) -> Option<(MomentType, usize)> {
        self.moment_type(self.phrase(at, &["::"])?)
    }

    /// Returns the name in `AT TIME ZONE 'name'`.
    fn zone(&self, at: usize) -> Option<(&str, usize)> {
        let at = self.phrase(at, &["at", "time", "zone"])?;
        let (at, name) = self.significant(at)?;
        Some((literal_text(name.kind, name.text)?, at + 1))
    }
}

impl Moment {
    fn cast(self, to: MomentType) -> Option<Self> {
        Some(match (self, to) {
            (Self::Instant(instant), MomentType::Clock) => {
                Self::Clock(TimeZone::UTC.to_datetime(instant))
            }
            (Self::Clock(clock), MomentType::Instant) => {
                Self::Instant(TimeZone::UTC.to_timestamp(clock).ok()?)
            }
            (moment, _) => moment,
        })
    }

    /// `AT TIME ZONE`: of an instant the clock there, of a clock there the instant.
    fn at(self, zone: &TimeZone) -> Option<Self> {
        Some(match self {
            Self::Instant(instant) => Self::Clock(zone.to_datetime(instant)),
            // An hour that comes twice is the second one, as in PostgreSQL.
            Self::Clock(clock) => Self::Instant(zone.to_ambiguous_timestamp(clock).later().ok()?),
        })
    }

    /// Returns microseconds since 1970 of the instant, or of the clock as if it were in UTC.
    fn microseconds(self) -> Option<i64> {
        match self.cast(MomentType::Instant)? {
            Self::Instant(instant) => Some(instant.as_microsecond()),
            Self::Clock(_) => None,
        }
    }
}

/// Reads a time, or a date, which means its midnight. A `timestamp` has no zone, and PostgreSQL ignores one in its text.
fn read(text: &str, kind: MomentType) -> Option<Moment> {
    let midnight = || {
        let date: Date = text.trim().parse().ok()?;
        TimeZone::UTC
            .to_timestamp(date.to_datetime(jiff::civil::Time::midnight()))
            .ok()
    };

    if kind == MomentType::Clock {
        let (date, time) = text
            .trim()
            .split_once([' ', 'T'])
            .unwrap_or((text.trim(), "00:00"));
        // `timestamp '… +02'` ignores the offset, in PostgreSQL too.
        let time = &time[..time.find(['+', '-', 'Z']).unwrap_or(time.len())];
        return format!("{date}T{}", time.trim())
            .parse()
            .ok()
            .map(Moment::Clock);
    }
    parse_instant(text).or_else(midnight).map(Moment::Instant)
}

/// Returns the content of a text in single quotes that contains no quote.
fn literal_text(kind: Kind, text: &str) -> Option<&str> {
    let inside = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (kind == Kind::Text && !inside.contains('\'')).then_some(inside)
}
