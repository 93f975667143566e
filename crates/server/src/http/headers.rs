//! Headers that keep a browser from doing more with an answer than showing it.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// Pages have styles of their own and an empty icon, and load nothing. Should a name in them ever be taken for markup, it runs no
/// script and sends nothing.
const HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// Adds the headers to an answer.
pub(crate) async fn protect(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
