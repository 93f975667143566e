//! Fetching a page.

use super::error::ScrapeError;
use super::http::{Http, HttpError};
use super::job::Job;
use super::target::Target;
use flate2::read::MultiGzDecoder;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use takt_model::exposition::Format;

/// What is asked for. OpenMetrics first: its closing line shows that the page is whole.
const ACCEPTED: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                        application/openmetrics-text;version=0.0.1;q=0.5,\
                        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// A page as it came.
#[derive(Debug)]
pub(super) struct Fetched {
    pub format: Format,
    pub body: Vec<u8>,
}

/// Gets the pages of one target.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    job: Arc<Job>,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
}

impl Fetcher {
    /// `shared` is the job's client; a target that has another name in TLS gets one of its own.
    ///
    /// # Errors
    /// When that cannot be set up.
    pub fn new(job: &Arc<Job>, target: &Target, shared: &Client) -> Result<Self, HttpError> {
        let http: &Http = &job.http;
        let client = match http.server_name(&target.url) {
            Some(_) => http.client_for(&target.url)?,
            None => shared.clone(),
        };
        let (url, mut headers) = http.request(&target.url);
        // Inflating costs many times more than reading a page, and most targets are near.
        let encoding = if job.config.enable_compression { "gzip" } else { "identity" };
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        let seconds = HeaderValue::from_str(&target.timeout.as_secs_f64().to_string());
        headers.insert(TIMEOUT_HEADER, seconds.expect("digits and a point are a header value"));
        Ok(Self { client, job: Arc::clone(job), url, headers, timeout: target.timeout })
    }

    /// Fetches one page. `expected_bytes` is about how large it will be.
    pub async fn fetch(&self, expected_bytes: usize) -> Result<Fetched, ScrapeError> {
        tokio::time::timeout(self.timeout, self.fetch_in_time(expected_bytes))
            .await
            .unwrap_or(Err(ScrapeError::Timeout { limit: self.timeout }))
    }

    async fn fetch_in_time(&self, expected_bytes: usize) -> Result<Fetched, ScrapeError> {
        let limit = self.job.limits.body_bytes;
        let request = self.client.get(self.url.clone()).headers(self.headers.clone());
        let request = self.job.http.authorize(request).await;
        let answer = request.map_err(|source| ScrapeError::Credentials { source })?.send().await;
        let mut answer = answer.map_err(|source| ScrapeError::Unreachable { source: source.without_url() })?;
        if !answer.status().is_success() {
            return Err(ScrapeError::Status { status: answer.status() });
        }
        let is_gzip = self.is_gzip(answer.headers())?;
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
                Ok(None) if is_gzip => return Ok(Fetched { format, body: inflate(&body, limit, expected_bytes)? }),
                Ok(None) => return Ok(Fetched { format, body }),
                // A body that ends before its stated length, or without its last chunk, comes out here.
                Err(source) => {
                    return Err(ScrapeError::Interrupted { received: body.len(), source: source.without_url() });
                }
            }
        }
    }

    fn is_gzip(&self, headers: &HeaderMap) -> Result<bool, ScrapeError> {
        let Some(found) = text(headers, CONTENT_ENCODING) else { return Ok(false) };
        match found.to_ascii_lowercase().as_str() {
            "identity" => Ok(false),
            "gzip" if self.job.config.enable_compression => Ok(true),
            _ => Err(ScrapeError::ContentEncoding { found }),
        }
    }
}

/// The limit counts for what comes out: a small answer can inflate to anything.
fn inflate(body: &[u8], limit: u64, expected_bytes: usize) -> Result<Vec<u8>, ScrapeError> {
    let mut inflated = Vec::with_capacity(expected_bytes);
    let read = MultiGzDecoder::new(body).take(limit.saturating_add(1)).read_to_end(&mut inflated);
    read.map_err(|source| ScrapeError::Inflate { source })?;
    match inflated.len() as u64 > limit {
        true => Err(ScrapeError::TooLarge { limit }),
        false => Ok(inflated),
    }
}

fn format(headers: &HeaderMap) -> Result<Format, ScrapeError> {
    let found = text(headers, CONTENT_TYPE).ok_or(ScrapeError::NoContentType)?;
    let media_type = found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "text/plain" => Ok(Format::Text),
        "application/openmetrics-text" => Ok(Format::OpenMetrics),
        _ => Err(ScrapeError::ContentType { found }),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
