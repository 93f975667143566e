//! The access check: changes and requests from other machines need a token, either as a bearer token or as the password of basic
//! authentication (with any user name), which browsers can send.
//!
//! A request is local if it comes from loopback, its `Host` names this machine, and no proxy has forwarded it: a proxy on this
//! machine connects from loopback for clients anywhere. nginx adds no header unless configured to, but then speaks HTTP/1.0.

use super::{ErrorBody, ErrorKind};
use crate::answers::Asker;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a refused body that is read.
const DISCARDED_BYTES: usize = 1 << 20;

/// Maximum time for reading it.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The tokens of a server.
#[derive(Debug, Clone)]
pub struct Access {
    token: Arc<str>,
    read_token: Option<Arc<str>>,
}

impl Access {
    /// Changes and requests from other machines need `token`. For requests that change nothing, `read_token` suffices.
    pub fn new(token: &str, read_token: Option<&str>) -> Self {
        Self {
            token: token.into(),
            read_token: read_token.map(Into::into),
        }
    }

    /// Whether the headers have a valid token. The read token is valid if the request only `reads`.
    fn lets_in(&self, headers: &HeaderMap, reads: bool) -> bool {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let is_good = |given: &[u8]| {
            let for_reading = self.read_token.as_deref().filter(|_| reads);
            equal(given, self.token.as_bytes())
                | for_reading.is_some_and(|token| equal(given, token.as_bytes()))
        };
        if let Some(token) = given.strip_prefix("Bearer ") {
            return is_good(token.as_bytes());
        }
        let basic = given
            .strip_prefix("Basic ")
            .and_then(|text| BASE64_STANDARD.decode(text).ok())
            .unwrap_or_default();
        let password = basic
            .iter()
            .position(|&byte| byte == b':')
            .map(|colon| &basic[colon + 1..]);
        password.is_some_and(is_good)
    }
}

/// Paths without a check: load balancers have no token.
const OPEN: [&str; 2] = ["/-/healthy", "/-/ready"];

/// The middleware: refuses a request without the token it needs, and gives the others their [`Asker`].
pub async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let only_reads = super::questions::only_reads(path) || super::prometheus::only_reads(path);
    let reads = only_reads || matches!(*request.method(), Method::GET | Method::HEAD);
    let local = peer.ip().to_canonical().is_loopback()
        && names_this_machine(request.headers().get(header::HOST))
        && request.version() >= Version::HTTP_11
        && !is_forwarded(request.headers());
    if (reads && local) || OPEN.contains(&path) || access.lets_in(request.headers(), reads) {
        request.extensions_mut().insert(Asker::Local);
        return next.run(request).await;
    }
    let error = if local {
        "this changes something and needs a token: Authorization: Bearer TOKEN"
    } else {
        "a token is needed: Authorization: Bearer TOKEN (the server's token_file, or read_token_file to ask)"
    };
    let body = ErrorBody {
        kind: ErrorKind::Unauthorized,
        error: error.to_owned(),
    };
    discard(request).await;
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"takt\"")];
    (challenge, body).into_response()
}

/// Reads a small body of a refused request. A client that is still sending when the connection closes
/// sees a broken connection instead of the refusal.
async fn discard(request: Request) {
    let read = axum::body::to_bytes(request.into_body(), DISCARDED_BYTES);
    // Whatever was read or not, the refusal follows.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

/// The asker that [`check`] has found. Fails on a route outside the check.
impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = ErrorBody;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ErrorBody> {
        let asker = parts.extensions.get::<Self>().copied();
        asker.ok_or_else(|| ErrorBody {
            kind: ErrorKind::Failed,
            error: "the route has no access check".to_owned(),
        })
    }
}

/// Whether the `Host` header names this machine. A page of another site can make a browser on this machine send
/// requests, but not with such a header.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return true;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Whether a header says that a proxy has forwarded the request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(header::HeaderName::as_str);
    names.any(|name| {
        matches!(name, "forwarded" | "x-real-ip" | "via") || name.starts_with("x-forwarded")
    })
}

/// Compares in constant time.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for (host, local) in [
            ("localhost:9856", true),
            ("127.0.0.1", true),
            ("127.0.0.1:9856", true),
            ("[::1]:9856", true),
            ("evil.example:9856", false),
            ("127.0.0.1.evil.example", false),
        ] {
            assert_eq!(
                names_this_machine(Some(&HeaderValue::from_static(host))),
                local,
                "{host}"
            );
        }
        assert!(names_this_machine(None));
    }

    #[test]
    fn a_request_that_a_proxy_forwarded_is_not_local() {
        for (name, forwarded) in [
            ("forwarded", true),
            ("x-forwarded-for", true),
            ("x-forwarded-proto", true),
            ("x-forwarded-host", true),
            ("x-forwarded", true),
            ("x-real-ip", true),
            ("via", true),
            ("host", false),
            ("user-agent", false),
            ("x-requested-with", false),
        ] {
            let name = header::HeaderName::from_static(name);
            // An empty value says as much.
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(""))]);
            assert_eq!(is_forwarded(&headers), forwarded, "{name}");
        }
        assert!(!is_forwarded(&HeaderMap::new()));
    }

    #[test]
    fn a_token_must_be_whole() {
        let access = Access::new("secret-secret-secret", Some("reader-reader-reader"));
        let with = |value: &'static str| {
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
        };
        for reads in [true, false] {
            assert!(access.lets_in(&with("Bearer secret-secret-secret"), reads));
            assert!(access.lets_in(&with("Basic YWRtaW46c2VjcmV0LXNlY3JldC1zZWNyZXQ="), reads));
            assert!(!access.lets_in(&with("Basic YWRtaW46"), reads));
            assert!(!access.lets_in(&with("Bearer secret"), reads));
            assert!(!access.lets_in(&with("secret-secret-secret"), reads));
            assert!(!access.lets_in(&HeaderMap::new(), reads));
            assert_eq!(
                access.lets_in(&with("Bearer reader-reader-reader"), reads),
                reads
            );
        }
    }
}
