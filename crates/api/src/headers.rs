//! Headers that keep a browser from doing more with an answer than showing it.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// Pages load a style file, a script and pictures from this server only, and send forms and requests only to it. Should a
/// name in them ever be taken for markup, it runs no script and sends nothing.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    // A page of another site, or of another port of localhost, can ask as the user of this browser. It gets no answer, not
    // even as a picture or a window whose size or state it could see.
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    // Each viewer has an own answer: no cache of a proxy may keep one for all.
    (header::CACHE_CONTROL, "private, no-cache"),
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
