//! Headers that keep a browser from doing more with an answer than showing it.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// Pages load a style file, a script and pictures from this server only, and send forms and requests only to it. Should a
/// name in them ever be taken for markup, it runs no script and sends nothing.
const HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
];

/// Adds the headers to an answer that does not have its own.
pub async fn protect(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}
