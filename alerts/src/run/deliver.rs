//! Handing messages to their channels: one at a time for each channel, which is the outbox's business, all channels at
//! once, which is this file's.

use super::{AlertMetrics, Work};
use crate::notify::channels::{Channels, Way};
use crate::notify::email::{Email, Mailer};
use crate::notify::{HttpNotifier, Next, Reply, Request};
use crate::outbox::{Outcome, Row};
use crate::ports::StoreError;
use reqwest::Client;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use takt_model::error_chain;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Time for a request and its reply.
const REQUEST: Duration = Duration::from_secs(20);

/// What is read of a reply.
const REPLY_MAX: usize = 64 << 10;

/// Requests that one message may take: no way needs more than three.
const STEPS_MAX: usize = 5;

pub(super) struct Deliver {
    pub channels: Arc<Channels>,
    http: Client,
    runtime: tokio::runtime::Handle,
    tell: mpsc::Sender<Work>,
    metrics: AlertMetrics,
}

impl Deliver {
    pub fn new(
        channels: Channels,
        runtime: tokio::runtime::Handle,
        tell: mpsc::Sender<Work>,
        metrics: AlertMetrics,
    ) -> Result<Self, StoreError> {
        let http = client()
            .map_err(|error| StoreError(format!("cannot set up the HTTP client: {error}")))?;
        Ok(Self {
            channels: Arc::new(channels),
            http,
            runtime,
            tell,
            metrics,
        })
    }

    /// Sends a row in the background; the answer comes back as work.
    pub fn send(&self, row: Row, thread: Option<String>) {
        let (channels, http, work) = (
            Arc::clone(&self.channels),
            self.http.clone(),
            self.tell.clone(),
        );
        self.runtime.spawn(async move {
            let (outcome, pause) = match channels.get(&row.channel) {
                Some(way) => tell(way, &http, &row, thread).await,
                None => (
                    Outcome::GiveUp {
                        error: "the configuration has no such channel".to_owned(),
                    },
                    Duration::ZERO,
                ),
            };
            match &outcome {
                Outcome::Sent(_) => tracing::info!(id = row.id, channel = row.channel, "told"),
                Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => {
                    tracing::warn!(
                        id = row.id,
                        channel = row.channel,
                        error,
                        "cannot be told now"
                    );
                }
                Outcome::Nobody { error } => {
                    tracing::info!(id = row.id, channel = row.channel, error, "nobody is told");
                }
                Outcome::GiveUp { error } => {
                    tracing::error!(
                        id = row.id,
                        channel = row.channel,
                        error,
                        "the channel refuses"
                    );
                }
            }
            // The engine is gone only when the process ends; then the row is sent again after the start.
            let _ = work.send(Work::Answered {
                row: Box::new(row),
                outcome,
                pause,
            });
        });
    }

    /// Asks the address that watches over us.
    pub fn beat(&self, url: String) {
        let (http, failures) = (self.http.clone(), self.metrics.heartbeat_failures.clone());
        self.runtime.spawn(async move {
            let reply = http
                .get(&url)
                .send()
                .await
                .and_then(reqwest::Response::error_for_status);
            if let Err(error) = reply {
                failures.inc();
                tracing::warn!(
                    error = error_chain(&error.without_url()),
                    "the heartbeat did not arrive"
                );
            }
        });
    }
}

/// The HTTP client of all channels. It follows no redirect: an alert must not end up where nobody sent it.
///
/// # Errors
/// Where there can be none, for want of certificates for instance.
pub fn client() -> reqwest::Result<Client> {
    let builder = Client::builder().connect_timeout(CONNECT).timeout(REQUEST);
    let builder = builder.redirect(reqwest::redirect::Policy::none());
    builder
        .user_agent(concat!("takt/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Tells one row by one way: what came of it, and how long the channel then wants to be left alone.
pub async fn tell(
    way: &Way,
    http: &Client,
    row: &Row,
    thread: Option<String>,
) -> (Outcome, Duration) {
    match way {
        Way::Http(notifier) => {
            let pause = notifier.pause(row, thread.as_deref());
            (
                by_http(notifier.as_ref(), http, row, thread.as_deref()).await,
                pause,
            )
        }
        Way::Mail(email, mailer) => (by_mail(email, mailer, row, thread).await, Duration::ZERO),
        Way::Owner(owner, mailer) => {
            let outcome = match owner.email(row) {
                Ok(email) => match by_mail(&email, mailer, row, thread).await {
                    // An owner's address that does not work is no reason to wake operators.
                    Outcome::GiveUp { error } => Outcome::Nobody { error },
                    outcome => outcome,
                },
                Err(error) => Outcome::Nobody { error },
            };
            (outcome, Duration::ZERO)
        }
    }
}

async fn by_mail(email: &Email, mailer: &Mailer, row: &Row, thread: Option<String>) -> Outcome {
    let is_first = thread.is_none();
    match mailer.send(&email.mail(row, thread)).await {
        Ok(()) => Outcome::Sent(is_first.then(|| email.message_id(row))),
        Err(error) if error.is_permanent() => Outcome::GiveUp {
            error: error_chain(&error),
        },
        Err(error) => Outcome::TryAgain {
            after: None,
            error: error_chain(&error),
        },
    }
}

/// Posts until the way says that it is over.
async fn by_http(
    notifier: &dyn HttpNotifier,
    http: &Client,
    row: &Row,
    thread: Option<&str>,
) -> Outcome {
    let mut replies = Vec::new();
    while replies.len() < STEPS_MAX {
        match notifier.next(row, thread, &replies) {
            Next::Done(outcome) => return outcome,
            Next::Post(request) => match post(http, request).await {
                Ok(reply) => replies.push(reply),
                Err(error) => {
                    let was_sent = !error.is_connect();
                    // The address may hold a secret.
                    let error = error_chain(&error.without_url());
                    return if was_sent {
                        Outcome::NoAnswer { error }
                    } else {
                        Outcome::TryAgain { after: None, error }
                    };
                }
            },
        }
    }
    Outcome::GiveUp {
        error: "too many requests for one message".to_owned(),
    }
}

async fn post(http: &Client, request: Request) -> reqwest::Result<Reply> {
    let mut builder = http.post(&request.url).body(request.body);
    for (name, value) in request.headers {
        builder = builder.header(name, value);
    }
    let mut response = builder.send().await?;
    let asked = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok());
    let retry_after = asked.and_then(|asked| retry_after(asked, jiff::Timestamp::now()));
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() >= REPLY_MAX {
            break;
        }
    }
    body.truncate(REPLY_MAX);
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Reply {
        status,
        retry_after,
        body,
    })
}

/// `Retry-After`, in seconds or as a date. A mistake of the other side must not keep an alert for days.
fn retry_after(asked: &str, now: jiff::Timestamp) -> Option<Duration> {
    let seconds = asked.trim().parse().map(Duration::from_secs).ok();
    let until = || {
        let at = jiff::fmt::rfc2822::parse(asked.trim()).ok()?.timestamp();
        Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    };
    seconds.or_else(until).map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// The longest `Retry-After` that is obeyed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

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
