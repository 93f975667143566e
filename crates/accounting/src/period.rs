//! Period of a report: a month, some days, or the time between two instants.
//!
//! Months and days follow the cluster's time zone: in most zones one day of the year has 23 hours
//! and one has 25.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan, Zoned};
use takt_model::UnixTime;

/// A half-open period `[from, to)` in a cluster's time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    from: Zoned,
    to: Zoned,
}

/// Longest period between two times: a century.
const LONGEST_SECONDS: i64 = 36_525 * 86_400;

/// Error in the period of a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// The text is not `YYYY-MM`.
    #[error("'{0}' is not a month (expected one such as 2026-10)")]
    Month(String),
    /// The text is not a time.
    #[error(
        "'{0}' is not a time (expected a date such as 2026-10-31, a time such as 2026-10-31T14:00 or \
         2026-10-31T13:00:00Z, or now, today, yesterday, -12h, -7d or -2w)"
    )]
    Time(String),
    /// The period ends before or where it begins.
    #[error("the period from {from} to {to} is empty: 'to' does not belong to it")]
    Empty {
        /// Start as the user wrote it.
        from: String,
        /// End as the user wrote it.
        to: String,
    },
    /// The period is longer than a century.
    #[error("the period from {from} to {to} is longer than a century")]
    Long {
        /// Start as the user wrote it.
        from: String,
        /// End as the user wrote it.
        to: String,
    },
    /// The period is in the future.
    #[error("{what} has not begun: it begins at {begins}")]
    NotBegun {
        /// The month or day as the user wrote it.
        what: String,
        /// Its beginning, RFC 3339.
        begins: String,
    },
}

/// A unit of the calendar or the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what it is called")]
pub enum Unit {
    Hour,
    Day,
    Month,
    Year,
}

/// One hour, day, month or year of a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSlice {
    /// Name: `2026-10-25T02:00+02:00`, `2026-10-25`, `2026-10` or `2026`.
    pub name: String,
    /// Start.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

impl Unit {
    /// Returns the start of the unit after the one that contains `at`. `None` beyond the supported
    /// years.
    fn next(self, at: &Zoned) -> Option<Zoned> {
        let day = match self {
            // Elapsed time, not the clock's: a clock that is set by half an hour has an hour that ends early.
            Self::Hour => {
                let past = i64::from(at.minute()) * 60 + i64::from(at.second());
                return at.checked_add((3600 - past).seconds()).ok();
            }
            Self::Day => at.date().tomorrow().ok()?,
            Self::Month => at.date().first_of_month().checked_add(1.month()).ok()?,
            Self::Year => at.date().first_of_year().checked_add(1.year()).ok()?,
        };
        day.to_zoned(at.time_zone().clone()).ok()
    }

    fn format(self) -> &'static str {
        match self {
            Self::Hour => "%Y-%m-%dT%H:%M%:z",
            Self::Day => "%Y-%m-%d",
            Self::Month => "%Y-%m",
            Self::Year => "%Y",
        }
    }
}

/// The first job of a recorded period may be submitted this long after its start, in seconds.
const FIRST_JOB_DELAY: i64 = 86_400;

