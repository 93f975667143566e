//! Times on pages: in the cluster's zone; the script adds the reader's own on hover.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use takt_jobs::time_zone;
use takt_model::UnixTime;

/// Formats an instant as an element: `2026-10-01 08:30`, and the exact time as an attribute.
pub(super) fn element(at: UnixTime, zone: &TimeZone, format: &str) -> String {
    // An instant beyond the years of dates has no text.
    let Ok(instant) = Timestamp::try_from(at) else {
        return String::new();
    };
    let text = instant.to_zoned(zone.clone()).strftime(format).to_string();
    format!("<time datetime=\"{instant}\">{text}</time>")
}

/// The zone of this name; UTC if the name is unknown.
pub(super) fn zone_of(name: &str) -> TimeZone {
    time_zone(name).unwrap_or(TimeZone::UTC)
}
