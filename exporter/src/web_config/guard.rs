//! Checks before every route: passwords and the rate limit. Adds the configured headers to every
//! answer.

use super::{KeyProblem, LiveConfig, RateLimit, duration};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

pub(super) struct RequestGuard {
    /// Password hashes by user. Without users no password is asked for.
    users: BTreeMap<String, String>,
    headers: Vec<(HeaderName, HeaderValue)>,
    limit: Option<Limit>,
    verdicts: Verdicts,
}

/// Results of password checks: bcrypt is slow on purpose, and a scraper sends the same password
/// every few seconds.
struct Verdicts {
    /// Random for each start, so that the stored keys reveal no password.
    keys: [RandomState; 2],
    known: Mutex<KnownVerdicts>,
    /// Checks at the same time: a client that guesses passwords must not take all of the processor.
    checks: Semaphore,
}

/// Keys of users with passwords. A flood of wrong ones does not displace the right ones.
#[derive(Default)]
struct KnownVerdicts {
    right: HashSet<[u64; 2]>,
    wrong: HashSet<[u64; 2]>,
}

/// Keys that are kept of right passwords, and of wrong ones.
const MAX_VERDICTS: usize = 128;
/// Passwords that are checked at the same time.
const MAX_CHECKS: usize = 2;

/// Hash for the password of an unknown user, so that the time taken does not reveal which users
/// exist.
const NOBODY: &str = "$2b$10$abcdefghijklmnopqrstuu4T826PRnz0Hu6YlprUuxkZxOOj5Fw5S";

