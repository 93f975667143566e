//! When a budget is used up, from the use of the last weeks.
//!
//! Use comes in bursts of days, so a straight line through it has no honest interval. Instead, the days that are left are drawn
//! many times from the days of the last weeks, a week at a time, so that weekends and deadlines stay together.

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use takt_model::UnixTime;

/// Fewest days of use that a forecast is made from: two of each weekday.
pub const LEAST_DAYS: usize = 14;

/// Days that are drawn together.
const BLOCK_DAYS: usize = 7;

/// Number of draws. The tenth part of them lies beyond each end of the interval.
const DRAWS: usize = 400;

/// When an amount is used up. A time that is `None` lies after the period's end, where the amount begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunOut {
    /// Share of the draws that use the amount up within the period, 0 to 1.
    pub chance: f64,
    /// A tenth of the draws use it up before.
    pub earliest: Option<UnixTime>,
    /// Half of the draws use it up before.
    pub median: Option<UnixTime>,
    /// Nine tenths of the draws use it up before.
    pub latest: Option<UnixTime>,
}

/// Forecasts when `left` of an amount is used up.
///
/// `daily` is the use of each of the last days, in the unit of `left`. `days` are the instants at which the days of the rest of
/// the period begin, the first of them now, and its end. `None` with fewer than [`LEAST_DAYS`] days of use, with no rest of the
/// period, and if nothing is left.
pub fn run_out(daily: &[f64], left: f64, days: &[UnixTime]) -> Option<RunOut> {
    if daily.len() < LEAST_DAYS || days.len() < 2 || left <= 0.0 {
        return None;
    }

    let mut ends: Vec<Option<UnixTime>> = (0..DRAWS)
        .map(|draw| end_of_draw(daily, left, days, draw as u64))
        .collect();
    // Those that outlast the period come last.
    ends.sort_by_key(|end| end.unwrap_or(UnixTime::MAX));

    let used_up = ends.iter().flatten().count();
    Some(RunOut {
        chance: used_up as f64 / DRAWS as f64,
        earliest: ends[DRAWS / 10],
        median: ends[DRAWS / 2],
        latest: ends[DRAWS * 9 / 10],
    })
}

/// The instant at which one draw of the coming days uses the amount up.
fn end_of_draw(daily: &[f64], mut left: f64, days: &[UnixTime], draw: u64) -> Option<UnixTime> {
    // The same question always has the same answer, so the draws follow from their numbers.
    let mut state = draw;
    let mut source = 0;

    for (day, bounds) in days.windows(2).enumerate() {
        source = match day % BLOCK_DAYS {
            0 => (split_mix(&mut state) % daily.len() as u64) as usize,
            _ => (source + 1) % daily.len(),
        };

        let seconds = (bounds[1].0 - bounds[0].0) as f64;
        // Today has only some of its hours left.
        let used = daily[source] * (seconds / 86_400.0).min(1.0);
        if used >= left {
            let share = left / used;
            return Some(UnixTime(bounds[0].0 + (seconds * share) as i64));
        }
        left -= used;
    }
    None
}

/// The next number of Steele, Lea and Flood's SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl RunOut {
    /// Returns a sentence about the budget of a `month` or `year`: `At the pace of the last weeks it is used up around
    /// 12 December (between 9 and 17 December).`
    pub fn sentence(&self, period: &str, zone: &TimeZone) -> String {
        let day = |at: UnixTime| match jiff::Timestamp::from_second(at.0) {
            Ok(at) => at.to_zoned(zone.clone()).strftime("%-d %B").to_string(),
            Err(_) => "an unknown day".to_owned(),
        };

        let Some(median) = self.median else {
            let hundred = (self.chance * 100.0).round();
            return match hundred {
                0.0 => {
                    format!("At the pace of the last weeks it lasts until the end of the {period}.")
                }
                _ => format!(
                    "At the pace of the last weeks it probably lasts until the end of the {period}: {hundred} of 100 replays use it up before."
                ),
            };
        };

        let [median, earliest] = [median, self.earliest.unwrap_or(median)].map(day);
        let interval = match self.latest.map(day) {
            Some(latest) if latest == earliest => String::new(),
            Some(latest) => format!(" (between {earliest} and {latest})"),
            None => {
                format!(" ({earliest} at the earliest, perhaps not before the end of the {period})")
            }
        };
        format!("At the pace of the last weeks it is used up around {median}{interval}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The days from 1 December 2026, UTC, with the end.
    fn december(from: i64) -> Vec<UnixTime> {
        let first = 1_796_083_200;
        (from..=31)
            .map(|day| UnixTime(first + day * 86_400))
            .collect()
    }

    #[test]
    fn an_even_use_ends_at_an_hour_that_can_be_counted() {
        // 10 a day, 55 left at the begin of the 6th: in the middle of the 11th.
        let found = run_out(&[10.0; 28], 55.0, &december(5)).unwrap();
        let noon = UnixTime(1_796_083_200 + 10 * 86_400 + 43_200);
        assert_eq!(found.median, Some(noon));
        assert_eq!((found.earliest, found.latest), (Some(noon), Some(noon)));
        assert_eq!(
            found.sentence("month", &TimeZone::UTC),
            "At the pace of the last weeks it is used up around 11 December."
        );
    }

    #[test]
    fn what_lasts_is_said_to_last() {
        let found = run_out(&[1.0; 28], 100.0, &december(5)).unwrap();
        assert_eq!(
            found.sentence("month", &TimeZone::UTC),
            "At the pace of the last weeks it lasts until the end of the month."
        );

        // A burst of a week in four: whether it comes again is not known.
        let mut bursts = vec![0.0; 28];
        bursts[..7].fill(20.0);
        let found = run_out(&bursts, 190.0, &december(10)).unwrap();
        assert!(found.chance > 0.02 && found.chance < 0.5, "{found:?}");
        assert!(
            found
                .sentence("month", &TimeZone::UTC)
                .contains("of 100 replays")
        );
    }

    #[test]
    fn nothing_is_forecast_from_a_few_days() {
        assert_eq!(run_out(&[10.0; 13], 55.0, &december(5)), None);
        assert_eq!(run_out(&[10.0; 28], 0.0, &december(5)), None);
        assert_eq!(run_out(&[10.0; 28], 1.0, &december(31)), None);
    }

    proptest! {
        #[test]
        fn more_left_is_never_used_up_sooner(
            daily in prop::collection::vec(0.0..50.0_f64, 14..40),
            left in 0.1..500.0_f64,
            more in 0.0..500.0_f64,
        ) {
            let days = december(3);
            let [found, later] = [left, left + more].map(|left| run_out(&daily, left, &days).unwrap());
            let key = |at: Option<UnixTime>| at.unwrap_or(UnixTime::MAX);

            prop_assert!(key(found.earliest) <= key(found.median) && key(found.median) <= key(found.latest));
            prop_assert!(key(found.median) <= key(later.median));
            prop_assert!(found.chance >= later.chance && (0.0..=1.0).contains(&found.chance));
            if let Some(at) = found.earliest {
                prop_assert!(days[0] <= at && at <= days[days.len() - 1]);
            }
        }
    }
}
