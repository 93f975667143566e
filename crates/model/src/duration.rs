//! Durations in the format of Prometheus and Alertmanager: `90s`, `1h30m`, `5d`.

use std::time::Duration;

/// Units, largest first, in milliseconds. A year has 365 days, a week 7 days, a day 24 hours.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Longest duration of Go, which counts nanoseconds: about 292 years.
const MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// Parses a duration: integers with units, each unit at most once, largest first; or `0`. Returns
/// `None` for other texts.
pub fn parse(text: &str) -> Option<Duration> {
    // Only zero may come without a unit, as in Prometheus.
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }

    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total_ms = 0u64;

    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let behind = &rest[digits..];
        let name = &behind[..behind
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(behind.len())];

        // The iterator keeps its place, so a unit that comes again, or after a smaller one, is not
        // found.
        let (_, unit_ms) = units.find(|(unit, _)| *unit == name)?;
        let count: u64 = rest[..digits].parse().ok()?;
        total_ms = total_ms.checked_add(count.checked_mul(*unit_ms)?)?;

        rest = &behind[name.len()..];
    }

    Some(Duration::from_millis(total_ms)).filter(|duration| *duration <= MAX)
}

/// Formats a duration so that [`parse`] reads it: `1h30m`. Years and weeks are used only for exact
/// multiples: `53w1d` is hard to read.
pub fn print(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }

    let mut out = String::new();
    for (unit, unit_ms) in UNITS {
        let only_whole = matches!(unit, "y" | "w");
        if rest < unit_ms || (only_whole && !rest.is_multiple_of(unit_ms)) {
            continue;
        }
        out += &format!("{}{unit}", rest / unit_ms);
        rest %= unit_ms;
    }

    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_the_durations_of_prometheus() {
        for (text, ms) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("5m", Some(300_000)),
            ("1h30m", Some(5_400_000)),
            ("1d", Some(86_400_000)),
            ("2w", Some(1_209_600_000)),
            ("1y1ms", Some(31_536_000_001)),
            ("", None),
            ("5", None),
            ("m", None),
            ("30m1h", None),
            ("1m1m", None),
            ("1.5h", None),
            ("-1m", None),
            (" 1m", None),
            ("1 m", None),
            ("99999999999999999999s", None),
            // Go's nanoseconds end between 292 and 293 years.
            ("292y", Some(9_208_512_000_000)),
            ("293y", None),
        ] {
            assert_eq!(parse(text).map(|d| d.as_millis()), ms, "{text:?}");
        }
    }

    #[test]
    fn writes_readable_durations() {
        for text in ["0s", "90d", "1w", "1y", "1h30m", "5m", "1m30s", "250ms"] {
            assert_eq!(print(parse(text).unwrap()), text);
        }
        assert_eq!(print(Duration::from_secs(90)), "1m30s");
    }

    proptest! {
        #[test]
        fn durations_round_trip(ms in 0u64..4_000_000_000_000) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&print(duration)), Some(duration));
        }
    }
}
