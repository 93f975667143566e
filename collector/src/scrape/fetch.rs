//! Fetching of metrics pages.

use super::connection::{Connection, ConnectionError, TargetResponse};
use super::error::ScrapeError;
use super::http::{Http, HttpError, USER_AGENT};
use super::job::{Job, ScrapeProtocol};
use super::target::Target;
use flate2::read::MultiGzDecoder;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue,
};
use reqwest::{Client, StatusCode, Url};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use takt_model::exposition::Format;
use takt_push::exposition;
use tokio::time::{Instant, timeout_at};

/// Value of the header `Accept`. OpenMetrics comes first: its last line shows that the page is
/// complete.
const ACCEPTED: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                        application/openmetrics-text;version=0.0.1;q=0.5,\
                        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// A page as received.
#[derive(Debug)]
pub(super) struct FetchedPage {
    pub format: Format,
    pub body: Vec<u8>,
    /// Whether the page has the parts of native histograms.
    pub has_parts: bool,
}

/// Fetches the pages of one target.
#[derive(Debug)]
pub(super) struct Fetcher {
    transport: Transport,
    client: Client,
    job: Arc<Job>,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
}

/// The transport for a target's pages.
#[derive(Debug)]
enum Transport {
    /// Takt's own HTTP connection. The stored request lacks `Authorization` and its last line.
    Plain {
        connection: Connection,
        request: String,
    },
    /// The reqwest client: for TLS, for an address with a password, and after a redirect.
    Client,
    /// No requests: the job has more targets than its `target_limit`.
    Refused,
}

