//! Requests of this machine.
//!
//! A request is local if it comes from loopback, its `Host` names this machine, and no proxy has
//! forwarded it: a proxy on this machine connects from loopback for clients anywhere. nginx adds no
//! header unless configured to, but then speaks HTTP/1.0.

use axum::http::{HeaderMap, Request, Version, header};
use std::net::IpAddr;

/// Returns whether a request from this address is of this machine.
pub(super) fn is_local<B>(request: &Request<B>, address: IpAddr) -> bool {
    address.to_canonical().is_loopback() && names_this_machine(request) && is_direct(request)
}

/// Returns whether no proxy has forwarded a request.
pub(super) fn is_direct<B>(request: &Request<B>) -> bool {
    request.version() >= Version::HTTP_11 && !is_forwarded(request.headers())
}

/// Returns whether the `Host` header names this machine. A page of another site can make a browser
/// on this machine send requests, but not with such a header.
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        // HTTP/2 names the host elsewhere. Of two names one may be another's.
        return request.version() > Version::HTTP_11
            && request.headers().get(header::HOST).is_none();
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    // `[::1]` has colons as well, but no number behind the last one.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Returns whether a header says that a proxy has forwarded the request.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().map(header::HeaderName::as_str).any(|name| {
        matches!(name, "forwarded" | "x-real-ip" | "via") || name.starts_with("x-forwarded")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn with_hosts(hosts: &[&'static str]) -> Request<()> {
        let mut request = Request::new(());
        for host in hosts {
            let host = HeaderValue::from_static(host);
            request.headers_mut().append(header::HOST, host);
        }
        request
    }

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
            assert_eq!(names_this_machine(&with_hosts(&[host])), local, "{host}");
        }
        // HTTP/1.1 asks for exactly one.
        assert!(!names_this_machine(&with_hosts(&[])));
        assert!(!names_this_machine(&with_hosts(&[
            "localhost",
            "evil.example"
        ])));
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
}
