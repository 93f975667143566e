//! A period of a report: from one local midnight to another.
//!
//! Months and days are the cluster's: in most zones one day of the year has 23 hours and one 25.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// A half-open period `[from, to)` in a cluster's time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    from: Zoned,
    to: Zoned,
}

/// What is no period that a report can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// Not `YYYY-MM`.
    #[error("'{0}' is no month (expected one such as 2026-10)")]
    Month(String),
    /// Not `YYYY-MM-DD`.
    #[error("'{0}' is no date (expected one such as 2026-10-31)")]
    Date(String),
    /// It ends where or before it begins.
    #[error(
        "the period from {from} to {to} is empty: 'to' is the first day that does not belong to it"
    )]
    Empty {
        /// Its first day.
        from: Date,
        /// The day after its last.
        to: Date,
    },
    /// Nothing can have been used in it.
    #[error("{what} has not begun: it begins at {begins}")]
    NotBegun {
        /// The month or day as it was asked for.
        what: String,
        /// Its beginning, RFC 3339.
        begins: String,
    },
}

/// A unit of the calendar and the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what it is called")]
pub enum Unit {
    Hour,
    Day,
    Month,
    Year,
}

/// One of a period's hours, days, months or years.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// `2026-10-25T02:00+02:00`, `2026-10-25`, `2026-10`, `2026`.
    pub name: String,
    /// UTC seconds.
    pub from: i64,
    /// UTC seconds.
    pub to: i64,
}