impl Fetcher {
    /// Creates the fetcher of a target. `shared` is the job's client; a target with another server
    /// name in TLS gets its own client.
    ///
    /// # Errors
    /// If the client cannot be set up.
    pub fn new(job: &Arc<Job>, target: &Target, shared: &Client) -> Result<Self, HttpError> {
        let http: &Http = &job.http;
        let client = match http.server_name(&target.url) {
            Some(_) => http.client_for(&target.url)?,
            None => shared.clone(),
        };

        let (url, mut headers) = http.request(&target.url);

        // Decompressing a page costs several times as much as reading it, and most targets are
        // near.
        let encoding = if job.config.enable_compression {
            "gzip"
        } else {
            "identity"
        };

        let accepted = if job.config.scrape_native_histograms {
            format!("{},{ACCEPTED}", exposition::ACCEPTED)
        } else {
            ACCEPTED.to_owned()
        };

        let accepted = HeaderValue::from_str(&accepted);
        headers.insert(
            ACCEPT,
            accepted.expect("a list of media types is a header value"),
        );
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));

        let seconds = HeaderValue::from_str(&target.timeout.as_secs_f64().to_string());
        headers.insert(
            TIMEOUT_HEADER,
            seconds.expect("digits and a point are a header value"),
        );

        let transport = Transport::of(&url, &headers);
        Ok(Self {
            transport,
            client,
            job: Arc::clone(job),
            url,
            headers,
            timeout: target.timeout,
        })
    }

    /// Makes every scrape fail, because the job has too many targets.
    pub fn refusing(self) -> Self {
        Self {
            transport: Transport::Refused,
            ..self
        }
    }

    /// Fetches one page. `expected_bytes` is the expected size of the page. The connection stays open
    /// for the next one if it `keeps` its file. Fails at the `deadline`, when the target's timeout has passed.
    pub async fn fetch(
        &mut self,
        expected_bytes: usize,
        keeps: bool,
        deadline: Instant,
    ) -> Result<FetchedPage, ScrapeError> {
        let limit = self.timeout;

        // Only the client reads these headers. The plain connection is closed below.
        if keeps {
            self.headers.remove(CONNECTION);
        } else {
            let close = HeaderValue::from_static("close");
            self.headers.insert(CONNECTION, close);
        }

        let fetched = timeout_at(deadline, self.fetch_in_time(expected_bytes)).await;
        if !keeps && let Transport::Plain { connection, .. } = &mut self.transport {
            connection.close();
        }

        fetched.unwrap_or(Err(ScrapeError::Timeout { limit }))
    }

    async fn fetch_in_time(&mut self, expected_bytes: usize) -> Result<FetchedPage, ScrapeError> {
        let limit = self.job.limits.body_bytes;

        let authorization = self
            .job
            .http
            .authorization()
            .await
            .map_err(|source| ScrapeError::Credentials { source })?;

        let answer = match &mut self.transport {
            Transport::Plain {
                connection,
                request,
            } => {
                let mut request = request.clone().into_bytes();
                if let Some(value) = &authorization {
                    request.extend([b"authorization: ", value.as_bytes(), b"\r\n"].concat());
                }
                request.extend(b"\r\n");

                let answer = connection
                    .get(&request, limit, expected_bytes)
                    .await
                    .map_err(|error| error.into_error(limit))?;
                if (300..400).contains(&answer.status) && self.job.config.follow_redirects {
                    // The client follows the redirect. The next scrapes use it from the start.
                    self.transport = Transport::Client;
                    self.ask_client(authorization, limit, expected_bytes)
                        .await?
                } else {
                    answer
                }
            }
            Transport::Refused => {
                return Err(ScrapeError::TooManyTargets {
                    limit: self.job.config.target_limit,
                });
            }
            Transport::Client => {
                self.ask_client(authorization, limit, expected_bytes)
                    .await?
            }
        };

        let status = StatusCode::from_u16(answer.status).unwrap_or_default();
        // As in Prometheus, only 200 counts: another success may come with a partial page.
        if status != StatusCode::OK {
            return Err(ScrapeError::Status { status });
        }

        let is_gzip = self.is_gzip(answer.content_encoding)?;
        let kind = answer.content_type.as_deref().unwrap_or_default();
        let has_parts = self.job.config.scrape_native_histograms && is_protobuf(kind);

        // Protobuf is translated to text below, so that one parser reads every page.
        let format = if has_parts {
            Format::Text
        } else {
            format(
                answer.content_type,
                self.job.config.fallback_scrape_protocol,
            )?
        };

        let body = if is_gzip {
            inflate(&answer.body, limit, expected_bytes)?
        } else {
            answer.body
        };

        let body = if has_parts {
            exposition::text_page(&body, usize::try_from(limit).unwrap_or(usize::MAX))
                .map_err(|source| ScrapeError::MalformedProtobuf { source })?
        } else {
            body
        };

        Ok(FetchedPage {
            format,
            body,
            has_parts,
        })
    }

    async fn ask_client(
        &self,
        authorization: Option<HeaderValue>,
        limit: u64,
        expected_bytes: usize,
    ) -> Result<TargetResponse, ScrapeError> {
        let mut headers = self.headers.clone();
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let mut answer = self
            .client
            .get(self.url.clone())
            .headers(headers)
            .send()
            .await
            .map_err(|source| ScrapeError::Unreachable {
                source: Box::new(source.without_url()),
            })?;

        let text = |name| {
            let value: Option<&HeaderValue> = answer.headers().get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let content_type = text(CONTENT_TYPE);
        let content_encoding = text(CONTENT_ENCODING);
        let status = answer.status();

        let mut body = Vec::new();
        if status.is_success() {
            // A stated length above the limit needs no download.
            if answer.content_length().is_some_and(|length| length > limit) {
                return Err(ScrapeError::TooLarge { limit });
            }
            body.reserve(expected_bytes);

            // A body that ends before its stated length or without its last chunk is an error.
            while let Some(bytes) =
                answer
                    .chunk()
                    .await
                    .map_err(|source| ScrapeError::Interrupted {
                        received: body.len(),
                        source: Box::new(source.without_url()),
                    })?
            {
                if (body.len() + bytes.len()) as u64 > limit {
                    return Err(ScrapeError::TooLarge { limit });
                }
                body.extend_from_slice(&bytes);
            }
        }

        Ok(TargetResponse {
            status: status.as_u16(),
            content_type,
            content_encoding,
            body,
        })
    }

    fn is_gzip(&self, content_encoding: Option<String>) -> Result<bool, ScrapeError> {
        let Some(found) = content_encoding else {
            return Ok(false);
        };
        match found.to_ascii_lowercase().as_str() {
            "identity" => Ok(false),
            "gzip" if self.job.config.enable_compression => Ok(true),
            _ => Err(ScrapeError::ContentEncoding { found }),
        }
    }
}

