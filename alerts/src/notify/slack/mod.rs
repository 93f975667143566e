//! Slack: a bot with a token (the Web API), or an incoming webhook.

mod blocks;
mod settings;

pub(super) use settings::KIND;

use super::http::{HttpNotifier, HttpReply, HttpRequest, HttpSender, NextStep, by_status};
use super::words::shortened;
use super::{ChannelPlace, Wording, subject};
use crate::outbox::{NO_CHANNEL, Outcome, Row};
use crate::routing::dedup::Reason;
use blocks::{escaped, without_markup};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Slack's Web API.
pub const SLACK_API: &str = "https://slack.com/api";

/// Errors of the Web API after which the same request may succeed.
const TEMPORARY_ERRORS: [&str; 6] = [
    "ratelimited",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
];

/// Errors of a message that can no longer be changed or replied to; Takt then posts a new one.
const LOST_MESSAGE_ERRORS: [&str; 9] = [
    "message_not_found",
    "thread_not_found",
    "cannot_reply_to_message",
    "cant_update_message",
    "edit_window_closed",
    "is_inactive",
    "block_mismatch",
    "update_failed",
    "msg_too_long",
];

/// Slack allows about one message a second in a channel, with short bursts.
const PAUSE: Duration = Duration::from_secs(1);

/// Largest difference between Slack's clock and ours.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// Messages of a bot about one group after the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FollowUps {
    /// Replies in the first message's thread; the first message is updated too. New alerts are also
    /// shown in the channel, since an update notifies no telephone.
    #[default]
    Thread,
    /// Updates of the first message only (`update_message: true`).
    Update,
    /// Messages of their own (`update_message: false`).
    Separate,
}

/// A Slack channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Slack {
    /// The webhook, or the base of the Web API.
    url: String,
    bot: Option<Bot>,
    wording: Wording,
    follow_ups: FollowUps,
}

/// Slack did not take a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct SlackTextError {
    error: String,
    is_permanent: bool,
}

impl SlackTextError {
    /// Whether Slack would refuse the text again.
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bot {
    token: String,
    channel: String,
}

impl Slack {
    /// An incoming webhook: its URL decides the channel.
    pub fn webhook(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            bot: None,
            wording: Wording::default(),
            follow_ups: FollowUps::default(),
        }
    }

    /// A bot; `base` is the URL of the Web API.
    pub fn bot(base: &str, token: &str, channel: &str) -> Self {
        let bot = Bot {
            token: token.to_owned(),
            channel: channel.to_owned(),
        };
        Self {
            url: base.trim_end_matches('/').to_owned(),
            bot: Some(bot),
            wording: Wording::default(),
            follow_ups: FollowUps::default(),
        }
    }

