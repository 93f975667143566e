//! Messages over HTTP: one client policy for everything that Takt sends, and the loop that posts
//! the requests of a notifier.
//!
//! Policy: redirects are not followed unless the configuration says so, and then only those that
//! keep the POST (307, 308): after other redirects the message would be lost while the answer says
//! 200. Connecting takes at most [`CONNECT_TIMEOUT`], a request at most [`REQUEST_TIMEOUT`].
//! Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`) unless the configuration names
//! one. Certificates are always checked.

use super::{ChannelPlace, Notifier};
use crate::outbox::{Outcome, Row};
use futures_util::future::BoxFuture;
use jiff::fmt::rfc2822;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Identity, NoProxy, Proxy, tls};
use rustls::crypto::{CryptoProvider, ring};
use std::time::Duration;
use takt_model::TlsRemedies;

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a request and its reply, unless the receiver configures `timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a reply that are read.
const REPLY_MAX: usize = 64 << 10;

/// Requests for one message; no notifier needs more than three.
const REQUESTS_MAX: usize = 5;

/// Redirects that are followed if the configuration allows any.
const REDIRECTS_MAX: usize = 10;

/// The longest `Retry-After` that is obeyed. A mistake of the other side must not delay an alert
/// for days.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

const REMEDIES: TlsRemedies = TlsRemedies {
    plain_server: "the URL begins with http://",
    unknown_authority: "ca_file in tls_config of http_config names one",
    other_name: "the URL needs the name that the certificate has",
};

/// An HTTP POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The URL.
    pub url: String,
    /// Headers besides those of the protocol itself.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

/// The reply to a [`HttpRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// `Retry-After`, if present and valid.
    pub retry_after: Option<Duration>,
    /// The body, up to 64 KiB.
    pub body: String,
}

/// The reply to a request for data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the body is longer than the caller wanted; the rest was not read.
    pub is_cut: bool,
}

/// The next step of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Post this request, then ask again with its reply.
    Post(HttpRequest),
    /// The delivery has ended.
    Done(Outcome),
}

/// A notifier that speaks HTTP, as pure functions: requests for a row, and the meaning of replies.
pub trait HttpNotifier: Send + Sync {
    /// The request that sends a row.
    fn request(&self, row: &Row) -> HttpRequest;

    /// The meaning of a reply. Without any reply the row is tried again.
    fn outcome(&self, reply: &HttpReply) -> Outcome;

    /// The next step after `replies`. `thread` is the channel's name of the first message about the
    /// same group.
    fn next(&self, row: &Row, _thread: Option<&str>, replies: &[HttpReply]) -> NextStep {
        match replies.last() {
            None => NextStep::Post(self.request(row)),
            Some(reply) => NextStep::Done(self.outcome(reply)),
        }
    }

    /// Average time between two messages that the service asks for.
    fn pause(&self, _row: &Row, _thread: Option<&str>) -> Duration {
        Duration::ZERO
    }

    /// As [`Notifier::place`].
    fn place(&self, _row: &Row) -> Option<ChannelPlace> {
        None
    }
}

/// The meaning of a status code: 2xx is success, 408, 425, 429 and 5xx are temporary, others are
/// permanent.
pub(crate) fn by_status(reply: &HttpReply) -> Outcome {
    // A service may answer with a whole page, and the error goes into the log and the outbox.
    let error = || {
        let body: String = reply.body.chars().take(200).collect();
        format!("HTTP {}: {}", reply.status, body.trim())
    };

    // 408, 425, 429 and 5xx say that the same request may succeed later.
    match reply.status {
        200..=299 => Outcome::Sent(None),
        408 | 425 | 429 | 500..=599 => Outcome::TryAgain {
            after: reply.retry_after,
            error: error(),
        },
        _ => Outcome::GiveUp { error: error() },
    }
}

/// Proxy for outgoing messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// The proxy in `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, if set.
    #[default]
    Environment,
    /// No proxy.
    Direct,
    /// This proxy.
    Url {
        /// The proxy's URL.
        url: String,
        /// Hosts to reach without the proxy, separated by commas.
        except: String,
        /// Headers for the proxy.
        headers: Vec<(String, String)>,
    },
}

/// Settings of an HTTP client; the default is the policy at the top of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    /// Value of the header `Authorization`.
    pub authorization: Option<String>,
    /// Further headers of every request.
    pub headers: Vec<(String, String)>,
    /// The proxy.
    pub proxy: ProxyPolicy,
    /// PEM of certificate authorities to trust besides those of the system.
    pub authorities: Option<Vec<u8>>,
    /// PEM of the client certificate and its key.
    pub identity: Option<Vec<u8>>,
    /// Oldest TLS version to accept.
    pub min_tls_version: Option<tls::Version>,
    /// Newest TLS version to offer.
    pub max_tls_version: Option<tls::Version>,
    /// Whether redirects that keep the POST are followed.
    pub follows_redirects: bool,
    /// Time limit for a request and its reply.
    pub timeout: Option<Duration>,
}

