//! Times of the week, the month and the year: `monday:friday` from 09:00 to 17:00 in Berlin.

use crate::yaml::{Mistake, Node};
use jiff::tz::TimeZone;
use takt_model::Timestamp;

/// Minutes in a day; also the end of the day, `24:00`.
const DAY_MINUTES: i64 = 24 * 60;

const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// An instant lies in it if every field that is given has a range for it.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeInterval {
    /// Minutes of the day, the end not included.
    times: Vec<Range>,
    /// Sunday is 0.
    weekdays: Vec<Range>,
    /// From 1; negative ones count from the month's end.
    days_of_month: Vec<Range>,
    months: Vec<Range>,
    years: Vec<Range>,
    zone: TimeZone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: i64,
    last: i64,
}

impl Range {
    fn contains(self, value: i64) -> bool {
        (self.first..=self.last).contains(&value)
    }
}

impl TimeInterval {
    /// Reads one entry of a `time_intervals` list.
    ///
    /// # Errors
    /// At the first range that cannot be.
    pub fn read(node: &Node) -> Result<Self, Mistake> {
        let fields = node.fields(&[
            "times",
            "weekdays",
            "days_of_month",
            "months",
            "years",
            "location",
        ])?;

        let ranges = |key: &str, read: &dyn Fn(&str) -> Option<i64>| {
            fields.or_default(key, |node| {
                node.list()?
                    .iter()
                    .map(|item| range(item, read))
                    .collect::<Result<Vec<_>, _>>()
            })
        };
        // As in Alertmanager, days count from 1, or from -1 at the end of the month.
        let day = |text: &str| {
            text.parse()
                .ok()
                .filter(|day: &i64| *day != 0 && (-31..=31).contains(day))
        };
        Ok(Self {
            times: fields.or_default("times", |node| {
                node.list()?
                    .iter()
                    .map(time_of_day)
                    .collect::<Result<_, _>>()
            })?,
            weekdays: ranges("weekdays", &|text| position(&WEEKDAYS, text))?,
            days_of_month: fields.or_default("days_of_month", |node| {
                node.list()?
                    .iter()
                    .map(|item| days(item, &day))
                    .collect::<Result<_, _>>()
            })?,
            months: ranges("months", &|text| month(text))?,
            years: ranges("years", &|text| text.parse().ok().filter(|year| *year >= 0))?,
            zone: fields.optional("location", zone)?.unwrap_or(TimeZone::UTC),
        })
    }

    /// Whether the instant lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        // A time that has no date in jiff is in no interval.
        let Ok(instant) = jiff::Timestamp::try_from(at) else {
            return false;
        };

        let local = instant.to_zoned(self.zone.clone());
        let any = |ranges: &[Range], value: i64| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(value))
        };
        let days = i64::from(local.days_in_month());
        let day = i64::from(local.day());
        // An empty list means that the field does not matter.
        any(
            &self.times,
            i64::from(local.hour()) * 60 + i64::from(local.minute()),
        ) && any(
            &self.weekdays,
            i64::from(local.weekday().to_sunday_zero_offset()),
        ) && any(&self.months, i64::from(local.month()))
            && any(&self.years, i64::from(local.year()))
            && (self.days_of_month.is_empty()
                || self
                    .days_of_month
                    .iter()
                    .any(|range| range.in_month(days).contains(day)))
    }
}

impl Range {
    /// Days of a month of that many days: negative ones from its end, what is beyond the end cut
    /// off.
    fn in_month(self, days: i64) -> Self {
        let from_start = |day: i64| if day < 0 { days + day + 1 } else { day };
        Self {
            first: from_start(self.first).max(1 - days),
            last: from_start(self.last).min(days),
        }
    }
}

fn zone(node: &Node) -> Result<TimeZone, Mistake> {
    let name = node.text()?;
    // Alertmanager's words for the zone of the server and for UTC.
    match name {
        "Local" => return Ok(TimeZone::system()),
        "" => return Ok(TimeZone::UTC),
        _ => {}
    }

    // Go reads time zones from files, whose names are case-sensitive, so `utc` is unknown.
    let zone = TimeZone::get(name)
        .ok()
        .filter(|zone| zone.iana_name() == Some(name));
    zone.ok_or_else(|| {
        node.mistake(format!(
            "`{name}` is not a time zone such as `Europe/Berlin`"
        ))
    })
}