struct Limit {
    seconds: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

/// Headers that may be set, with their possible values; any value where the list is empty.
const HEADERS: &[(&str, &[&str])] = &[
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

impl RequestGuard {
    pub fn new(
        users: BTreeMap<String, String>,
        headers: BTreeMap<String, String>,
        limit: &RateLimit,
    ) -> Result<Self, KeyProblem> {
        for (user, hash) in &users {
            if hash.parse::<bcrypt::HashParts>().is_err() {
                let hint = "expected a bcrypt hash, as `htpasswd -nB USER` makes it";
                return Err((format!("basic_auth_users.{user}"), hint.to_owned()));
            }
        }

        let headers = headers.iter().map(|(name, value)| header(name, value));
        let headers = headers.collect::<Result<_, _>>()?;

        Ok(Self {
            users,
            headers,
            limit: Limit::new(limit)?,
            verdicts: Verdicts::new(),
        })
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), KeyProblem> {
    let wrong = |problem: String| (format!("http_server_config.headers.{name}"), problem);

    let known = HEADERS.iter().find(|(known, _)| *known == name);
    let Some((_, values)) = known else {
        let names: Vec<_> = HEADERS.iter().map(|(name, _)| *name).collect();
        return Err(wrong(format!("expected one of {}", names.join(", "))));
    };
    if !values.is_empty() && !value.is_empty() && !values.contains(&value) {
        return Err(wrong(format!("expected {}", values.join(" or "))));
    }

    let name = name.to_ascii_lowercase().parse::<HeaderName>();
    let name = name.map_err(|error| wrong(error.to_string()))?;
    let value = HeaderValue::from_str(value).map_err(|error| wrong(error.to_string()))?;
    Ok((name, value))
}

impl Limit {
    fn new(file: &RateLimit) -> Result<Option<Self>, KeyProblem> {
        if file.interval.is_empty() || file.interval == "0" {
            return Ok(None);
        }

        let interval = duration(&file.interval).ok_or_else(|| {
            (
                "rate_limit.interval".to_owned(),
                "expected a time such as 1s".to_owned(),
            )
        })?;

        if file.burst == 0 {
            return Err((
                "rate_limit.burst".to_owned(),
                "expected at least 1: 0 would refuse all requests".to_owned(),
            ));
        }

        let burst = file.burst as f64;
        // All requests of a burst are allowed at the start.
        let state = Mutex::new((burst, Instant::now()));
        Ok((!interval.is_zero()).then_some(Self {
            seconds: interval.as_secs_f64(),
            burst,
            state,
        }))
    }

    fn allows(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = *state;

        // One request more for each interval, up to the burst.
        let left = (left + now.saturating_duration_since(since).as_secs_f64() / self.seconds)
            .min(self.burst);
        let allows = left >= 1.0;

        // A refused request takes nothing, or a client that tries again and again would never be answered.
        *state = (if allows { left - 1.0 } else { left }, now);
        allows
    }
}

/// Middleware of every route.
pub(crate) async fn guard(
    State(config): State<Arc<LiveConfig>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(config) = config.current() else {
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the web configuration is wrong; see the log of the exporter\n",
        )
            .into_response();
    };

    let guard = &config.guard;

    // The limit comes first: it protects the checks of passwords, too.
    let mut response = match &guard.limit {
        Some(limit) if !limit.allows(Instant::now()) => {
            StatusCode::TOO_MANY_REQUESTS.into_response()
        }
        _ if guard.users.is_empty() || is_known(&config, request.headers()).await => {
            next.run(request).await
        }
        _ => (
            StatusCode::UNAUTHORIZED,
            [(WWW_AUTHENTICATE, "Basic")],
            "Unauthorized\n",
        )
            .into_response(),
    };

    for (name, value) in &config.guard.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

async fn is_known(config: &Arc<super::WebConfig>, headers: &HeaderMap) -> bool {
    let Some((user, password)) = headers.get(AUTHORIZATION).and_then(credentials) else {
        return false;
    };

    let guard = &config.guard;
    let verdicts = &guard.verdicts;
    let keys = verdicts.keys.each_ref();
    // 128 bits, so that no other password has the same key.
    let key = keys.map(|keys| keys.hash_one((&user, &password)));
    if let Some(is_right) = verdicts.lock().get(key) {
        return is_right;
    }

    let Ok(_check) = verdicts.checks.acquire().await else {
        return false;
    };
    // Another request may have checked the same meanwhile.
    if let Some(is_right) = verdicts.lock().get(key) {
        return is_right;
    }

    let hash = guard.users.get(&user).cloned();
    // On another thread, so that other requests need not wait.
    let verify = move || {
        let is_right =
            bcrypt::verify(&password, hash.as_deref().unwrap_or(NOBODY)).unwrap_or(false);
        is_right && hash.is_some()
    };
    let is_right = tokio::task::spawn_blocking(verify).await.unwrap_or(false);
    verdicts.lock().add(key, is_right);
    is_right
}

impl Verdicts {
    fn new() -> Self {
        Self {
            keys: Default::default(),
            known: Mutex::default(),
            checks: Semaphore::new(MAX_CHECKS),
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownVerdicts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownVerdicts {
    /// Whether the password is right; `None` where it has not been checked.
    fn get(&self, key: [u64; 2]) -> Option<bool> {
        if self.right.contains(&key) {
            Some(true)
        } else if self.wrong.contains(&key) {
            Some(false)
        } else {
            None
        }
    }

    fn add(&mut self, key: [u64; 2], is_right: bool) {
        let keys = if is_right {
            &mut self.right
        } else {
            &mut self.wrong
        };

        // Right passwords are few, and forgotten ones are only checked again.
        if keys.len() >= MAX_VERDICTS {
            keys.clear();
        }
        keys.insert(key);
    }
}

/// `Basic` and base64 of `user:password`.
fn credentials(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }

    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    // A password may have colons, and a user's name may not.
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn credentials_are_taken_apart() {
        let of = |text: &'static str| credentials(&HeaderValue::from_static(text));
        assert_eq!(
            of("Basic YWxpY2U6YTpi"),
            Some(("alice".into(), "a:b".into()))
        );
        for text in [
            "",
            "Basic",
            "Basic !",
            "Bearer YWxpY2U6YTpi",
            "Basic YWxpY2U=",
        ] {
            assert_eq!(of(text), None, "{text}");
        }

        // An invalid hash would be rejected at once, which would reveal that the user does not exist.
        assert!(NOBODY.parse::<bcrypt::HashParts>().is_ok());
    }

    #[test]
    fn wrong_passwords_displace_no_right_one() {
        let mut known = KnownVerdicts::default();
        known.add([7, 7], true);
        for number in 0..10 * MAX_VERDICTS as u64 {
            known.add([number, 0], false);
        }
        assert_eq!(known.get([7, 7]), Some(true));
        assert_eq!(known.get([10 * MAX_VERDICTS as u64 - 1, 0]), Some(false));
        assert_eq!(known.get([0, 0]), None);
        assert!(known.wrong.len() <= MAX_VERDICTS);
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_an_interval() {
        let limit = Limit::new(&RateLimit {
            interval: "1s".into(),
            burst: 2,
        })
        .unwrap()
        .unwrap();
        let start = Instant::now();
        let at = |millis| limit.allows(start + Duration::from_millis(millis));
        assert!(at(0) && at(0) && !at(0) && !at(500) && at(1100) && !at(1200));
        assert!(Limit::new(&RateLimit::default()).unwrap().is_none());
    }
}
