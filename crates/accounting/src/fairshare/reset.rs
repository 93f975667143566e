//! `PriorityUsageResetPeriod`: usage is reset to 0 at local midnight of some days.
//!
//! Resets without a record (`RawUsage=0` by `sacctmgr`, `PriorityUsageResetPeriod=NOW`, a lost
//! state directory) have to be entered by hand.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::iter;
use takt_jobs::UsageResetPeriod;
use takt_model::UnixTime;

/// Computes the resets of a `PriorityUsageResetPeriod`.
pub trait ResetSchedule: Sized {
    /// Returns the due time of the reset after one at `last`; slurmctld performs it at the next
    /// tick. As in Slurm, days have 24 hours and weeks seven times that: after a change of clocks
    /// the reset shifts by an hour until the next midnight.
    fn next(self, last: UnixTime, calendar: &impl Calendar) -> Option<UnixTime>;

    /// Returns all resets after `last`, up to and including `until`.
    fn between(self, last: UnixTime, until: UnixTime, calendar: &impl Calendar) -> Vec<UnixTime>;
}

impl ResetSchedule for UsageResetPeriod {
    fn next(self, last: UnixTime, calendar: &impl Calendar) -> Option<UnixTime> {
        const DAY: i64 = 24 * 3600;
        let date = calendar.date(last);
        let midnight = calendar.midnight(date);
        let first_of = |year, month| {
            Some(calendar.midnight(Date {
                year,
                month,
                day: 1,
                weekday: 0,
            }))
        };

        match self {
            Self::None => None,
            Self::Daily => Some(midnight + DAY),
            Self::Weekly => Some(midnight + DAY * (7 - i64::from(date.weekday))),
            Self::Monthly if date.month == 12 => first_of(date.year + 1, 1),
            Self::Monthly => first_of(date.year, date.month + 1),
            Self::Quarterly if date.month >= 10 => first_of(date.year + 1, 1),
            Self::Quarterly => first_of(date.year, (date.month - 1) / 3 * 3 + 4),
            Self::Yearly => first_of(date.year + 1, 1),
        }
    }

    fn between(self, last: UnixTime, until: UnixTime, calendar: &impl Calendar) -> Vec<UnixTime> {
        iter::successors(self.next(last, calendar), |last| self.next(*last, calendar))
            .take_while(|reset| *reset <= until)
            .collect()
    }
}

/// A day of the site's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// For example 2026.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 is Sunday. Ignored when a date is converted to an instant.
    pub weekday: u32,
}

/// The site's time zone, reduced to the functions that resets need.
pub trait Calendar {
    /// Returns the local day of an instant.
    fn date(&self, instant: UnixTime) -> Date;
    /// Returns the first instant of a local day.
    fn midnight(&self, date: Date) -> UnixTime;
}

/// A zone with a constant offset from UTC in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedOffset(pub i64);

impl Calendar for FixedOffset {
    fn date(&self, instant: UnixTime) -> Date {
        let days = (instant + self.0).0.div_euclid(86_400);

        // The computed year begins on 1 March, so the leap day is its last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;

        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };

        Date {
            year: i32::try_from(year_of_era + era * 400 + i64::from(month <= 2))
                .unwrap_or(i32::MAX),
            month: u32::try_from(month).unwrap_or(1),
            day: u32::try_from(of_year - (153 * month_from_march + 2) / 5 + 1).unwrap_or(1),
            // 1970-01-01 was a Thursday.
            weekday: u32::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
        }
    }

    fn midnight(&self, date: Date) -> UnixTime {
        let year = i64::from(date.year) - i64::from(date.month <= 2);
        let era = year.div_euclid(400);
        let month_from_march = (i64::from(date.month) + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + i64::from(date.day) - 1;
        let year_of_era = year.rem_euclid(400);
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        UnixTime((era * 146_097 + of_era - 719_468) * 86_400 - self.0)
    }
}

