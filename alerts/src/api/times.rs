//! Times in the format of the API.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use takt_model::Timestamp;

/// Go's zero time: "not given".
const NEVER: &str = "0001-01-01T00:00:00";

/// RFC 3339 in UTC, always with milliseconds.
pub fn write(at: Timestamp) -> String {
    jiff::Timestamp::try_from(at)
        .map(|at| format!("{at:.3}"))
        .unwrap_or_else(|_| "9999-12-31T23:59:59.000Z".to_owned())
}

/// Reads RFC 3339 with any offset; `None` for an empty text and for Go's zero time.
pub fn read(text: Option<&str>) -> Result<Option<Timestamp>, String> {
    match text {
        None | Some("") => Ok(None),
        Some(text) if text.starts_with(NEVER) => Ok(None),
        Some(text) => {
            let whole = text.contains('T').then(|| text.parse().ok()).flatten();
            match whole.or_else(|| utc(text)) {
                Some(at) => Ok(Some(at.into())),
                None => Err(format!(
                    "{text:?} is not an instant such as 2026-11-21T12:00:00Z"
                )),
            }
        }
    }
}

/// A time without an offset is UTC, and a date is its first instant.
fn utc(text: &str) -> Option<jiff::Timestamp> {
    let has_offset = text.ends_with('Z') || text.contains('+');
    text.parse::<DateTime>()
        .ok()
        .filter(|_| !has_offset)?
        .to_zoned(TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_writes_them() {
        assert_eq!(write(Timestamp(1_500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(
            read(Some("1970-01-01T01:00:01.5+01:00")),
            Ok(Some(Timestamp(1_500)))
        );
        assert_eq!(read(Some("0001-01-01T00:00:00Z")), Ok(None));
        assert_eq!(read(Some("0001-01-01T00:00:00.000Z")), Ok(None));
        assert_eq!(read(None), Ok(None));
        assert_eq!(
            read(Some("1970-01-01T00:00:02")),
            Ok(Some(Timestamp(2_000)))
        );
        assert_eq!(read(Some("1970-01-02")), Ok(Some(Timestamp(86_400_000))));
        assert_eq!(
            read(Some("1970-01-01 00:00:02")),
            Ok(Some(Timestamp(2_000)))
        );
        assert!(read(Some("1970-01-01 00:00:02Z")).is_err());
        assert!(read(Some("yesterday")).is_err());
    }
}
