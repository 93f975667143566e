//! Who may ask: every write, and every request that does not come in over loopback, needs the token, as a bearer token
//! or as the password of basic authentication (any user name), which is what a browser can send.

use super::{Problem, ProblemKind};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::net::SocketAddr;
use std::sync::Arc;

/// The rule for one server.
#[derive(Debug, Clone)]
pub struct Access {
    token: Arc<str>,
}

impl Access {
    /// Writes and requests from elsewhere need `token`.
    pub fn new(token: &str) -> Self {
        Self { token: token.into() }
    }

    fn holds(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if let Some(token) = given.strip_prefix("Bearer ") {
            return equal(token.as_bytes(), self.token.as_bytes());
        }
        let basic = given.strip_prefix("Basic ").and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default();
        let password = basic.iter().position(|&byte| byte == b':').map(|colon| &basic[colon + 1..]);
        password.is_some_and(|token| equal(token, self.token.as_bytes()))
    }
}

/// Open to all: a load balancer has no token.
const OPEN: [&str; 2] = ["/-/healthy", "/-/ready"];

/// The middleware.
pub async fn check(
    State(access): State<Access>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let only_asks = path == super::SQL_PATH || super::prometheus::only_asks(path);
    let reads = only_asks || matches!(*request.method(), Method::GET | Method::HEAD);
    let local = peer.ip().to_canonical().is_loopback() && names_this_machine(request.headers().get(header::HOST));
    if (reads && local) || OPEN.contains(&path) || access.holds(request.headers()) {
        return next.run(request).await;
    }
    let error = match local {
        true => "this changes something and needs a token: Authorization: Bearer TOKEN".to_owned(),
        false => "a token is needed: Authorization: Bearer TOKEN (the server's token_file)".to_owned(),
    };
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"takt\"")];
    (challenge, Problem { kind: ProblemKind::Unauthorized, error }).into_response()
}

/// A page of another site can make a browser on this machine ask us, but not under our own name.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Takes the same time wherever the first difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_local() {
        for (host, local) in [
            ("localhost:9856", true),
            ("127.0.0.1", true),
            ("127.0.0.1:9856", true),
            ("[::1]:9856", true),
            ("evil.example:9856", false),
            ("127.0.0.1.evil.example", false),
        ] {
            assert_eq!(names_this_machine(Some(&HeaderValue::from_static(host))), local, "{host}");
        }
        assert!(names_this_machine(None));
    }

    #[test]
    fn a_token_must_be_whole() {
        let access = Access::new("secret-secret-secret");
        let with =
            |value: &'static str| HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
        assert!(access.holds(&with("Bearer secret-secret-secret")));
        assert!(access.holds(&with("Basic YWRtaW46c2VjcmV0LXNlY3JldC1zZWNyZXQ=")));
        assert!(!access.holds(&with("Basic YWRtaW46")));
        assert!(!access.holds(&with("Bearer secret")));
        assert!(!access.holds(&with("secret-secret-secret")));
        assert!(!access.holds(&HeaderMap::new()));
    }
}
