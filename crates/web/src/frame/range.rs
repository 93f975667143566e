//! Time ranges in addresses.
//!
//! `?range=24h` ends now. `?from=2026-10-01T08:00&to=2026-10-02` stays what it is, so it can be
//! shared. Times are in the cluster's zone.

use super::{PageError, Visit};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde::Serialize;
use takt_model::UnixTime;

/// A time range: `[from, to)`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Range {
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Whether the range ends now.
    pub is_now: bool,
    /// `24h`, if the address names a length.
    pub length: String,
    /// Links to other ranges.
    links: Vec<RangeLink>,
    /// Address of exactly this range, to share.
    permanent: String,
    /// Values of the fields of the range's form.
    fields: [String; 2],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RangeLink {
    name: String,
    address: String,
    is_current: bool,
}

/// Lengths that a page offers, and their seconds.
const LENGTHS: [(&str, i64); 4] = [
    ("6h", 6 * 3600),
    ("24h", 86_400),
    ("7d", 7 * 86_400),
    ("30d", 30 * 86_400),
];

impl Range {
    pub(super) fn of(visit: &Visit, usual: &str) -> Result<Self, PageError> {
        let zone = visit.zone();
        let now = UnixTime::from(visit.now);
        let instant = |name: &str| match visit.get(name) {
            Some(text) => instant(text, zone, now)
                .map(Some)
                .ok_or_else(|| unreadable(name, text)),
            None => Ok(None),
        };

        let from = instant("from")?;
        let to = instant("to")?;
        // A begin of its own leaves the length unused, but a wrong one is still a mistake.
        let length = visit.get("range").unwrap_or(usual);
        let seconds = length_seconds(length).ok_or_else(|| unreadable("range", length))?;

        let is_now = to.is_none();
        let end = to.unwrap_or(now);
        let begin = from.unwrap_or(end - seconds);
        if begin >= end {
            return Err(
                PageError::empty_range("The range ends before it begins.").next(
                    &visit.address(&[("from", ""), ("to", "")]),
                    "The usual range",
                ),
            );
        }
        // Only a plain length moves with the time.
        let is_plain = from.is_none() && is_now;
        let mut links: Vec<RangeLink> = LENGTHS
            .iter()
            .map(|(name, _)| RangeLink {
                name: (*name).to_owned(),
                address: visit.address(&[("range", name), ("from", ""), ("to", "")]),
                is_current: is_plain && *name == length,
            })
            .collect();

        let exact = |from: UnixTime, to: UnixTime| {
            let texts = [from, to].map(|at| text(at, zone));
            visit.address(&[("range", ""), ("from", &texts[0]), ("to", &texts[1])])
        };
        // The range before has the same length.
        let span = end - begin;
        links.push(RangeLink {
            name: "earlier".to_owned(),
            address: exact(begin - span, begin),
            is_current: false,
        });
        // A range that reaches now has nothing behind it.
        if !is_now && end < now {
            links.push(RangeLink {
                name: "later".to_owned(),
                address: exact(end, end + span),
                is_current: false,
            });
        }
        Ok(Self {
            from: begin,
            to: end,
            is_now: is_plain,
            length: if is_plain {
                length.to_owned()
            } else {
                String::new()
            },
            links,
            // The permanent address has the instants, since `24h` means another day tomorrow.
            permanent: exact(begin, end),
            fields: [begin, end].map(|at| text(at, zone)),
        })
    }

    /// Length of the range, in seconds.
    pub fn seconds(&self) -> i64 {
        self.to - self.from
    }

    /// Marks of the range's time axis.
    pub fn ticks(&self, zone: &TimeZone) -> Vec<(f64, String)> {
        ticks(self.from, self.to, zone)
    }
}

/// Marks of a time axis: share of the range, 0 to 1, and text in the cluster's zone. At most nine,
/// at round local times.
pub fn ticks(from: UnixTime, to: UnixTime, zone: &TimeZone) -> Vec<(f64, String)> {
    const STEPS: [i64; 11] = [
        60, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800,
    ];

    let length = (to - from).max(1);
    // The first step that gives at most eight marks.
    let step = STEPS
        .into_iter()
        .find(|step| length / step <= 8)
        .unwrap_or(length / 8);
    // Rounded in local time: a step of a day begins at midnight there.
    let offset = zoned(from, zone).map_or(0, |at| i64::from(at.offset().seconds()));

    let first = (from + offset).round_down(step) + step - offset;
    let format = if step >= 86_400 { "%a %-d %b" } else { "%H:%M" };

    (0..)
        .map(|at| first + at * step)
        .take_while(|at| *at < to)
        .filter_map(|at| {
            let share = (at - from) as f64 / length as f64;
            Some((share, zoned(at, zone)?.strftime(format).to_string()))
        })
        .collect()
}

