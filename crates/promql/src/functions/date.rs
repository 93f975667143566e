//! Parts of a date, in UTC.

/// An instant taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    /// 0 is Sunday.
    pub weekday: i64,
    /// 1 to 366.
    pub day_of_year: i64,
    pub days_in_month: i64,
}

impl Date {
    /// From seconds since 1970, which are cut to whole ones.
    ///
    /// The proleptic Gregorian calendar by Howard Hinnant's `civil_from_days`: years start in March, so that the leap day
    /// comes last.
    pub fn from_unix(seconds: f64) -> Self {
        let seconds = seconds as i64;
        let days = seconds.div_euclid(86_400);
        let second_of_day = seconds.rem_euclid(86_400);

        // Days from 0000-03-01 to 1970-01-01.
        let shifted = days + 719_468;
        // 400 years have 146,097 days, and the calendar repeats after them.
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_from_march + 2) / 153;
        let day = day_from_march - (153 * month_from_march + 2) / 5 + 1;

        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };

        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let lengths = [
            31,
            if leap { 29 } else { 28 },
            31,
            30,
            31,
            30,
            31,
            31,
            30,
            31,
            30,
            31,
        ];

        Self {
            year,
            month,
            day,
            hour: second_of_day / 3_600,
            minute: second_of_day % 3_600 / 60,
            // 1970-01-01 was a Thursday.
            weekday: (days + 4).rem_euclid(7),
            day_of_year: lengths[..month as usize - 1].iter().sum::<i64>() + day,
            days_in_month: lengths[month as usize - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_leap_years_and_centuries_apart() {
        let date = |seconds: f64| {
            let date = Date::from_unix(seconds);
            (
                date.year,
                date.month,
                date.day,
                date.weekday,
                date.day_of_year,
                date.days_in_month,
            )
        };
        assert_eq!(date(0.0), (1970, 1, 1, 4, 1, 31));
        assert_eq!(date(-1.0), (1969, 12, 31, 3, 365, 31));
        assert_eq!(date(951_782_400.0), (2000, 2, 29, 2, 60, 29));
        assert_eq!(date(1_456_790_399.0), (2016, 2, 29, 1, 60, 29));
        assert_eq!(date(4_107_542_400.0), (2100, 3, 1, 1, 60, 31));
        let edge = Date::from_unix(1_456_790_399.0);
        assert_eq!(edge.hour, 23);
        assert_eq!(edge.minute, 59);
        // The cast ends at the limits of i64; nothing may overflow behind it.
        Date::from_unix(f64::MAX);
        Date::from_unix(f64::MIN);
    }
}
