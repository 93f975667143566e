//! The ways to people. Each way that speaks HTTP is two pure functions: the request for a row of the outbox, and what
//! the reply means. Who opens connections is elsewhere, once for all of them.

pub mod channels;
pub mod email;
mod http_config;
mod looks;
pub mod ntfy;
pub mod owner;
pub mod slack;
pub mod webhook;
mod wording;
mod words;

pub use wording::Wording;
pub use words::{Part, WORST_FIRST, instant, link, parts, subject, text};

use crate::outbox::{Outcome, Row};
use std::time::Duration;

/// An HTTP POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub url: String,
    /// Headers besides those of HTTP itself.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// `Retry-After`, if it was given in seconds.
    pub retry_after: Option<Duration>,
    /// The body, or its beginning.
    pub body: String,
}

/// What to do next to deliver a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Post this and come back with the reply.
    Post(Request),
    /// It is over.
    Done(Outcome),
}

/// A way to people that speaks HTTP.
pub trait HttpNotifier: Send + Sync {
    /// What to post for a row.
    fn request(&self, row: &Row) -> Request;

    /// What a reply means. Without any reply (refused, timed out) the row is tried again.
    fn outcome(&self, reply: &Reply) -> Outcome;

    /// The next step, after `replies`. `thread` is what the channel calls the message that this one belongs below.
    fn next(&self, row: &Row, _thread: Option<&str>, replies: &[Reply]) -> Next {
        match replies.last() {
            None => Next::Post(self.request(row)),
            Some(reply) => Next::Done(self.outcome(reply)),
        }
    }

    /// The time between two messages, on average, that the other side asks of those who write to it.
    fn pause(&self, _row: &Row, _thread: Option<&str>) -> Duration {
        Duration::ZERO
    }
}

/// What a status code means where the body says nothing more: 2xx took it, 429 and 5xx may take it later, others never.
pub(crate) fn by_status(reply: &Reply) -> Outcome {
    let error = || {
        let body: String = reply.body.chars().take(200).collect();
        format!("HTTP {}: {}", reply.status, body.trim())
    };
    match reply.status {
        200..=299 => Outcome::Sent(None),
        408 | 425 | 429 | 500..=599 => Outcome::TryAgain {
            after: reply.retry_after,
            error: error(),
        },
        _ => Outcome::GiveUp { error: error() },
    }
}

#[cfg(test)]
mod tests {
    use super::ntfy::Ntfy;
    use super::slack::Slack;
    use super::webhook::Webhook;
    use super::*;
    use crate::alert::Alert;
    use crate::message::{Message, Status, ToldAlert};
    use crate::outbox::RowState;
    use crate::routing::dedup::Reason;
    use crate::testing::parse_series;
    use std::collections::BTreeMap;
    use takt_model::{Labels, Timestamp};

    pub(super) fn row(alerts: usize, words: &str) -> Row {
        let told = |n: usize| {
            let alert = Alert {
                labels: parse_series(&format!(
                    "{{alertname=GpuHot,node=g{n},severity=critical,jobid={n},user=ada}}"
                )),
                annotations: [
                    ("summary".to_owned(), format!("{words} on g{n}")),
                    ("action".to_owned(), "drain".to_owned()),
                ]
                .into(),
                starts_at: Timestamp::from_seconds(1_000),
                ends_at: None,
                updated_at: Timestamp(0),
                generator_url: "http://takt/a".to_owned(),
                began_at: None,
                is_timeout: false,
            };
            ToldAlert::new(&alert, Timestamp::from_seconds(2_000))
        };
        let message = Message {
            channel: "ops/slack/0".to_owned(),
            receiver: "ops".to_owned(),
            group_key: "{}:{alertname=\"GpuHot\"}".to_owned(),
            reason: Reason::FirstFiring,
            status: Status::Firing,
            group_labels: parse_series("{alertname=GpuHot}"),
            common_labels: Labels::new(),
            common_annotations: BTreeMap::new(),
            route_labels: Labels::new(),
            external_url: "http://takt".to_owned(),
            alerts: (0..alerts).map(told).collect(),
        };
        Row {
            id: 7,
            channel: "ops/slack/0".to_owned(),
            instead_of: None,
            message: message.arranged(),
            state: RowState::Sending,
            created_at: Timestamp::from_seconds(2_000),
            attempts: 1,
            next_at: Timestamp(0),
            error: None,
            handle: None,
            is_in_doubt: false,
        }
    }

    fn all() -> Vec<(&'static str, Box<dyn HttpNotifier>)> {
        vec![
            (
                "webhook",
                Box::new(Webhook {
                    url: "http://x/hook".to_owned(),
                    authorization: None,
                    alerts_max: 0,
                }),
            ),
            (
                "slack webhook",
                Box::new(Slack::webhook("http://x/services/T/B/s")),
            ),
            (
                "slack bot",
                Box::new(Slack::bot("http://x/api", "xoxb-1", "C1")),
            ),
            (
                "ntfy",
                Box::new(Ntfy {
                    url: "http://x".to_owned(),
                    topic: "lab".to_owned(),
                    token: None,
                }),
            ),
        ]
    }

    /// The suite that every way has to pass.
    #[test]
    fn every_way_names_the_fault_stays_small_and_tells_sent_from_later_from_never() {
        for (name, notifier) in all() {
            let request = notifier.request(&row(1, "too <hot> & loud"));
            assert!(
                request.body.contains("GpuHot") && request.body.contains("g0"),
                "{name}: {}",
                request.body
            );
            let many = notifier.request(&row(3_000, "it is hot"));
            assert!(
                name == "webhook" || many.body.len() < 40_000,
                "{name}: {} bytes",
                many.body.len()
            );
            let long = notifier.request(&row(1, &"x".repeat(100_000)));
            assert!(
                name == "webhook" || long.body.len() < 40_000,
                "{name}: {} bytes",
                long.body.len()
            );
            let ok = if name == "slack bot" {
                "{\"ok\":true,\"ts\":\"1.2\",\"channel\":\"C1\"}"
            } else {
                "ok"
            };
            for (status, retry_after, body, expected) in [
                (200, None, ok, "sent"),
                (429, Some(30), "", "again in 30"),
                (500, None, "rollup_error", "again"),
                (503, None, "<html>", "again"),
                (400, None, "invalid_payload", "never"),
                (403, None, "action_prohibited", "never"),
                (404, None, "channel_not_found", "never"),
                (410, None, "channel_is_archived", "never"),
            ] {
                let reply = Reply {
                    status,
                    retry_after: retry_after.map(Duration::from_secs),
                    body: body.to_owned(),
                };
                let said = match notifier.outcome(&reply) {
                    Outcome::Sent(_) => "sent".to_owned(),
                    Outcome::TryAgain {
                        after: Some(after), ..
                    } => format!("again in {}", after.as_secs()),
                    Outcome::TryAgain { after: None, .. } | Outcome::NoAnswer { .. } => {
                        "again".to_owned()
                    }
                    Outcome::GiveUp { .. } | Outcome::Nobody { .. } => "never".to_owned(),
                };
                assert_eq!(said, expected, "{name}: {status} {body}");
            }
        }
    }
}