impl Period {
    /// Returns a calendar month, `2026-10`.
    ///
    /// # Errors
    /// The text is not a month, or the month begins after `now`.
    pub fn month(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Self, PeriodError> {
        let invalid = || PeriodError::Month(text.to_owned());
        // `26-10` would be October of the year 26.
        let first = text
            .split_once('-')
            .filter(|(year, month)| year.len() == 4 && month.len() == 2);
        let (year, month) = first.ok_or_else(invalid)?;
        let first = Date::new(
            year.parse().map_err(|_| invalid())?,
            month.parse().map_err(|_| invalid())?,
            1,
        )
        .map_err(|_| invalid())?;
        let next = first.checked_add(1.month()).map_err(|_| invalid())?;
        Self::between(first, next, zone, text, now).ok_or_else(invalid)?
    }

    /// Returns the period from one time to another, as [`time`] reads them: `2026-10-01` and
    /// `2026-11-01`.
    ///
    /// # Errors
    /// A text is not a time, the period is empty or longer than a century, or it begins after `now`.
    pub fn span(
        from: &str,
        to: &str,
        zone: &TimeZone,
        now: Timestamp,
    ) -> Result<Self, PeriodError> {
        let period = Self {
            from: time(from, zone, now)?,
            to: time(to, zone, now)?,
        };
        if period.to() <= period.from() {
            return Err(PeriodError::Empty {
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
        // Each month and day of a period is counted, so a period of millennia would take all memory.
        if period.to() - period.from() > LONGEST_SECONDS {
            return Err(PeriodError::Long {
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
        period.begun(from, now)
    }

    /// Returns the period of a slice.
    pub fn of_slice(slice: &TimeSlice, zone: &TimeZone) -> Self {
        let zoned = |at| {
            Timestamp::try_from(at)
                .unwrap_or_default()
                .to_zoned(zone.clone())
        };
        Self {
            from: zoned(slice.from),
            to: zoned(slice.to),
        }
    }

    /// Returns `None` beyond the supported years.
    fn between(
        first: Date,
        next: Date,
        zone: &TimeZone,
        what: &str,
        now: Timestamp,
    ) -> Option<Result<Self, PeriodError>> {
        let midnight = |date: Date| date.to_zoned(zone.clone()).ok();
        let period = Self {
            from: midnight(first)?,
            to: midnight(next)?,
        };
        Some(period.begun(what, now))
    }

    fn begun(self, what: &str, now: Timestamp) -> Result<Self, PeriodError> {
        if self.from.timestamp() > now {
            Err(PeriodError::NotBegun {
                what: what.to_owned(),
                begins: rfc3339(&self.from),
            })
        } else {
            Ok(self)
        }
    }

    /// Returns whether the period begins and ends with days.
    fn has_whole_days(&self) -> bool {
        [&self.from, &self.to]
            .iter()
            .all(|at| at.start_of_day().is_ok_and(|day| day == **at))
    }

    /// Returns the first second.
    pub fn from(&self) -> UnixTime {
        (&self.from).into()
    }

    /// Returns the first second after the period.
    pub fn to(&self) -> UnixTime {
        (&self.to).into()
    }

    /// Returns the start in local time, RFC 3339.
    pub fn from_text(&self) -> String {
        rfc3339(&self.from)
    }

    /// Returns the end in local time, RFC 3339.
    pub fn to_text(&self) -> String {
        rfc3339(&self.to)
    }

    /// Returns the time zone.
    pub fn zone(&self) -> TimeZone {
        self.from.time_zone().clone()
    }

    /// Returns whether the job records begin so late in the period, or after it, that its begin is
    /// unknown.
    pub fn begins_unrecorded(&self, records_from: UnixTime) -> bool {
        records_from > self.from() + FIRST_JOB_DELAY
    }

    /// Returns what is to be known of a period in which, or after which, the job records begin. `None` for
    /// other periods.
    pub fn unrecorded_note(&self, records_from: UnixTime) -> Option<String> {
        if !self.begins_unrecorded(records_from) {
            return None;
        }
        let begin = Timestamp::try_from(records_from).ok()?;
        let day = begin.to_zoned(self.zone()).strftime("%Y-%m-%d").to_string();
        Some(if records_from < self.to() {
            format!(
                "The job records begin on {day}: what ran before in this period is unknown, not zero."
            )
        } else {
            format!("The job records begin on {day}: what ran in this period is unknown, not zero.")
        })
    }

    /// Returns the start, the midnights of the following days, and the end.
    pub fn midnights(&self) -> Vec<UnixTime> {
        (0..)
            .map_while(|days| {
                let date = self.from.date().checked_add(days.days()).ok()?;
                let midnight = date.to_zoned(self.from.time_zone().clone()).ok()?;
                let midnight = UnixTime::from(&midnight);
                // The first day may begin before the period.
                (midnight < self.to()).then_some(midnight.max(self.from()))
            })
            .chain([self.to()])
            .collect()
    }

    /// Returns the hours, days, months or years in order, cut at the ends of the period.
    pub fn slices(&self, unit: Unit) -> Vec<TimeSlice> {
        let end = self.to();
        let mut slices = Vec::new();
        let mut at = self.from.clone();
        while UnixTime::from(&at) < end {
            let Some(next) = unit.next(&at) else { break };
            slices.push(TimeSlice {
                name: at.strftime(unit.format()).to_string(),
                from: (&at).into(),
                to: end.min((&next).into()),
            });
            at = next;
        }
        slices
    }

    /// Returns the first day.
    pub fn first_day(&self) -> Date {
        self.from.date()
    }

    /// Returns `2026-10` for a calendar month, otherwise the days: `2026-10-01 to 2026-10-15`, the
    /// last one included. A period of other times is `2026-10-01T14:00 to 2026-10-02T08:00`.
    pub fn label(&self) -> String {
        if !self.has_whole_days() {
            let [from, to] = [&self.from, &self.to].map(|at| at.strftime("%Y-%m-%dT%H:%M"));
            return format!("{from} to {to}");
        }
        let first = self.from.date();
        let next = self.to.date();
        let is_month = first.day() == 1 && first.checked_add(1.month()).ok() == Some(next);
        match next.yesterday() {
            _ if is_month => first.strftime("%Y-%m").to_string(),
            Ok(last) if last != first => format!("{first} to {last}"),
            _ => first.to_string(),
        }
    }

    /// Returns the previous period of the same kind: the month before a month, otherwise as many
    /// days or seconds. `None` beyond the supported years.
    pub fn before(&self) -> Option<Self> {
        if !self.has_whole_days() {
            let seconds = (self.to() - self.from()).seconds();
            return Some(Self {
                from: self.from.checked_sub(seconds).ok()?,
                to: self.from.clone(),
            });
        }

        let first = self.from.date();
        let next = self.to.date();
        let is_month = first.day() == 1 && first.checked_add(1.month()).ok() == Some(next);

        // Months differ in length, so the period before a month is a month.
        let earlier = if is_month {
            first.checked_sub(1.month())
        } else {
            first.checked_sub((next - first).get_days().days())
        };

        let midnight = |date: Date| date.to_zoned(self.from.time_zone().clone()).ok();
        Some(Self {
            from: midnight(earlier.ok()?)?,
            to: self.from.clone(),
        })
    }

    /// Returns the calendar year of the first day.
    pub fn year(&self) -> Option<Self> {
        let midnight = |year: i16| {
            Date::new(year, 1, 1)
                .ok()?
                .to_zoned(self.from.time_zone().clone())
                .ok()
        };
        let year = self.from.date().year();
        Some(Self {
            from: midnight(year)?,
            to: midnight(year.checked_add(1)?)?,
        })
    }

    /// Returns the zone's IANA name, or its offset without one.
    pub fn zone_name(&self) -> String {
        self.from
            .time_zone()
            .iana_name()
            .map_or_else(|| self.from.offset().to_string(), str::to_owned)
    }
}

/// Parses a time: a date (its midnight), a local time or an instant (RFC 3339), seconds since 1970, `now`,
/// `today` and `yesterday` (their midnights), or `-12h`, `-7d`, `-2w` (this long ago).
///
/// # Errors
/// [`PeriodError::Time`] if the text is none of these.
pub fn time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Zoned, PeriodError> {
    let text = text.trim();
    let now = now.to_zoned(zone.clone());

    let parsed = match text {
        "now" => Some(now),
        "today" => now.start_of_day().ok(),
        "yesterday" => {
            let midnight = |day: Date| day.to_zoned(zone.clone()).ok();
            now.date().yesterday().ok().and_then(midnight)
        }
        _ => match text.strip_prefix('-') {
            Some(ago) => span(ago).and_then(|span| now.checked_sub(span).ok()),
            None => absolute(text, zone),
        },
    };

    parsed.ok_or_else(|| PeriodError::Time(text.to_owned()))
}

/// Parses `12h`, `7d` or `2w`.
fn span(text: &str) -> Option<Span> {
    // Checked: the last character may have several bytes.
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // `parse` would accept a sign.
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| is_number)?;
    match unit {
        "h" => Span::new().try_hours(number).ok(),
        "d" => Span::new().try_days(number).ok(),
        "w" => Span::new().try_weeks(number).ok(),
        _ => None,
    }
}

fn absolute(text: &str, zone: &TimeZone) -> Option<Zoned> {
    let instant = |at: Timestamp| at.to_zoned(zone.clone());
    // Eight digits are a date without dashes, or an instant of 1970.
    let is_seconds = text.len() > 8 && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_seconds {
        let seconds = text.parse().ok()?;
        return Timestamp::from_second(seconds).ok().map(instant);
    }
    // A date without dashes could be meant as seconds.
    if !text.contains('-') {
        return None;
    }
    text.parse::<Timestamp>().ok().map(instant).or_else(|| {
        let local: DateTime = text.parse().ok()?;
        local.to_zoned(zone.clone()).ok()
    })
}

fn rfc3339(instant: &Zoned) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

#[cfg(test)]
mod tests;
