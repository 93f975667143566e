//! Sends requests until the receiver has taken or refused them.

use super::RemoteWriteMetrics;
use std::time::{Duration, Instant};
use takt_alerts::notify::http::{HttpReply, HttpSender, NoReply};
use takt_push::remote_write::{Protocol, RequestWriter};
use tokio::time;

/// Pauses between attempts, doubled each time. Prometheus uses 30 ms and 5 s.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Interval between two log lines about the same kind of trouble.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The next step after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Attempt {
    /// The receiver stored the samples.
    Taken,
    /// The receiver refuses these samples for good.
    Refused(String),
    /// Send again, after this pause if the receiver names one.
    Again {
        after: Option<Duration>,
        error: String,
    },
}

/// Reads a reply as the specification says: 5xx and 429 are temporary, other codes but 2xx final.
/// 401, 403, 404 and redirects come from a wrong configuration; the samples must wait for its
/// correction.
fn judge(reply: Result<HttpReply, NoReply>) -> Attempt {
    match reply {
        Ok(reply) => {
            // A receiver's message may be a whole page. Its beginning names the reason.
            let error = || {
                let body: String = reply.body.chars().take(200).collect();
                format!("HTTP {}: {}", reply.status, body.trim())
            };
            match reply.status {
                200..=299 => Attempt::Taken,
                // Also 408 and 425, which ask for a repetition, although the specification names only 429 and 5xx.
                300..=399 | 401 | 403 | 404 | 408 | 425 | 429 | 500..=599 => Attempt::Again {
                    after: reply.retry_after,
                    error: error(),
                },
                _ => Attempt::Refused(error()),
            }
        }
        // Whether the request has arrived or not: a repeated one is refused or ignored as a duplicate.
        Err(NoReply { error, .. }) => Attempt::Again { after: None, error },
    }
}

/// A request with the number of its samples.
#[derive(Debug)]
pub struct Batch {
    /// Body of the request.
    pub body: Vec<u8>,
    /// Samples in it.
    pub samples: u64,
}

impl Batch {
    /// Returns the batch of a request.
    pub fn of(writer: &RequestWriter, samples: usize) -> Self {
        Self {
            body: writer.body(),
            samples: samples as u64,
        }
    }
}

/// Posts batches to one destination.
#[derive(Debug, Clone)]
pub struct BatchSender {
    /// The HTTP client.
    pub http: HttpSender,
    /// Address of the receiver.
    pub url: String,
    /// Name of the destination.
    pub name: String,
    /// Version of the protocol.
    pub protocol: Protocol,
    /// Counters of the destination.
    pub metrics: RemoteWriteMetrics,
}

impl BatchSender {
    /// Posts a batch until the receiver has stored or refused it. Calls `waiting` before each
    /// further attempt.
    pub async fn send(&self, batch: Batch, waiting: impl Fn()) {
        let mut pause = FIRST_PAUSE;
        let mut logged: Option<Instant> = None;
        for attempt in 0_u32.. {
            let mut headers = vec![
                ("content-encoding", "snappy".to_owned()),
                ("content-type", self.protocol.content_type().to_owned()),
                (
                    "x-prometheus-remote-write-version",
                    self.protocol.version().to_owned(),
                ),
            ];
            // The specification asks for the number of the attempt, from the second on.
            if attempt > 0 {
                headers.push(("retry-attempt", attempt.to_string()));
            }
            let reply = self
                .http
                .post_bytes(&self.url, headers, batch.body.clone())
                .await;

            let destination = &self.name;
            match judge(reply) {
                Attempt::Taken => {
                    // Only after trouble was logged.
                    if logged.is_some() {
                        tracing::info!(destination, "remote write works again");
                    }
                    self.metrics.sent(destination, batch.samples, &batch.body);
                    return;
                }
                Attempt::Refused(error) => {
                    tracing::error!(
                        destination,
                        samples = batch.samples,
                        error,
                        "the receiver refused samples; they are skipped"
                    );
                    self.metrics.refused(destination, batch.samples);
                    return;
                }
                Attempt::Again { after, error } => {
                    self.metrics.retried(destination);
                    // At most one line a minute: a receiver may be down for days.
                    if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                        tracing::warn!(
                            destination,
                            error,
                            "cannot send samples; trying again until the receiver takes them"
                        );
                        logged = Some(Instant::now());
                    }
                    waiting();
                    // The receiver's own pause has priority over ours.
                    time::sleep(after.unwrap_or(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_decide_as_the_specification_says() {
        let reply = |status| {
            Ok(HttpReply {
                status,
                retry_after: Some(Duration::from_secs(7)),
                body: "why\n".to_owned(),
            })
        };
        let again = |status| matches!(judge(reply(status)), Attempt::Again { after: Some(_), .. });

        assert_eq!(judge(reply(204)), Attempt::Taken);
        assert!([401, 403, 404, 429, 500, 503].into_iter().all(again));
        assert_eq!(
            judge(reply(400)),
            Attempt::Refused("HTTP 400: why".to_owned())
        );
        // Too large (413) stays too large, so the samples are given up.
        assert!(matches!(judge(reply(413)), Attempt::Refused(_)));

        let error = "connection refused".to_owned();
        let lost = NoReply {
            error: error.clone(),
            was_sent: false,
        };
        assert_eq!(judge(Err(lost)), Attempt::Again { after: None, error });
    }
}