fn time_of_day(node: &Node) -> Result<Range, Mistake> {
    let fields = node.fields(&["start_time", "end_time"])?;
    let read = |key: &str| {
        let node = fields.require(key)?;
        let text = node.text()?;
        minute_of_day(text)
            .ok_or_else(|| node.mistake(format!("`{text}` is not a time of day such as `09:00`")))
    };

    let start = read("start_time")?;
    // Both are minutes of one day, so a range cannot go over midnight.
    let end = read("end_time")?;
    if start >= end {
        let words = "the start has to be before the end; write two entries for a night";
        return Err(node.mistake(words));
    }
    Ok(Range {
        // The end is the first minute outside.
        first: start,
        last: end - 1,
    })
}

fn minute_of_day(text: &str) -> Option<i64> {
    let (hour, minute) = text
        // As in Alertmanager, `9:00` is a mistake.
        .split_once(':')
        .filter(|(hour, minute)| hour.len() == 2 && minute.len() == 2)?;
    if !text.bytes().all(|c| c.is_ascii_digit() || c == b':') {
        return None;
    }

    let hour: i64 = hour.parse().ok()?;
    let minute: i64 = minute.parse().ok()?;
    let at = hour * 60 + minute;
    // `24:00` is the end of the day, `24:01` is nothing.
    ((0..60).contains(&minute) && (0..=DAY_MINUTES).contains(&at)).then_some(at)
}

/// `first:last` or a single value.
fn range(node: &Node, read: &dyn Fn(&str) -> Option<i64>) -> Result<Range, Mistake> {
    let text = node.text()?.to_lowercase();
    let (first, last) = text.split_once(':').unwrap_or((&text, &text));
    // `friday:monday` would be empty: a week has to be written as two ranges.
    match (read(first), read(last)) {
        (Some(first), Some(last)) if first <= last => Ok(Range { first, last }),
        (Some(_), Some(_)) => Err(node.mistake(format!("`{text}` ends before it begins"))),
        _ => Err(node.mistake(format!("`{text}` is not a range here"))),
    }
}

fn days(node: &Node, read: &dyn Fn(&str) -> Option<i64>) -> Result<Range, Mistake> {
    let text = node.text()?;
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    // Days that count from the end of the month are compared in the shortest month.
    let least = |day: i64| if day < 0 { 28 + day } else { day };

    match (read(first), read(last)) {
        (Some(first), Some(last)) if first < 0 && last > 0 => Err(node.mistake(format!(
            "`{text}` begins at the month's end and so has to end there, with a negative day"
        ))),
        (Some(first), Some(last)) if least(first) > least(last) => Err(node.mistake(format!(
            "`{text}` ends before it begins, in a month of 28 days at least"
        ))),
        (Some(first), Some(last)) => Ok(Range { first, last }),
        _ => Err(node.mistake(format!(
            "`{text}` is not a range of days such as `1:7` or `-3:-1`"
        ))),
    }
}

fn month(text: &str) -> Option<i64> {
    text.parse()
        .ok()
        .filter(|month| (1..=12).contains(month))
        .or_else(|| position(&MONTHS, text).map(|at| at + 1))
}