impl Transport {
    fn of(url: &Url, headers: &HeaderMap) -> Self {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Self::Client;
        };
        // The client turns a user and password of the URL into a header.
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return Self::Client;
        }

        // The header `host` has no port if it is the scheme's own.
        let authority = url
            .port()
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let query = url
            .query()
            .map_or_else(String::new, |query| format!("?{query}"));

        let mut request = format!(
            "GET {}{query} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: {USER_AGENT}\r\n",
            url.path()
        );

        for (name, value) in headers {
            request += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
        }

        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self::Plain {
            connection: Connection::new(host, port),
            request,
        }
    }
}

impl ConnectionError {
    fn into_error(self, limit: u64) -> ScrapeError {
        match self {
            Self::Unreachable(source) => ScrapeError::Unreachable {
                source: Box::new(source),
            },
            Self::Interrupted { received, source } => ScrapeError::Interrupted {
                received,
                source: Box::new(source),
            },
            Self::TooLarge => ScrapeError::TooLarge { limit },
        }
    }
}

/// Decompresses gzip. The limit applies to the decompressed page.
fn inflate(body: &[u8], limit: u64, expected_bytes: usize) -> Result<Vec<u8>, ScrapeError> {
    let mut inflated = Vec::with_capacity(expected_bytes);
    MultiGzDecoder::new(body)
        // One byte above the limit shows that the page is too large, without inflating the rest.
        .take(limit.saturating_add(1))
        .read_to_end(&mut inflated)
        .map_err(|source| ScrapeError::Inflate { source })?;

    if inflated.len() as u64 > limit {
        Err(ScrapeError::TooLarge { limit })
    } else {
        Ok(inflated)
    }
}

fn is_protobuf(content_type: &str) -> bool {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case(exposition::CONTENT_TYPE)
}

fn format(
    content_type: Option<String>,
    fallback: Option<ScrapeProtocol>,
) -> Result<Format, ScrapeError> {
    let media_type = |text: &str| {
        text.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    };

    match (
        content_type.as_deref().map(media_type).as_deref(),
        fallback,
        content_type,
    ) {
        (Some("text/plain"), ..) => Ok(Format::Text),
        (Some("application/openmetrics-text"), ..) => Ok(Format::OpenMetrics),
        (_, Some(fallback), _) => Ok(fallback.format()),
        (_, None, Some(found)) if !found.is_empty() => Err(ScrapeError::ContentType { found }),
        (_, None, _) => Err(ScrapeError::NoContentType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_comes_from_the_page_or_the_configuration() {
        let found = |content_type: Option<&str>, fallback| {
            format(content_type.map(str::to_owned), fallback).ok()
        };
        let text = Some(ScrapeProtocol::PrometheusText004);
        for (content_type, alone, with_fallback) in [
            (
                Some("Text/Plain; version=0.0.4"),
                Some(Format::Text),
                Some(Format::Text),
            ),
            (
                Some("application/openmetrics-text"),
                Some(Format::OpenMetrics),
                Some(Format::OpenMetrics),
            ),
            // As in Prometheus, the fallback also replaces a content type that is no format.
            (Some("text/html"), None, Some(Format::Text)),
            (Some(""), None, Some(Format::Text)),
            (None, None, Some(Format::Text)),
        ] {
            assert_eq!(found(content_type, None), alone, "{content_type:?}");
            assert_eq!(found(content_type, text), with_fallback, "{content_type:?}");
        }
        let other = Some(ScrapeProtocol::OpenMetricsText100);
        assert_eq!(found(None, other), Some(Format::OpenMetrics));
    }
}