/// An HTTP client cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
pub enum HttpSetupError {
    /// A certificate, key, proxy or TLS version is invalid.
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
    /// A header's name or value is invalid. The value may be secret and is not repeated.
    #[error("the header `{0}` is invalid")]
    Header(String),
}

/// Posts messages; clones share connections.
#[derive(Debug, Clone)]
pub struct HttpSender {
    client: Client,
}

/// A request that got no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct NoReply {
    /// The cause, without the URL: that may contain a secret.
    pub error: String,
    /// Whether the request may have reached the other side.
    pub was_sent: bool,
}

impl From<reqwest::Error> for NoReply {
    fn from(error: reqwest::Error) -> Self {
        // Only a failed connection shows that the other side has nothing of the request.
        let was_sent = !error.is_connect() && !error.is_builder();
        Self {
            error: REMEDIES.explained(&error.without_url()),
            was_sent,
        }
    }
}

impl HttpSender {
    /// A client with these settings.
    ///
    /// # Errors
    /// If a setting is invalid or the system's certificates cannot be read.
    pub fn new(options: &HttpOptions) -> Result<Self, HttpSetupError> {
        // The binary installs the provider first; a test of a configuration has no binary.
        if CryptoProvider::get_default().is_none() {
            let _ = ring::default_provider().install_default();
        }

        let mut headers = header_map(&options.headers)?;
        if let Some(authorization) = &options.authorization {
            let mut value = HeaderValue::from_str(authorization)
                .map_err(|_| HttpSetupError::Header("Authorization".to_owned()))?;
            // Sensitive values are left out where the client logs its headers.
            value.set_sensitive(true);
            headers.insert("authorization", value);
        }

        let redirects = if options.follows_redirects {
            Policy::custom(follow_if_post_is_kept)
        } else {
            Policy::none()
        };

        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(options.timeout.unwrap_or(REQUEST_TIMEOUT))
            .redirect(redirects)
            .default_headers(headers)
            .user_agent(concat!("takt/", env!("CARGO_PKG_VERSION")));

        builder = match &options.proxy {
            ProxyPolicy::Environment => builder,
            ProxyPolicy::Direct => builder.no_proxy(),
            ProxyPolicy::Url {
                url,
                except,
                headers,
            } => builder.proxy(
                Proxy::all(url)?
                    .no_proxy(NoProxy::from_string(except))
                    .headers(header_map(headers)?),
            ),
        };

        if let Some(pem) = &options.authorities {
            for authority in Certificate::from_pem_bundle(pem)? {
                builder = builder.add_root_certificate(authority);
            }
        }
        if let Some(pem) = &options.identity {
            builder = builder.identity(Identity::from_pem(pem)?);
        }
        if let Some(version) = options.min_tls_version {
            builder = builder.min_tls_version(version);
        }
        if let Some(version) = options.max_tls_version {
            builder = builder.max_tls_version(version);
        }

        let client = builder.build()?;
        Ok(Self { client })
    }

    /// Posts a request and reads the reply, whatever its status.
    ///
    /// # Errors
    /// If no reply came: no connection, a timeout, a broken connection.
    pub async fn post(&self, request: HttpRequest) -> Result<HttpReply, NoReply> {
        self.post_bytes(&request.url, request.headers, request.body.into_bytes())
            .await
    }

    /// Like [`post`](Self::post), with a body of any bytes.
    ///
    /// # Errors
    /// If no reply came.
    pub async fn post_bytes(
        &self,
        url: &str,
        headers: impl IntoIterator<Item = (&'static str, String)>,
        body: Vec<u8>,
    ) -> Result<HttpReply, NoReply> {
        let mut builder = self.client.post(url).body(body);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let mut response = builder.send().await?;

        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok())
            .and_then(|text| retry_after(text, jiff::Timestamp::now()));

        // The reply is only needed for its meaning: an endless one must not fill the memory.
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() >= REPLY_MAX {
                break;
            }
        }