    /// The same channel with these templates: `title`, `title_link`, `text`, `pretext`, `footer`,
    /// `fallback`, `username`, `icon_emoji`, `icon_url`, and a `channel` that depends on the alert.
    pub fn worded(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// The same bot with other follow-up messages.
    pub fn with_follow_ups(self, follow_ups: FollowUps) -> Self {
        Self { follow_ups, ..self }
    }

    /// Posts a text that is about no alert, such as the summary of a report, to a webhook. The text
    /// is in Slack's markup.
    ///
    /// # Errors
    /// If Slack did not take the text; [`SlackTextError::is_permanent`] says whether to try again.
    pub async fn post_text(&self, sender: &HttpSender, text: &str) -> Result<(), SlackTextError> {
        let request = HttpRequest {
            url: self.url.clone(),
            headers: vec![("Content-Type", "application/json; charset=utf-8".to_owned())],
            body: json!({ "text": text }).to_string(),
        };

        let reply = sender
            .post(request)
            .await
            // No reply says nothing about the text, so it may be tried again.
            .map_err(|no_reply| SlackTextError {
                error: no_reply.error,
                is_permanent: false,
            })?;

        match self.outcome(&reply) {
            Outcome::Sent(_) => Ok(()),
            Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => Err(SlackTextError {
                error,
                is_permanent: false,
            }),
            Outcome::GiveUp { error } | Outcome::NoRecipient { error } => Err(SlackTextError {
                error,
                is_permanent: true,
            }),
            Outcome::NoChannel => Err(SlackTextError {
                error: NO_CHANNEL.to_owned(),
                is_permanent: true,
            }),
        }
    }

    /// A call of the Web API, or the post to a webhook. `more` has the call's arguments besides the
    /// message.
    fn call(&self, method: &str, row: &Row, more: Value) -> HttpRequest {
        let said = |name| self.wording.text(name, row);
        // Labels are text in Slack's markup: a user could call people or forge a link by a job's name.
        let plain = without_markup(&row.message);
        let marked = |name| self.wording.text_about(name, &plain, row.created_at);

        // The text shows in notifications of telephones, where blocks do not.
        let summary = marked("fallback")
            .or_else(|| marked("title"))
            .map(|text| shortened(&text, 300))
            .unwrap_or_else(|| escaped(&subject(&row.message), 300));

        let mut body = json!({"text": summary, "blocks": self.blocks(row)});
        for name in ["username", "icon_emoji", "icon_url"] {
            // An update cannot change the sender's name and icon.
            if let Some(text) = said(name).filter(|_| method != "chat.update") {
                body[name] = text.into();
            }
        }

        let mut headers = vec![("Content-Type", "application/json; charset=utf-8".to_owned())];
        let Some(bot) = &self.bot else {
            return HttpRequest {
                url: self.url.clone(),
                headers,
                body: body.to_string(),
            };
        };

        headers.push(("Authorization", format!("Bearer {}", bot.token)));
        body["channel"] = json!(said("channel").unwrap_or_else(|| bot.channel.clone()));
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        HttpRequest {
            url: format!("{}/{method}", self.url),
            headers,
            body: body.to_string(),
        }
    }

    /// A request that looks for this row's message, if the last attempt got no answer: among the
    /// channel's recent messages, or in the thread. Returned with the channel's id. `None` if the
    /// id is unknown, since Slack then cannot search, and for updates, which may be repeated.
    fn lookup(&self, row: &Row, thread: Option<(&str, &str)>) -> Option<(String, HttpRequest)> {
        let bot = self.bot.as_ref().filter(|_| row.is_in_doubt)?;

        let (method, channel, below) = match thread {
            // An update may be repeated: the message stays the same.
            Some(_) if row.message.reason == Reason::Resolved => return None,
            Some(_) if self.follow_ups == FollowUps::Update => return None,
            Some((channel, ts)) => (
                "conversations.replies",
                channel.to_owned(),
                format!("&ts={ts}"),
            ),
            None => {
                let named = self
                    .wording
                    .text("channel", row)
                    .unwrap_or_else(|| bot.channel.clone());
                (
                    "conversations.history",
                    // Slack searches by the id of a channel, not by its name.
                    Some(named).filter(|named| is_id(named))?,
                    String::new(),
                )
            }
        };

        // Slack's clock may be behind ours, so the search begins some minutes earlier.
        let since = row.created_at.minus(CLOCK_SKEW_MAX).whole_seconds();

        let asked = HttpRequest {
            url: format!("{}/{method}", self.url),
            headers: vec![
                (
                    "Content-Type",
                    "application/x-www-form-urlencoded".to_owned(),
                ),
                ("Authorization", format!("Bearer {}", bot.token)),
            ],
            body: format!(
                "channel={channel}{below}&oldest={since}&limit=200&include_all_metadata=true"
            ),
        };
        Some((channel, asked))
    }

    fn post(&self, row: &Row, more: Value) -> HttpRequest {
        let mut more = more;
        // The lookup after a lost answer finds the message by this.
        more["metadata"] = json!({
            "event_type": "takt_alert",
            "event_payload": {"outbox_id": mark(row)},
        });
        self.call("chat.postMessage", row, more)
    }
}

impl HttpNotifier for Slack {
    fn request(&self, row: &Row) -> HttpRequest {
        self.post(row, json!({}))
    }

    fn outcome(&self, reply: &HttpReply) -> Outcome {
        match (by_status(reply), &self.bot) {
            (Outcome::Sent(_), Some(_)) => by_body(reply),
            // A webhook answers `ok`. Other services answer with JSON, and proxies with HTML.
            (Outcome::Sent(_), None) if reply.body.trim_start().starts_with(['{', '<']) => {
                by_body(reply)
            }
            (outcome, _) => outcome,
        }
    }

