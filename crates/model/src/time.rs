//! Instants: [`Timestamp`] in milliseconds for samples, [`UnixTime`] in seconds for records.
//!
//! The difference of two instants is an `i64` in the same unit. Arithmetic saturates, because
//! records may contain any number. All conversions between the two types, the system's clock and
//! `jiff` are here.

use jiff::Zoned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::ParseIntError;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01T00:00:00Z, the resolution of all samples.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// A timestamp before all others, for intervals without a start.
    pub const MIN: Self = Self(i64::MIN);
    /// A timestamp after all others, for intervals without an end.
    pub const MAX: Self = Self(i64::MAX);

    /// Seconds since 1970, with fraction.
    #[inline]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the second that contains the timestamp.
    #[inline]
    pub fn whole_seconds(self) -> UnixTime {
        // Rounds down before 1970, too: an interval must not gain a second there.
        UnixTime(self.0.div_euclid(1000))
    }

    /// Returns the timestamp of `seconds` since 1970.
    #[inline]
    pub fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Returns the timestamp this many milliseconds later.
    #[inline]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the timestamp this many milliseconds earlier.
    #[inline]
    pub fn minus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Returns the timestamp `by` later.
    #[inline]
    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns the timestamp `by` earlier.
    #[inline]
    pub fn minus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        Self(match at.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        })
    }
}

impl From<UnixTime> for Timestamp {
    #[inline]
    fn from(at: UnixTime) -> Self {
        Self::from_seconds(at.0)
    }
}

impl From<jiff::Timestamp> for Timestamp {
    /// Rounds towards 1970, as `jiff` does.
    fn from(at: jiff::Timestamp) -> Self {
        Self(at.as_millisecond())
    }
}

impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = jiff::Error;

    /// Fails outside the years -9999 to 9999.
    fn try_from(at: Timestamp) -> Result<Self, jiff::Error> {
        Self::from_millisecond(at.0)
    }
}

impl Sub for Timestamp {
    type Output = i64;

    /// Returns the milliseconds between two timestamps.
    #[inline]
    fn sub(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    /// Formats seconds with three decimals, like Prometheus' API.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.as_seconds())
    }
}

/// Seconds since 1970-01-01T00:00:00Z, the resolution of records: jobs, nodes, reports.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// An instant before all others, for intervals without a start.
    pub const MIN: Self = Self(i64::MIN);
    /// An instant after all others, for intervals without an end.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the seconds since an earlier instant. 0 if that instant is later.
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self - earlier).unwrap_or(0)
    }

    /// Returns the last multiple of `step_seconds` since 1970 that is not after this instant.
    pub fn round_down(self, step_seconds: i64) -> Self {
        self - self.0.rem_euclid(step_seconds)
    }
}

impl FromStr for UnixTime {
    type Err = ParseIntError;

    /// Parses a number of seconds.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl From<SystemTime> for UnixTime {
    fn from(at: SystemTime) -> Self {
        Timestamp::from(at).whole_seconds()
    }
}

impl From<jiff::Timestamp> for UnixTime {
    /// Rounds towards 1970, as `jiff` does.
    fn from(at: jiff::Timestamp) -> Self {
        Self(at.as_second())
    }
}

impl From<&Zoned> for UnixTime {
    fn from(at: &Zoned) -> Self {
        at.timestamp().into()
    }
}

impl TryFrom<UnixTime> for jiff::Timestamp {
    type Error = jiff::Error;

    /// Fails outside the years -9999 to 9999.
    fn try_from(at: UnixTime) -> Result<Self, jiff::Error> {
        Self::from_second(at.0)
    }
}

impl Sub for UnixTime {
    type Output = i64;

    /// Returns the seconds between two instants.
    #[inline]
    fn sub(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<i64> for UnixTime {
    type Output = Self;

    /// Returns the instant this many seconds later.
    #[inline]
    fn add(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

impl Sub<i64> for UnixTime {
    type Output = Self;

    /// Returns the instant this many seconds earlier.
    #[inline]
    fn sub(self, seconds: i64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }
}

impl AddAssign<i64> for UnixTime {
    #[inline]
    fn add_assign(&mut self, seconds: i64) {
        *self = *self + seconds;
    }
}

impl SubAssign<i64> for UnixTime {
    #[inline]
    fn sub_assign(&mut self, seconds: i64) {
        *self = *self - seconds;
    }
}

impl fmt::Display for UnixTime {
    /// Formats the number of seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_milliseconds_convert_also_before_1970() {
        assert_eq!(Timestamp(1_999).whole_seconds(), UnixTime(1));
        assert_eq!(Timestamp(-1).whole_seconds(), UnixTime(-1));
        assert_eq!(Timestamp::from(UnixTime(-1)), Timestamp(-1000));
        assert_eq!(Timestamp::from(UnixTime::MAX), Timestamp(i64::MAX));
        let before = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(UnixTime::from(before), UnixTime(-1));
        let text = "1969-12-31T23:59:59Z";
        assert_eq!(
            UnixTime::from(text.parse::<jiff::Timestamp>().unwrap()),
            UnixTime(-1)
        );
        assert_eq!(
            jiff::Timestamp::try_from(UnixTime(-1)).unwrap().to_string(),
            text
        );
        assert!(jiff::Timestamp::try_from(UnixTime::MAX).is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(UnixTime(10) - UnixTime(4), 6);
        assert_eq!(UnixTime(4).since(UnixTime(10)), 0);
        assert_eq!(UnixTime::MAX + 1, UnixTime::MAX);
        assert_eq!(UnixTime::MIN - 1, UnixTime::MIN);
        assert_eq!(UnixTime::MAX - UnixTime::MIN, i64::MAX);
        assert_eq!(UnixTime(-1).round_down(3600), UnixTime(-3600));
        assert_eq!(UnixTime(7200).round_down(3600), UnixTime(7200));
    }

    #[test]
    fn text_is_the_number_of_seconds() {
        assert_eq!(format!("{:>5}", UnixTime(12)), "   12");
    }
}