fn position(names: &[&str], text: &str) -> Option<i64> {
    names
        .iter()
        .position(|name| *name == text)
        .and_then(|at| i64::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse::<jiff::Timestamp>().unwrap().into()
    }

    #[test]
    fn every_field_has_to_agree_and_one_range_of_it_is_enough() {
        let cases = [
            (
                "times: [{start_time: '09:00', end_time: '17:00'}]",
                // The second before and the first second of the interval.
                "2026-11-20T08:59:59Z",
                false,
            ),
            (
                "times: [{start_time: '09:00', end_time: '17:00'}]",
                "2026-11-20T09:00:00Z",
                true,
            ),
            (
                "times: [{start_time: '09:00', end_time: '17:00'}]",
                "2026-11-20T17:00:00Z",
                false,
            ),
            (
                "times: [{start_time: '22:00', end_time: '24:00'}]",
                "2026-11-20T23:59:59Z",
                true,
            ),
            ("weekdays: ['monday:friday']", "2026-11-20T00:00:00Z", true),
            (
                // A Saturday, between the range and the single day.
                "weekdays: ['monday:friday', Sunday]",
                "2026-11-21T00:00:00Z",
                false,
            ),
            (
                "weekdays: ['monday:friday', Sunday]",
                "2026-11-22T00:00:00Z",
                true,
            ),
            // The 28 days of February 2026: -3 is the 26th.
            ("days_of_month: ['-3:-1']", "2026-02-26T00:00:00Z", true),
            ("days_of_month: ['-3:-1']", "2026-02-25T00:00:00Z", false),
            ("days_of_month: ['28:31']", "2026-02-28T12:00:00Z", true),
            ("days_of_month: ['30:31']", "2026-02-28T12:00:00Z", false),
            ("days_of_month: ['1:-1']", "2026-02-28T12:00:00Z", true),
            (
                "months: ['november:december', 3]",
                "2026-11-01T00:00:00Z",
                true,
            ),
            (
                "months: ['november:december', 3]",
                "2026-10-31T23:59:59Z",
                false,
            ),
            ("years: ['2020:2026']", "2026-12-31T23:59:59Z", true),
            (
                // A Friday, but not in January.
                "{weekdays: [friday], months: [january]}",
                "2026-11-20T00:00:00Z",
                false,
            ),
            // Summer and winter time of the place count, not the server's.
            (
                "{location: Europe/Berlin, times: [{start_time: '09:00', end_time: '17:00'}]}",
                "2026-07-01T07:00:00Z",
                true,
            ),
            (
                "{location: Europe/Berlin, times: [{start_time: '09:00', end_time: '17:00'}]}",
                "2026-11-20T07:59:00Z",
                false,
            ),
            // It is Saturday in Tokyo already.
            (
                "{location: Asia/Tokyo, weekdays: [saturday]}",
                "2026-11-20T15:00:00Z",
                true,
            ),
            ("{}", "2026-11-20T15:00:00Z", true),
        ];

        for (text, instant, inside) in cases {
            let interval = TimeInterval::read(&Node::read(text).unwrap()).unwrap();
            assert_eq!(
                interval.contains(at(instant)),
                inside,
                "{text} at {instant}"
            );
        }
    }

    #[test]
    fn impossible_ranges_are_mistakes() {
        for (text, says) in [
            (
                "times: [{start_time: '17:00', end_time: '09:00'}]",
                "before the end",
            ),
            (
                "times: [{start_time: '9', end_time: '10:00'}]",
                "not a time of day",
            ),
            (
                "times: [{start_time: '09:00', end_time: '24:01'}]",
                "not a time of day",
            ),
            ("weekdays: ['friday:monday']", "ends before it begins"),
            ("weekdays: [mo]", "not a range here"),
            ("days_of_month: [0]", "not a range of days"),
            ("days_of_month: [32]", "not a range of days"),
            ("days_of_month: ['-3:5']", "negative day"),
            ("days_of_month: ['5:3']", "ends before"),
            ("months: ['13']", "not a range here"),
            ("days_of_month: ['28:-2']", "ends before"),
            ("days_of_month: [' 1:5']", "not a range of days"),
            ("weekdays: [' monday']", "not a range here"),
            (
                "times: [{start_time: '9:00', end_time: '10:00'}]",
                "not a time of day",
            ),
            ("location: Mars/Olympus", "not a time zone"),
            ("location: utc", "not a time zone"),
            ("weekday: [monday]", "did you mean `weekdays`?"),
        ] {
            let message = TimeInterval::read(&Node::read(text).unwrap())
                .unwrap_err()
                .to_string();
            assert!(message.contains(says), "{text} gave {message}");
        }
    }
}