    /// The first message about a group begins a thread. Changes are replies in the thread, and the
    /// first message is updated; at the end the first message is only updated.
    fn next(&self, row: &Row, thread: Option<&str>, replies: &[HttpReply]) -> NextStep {
        // A webhook returns no name of its message, so nothing can be sent below it.
        let thread = thread
            .filter(|_| self.bot.is_some() && self.follow_ups != FollowUps::Separate)
            .and_then(|thread| thread.split_once('/'));

        let mut replies = replies;
        if let Some((channel, look)) = self.lookup(row, thread) {
            let Some((looked, later)) = replies.split_first() else {
                return NextStep::Post(look);
            };
            // An attempt without an answer may have arrived: look for it first.
            match (found(looked, row), self.outcome(looked)) {
                (Some(ts), _) if thread.is_none() => {
                    return NextStep::Done(Outcome::Sent(Some(format!("{channel}/{ts}"))));
                }
                // The reply is in the thread; the first message may not be updated yet.
                (Some(_), _) => {}
                (None, again @ Outcome::TryAgain { .. }) => return NextStep::Done(again),
                // Not found, or the search is not allowed: post it, in the worst case twice.
                (None, _) => replies = later,
            }
        }

        let Some((channel, ts)) = thread else {
            return match replies.last() {
                None => NextStep::Post(self.request(row)),
                Some(reply) => NextStep::Done(self.outcome(reply)),
            };
        };

        let is_update_only =
            row.message.reason == Reason::Resolved || self.follow_ups == FollowUps::Update;
        let update = || self.call("chat.update", row, json!({"channel": channel, "ts": ts}));
        let Some(first) = replies.first() else {
            // An update notifies no telephone, so new alerts are shown in the channel too.
            let is_news = matches!(row.message.reason, Reason::NewInGroup | Reason::Corrected);
            let below = json!({
                "channel": channel,
                "thread_ts": ts,
                "reply_broadcast": is_news,
            });
            return NextStep::Post(if is_update_only {
                update()
            } else {
                self.post(row, below)
            });
        };

        match (self.outcome(first), replies.get(1)) {
            // The first message was deleted: this row begins a new one.
            (Outcome::GiveUp { error }, None) if LOST_MESSAGE_ERRORS.contains(&error.as_str()) => {
                NextStep::Post(self.request(row))
            }
            (Outcome::GiveUp { error }, Some(anew))
                if LOST_MESSAGE_ERRORS.contains(&error.as_str()) =>
            {
                NextStep::Done(self.outcome(anew))
            }
            (Outcome::Sent(_), None) if !is_update_only => NextStep::Post(update()),
            // The reply was posted, so a failed update of the first message does not matter.
            (Outcome::Sent(_), _) => NextStep::Done(Outcome::Sent(None)),
            (outcome, _) => NextStep::Done(outcome),
        }
    }

    fn place(&self, row: &Row) -> Option<ChannelPlace> {
        // The address of a webhook says where it goes only to Slack.
        let name = self.bot.as_ref().map(|bot| {
            let channel = self.wording.text("channel", row);
            channel.unwrap_or_else(|| bot.channel.clone())
        });
        Some(ChannelPlace {
            service: "Slack",
            name,
        })
    }

