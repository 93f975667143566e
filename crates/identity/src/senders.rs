//! Senders of samples that the access check turns away: those with a wrong path, and those without a token.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Path of Prometheus remote write.
pub const WRITE_PATH: &str = "/api/v1/write";

/// Path of OTLP metrics.
pub const OTLP_PATH: &str = "/api/v1/otlp/v1/metrics";

/// Pause between two log lines about refused senders, in seconds.
const REFUSED_PAUSE: u64 = 60;

/// Returns the path that a sender meant which uses `path`, a path that does not exist. `None` if it
/// is none of a sender. Who asks needs no token: a refusal would send people after a wrong one.
pub(crate) fn meant(path: &str) -> Option<&'static str> {
    match path.trim_end_matches('/') {
        WRITE_PATH => Some(WRITE_PATH),
        // A program that takes the address of an OTLP server adds /v1/metrics.
        OTLP_PATH | "/api/v1/otlp" | "/v1/metrics" => Some(OTLP_PATH),
        _ => None,
    }
}

/// Logs that a sender without a valid token was refused: once a minute, as strangers must not fill
/// the log.
pub(crate) fn note_refused(client: IpAddr) {
    static LOGGED: AtomicU64 = AtomicU64::new(0);

    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());

    let logged = LOGGED.load(Ordering::Relaxed);
    // A difference in either direction: the clock may be set back. Of several threads, one writes the line.
    if logged.abs_diff(seconds) >= REFUSED_PAUSE
        && LOGGED
            .compare_exchange(logged, seconds, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        tracing::warn!(
            %client,
            "refused a push without the token of a sender; more within a minute are not logged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_that_a_sender_meant_is_found() {
        for (path, expected) in [
            ("/api/v1/write/", Some(WRITE_PATH)),
            ("/v1/metrics", Some(OTLP_PATH)),
            ("/api/v1/otlp/v1/metrics/", Some(OTLP_PATH)),
            ("/nodes/", None),
            ("/", None),
        ] {
            assert_eq!(meant(path), expected, "{path}");
        }
    }
}