impl Unit {
    /// Where the one after that begins in which `at` lies; `None` beyond the years that can be counted.
    fn next(self, at: &Zoned) -> Option<Zoned> {
        let day = match self {
            Self::Hour => return at.checked_add(1.hour()).ok()?.round(jiff::Unit::Hour).ok(),
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

impl Period {
    /// A calendar month, `2026-10`.
    ///
    /// # Errors
    /// What is no month, and one that begins after `now`.
    pub fn month(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Self, PeriodError> {
        let invalid = || PeriodError::Month(text.to_owned());
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

    /// From the beginning of one day to that of another, `2026-10-01` and `2026-11-01`.
    ///
    /// # Errors
    /// What is no date, an empty period, and one that begins after `now`.
    pub fn days(
        from: &str,
        to: &str,
        zone: &TimeZone,
        now: Timestamp,
    ) -> Result<Self, PeriodError> {
        let invalid = |text: &str| PeriodError::Date(text.to_owned());
        let date = |text: &str| match text.len() {
            10 => text.parse::<Date>().map_err(|_| invalid(text)),
            _ => Err(invalid(text)),
        };
        let (first, next) = (date(from)?, date(to)?);
        if next <= first {
            return Err(PeriodError::Empty {
                from: first,
                to: next,
            });
        }
        Self::between(first, next, zone, from, now).ok_or_else(|| invalid(to))?
    }

    /// `None` where the days lie beyond the years that can be counted.
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
        Some(if period.from.timestamp() > now {
            Err(PeriodError::NotBegun {
                what: what.to_owned(),
                begins: rfc3339(&period.from),
            })
        } else {
            Ok(period)
        })
    }

    /// Its first second, UTC since 1970.
    pub fn from(&self) -> i64 {
        self.from.timestamp().as_second()
    }

    /// The first second after it, UTC since 1970.
    pub fn to(&self) -> i64 {
        self.to.timestamp().as_second()
    }

    /// Its beginning in the zone's own time, RFC 3339.
    pub fn from_text(&self) -> String {
        rfc3339(&self.from)
    }

    /// Its end in the zone's own time, RFC 3339.
    pub fn to_text(&self) -> String {
        rfc3339(&self.to)
    }

    /// The zone.
    pub fn zone(&self) -> TimeZone {
        self.from.time_zone().clone()
    }

    /// The midnights of its days, and its end.
    pub fn midnights(&self) -> Vec<i64> {
        let days = (0..).map_while(|days| {
            let date = self.from.date().checked_add(days.days()).ok()?;
            let midnight = date
                .to_zoned(self.from.time_zone().clone())
                .ok()?
                .timestamp()
                .as_second();
            (midnight < self.to()).then_some(midnight)
        });
        days.chain([self.to()]).collect()
    }

    /// Its hours, days, months or years, in order, cut at its ends.
    pub fn slices(&self, unit: Unit) -> Vec<Slice> {
        let end = self.to();
        let mut slices = Vec::new();
        let mut at = self.from.clone();
        while at.timestamp().as_second() < end {
            let Some(next) = unit.next(&at) else { break };
            slices.push(Slice {
                name: at.strftime(unit.format()).to_string(),
                from: at.timestamp().as_second(),
                to: next.timestamp().as_second().min(end),
            });
            at = next;
        }
        slices
    }

    /// Its first day.
    pub fn first_day(&self) -> Date {
        self.from.date()
    }

    /// `2026-10` for a calendar month, else its days: `2026-10-01 to 2026-10-15`, the last one included.
    pub fn label(&self) -> String {
        let (first, next) = (self.from.date(), self.to.date());
        let is_month = first.day() == 1 && first.checked_add(1.month()).ok() == Some(next);
        match next.yesterday() {
            _ if is_month => first.strftime("%Y-%m").to_string(),
            Ok(last) if last != first => format!("{first} to {last}"),
            _ => first.to_string(),
        }
    }

    /// The period of the same kind before it: the month before a month, else as many days.
    pub fn before(&self) -> Option<Self> {
        let (first, next) = (self.from.date(), self.to.date());
        let is_month = first.day() == 1 && first.checked_add(1.month()).ok() == Some(next);
        let earlier = match is_month {
            true => first.checked_sub(1.month()),
            false => first.checked_sub((next - first).get_days().days()),
        };
        let midnight = |date: Date| date.to_zoned(self.from.time_zone().clone()).ok();
        Some(Self {
            from: midnight(earlier.ok()?)?,
            to: self.from.clone(),
        })
    }

    /// The calendar year that its first day lies in.
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

    /// The zone's IANA name, or its offset where it has none.
    pub fn zone_name(&self) -> String {
        let zone = self.from.time_zone();
        zone.iana_name()
            .map_or_else(|| self.from.offset().to_string(), str::to_owned)
    }
}

fn rfc3339(instant: &Zoned) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-21T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn months_are_the_zones_own() {
        const HOUR: i64 = 3600;
        for (month, name, hours, from, to) in [
            (
                "2026-10",
                "UTC",
                744,
                "2026-10-01T00:00:00+00:00",
                "2026-11-01T00:00:00+00:00",
            ),
            (
                "2026-10",
                "Europe/Oslo",
                745,
                "2026-10-01T00:00:00+02:00",
                "2026-11-01T00:00:00+01:00",
            ),
            (
                "2026-03",
                "Europe/Oslo",
                743,
                "2026-03-01T00:00:00+01:00",
                "2026-04-01T00:00:00+02:00",
            ),
            (
                "2010-05",
                "Asia/Tokyo",
                744,
                "2010-05-01T00:00:00+09:00",
                "2010-06-01T00:00:00+09:00",
            ),
            (
                "2024-02",
                "America/New_York",
                696,
                "2024-02-01T00:00:00-05:00",
                "2024-03-01T00:00:00-05:00",
            ),
            (
                "2026-11",
                "UTC",
                720,
                "2026-11-01T00:00:00+00:00",
                "2026-12-01T00:00:00+00:00",
            ),
        ] {
            let period = Period::month(month, &zone(name), now()).unwrap();
            assert_eq!(
                (period.to() - period.from()) / HOUR,
                hours,
                "{month} {name}"
            );
            assert_eq!(
                (period.from_text().as_str(), period.to_text().as_str()),
                (from, to)
            );
            assert_eq!(period.zone_name(), name);
        }
    }

    #[test]
    fn days_have_23_24_or_25_hours() {
        for (from, to, hours) in [
            ("2026-10-25", "2026-10-26", 25),
            ("2026-03-29", "2026-03-30", 23),
            ("2026-10-01", "2026-10-02", 24),
        ] {
            let period = Period::days(from, to, &zone("Europe/Oslo"), now()).unwrap();
            assert_eq!(period.to() - period.from(), hours * 3600, "{from}");
        }
        // A day whose midnight the clock skips begins at the first instant that it has.
        let period = Period::days(
            "2018-11-04",
            "2018-11-05",
            &zone("America/Sao_Paulo"),
            now(),
        )
        .unwrap();
        assert_eq!(period.from_text(), "2018-11-04T01:00:00-02:00");
    }

    #[test]
    fn the_days_of_a_period_and_the_periods_around_it() {
        let oslo = zone("Europe/Oslo");
        let october = Period::month("2026-10", &oslo, now()).unwrap();
        let midnights = october.midnights();
        let hours: Vec<i64> = midnights
            .windows(2)
            .map(|day| (day[1] - day[0]) / 3600)
            .collect();
        assert_eq!(
            (hours.len(), hours.iter().sum::<i64>(), hours[24]),
            (31, 745, 25)
        );
        assert_eq!(
            (october.label(), october.before().unwrap().label()),
            ("2026-10".into(), "2026-09".into())
        );
        assert_eq!(october.before().unwrap().to(), october.from());
        assert_eq!(
            october.year().unwrap().from_text(),
            "2026-01-01T00:00:00+01:00"
        );
        let week = Period::days("2026-10-24", "2026-10-31", &oslo, now()).unwrap();
        assert_eq!(
            (week.label(), week.before().unwrap().label()),
            (
                "2026-10-24 to 2026-10-30".into(),
                "2026-10-17 to 2026-10-23".into()
            )
        );
    }

    #[test]
    fn what_is_no_period() {
        for text in [
            "2026-13",
            "2026-00",
            "2026",
            "2026-1",
            "26-10",
            "october",
            "2026-10-01",
            "",
            "-026-10",
        ] {
            assert_eq!(
                Period::month(text, &zone("UTC"), now()),
                Err(PeriodError::Month(text.to_owned()))
            );
        }
        let error = Period::month("2026-12", &zone("Europe/Oslo"), now()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "2026-12 has not begun: it begins at 2026-12-01T00:00:00+01:00"
        );
        let days = |from, to| {
            Period::days(from, to, &zone("UTC"), now())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            days("2026-02-30", "2026-03-01"),
            "'2026-02-30' is no date (expected one such as 2026-10-31)"
        );
        assert_eq!(
            days("2026-02-01", "20260301"),
            "'20260301' is no date (expected one such as 2026-10-31)"
        );
        assert!(
            days("2026-03-01", "2026-03-01")
                .starts_with("the period from 2026-03-01 to 2026-03-01 is empty")
        );
        assert!(days("2027-01-01", "2027-01-02").starts_with("2027-01-01 has not begun"));
    }
}