    /// Slack's limit for updates is separate and higher.
    fn pause(&self, row: &Row, thread: Option<&str>) -> Duration {
        let is_update = self.bot.is_some()
            && thread.is_some()
            && match self.follow_ups {
                FollowUps::Thread => row.message.reason == Reason::Resolved,
                FollowUps::Update => true,
                FollowUps::Separate => false,
            };
        if is_update { Duration::ZERO } else { PAUSE }
    }
}

/// Whether `channel` is Slack's id of a channel, not its name.
fn is_id(channel: &str) -> bool {
    // As `C0123456789`: a name begins with `#` or is in lower case.
    channel.len() >= 2
        && channel.starts_with(['C', 'G', 'D'])
        && channel
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

/// The answer of `conversations.history` and `conversations.replies`.
#[derive(Deserialize)]
struct FoundMessages {
    #[serde(default)]
    messages: Vec<Value>,
}

/// The mark by which a message is found again, unique among all Takt servers.
fn mark(row: &Row) -> String {
    format!("{}.{}", row.id, row.created_at.0)
}

/// The `ts` of this row's message among those found.
fn found(looked: &HttpReply, row: &Row) -> Option<String> {
    let found: FoundMessages = serde_json::from_str(&looked.body).ok()?;
    let id = mark(row);

    let ours = found
        .messages
        .iter()
        .find(|message| message["metadata"]["event_payload"]["outbox_id"] == id.as_str())?;
    Some(ours["ts"].as_str()?.to_owned())
}

/// The answer of the Web API to a post or an update.
#[derive(Deserialize)]
struct PostAnswer {
    ok: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    ts: String,
}

/// The outcome in the body: the Web API answers 200 with `ok: false` where it refuses.
fn by_body(reply: &HttpReply) -> Outcome {
    match serde_json::from_str::<PostAnswer>(&reply.body) {
        Ok(PostAnswer {
            ok: true,
            channel,
            ts,
            ..
        }) if !ts.is_empty() => Outcome::Sent(Some(format!("{channel}/{ts}"))),
        Ok(PostAnswer { ok: true, .. }) => Outcome::Sent(None),
        // Slack answers 200 also where it is only busy.
        Ok(PostAnswer { error, .. }) if TEMPORARY_ERRORS.contains(&error.as_str()) => {
            Outcome::TryAgain {
                after: reply.retry_after,
                error,
            }
        }
        Ok(PostAnswer { error, .. }) => Outcome::GiveUp { error },
        // A proxy's page of HTML says nothing about the message.
        Err(_) => Outcome::TryAgain {
            after: reply.retry_after,
            error: "the reply is no JSON".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::row;
    use super::*;
    use std::slice;

    #[test]
    fn unanswered_messages_are_looked_up_before_they_are_sent_again() {
        let doubtful = Row {
            is_in_doubt: true,
            ..row(1, "hot")
        };

        let bot = |channel: &str| Slack::bot("http://x/api", "t", channel);
        let reply = |body: &str| HttpReply {
            status: 200,
            retry_after: None,
            body: body.to_owned(),
        };
        let posts = |next: NextStep| match next {
            NextStep::Post(request) => request.url.rsplit('/').next().unwrap().to_owned(),
            NextStep::Done(outcome) => format!("{outcome:?}"),
        };

        let there = format!(
            r#"{{"ok":true,"messages":[{{"ts":"9.1"}},{{"ts":"9.2","metadata":{{"event_payload":{{"outbox_id":"{}"}}}}}}]}}"#,
            mark(&doubtful)
        );
        let there = reply(&there);
        let absent = reply(r#"{"ok":true,"messages":[]}"#);
        let denied = reply(r#"{"ok":false,"error":"missing_scope"}"#);

        let NextStep::Post(asked) = bot("C1").next(&doubtful, None, &[]) else {
            panic!("it asks")
        };
        assert_eq!(asked.url, "http://x/api/conversations.history");
        assert_eq!(
            asked.body,
            "channel=C1&oldest=1700&limit=200&include_all_metadata=true"
        );

        let found = bot("C1").next(&doubtful, None, slice::from_ref(&there));
        assert_eq!(
            found,
            NextStep::Done(Outcome::Sent(Some("C1/9.2".to_owned())))
        );
        for reply in [&absent, &denied] {
            assert_eq!(
                posts(bot("C1").next(&doubtful, None, slice::from_ref(reply))),
                "chat.postMessage"
            );
        }

        let busy = HttpReply {
            status: 429,
            retry_after: Some(Duration::from_secs(3)),
            body: String::new(),
        };
        assert!(matches!(
            bot("C1").next(&doubtful, None, &[busy]),
            NextStep::Done(Outcome::TryAgain { .. })
        ));
        // Nothing is looked up that was not in doubt, nor where only the channel's name is known.
        assert_eq!(
            posts(bot("C1").next(&row(1, "hot"), None, &[])),
            "chat.postMessage"
        );
        assert_eq!(
            posts(bot("#gpu").next(&doubtful, None, &[])),
            "chat.postMessage"
        );
        // Below a thread's first message: what was found is brought up to date only.
        let mut news = doubtful.clone();
        news.message.reason = Reason::NewInGroup;
        assert_eq!(
            posts(bot("#gpu").next(&news, Some("C1/8.1"), &[])),
            "conversations.replies"
        );
        assert_eq!(
            posts(bot("#gpu").next(&news, Some("C1/8.1"), slice::from_ref(&there))),
            "chat.update"
        );
        assert_eq!(
            posts(bot("#gpu").next(&news, Some("C1/8.1"), slice::from_ref(&absent))),
            "chat.postMessage"
        );
        news.message.reason = Reason::Resolved;
        assert_eq!(
            posts(bot("#gpu").next(&news, Some("C1/8.1"), &[])),
            "chat.update"
        );
    }

    #[test]
    fn blocks_stay_within_slacks_limits() {
        // One alert, four long ones, many short ones, and thirty long ones.
        for (alerts, words) in [
            (1, "too <hot>".to_owned()),
            (4, "&".repeat(3_000)),
            (500, "hot".to_owned()),
            (30, "&".repeat(3_000)),
        ] {
            let mut row = row(alerts, &words);
            for (n, alert) in row.message.alerts.iter_mut().enumerate().take(30) {
                // As many parts as there are names.
                alert.labels.set("alertname", &format!("Hot{}", n / 4));
                for name in ["jobs", "last_hour", "flapping", "kernel_lines"] {
                    alert.annotations.insert(name.to_owned(), words.clone());
                }
            }

            let request = Slack::bot("http://x/api", "t", "C1").request(&row);
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let blocks = body["blocks"].as_array().unwrap();
            assert!(blocks.len() <= 50);

            let texts: Vec<_> = blocks
                .iter()
                .filter_map(|block| block["text"]["text"].as_str())
                .collect();
            assert!(texts.iter().all(|text| text.chars().count() <= 3_000));
            assert!(texts.iter().map(|text| text.len()).sum::<usize>() <= 12_200);
            assert!(!request.body.contains("<hot>"), "escaped");
        }
    }

    #[test]
    fn a_summary_is_said_once() {
        let texts = |row: &Row| -> Vec<String> {
            let blocks = Slack::bot("http://x/api", "t", "C1").blocks(row);
            let texts = blocks
                .iter()
                .filter_map(|block| block["text"]["text"].as_str());
            texts.map(str::to_owned).collect()
        };
        let one = texts(&row(1, "too <hot>"));
        assert_eq!(one[0], "[FIRING] too &lt;hot&gt; on g0");
        assert!(one[1].starts_with(":red_circle: *GpuHot*\n"), "{}", one[1]);

        let two = texts(&row(2, "too hot"));
        assert_eq!(two[0], "[FIRING 2] too hot on g0, and 1 more on g1");
        assert!(two[1].starts_with(":red_circle: *GpuHot*\n"), "{}", two[1]);
        assert!(
            two[2].starts_with(":red_circle: *GpuHot*: too hot on g1\n"),
            "{}",
            two[2]
        );
    }

    /// The methods called for a row of that reason with these replies, and what came of it.
    fn steps(
        reason: Reason,
        thread: Option<&str>,
        replies: &[&str],
    ) -> (Vec<String>, Option<Outcome>) {
        let slack = Slack::bot("http://x/api", "t", "#gpu");

        let mut row = row(1, "hot");
        row.message.reason = reason;
        let mut calls = Vec::new();
        let mut seen = Vec::new();
        for body in replies.iter().map(Some).chain([None]) {
            match slack.next(&row, thread, &seen) {
                NextStep::Done(outcome) => return (calls, Some(outcome)),
                NextStep::Post(request) => {
                    let asked: Value = serde_json::from_str(&request.body).unwrap();
                    let place = asked["thread_ts"]
                        .as_str()
                        .or(asked["ts"].as_str())
                        .unwrap_or_default();
                    let wide = if asked["reply_broadcast"] == true {
                        "!"
                    } else {
                        ""
                    };
                    let method = request.url.rsplit('/').next().unwrap_or_default();
                    calls.push(format!(
                        "{method} {} {place}{wide}",
                        asked["channel"].as_str().unwrap()
                    ));
                }
            }

            let Some(body) = body else { break };
            seen.push(HttpReply {
                status: 200,
                retry_after: None,
                body: (*body).to_owned(),
            });
        }
        (calls, None)
    }

    #[test]
    fn an_episode_is_one_message_with_its_changes_below() {
        let ok = "{\"ok\":true,\"channel\":\"C1\",\"ts\":\"9.9\"}";
        let gone = "{\"ok\":false,\"error\":\"message_not_found\"}";
        let limited = "{\"ok\":false,\"error\":\"ratelimited\"}";
        let sent = |handle: Option<&str>| Some(Outcome::Sent(handle.map(str::to_owned)));
        let thread = Some("C1/1.1");
        for (reason, thread, replies, calls, outcome) in [
            (
                Reason::FirstFiring,
                None,
                &[ok][..],
                &["chat.postMessage #gpu "][..],
                sent(Some("C1/9.9")),
            ),
            (
                Reason::NewInGroup,
                thread,
                &[ok, ok],
                &["chat.postMessage C1 1.1!", "chat.update C1 1.1"],
                sent(None),
            ),
            (
                Reason::SomeResolved,
                thread,
                &[ok, gone],
                &["chat.postMessage C1 1.1", "chat.update C1 1.1"],
                sent(None),
            ),
            (
                Reason::Resolved,
                thread,
                &[ok],
                &["chat.update C1 1.1"],
                sent(None),
            ),
            (
                Reason::Resolved,
                thread,
                &[gone, ok],
                &["chat.update C1 1.1", "chat.postMessage #gpu "],
                sent(Some("C1/9.9")),
            ),
            (
                Reason::Resolved,
                None,
                &[ok],
                &["chat.postMessage #gpu "],
                sent(Some("C1/9.9")),
            ),
        ] {
            assert_eq!(
                steps(reason, thread, replies),
                (
                    calls.iter().map(|call| (*call).to_owned()).collect(),
                    outcome
                )
            );
        }

        let (_, outcome) = steps(Reason::Resolved, thread, &[limited]);
        assert!(
            matches!(outcome, Some(Outcome::TryAgain { .. })),
            "{outcome:?}"
        );
    }

    #[test]
    fn an_html_page_as_answer_is_no_delivery() {
        let webhook = Slack::webhook("http://x");
        let said = |body: &str| {
            webhook.outcome(&HttpReply {
                status: 200,
                retry_after: None,
                body: body.to_owned(),
            })
        };
        assert_eq!(said("ok"), Outcome::Sent(None));
        assert_eq!(said(""), Outcome::Sent(None));
        assert!(matches!(
            said("<html>log in</html>"),
            Outcome::TryAgain { .. }
        ));
        assert!(matches!(
            said(r#"{"ok":false,"error":"invalid_payload"}"#),
            Outcome::GiveUp { .. }
        ));
    }

    #[test]
    fn the_web_api_refuses_with_200() {
        let slack = Slack::bot("http://x/api", "t", "C1");
        let outcome = |body: &str| {
            slack.outcome(&HttpReply {
                status: 200,
                retry_after: None,
                body: body.to_owned(),
            })
        };
        assert_eq!(
            outcome("{\"ok\":false,\"error\":\"channel_not_found\"}"),
            Outcome::GiveUp {
                error: "channel_not_found".to_owned()
            }
        );
        assert!(matches!(
            outcome("{\"ok\":false,\"error\":\"ratelimited\"}"),
            Outcome::TryAgain { .. }
        ));
        assert!(matches!(outcome("<html>"), Outcome::TryAgain { .. }));
    }

    #[test]
    fn update_message_decides_on_follow_ups() {
        let calls = |follow_ups: FollowUps| {
            let slack = Slack::bot("http://x/api", "t", "C1").with_follow_ups(follow_ups);
            let mut row = row(1, "hot");
            row.message.reason = Reason::NewInGroup;
            let ok = HttpReply {
                status: 200,
                retry_after: None,
                body: "{\"ok\":true,\"channel\":\"C1\",\"ts\":\"9.9\"}".to_owned(),
            };
            let mut calls = Vec::new();
            let mut replies = Vec::new();
            while let NextStep::Post(request) = slack.next(&row, Some("C1/1.1"), &replies) {
                let method = request.url.rsplit('/').next().unwrap().to_owned();
                calls.push((method, request.body.contains("thread_ts")));
                replies.push(ok.clone());
            }
            calls
        };
        let post = |in_thread| ("chat.postMessage".to_owned(), in_thread);
        let update = ("chat.update".to_owned(), false);
        assert_eq!(calls(FollowUps::Thread), [post(true), update.clone()]);
        assert_eq!(calls(FollowUps::Update), [update]);
        assert_eq!(calls(FollowUps::Separate), [post(false)]);
    }
}