fn unreadable(name: &str, text: &str) -> PageError {
    PageError::wrong(format!(
        "{name}={text} is not a time. Write 2026-10-01, 2026-10-01T14:30, UTC seconds, \
         or a length such as 24h or 7d."
    ))
}

fn zoned(at: UnixTime, zone: &TimeZone) -> Option<jiff::Zoned> {
    Some(Timestamp::try_from(at).ok()?.to_zoned(zone.clone()))
}

/// A time as an address has it.
fn text(at: UnixTime, zone: &TimeZone) -> String {
    // A time that is no date stays as seconds, which an address may have, too.
    zoned(at, zone).map_or_else(
        || at.to_string(),
        |at| at.strftime("%Y-%m-%dT%H:%M").to_string(),
    )
}

/// The seconds of `30m`, `24h` or `7d`.
fn length_seconds(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    let count: i64 = digits.parse().ok()?;
    // The bound keeps the seconds far from overflow.
    (1..=100_000).contains(&count).then(|| count * unit)
}

/// A time of an address: a date, a date and time in `zone`, an RFC 3339 time, UTC seconds, or
/// `now-6h`.
fn instant(text: &str, zone: &TimeZone, now: UnixTime) -> Option<UnixTime> {
    if let Some(ago) = text.strip_prefix("now") {
        return match ago.strip_prefix('-') {
            Some(length) => Some(now - length_seconds(length)?),
            None => ago.is_empty().then_some(now),
        };
    }
    if let Ok(seconds) = text.parse::<i64>() {
        // The years 1970 to 2200.
        return (0..7_258_118_400)
            .contains(&seconds)
            .then_some(UnixTime(seconds));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at.into());
    }
    // A date and time parses as a date, too, so the length decides.
    let local = match text.parse::<Date>() {
        Ok(date) if text.len() == 10 => date.to_datetime(jiff::civil::Time::midnight()),
        _ => text.parse::<DateTime>().ok()?,
    };
    Some(zone.to_timestamp(local).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_jobs::time_zone;

    #[test]
    fn times_are_in_the_clusters_zone() {
        let oslo = time_zone("Europe/Oslo").unwrap();

        let read = |text| instant(text, &oslo, UnixTime(1_000_000)).map(|at| at.0);
        assert_eq!(read("2026-10-01"), Some(1_790_805_600));
        assert_eq!(read("2026-10-01T08:30"), Some(1_790_836_200));
        assert_eq!(read("2026-10-01T06:30:00Z"), Some(1_790_836_200));
        assert_eq!(read("1790836200"), Some(1_790_836_200));
        assert_eq!(read("now-1h"), Some(996_400));
        // Words, an invalid month, a time before 1970, and a length where an instant is expected.
        for wrong in [
            "yesterday",
            "2026-13-01",
            "-5",
            "now-",
            "99999999999999",
            "24h",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ticks_are_at_round_local_times() {
        // The offset has half an hour, so round UTC times are not round there.
        let kolkata = time_zone("Asia/Kolkata").unwrap();
        let range = Range {
            from: UnixTime(1_790_805_600),
            to: UnixTime(1_790_805_600 + 86_400),
            is_now: true,
            length: String::new(),
            links: Vec::new(),
            permanent: String::new(),
            fields: Default::default(),
        };

        let ticks = range.ticks(&kolkata);
        assert!((4..=9).contains(&ticks.len()), "{ticks:?}");
        assert!(
            ticks.iter().all(|(_, text)| text.ends_with(":00")),
            "{ticks:?}"
        );
        assert!(ticks.iter().all(|(share, _)| (0.0..1.0).contains(share)));
    }

    #[test]
    fn lengths() {
        let read = ["30m", "24h", "7d", "0h", "h", "5", "-1h", "9999999999d"].map(length_seconds);
        assert_eq!(read[..3], [Some(1800), Some(86_400), Some(604_800)]);
        assert!(read[3..].iter().all(Option::is_none), "{read:?}");
    }
}