impl Calendar for TimeZone {
    fn date(&self, instant: UnixTime) -> Date {
        let local = Timestamp::try_from(instant)
            .unwrap_or_default()
            .to_zoned(self.clone());
        Date {
            year: local.year().into(),
            month: local.month().unsigned_abs().into(),
            day: local.day().unsigned_abs().into(),
            weekday: local
                .weekday()
                .to_sunday_zero_offset()
                .unsigned_abs()
                .into(),
        }
    }

    fn midnight(&self, date: Date) -> UnixTime {
        let part = |number: u32| i8::try_from(number).unwrap_or(1);
        let year = i16::try_from(date.year).unwrap_or(i16::MAX);
        let day = jiff::civil::Date::new(year, part(date.month), part(date.day));
        let midnight = day.and_then(|day| day.to_zoned(self.clone()));
        midnight.map_or(UnixTime::MAX, |midnight| (&midnight).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UTC: FixedOffset = FixedOffset(0);
    /// Saturday, 2026-11-21T10:00:00Z.
    const NOW: UnixTime = UnixTime(1_795_255_200);

    #[test]
    fn the_next_reset() {
        use UsageResetPeriod::*;
        for (period, expected) in [
            (Daily, "2026-11-22"),
            (Weekly, "2026-11-22"),
            (Monthly, "2026-12-01"),
            (Quarterly, "2027-01-01"),
            (Yearly, "2027-01-01"),
        ] {
            let date = UTC.date(period.next(NOW, &UTC).unwrap());
            assert_eq!(
                format!("{:04}-{:02}-{:02}", date.year, date.month, date.day),
                expected,
                "{period:?}"
            );
        }
        assert_eq!(None.next(NOW, &UTC), Option::None);
        let quarters = Quarterly.between(NOW, NOW + 366 * 86_400, &UTC);
        assert_eq!(
            quarters
                .iter()
                .map(|reset| UTC.date(*reset).month)
                .collect::<Vec<_>>(),
            [1, 4, 7, 10]
        );
        // From a Sunday, the next reset is on the following Sunday.
        assert_eq!(
            Weekly.next(NOW + 86_400, &UTC),
            Weekly.next(NOW, &UTC).map(|reset| reset + 7 * 86_400)
        );
        // Nine hours east of UTC, the next midnight is at 15:00Z.
        assert_eq!(
            Daily.next(NOW, &FixedOffset(9 * 3600)),
            Some(UTC.midnight(UTC.date(NOW)) + 15 * 3600)
        );
    }

    #[test]
    fn a_time_zone_is_a_calendar() {
        let oslo = TimeZone::get("Europe/Oslo").unwrap();
        // 2026-10-25 has 25 hours there; the next month begins at 23:00Z.
        let monthly = UsageResetPeriod::Monthly
            .next(UnixTime(1_792_900_000), &oslo)
            .unwrap();
        assert_eq!(
            Timestamp::try_from(monthly).unwrap().to_string(),
            "2026-10-31T23:00:00Z"
        );
        for instant in [NOW, UnixTime(0), UnixTime(1_792_900_000)] {
            assert_eq!(TimeZone::UTC.date(instant), UTC.date(instant));
            assert_eq!(
                TimeZone::UTC.midnight(UTC.date(instant)),
                UTC.midnight(UTC.date(instant))
            );
        }
    }

    #[test]
    fn words() {
        assert_eq!(
            UsageResetPeriod::parse("weekly"),
            Some(UsageResetPeriod::Weekly)
        );
        assert_eq!(UsageResetPeriod::parse("NOW"), Some(UsageResetPeriod::None));
        assert_eq!(UsageResetPeriod::parse("fortnightly"), None);
    }

    proptest! {
        #[test]
        fn a_midnight_is_the_first_second_of_its_day(
            instant in -10_000_000_000_i64..10_000_000_000,
            offset in -12_i64..=12,
        ) {
            let zone = FixedOffset(offset * 3600);
            let instant = UnixTime(instant);
            let date = zone.date(instant);
            let midnight = zone.midnight(date);
            prop_assert!((0..86_400).contains(&(instant - midnight)));
            prop_assert_eq!(zone.date(midnight), date);
            prop_assert_ne!(zone.date(midnight - 1).day, date.day);
        }
    }
}