        body.truncate(REPLY_MAX);
        Ok(HttpReply {
            status,
            retry_after,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// Asks for data: posts `form`, or requests the URL without one. Reads at most `most` bytes of
    /// the body.
    ///
    /// # Errors
    /// If no reply came.
    pub async fn fetch(
        &self,
        url: &str,
        form: Option<String>,
        most: usize,
    ) -> Result<FetchedReply, NoReply> {
        const FORM: &str = "application/x-www-form-urlencoded";

        let request = match form {
            Some(form) => self
                .client
                .post(url)
                .header("content-type", FORM)
                .body(form),
            None => self.client.get(url),
        };

        let mut response = request.send().await?;
        let status = response.status().as_u16();

        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            // A cut body is no JSON any more, so the caller has to know.
            if body.len() + chunk.len() > most {
                return Ok(FetchedReply {
                    status,
                    body,
                    is_cut: true,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(FetchedReply {
            status,
            body,
            is_cut: false,
        })
    }

    /// Requests a URL.
    ///
    /// # Errors
    /// If no reply came, or one that is not 2xx.
    pub async fn get(&self, url: &str) -> Result<(), NoReply> {
        let response = self.client.get(url).send().await?;
        // Without redirects a 3xx is not a success.
        if response.status().is_success() {
            return Ok(());
        }
        Err(NoReply {
            error: format!("HTTP {}", response.status().as_u16()),
            was_sent: true,
        })
    }

    /// Posts the requests of a notifier until the delivery has ended.
    pub async fn deliver(
        &self,
        notifier: &dyn HttpNotifier,
        row: &Row,
        thread: Option<&str>,
    ) -> Outcome {
        let mut replies = Vec::new();
        // A notifier that never ends would hold its channel for ever.
        while replies.len() < REQUESTS_MAX {
            let request = match notifier.next(row, thread, &replies) {
                NextStep::Done(outcome) => return outcome,
                NextStep::Post(request) => request,
            };
            match self.post(request).await {
                Ok(reply) => replies.push(reply),
                Err(NoReply { error, was_sent }) if was_sent => {
                    return Outcome::NoAnswer { error };
                }
                Err(NoReply { error, .. }) => return Outcome::TryAgain { after: None, error },
            }
        }
        Outcome::GiveUp {
            error: "too many requests for one message".to_owned(),
        }
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, HttpSetupError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || HttpSetupError::Header(name.clone());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        // Headers may be tokens, so all of them are kept out of the log.
        value.set_sensitive(true);
        map.append(key, value);
    }
    Ok(map)
}

fn follow_if_post_is_kept(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    // After 301, 302 and 303 a client asks with GET, and the message is lost.
    let keeps_post = matches!(attempt.status().as_u16(), 307 | 308);
    if keeps_post && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// `Retry-After` in seconds or as a date.
fn retry_after(text: &str, now: jiff::Timestamp) -> Option<Duration> {
    text.trim()
        .parse()
        .map(Duration::from_secs)
        .ok()
        .or_else(|| {
            // A date in the past means at once.
            let at = rfc2822::parse(text.trim()).ok()?.timestamp();
            Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
        })
        .map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// An [`HttpNotifier`] with the client that posts its requests.
pub struct HttpChannel<N> {
    notifier: N,
    sender: HttpSender,
}

impl<N> HttpChannel<N>
where
    N: HttpNotifier,
{
    /// A channel that posts through this client.
    pub fn new(notifier: N, sender: HttpSender) -> Self {
        Self { notifier, sender }
    }
}

impl<N> Notifier for HttpChannel<N>
where
    N: HttpNotifier,
{
    fn send<'a>(&'a self, row: &'a Row, thread: Option<&'a str>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sender.deliver(&self.notifier, row, thread))
    }

    fn pause(&self, row: &Row, thread: Option<&str>) -> Duration {
        self.notifier.pause(row, thread)
    }

    fn place(&self, row: &Row) -> Option<ChannelPlace> {
        self.notifier.place(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_error_of_tls_says_what_to_change_and_not_the_secret_url() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });

        let options = HttpOptions {
            proxy: ProxyPolicy::Direct,
            ..HttpOptions::default()
        };
        let sender = HttpSender::new(&options).unwrap();
        let asked = sender.get(&format!("https://{address}/s3cret")).await;
        let error = asked.unwrap_err().error;
        let says = "it does not speak TLS: the URL begins with http://";
        assert!(
            error.ends_with(says) && !error.contains("s3cret"),
            "{error}"
        );
    }

    #[test]
    fn retry_after_in_each_form() {
        let now = "2026-11-22T08:00:00Z".parse().unwrap();
        for (asked, seconds) in [
            ("30", Some(30)),
            (" 0 ", Some(0)),
            ("Sun, 22 Nov 2026 08:01:00 GMT", Some(60)),
            ("Sun, 22 Nov 2026 07:00:00 GMT", Some(0)),
            ("99999999999", Some(900)),
            ("Tue, 22 Nov 2033 08:01:00 GMT", Some(900)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(
                retry_after(asked, now).map(|wait| wait.as_secs()),
                seconds,
                "{asked}"
            );
        }
    }
}
