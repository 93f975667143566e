//! Compression of responses with gzip, if the client accepts it: numbers shrink to a tenth.

use super::held::PIECE_BYTES;
use axum::Error as AxumError;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt, stream};
use std::io::{self, Write};
use std::mem;

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

    // A body that its handler has encoded already must not be encoded twice.
    if !is_wanted || !is_worth_it || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }

    let (mut parts, body) = response.into_parts();
    // The length was that of the plain body.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts
        .headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts
        .headers
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));

    Response::from_parts(parts, Body::from_stream(gzipped(body)))
}

/// A body on its way through the encoder.
struct Compression {
    plain: BodyDataStream,
    /// What is left of a piece of the plain body.
    piece: Bytes,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

/// The compressed pieces of a body. A piece is compressed when the client has read those before, so
/// that the compressed body is never in memory as a whole.
fn gzipped(body: Body) -> impl Stream<Item = Result<Bytes, AxumError>> {
    let begin = Compression {
        plain: body.into_data_stream(),
        piece: Bytes::new(),
        encoder: Some(GzEncoder::new(Vec::new(), Level::fast())),
    };
    stream::try_unfold(begin, async |mut compression: Compression| {
        while let Some(mut encoder) = compression.encoder.take() {
            if compression.piece.is_empty() {
                compression.piece = match compression.plain.next().await {
                    Some(piece) => piece?,
                    None => {
                        let last = encoder.finish().map_err(AxumError::new)?;
                        return Ok(Some((last.into(), compression)));
                    }
                };
            }

            // A whole answer can be one piece of many megabytes.
            let length = compression.piece.len().min(PIECE_BYTES);
            let plain = compression.piece.split_to(length);
            // Compression takes milliseconds of a CPU, which would hold up all connections of an
            // async thread.
            let compress = move || {
                encoder.write_all(&plain)?;
                let compressed = mem::take(encoder.get_mut());
                io::Result::Ok((encoder, compressed))
            };

            let (encoder, compressed) = takt_store::spawn_blocking(compress)
                .await
                .map_err(AxumError::new)?
                .map_err(AxumError::new)?;

            compression.encoder = Some(encoder);
            // An empty piece would end the body for some clients; the encoder may keep small pieces
            // to itself.
            if !compressed.is_empty() {
                return Ok(Some((compressed.into(), compression)));
            }
        }
        Ok(None)
    })
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
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[tokio::test]
    async fn a_body_is_compressed_piece_by_piece() {
        // 4 MB in one piece, which gzip can hardly shrink.
        let plain: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let pieces: Vec<Bytes> = gzipped(Body::from(plain.clone()))
            .map(Result::unwrap)
            .collect()
            .await;
        let longest = pieces.iter().map(Bytes::len).max().unwrap();
        assert!(longest <= 2 * PIECE_BYTES, "{longest}");

        let mut found = Vec::new();
        GzDecoder::new(&pieces.concat()[..])
            .read_to_end(&mut found)
            .unwrap();
        assert_eq!(found, plain);
    }

    #[test]
    fn gzip_is_asked_for_by_name() {
        for (value, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("gzip; q=0", false),
            ("identity", false),
            // A wildcard would allow gzip; clients that want it name it.
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
