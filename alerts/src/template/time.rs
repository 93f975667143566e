//! Times and durations as Go writes them.

use super::TemplateError;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned, civil};

/// Go's default layout of a time.
pub(super) const PRINTED: &str = "2006-01-02 15:04:05.999999999 -0700 MST";

/// Parts of Go's layouts, which are an example of a time, with jiff's signs. Longer parts come
/// before their prefixes.
const PARTS: &[(&str, &str)] = &[
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("2006", "%Y"),
    ("Z07:00", "Z%:z"),
    ("Z0700", "Z%z"),
    ("-07:00", "%:z"),
    ("-0700", "%z"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("_2", "%e"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
];

/// Writes a time in a layout such as `Jan 2, 15:04 MST`.
pub(super) fn format(at: &Zoned, layout: &str) -> String {
    let mut out = String::new();

    let mut rest = layout;
    while !rest.is_empty() {
        // A fraction first: its point is no part of a layout by itself.
        if let Some((digits, behind)) = fraction(rest) {
            out += &fraction_of(at, digits);
            rest = behind;
            continue;
        }
        match PARTS
            .iter()
            .find_map(|(part, sign)| rest.strip_prefix(part).map(|behind| (sign, behind)))
        {
            // In these layouts UTC is the letter alone.
            Some((sign, behind)) if sign.starts_with('Z') => {
                if at.offset().is_zero() {
                    out.push('Z')
                } else {
                    out += &at.strftime(&sign[1..]).to_string()
                }
                rest = behind;
            }
            Some((sign, behind)) => {
                out += &at.strftime(sign).to_string();
                rest = behind;
            }
            None => {
                let end = rest.chars().next().map_or(rest.len(), char::len_utf8);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    out
}

/// Go's zero time, which stands for "no time".
pub(super) fn zero() -> Result<Zoned, TemplateError> {
    civil::date(1, 1, 1)
        .at(0, 0, 0, 0)
        .to_zoned(TimeZone::UTC)
        .map_err(|error| TemplateError::new(error.to_string()))
}

/// Reads a time in a layout; without an offset it is UTC. `None` if it has another form.
pub(super) fn read(layout: &str, text: &str) -> Option<Zoned> {
    let mut form = String::new();
    let mut rest = layout;
    while !rest.is_empty() {
        if let Some((digits, behind)) = fraction(rest) {
            form += &digits[..1];
            form += "%f";
            rest = behind;
        } else if let Some((sign, behind)) = PARTS
            .iter()
            .find_map(|(part, sign)| Some((sign, rest.strip_prefix(part)?)))
        {
            form += sign.trim_start_matches('Z');
            rest = behind;
        } else {
            let end = rest.chars().next().map_or(rest.len(), char::len_utf8);
            form += if rest.starts_with('%') {
                "%%"
            } else {
                &rest[..end]
            };
            rest = &rest[end..];
        }
    }

    let read = BrokenDownTime::parse(&form, text).ok()?;
    // Missing parts are zero, or one where zero is impossible, as in Go.
    let date = civil::Date::new(
        read.year().unwrap_or(0),
        read.month().unwrap_or(1),
        read.day().unwrap_or(1),
    );
    let time = civil::Time::new(
        read.hour().unwrap_or(0),
        read.minute().unwrap_or(0),
        read.second().unwrap_or(0),
        read.subsec_nanosecond().unwrap_or(0),
    );

    let zone = read.offset().map_or(TimeZone::UTC, TimeZone::fixed);
    date.ok()?.to_datetime(time.ok()?).to_zoned(zone).ok()
}

/// Splits `.000` or `.999` at the start: digits and rest.
fn fraction(layout: &str) -> Option<(&str, &str)> {
    let behind = layout.strip_prefix(['.', ','])?;
    let digit = behind.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let end = behind.find(|c| c != digit).unwrap_or(behind.len());
    let is_number = behind[end..].starts_with(|c: char| c.is_ascii_digit());
    (!is_number && end <= 9).then(|| (&layout[..=end], &behind[end..]))
}

/// Nines drop trailing zeros, and the point if no digit is left.
fn fraction_of(at: &Zoned, digits: &str) -> String {
    let all = format!("{:09}", at.subsec_nanosecond());
    let shown = &all[..digits.len() - 1];
    let shown = if digits.ends_with('9') {
        shown.trim_end_matches('0')
    } else {
        shown
    };

    match shown {
        "" => String::new(),
        shown => format!("{}{shown}", &digits[..1]),
    }
}

/// The name of a time zone.
pub(super) fn zone_name(zone: &TimeZone) -> String {
    let name = zone.iana_name().map(str::to_owned);
    name.unwrap_or_else(|| match *zone == TimeZone::UTC {
        true => "UTC".to_owned(),
        false => String::new(),
    })
}

/// The time as Go source: `time.Date(2009, time.November, 10, 23, 0, 0, 0, time.UTC)`.
pub(super) fn go_source(at: &Zoned) -> String {
    let zone = match zone_name(at.time_zone()) {
        name if name == "UTC" => "time.UTC".to_owned(),
        name => format!("time.Location({name:?})"),
    };
    format!(
        "time.Date({}, time.{}, {}, {}, {}, {}, {}, {zone})",
        at.year(),
        format(at, "January"),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.subsec_nanosecond(),
    )
}

/// Adds to the parts of a date; what exceeds a month runs into the next, as in Go.
pub(super) fn add_date(at: &Zoned, years: i64, months: i64, days: i64) -> Option<Zoned> {
    let month = i64::from(at.month()) - 1;
    let months = month.checked_add(months)?;
    let year = i64::from(at.year())
        .checked_add(years)?
        .checked_add(months.div_euclid(12))?;
    let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
    let first = civil::Date::new(i16::try_from(year).ok()?, month, 1).ok()?;
    // Days are counted from the first of the month, so those beyond its end run into the next.
    let days = (i64::from(at.day()) - 1).checked_add(days)?;
    let date = first
        .checked_add(jiff::Span::new().try_days(days).ok()?)
        .ok()?;
    date.to_datetime(at.time())
        .to_zoned(at.time_zone().clone())
        .ok()
}

/// Seconds from Go's zero time, the beginning of year 1, to 1970.
const SECONDS_TO_1970: i128 = 62_135_596_800;

/// The time rounded down to a multiple of `step` since the beginning of year 1.
pub(super) fn truncated(at: &Zoned, step: SignedDuration) -> Option<Zoned> {
    let beyond = beyond(at, step);
    moved(at, -beyond)
}

/// The time rounded to the nearest multiple of `step`, half of it up.
pub(super) fn rounded(at: &Zoned, step: SignedDuration) -> Option<Zoned> {
    let beyond = beyond(at, step);

    if 2 * beyond < step.as_nanos() {
        return moved(at, -beyond);
    }
    moved(at, (step.as_nanos() - beyond).max(0))
}

/// Nanoseconds since the last multiple of `step`; 0 for a step that is not positive.
fn beyond(at: &Zoned, step: SignedDuration) -> i128 {
    let since = at.timestamp().as_nanosecond() + SECONDS_TO_1970 * 1_000_000_000;
    match step.as_nanos() {
        ..=0 => 0,
        step => since.rem_euclid(step),
    }
}

fn moved(at: &Zoned, nanos: i128) -> Option<Zoned> {
    let to = jiff::Timestamp::from_nanosecond(at.timestamp().as_nanosecond() + nanos).ok()?;
    Some(to.to_zoned(at.time_zone().clone()))
}

/// The duration rounded towards zero to a multiple of `step`.
pub(super) fn truncated_duration(given: SignedDuration, step: SignedDuration) -> SignedDuration {
    match step.as_nanos() {
        ..=0 => given,
        step => of_nanos(given.as_nanos() - given.as_nanos() % step),
    }
}

/// The duration rounded to the nearest multiple of `step`, half of it away from zero.
pub(super) fn rounded_duration(given: SignedDuration, step: SignedDuration) -> SignedDuration {
    let nanos = given.as_nanos();
    match step.as_nanos() {
        ..=0 => given,
        step if 2 * (nanos % step).abs() < step => of_nanos(nanos - nanos % step),
        step => of_nanos(nanos - nanos % step + step * nanos.signum()),
    }
}

fn of_nanos(nanos: i128) -> SignedDuration {
    let most = i128::from(i64::MAX);
    SignedDuration::from_nanos(nanos.clamp(-most, most) as i64)
}

/// `1h2m3.5s`, `250ms`, `0s`.
pub(super) fn print_duration(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos().unsigned_abs();
    let sign = if duration.is_negative() { "-" } else { "" };
    let trimmed = |value: f64| {
        format!("{value:.9}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    let small = [
        (1_000u128, 1.0, "ns"),
        (1_000_000, 1e3, "µs"),
        (1_000_000_000, 1e6, "ms"),
    ];

    if nanos == 0 {
        return "0s".to_owned();
    }
    if let Some((_, unit, name)) = small.iter().find(|(below, ..)| nanos < *below) {
        return format!("{sign}{}{name}", trimmed(nanos as f64 / unit));
    }

    let hours = nanos / 3_600_000_000_000;
    let minutes = nanos / 60_000_000_000 % 60;
    let seconds = trimmed((nanos % 60_000_000_000) as f64 / 1e9);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_writes_them() {
        let at: Zoned = "2026-03-05T09:07:03.25+01:00[Europe/Berlin]"
            .parse()
            .unwrap();
        for (layout, expected) in [
            (PRINTED, "2026-03-05 09:07:03.25 +0100 CET"),
            ("2006-01-02T15:04:05Z07:00", "2026-03-05T09:07:03+01:00"),
            ("Mon Jan _2 15:04:05 2006", "Thu Mar  5 09:07:03 2026"),
            ("Monday, 02-Jan-06 3:04PM", "Thursday, 05-Mar-26 9:07AM"),
            ("05.000 at 1/2", "03.250 at 3/5"),
        ] {
            assert_eq!(format(&at, layout), expected, "{layout}");
        }

        let utc: Zoned = "2026-03-05T09:07:00+00:00[UTC]".parse().unwrap();
        assert_eq!(
            format(&utc, "2006-01-02T15:04:05.999Z07:00"),
            "2026-03-05T09:07:00Z"
        );
        assert_eq!(format(&utc, PRINTED), "2026-03-05 09:07:00 +0000 UTC");

        for (nanos, expected) in [
            (0, "0s"),
            (1_500, "1.5µs"),
            (250_000_000, "250ms"),
            (3_600_000_000_000, "1h0m0s"),
            (-3_725_500_000_000, "-1h2m5.5s"),
            (62_000_000_000, "1m2s"),
        ] {
            assert_eq!(print_duration(SignedDuration::from_nanos(nanos)), expected);
        }
    }
}
