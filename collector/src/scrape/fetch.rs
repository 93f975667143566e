//! Fetching a page.

use super::error::ScrapeError;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use std::time::Duration;
use takt_model::exposition::Format;

/// What is asked for. OpenMetrics first: its closing line shows that the page is whole.
const ACCEPTED: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                        application/openmetrics-text;version=0.0.1;q=0.5,\
                        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

/// A page as it came.
#[derive(Debug)]
pub(super) struct Fetched {
    pub format: Format,
    pub body: Vec<u8>,
}

/// Bounds of one fetch.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchLimits {
    pub timeout: Duration,
    pub body_bytes: u64,
}

/// The client that all targets share.
///
/// Inflating costs many times more than reading a page, and targets are near: so nothing is compressed. A proxy from
/// the environment is left alone, as Prometheus leaves it.
pub(super) fn client(timeout: Duration) -> Result<Client, reqwest::Error> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let seconds = timeout.as_secs_f64().to_string();
    let seconds = HeaderValue::from_str(&seconds).expect("digits and a point are a header value");
    headers.insert("x-prometheus-scrape-timeout-seconds", seconds);
    Client::builder()
        .user_agent(concat!("takt/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .http1_only()
        .no_gzip()
        .no_proxy()
        .tcp_nodelay(true)
        .build()
}

/// Fetches one page. `expected_bytes` is about how large it will be.
pub(super) async fn fetch(
    client: &Client,
    url: &Url,
    limits: FetchLimits,
    expected_bytes: usize,
) -> Result<Fetched, ScrapeError> {
    tokio::time::timeout(limits.timeout, fetch_in_time(client, url, limits.body_bytes, expected_bytes))
        .await
        .unwrap_or(Err(ScrapeError::Timeout { limit: limits.timeout }))
}

async fn fetch_in_time(client: &Client, url: &Url, limit: u64, expected_bytes: usize) -> Result<Fetched, ScrapeError> {
    let answer = client.get(url.clone()).send().await;
    let mut answer = answer.map_err(|source| ScrapeError::Unreachable { source: source.without_url() })?;
    if !answer.status().is_success() {
        return Err(ScrapeError::Status { status: answer.status() });
    }
    let format = format(answer.headers())?;
    if answer.content_length().is_some_and(|length| length > limit) {
        return Err(ScrapeError::TooLarge { limit });
    }
    let mut body = Vec::with_capacity(expected_bytes);
    loop {
        match answer.chunk().await {
            Ok(Some(bytes)) if (body.len() + bytes.len()) as u64 > limit => {
                return Err(ScrapeError::TooLarge { limit });
            }
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => return Ok(Fetched { format, body }),
            // A body that ends before its stated length, or without its last chunk, comes out here.
            Err(source) => {
                return Err(ScrapeError::Interrupted { received: body.len(), source: source.without_url() });
            }
        }
    }
}

fn format(headers: &HeaderMap) -> Result<Format, ScrapeError> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if let Some(found) = text(CONTENT_ENCODING)
        && !found.eq_ignore_ascii_case("identity")
    {
        return Err(ScrapeError::ContentEncoding { found });
    }
    let found = text(CONTENT_TYPE).ok_or(ScrapeError::NoContentType)?;
    let media_type = found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "text/plain" => Ok(Format::Text),
        "application/openmetrics-text" => Ok(Format::OpenMetrics),
        _ => Err(ScrapeError::ContentType { found }),
    }
}
