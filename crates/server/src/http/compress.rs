//! Compression of responses with gzip, if the client accepts it: numbers shrink to a tenth.

use crate::answers::AnswerError;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Smallest compressed response, in bytes: a smaller one fits into one packet.
const LEAST: u64 = 1400;

/// The middleware. Streamed responses are not compressed.
pub async fn compress(request: Request, next: Next) -> Response {
    let is_wanted = accepts_gzip(request.headers());
    let response = next.run(request).await;
    let is_worth_it = response
        .body()
        .size_hint()
        .exact()
        .is_some_and(|size| size >= LEAST);
    if !is_wanted || !is_worth_it || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    match gzipped(body).await {
        Ok(body) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts
                .headers
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts
                .headers
                .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            Response::from_parts(parts, Body::from(body))
        }
        Err(error) => error.into_response(),
    }
}

async fn gzipped(body: Body) -> Result<Vec<u8>, AnswerError> {
    let plain = to_bytes(body, usize::MAX)
        .await
        .map_err(AnswerError::failed)?;
    let compress = move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain)?;
        encoder.finish()
    };
    takt_store::spawn_blocking(compress)
        .await
        .map_err(AnswerError::failed)?
        .map_err(AnswerError::failed)
}

/// Whether `Accept-Encoding` names gzip, with a weight other than 0.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight
                .trim()
                .strip_prefix("q=")
                .map_or(Ok(1.0), str::parse::<f64>);
            name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_asked_for_by_name() {
        for (value, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("gzip; q=0", false),
            ("identity", false),
            ("*", false),
            ("gzipped", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), accepted, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
