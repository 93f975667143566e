//! Times of Kubernetes: RFC 3339 in UTC, in whole seconds or with a fraction.

use jiff::Timestamp;
use takt_jobs::bounded;
use takt_model::UnixTime;
use takt_model::shown::printable;

/// 2014-06-06, the first commit of Kubernetes. Earlier times are those of a clock that was not set.
const EARLIEST: UnixTime = UnixTime(1_402_012_800);

/// Seconds by which a time may be later than now: clocks of clusters differ.
const MAX_AHEAD_SECONDS: i64 = 86_400;

/// Maximum length of a time in bytes: nine digits of a second and an offset.
const MAX_TIME_BYTES: usize = 40;

/// Times that are not set: Go's zero, and the epoch that some runtimes report.
const NOT_SET: &[&str] = &["", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"];

/// Parses a time of the field `name`. `None` if it is not set.
///
/// # Errors
/// The text is no time, or is before Kubernetes existed or later than `now`.
pub(crate) fn instant(
    text: Option<&str>,
    name: &str,
    now: UnixTime,
) -> Result<Option<UnixTime>, String> {
    let Some(at) = any_instant(text, name)? else {
        return Ok(None);
    };
    let shown = || printable(&bounded(text.unwrap_or_default(), MAX_TIME_BYTES));
    if at < EARLIEST {
        return Err(format!("{name} '{}' is before 2014-06-06", shown()));
    }
    if at > now + MAX_AHEAD_SECONDS {
        return Err(format!("{name} '{}' is in the future", shown()));
    }
    Ok(Some(at))
}

/// Parses a time that may be in the future, such as the end of a grace period. `None` if it is not set.
///
/// # Errors
/// The text is no time.
pub(crate) fn any_instant(text: Option<&str>, name: &str) -> Result<Option<UnixTime>, String> {
    let text = text.unwrap_or_default();
    if NOT_SET.contains(&text) {
        return Ok(None);
    }

    let shown = || printable(&bounded(text, MAX_TIME_BYTES));
    let begins = text.as_bytes().first().is_some_and(u8::is_ascii_digit);
    // jiff accepts more forms than an API server writes.
    let at = Some(text)
        .filter(|text| begins && text.len() <= MAX_TIME_BYTES)
        .and_then(|text| text.parse::<Timestamp>().ok())
        .ok_or_else(|| {
            format!(
                "{name} '{}' is not a time such as 2026-10-01T08:00:00Z",
                shown()
            )
        })?;
    Ok(Some(at.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_790_000_000);

    #[test]
    fn times_are_those_of_the_present() {
        let at = |text| instant(Some(text), "createdAt", NOW);
        assert_eq!(
            at("2026-09-01T00:00:00Z"),
            Ok(Some(UnixTime(1_788_220_800)))
        );
        assert_eq!(
            at("2026-09-01T02:00:00.25+02:00"),
            Ok(Some(UnixTime(1_788_220_800)))
        );
        for unset in NOT_SET {
            assert_eq!(at(unset), Ok(None));
        }
        assert_eq!(instant(None, "createdAt", NOW), Ok(None));

        for (text, reason) in [
            (
                "1999-01-01T00:00:00Z",
                "createdAt '1999-01-01T00:00:00Z' is before 2014-06-06",
            ),
            (
                "2031-01-01T00:00:00Z",
                "createdAt '2031-01-01T00:00:00Z' is in the future",
            ),
            (
                "yesterday",
                "createdAt 'yesterday' is not a time such as 2026-10-01T08:00:00Z",
            ),
        ] {
            assert_eq!(at(text), Err(reason.to_owned()));
        }
        assert!(at(&"9".repeat(1000)).unwrap_err().len() < 200);
    }
}
