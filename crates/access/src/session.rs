//! Rules of sessions, codes of links, and requests of other sites.

use takt_model::UnixTime;

/// Seconds without a request after which a session ends.
pub const IDLE_SECONDS: i64 = 12 * 3600;

/// Seconds after which a session ends in any case.
pub const LONGEST_SECONDS: i64 = 14 * 86_400;

/// Seconds after which a session ends whose user another service has signed in: the service may
/// have removed the user, or a group of the user, since.
pub const OUTSIDE_SECONDS: i64 = 12 * 3600;

/// Seconds for which the code of a link is valid.
pub const CODE_SECONDS: i64 = 120;

/// Maximum number of codes of a user that are valid at the same time.
pub const MAX_CODES: usize = 5;

/// Attempts of one address to sign in within [`ATTEMPT_SECONDS`].
pub const MAX_ATTEMPTS: usize = 10;

/// Seconds in which attempts are counted.
pub const ATTEMPT_SECONDS: i64 = 60;

/// Seconds by which the clock may go back without ending what has begun since. What begins while the
/// clock is further ahead ends with the clock's correction, instead of living until then.
const AHEAD_SECONDS: i64 = 3600;

/// Returns whether a session is valid. `longest` is [`LONGEST_SECONDS`] or [`OUTSIDE_SECONDS`].
pub fn is_valid(created_at: UnixTime, seen_at: UnixTime, longest: i64, now: UnixTime) -> bool {
    now < seen_at + IDLE_SECONDS && is_within(created_at, longest, now)
}

/// Returns whether less than `seconds` have passed since `begin`.
pub fn is_within(begin: UnixTime, seconds: i64, now: UnixTime) -> bool {
    // The second condition alone would keep a beginning in the future valid until the clock gets there.
    begin <= now + AHEAD_SECONDS && now < begin + seconds
}

/// Returns the path to which a browser goes after signing in: `path`, if it is one of this site,
/// else `/`.
pub fn next_path(path: &str) -> &str {
    // Browsers read `//host` and `/\host` as addresses of another site. A control character would end the header.
    // The sign-in page as target would lead to itself.
    let is_own = path.starts_with('/')
        && !path.starts_with("//")
        && !path.starts_with("/login")
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own { path } else { "/" }
}

/// Returns whether a text can be a Unix name that signs in. `root` cannot.
pub fn is_user_name(name: &str) -> bool {
    const MAX_CHARS: usize = 64;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-@$".contains(c);
    // Names with `@` come from realms, those with `$` are machine accounts. A name of digits would be taken for a
    // user id.
    name.len() <= MAX_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_allowed)
        && name != "root"
}

/// Returns whether a page of this site has sent the request: by `Sec-Fetch-Site`, else by comparing
/// `Origin` with `Host`. `None` if no browser has sent it.
pub fn is_same_site(
    fetch_site: Option<&str>,
    origin: Option<&str>,
    host: Option<&str>,
) -> Option<bool> {
    // Browsers set `Sec-Fetch-Site` themselves, and no page can change it, so it decides alone where it exists.
    if let Some(site) = fetch_site {
        return Some(site == "same-origin");
    }
    let origin = origin?;
    // `null` and other texts without a host are foreign.
    let of_origin = origin.split_once("://").map(|(_, host)| host);
    Some(of_origin.is_some() && of_origin == host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_idle_and_when_old() {
        let is_valid = |seen_at, now| {
            is_valid(
                UnixTime(0),
                UnixTime(seen_at),
                LONGEST_SECONDS,
                UnixTime(now),
            )
        };

        assert!(is_valid(0, IDLE_SECONDS - 1));
        assert!(!is_valid(0, IDLE_SECONDS));

        // The last second of a session that is in use.
        let late = LONGEST_SECONDS - 1;
        assert!(is_valid(late, late));
        assert!(!is_valid(late, LONGEST_SECONDS));
        // Begun while the clock was a year ahead.
        assert!(!is_valid(-31_622_400, -31_622_400));
    }

    #[test]
    fn a_browser_goes_to_a_page_of_this_site_only() {
        assert_eq!(next_path("/jobs/7?sort=user"), "/jobs/7?sort=user");
        for other in [
            "",
            "jobs",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/jobs\r\nSet-Cookie: a=b",
            "/login?next=/login",
        ] {
            assert_eq!(next_path(other), "/", "{other}");
        }
    }

    #[test]
    fn names_of_people_are_unix_names() {
        for name in ["alice", "_a", "a.b-c_2", "alice@uni.example", "svc$"] {
            assert!(is_user_name(name), "{name}");
        }
        let long = "a".repeat(65);
        for name in [
            "", "root", "-a", "1000", "a b", "a\nb", "*", "a,b", "é", &long,
        ] {
            assert!(!is_user_name(name), "{name}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_recognized() {
        let host = Some("takt.lab:9856");
        for (site, origin, same) in [
            (Some("same-origin"), None, Some(true)),
            // Another port of the same host, another host of the same domain.
            (Some("same-site"), None, Some(false)),
            (
                Some("cross-site"),
                Some("http://takt.lab:9856"),
                Some(false),
            ),
            // `none` is a user's own act, such as a bookmark: no page of this site has sent it.
            (Some("none"), None, Some(false)),
            (None, Some("http://takt.lab:9856"), Some(true)),
            (None, Some("http://takt.lab:8080"), Some(false)),
            (None, Some("http://evil.example"), Some(false)),
            (None, Some("null"), Some(false)),
            (None, None, None),
        ] {
            assert_eq!(
                is_same_site(site, origin, host),
                same,
                "{site:?} {origin:?}"
            );
        }
        assert_eq!(is_same_site(None, Some("http://x"), None), Some(false));
    }
}
