//! Slack: a bot with a token (the Web API), or an incoming webhook as the simple way.

use super::words::{self, Part, shortened};
use super::{HttpNotifier, Next, Reply, Request, Wording, by_status, subject};
use crate::message::{Message, Status};
use crate::outbox::{Outcome, Row};
use crate::routing::dedup::Reason;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use takt_model::Timestamp;

/// Slack's documented limit for a header's text.
const HEADER_MAX: usize = 150;

/// Slack allows 3,000 characters in a section; escaping may make five of one.
const SECTION_MAX: usize = 2_900;

/// Of one fact, and of what the kernel said: with up to four facts a section stays within its limit.
const FACT_MAX: usize = 400;
const LINES_MAX: usize = 700;

/// Slack refuses messages from about 13,200 characters in all blocks on, a limit that it does not document.
const BLOCKS_MAX: usize = 12_000;

/// Errors of the Web API after which the same request may succeed.
const PASSING: [&str; 6] = [
    "ratelimited",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
];

/// Errors that say that a message cannot be changed or answered any more; then it is told anew.
const LOST_MESSAGE: [&str; 9] = [
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

/// What Slack's clock and ours may differ by.
const CLOCKS_APART: Duration = Duration::from_secs(300);

/// How Slack is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Slack {
    /// The webhook, or the base of the Web API.
    url: String,
    bot: Option<Bot>,
    wording: Wording,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bot {
    token: String,
    channel: String,
}

impl Slack {
    /// By an incoming webhook: its address decides the channel.
    pub fn webhook(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            bot: None,
            wording: Wording::default(),
        }
    }

    /// By a bot: `base` is `https://slack.com/api` but for tests.
    pub fn bot(base: &str, token: &str, channel: &str) -> Self {
        let bot = Bot {
            token: token.to_owned(),
            channel: channel.to_owned(),
        };
        Self {
            url: base.trim_end_matches('/').to_owned(),
            bot: Some(bot),
            wording: Wording::default(),
        }
    }

    /// The same in other words: `title`, `title_link`, `text`, `pretext`, `footer`, `fallback`, `username`, `icon_emoji`,
    /// `icon_url` and a `channel` that depends on the alert.
    pub fn worded(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// A call of the Web API, or the one post that a webhook takes. `more` is what the call has besides the message.
    fn call(&self, method: &str, row: &Row, more: Value) -> Request {
        let said = |name| self.wording.say(name, row);
        let summary = said("fallback")
            .or_else(|| said("title"))
            .map(|text| shortened(&text, 300));
        let summary = summary.unwrap_or_else(|| escaped(&headline(&row.message), 300));
        let mut body = json!({"text": summary, "blocks": self.blocks(row)});
        for name in ["username", "icon_emoji", "icon_url"] {
            if let Some(text) = said(name).filter(|_| method != "chat.update") {
                body[name] = text.into();
            }
        }
        let mut headers = vec![("Content-Type", "application/json; charset=utf-8".to_owned())];
        let Some(bot) = &self.bot else {
            return Request {
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
        Request {
            url: format!("{}/{method}", self.url),
            headers,
            body: body.to_string(),
        }
    }

    /// Asks whether the message is there already, where the last attempt got no answer: it may be among what was written
    /// lately in the channel, or below the thread's first message. Gives the channel's id too. Nothing where Slack could
    /// not tell, as it wants that id; and an edit that comes twice does not show.
    fn looks_up(&self, row: &Row, thread: Option<(&str, &str)>) -> Option<(String, Request)> {
        let bot = self.bot.as_ref().filter(|_| row.is_in_doubt)?;
        let (method, channel, below) = match thread {
            Some(_) if row.message.reason == Reason::Resolved => return None,
            Some((channel, ts)) => (
                "conversations.replies",
                channel.to_owned(),
                format!("&ts={ts}"),
            ),
            None => {
                let named = self
                    .wording
                    .say("channel", row)
                    .unwrap_or_else(|| bot.channel.clone());
                (
                    "conversations.history",
                    Some(named).filter(|named| is_id(named))?,
                    String::new(),
                )
            }
        };
        let since = row.created_at.minus(CLOCKS_APART).whole_seconds();
        let asked = Request {
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

    fn post(&self, row: &Row, more: Value) -> Request {
        let mut more = more;
        // By this it is found again after a crash.
        more["metadata"] =
            json!({"event_type": "takt_alert", "event_payload": {"outbox_id": mark(row)}});
        self.call("chat.postMessage", row, more)
    }
}

impl HttpNotifier for Slack {
    fn request(&self, row: &Row) -> Request {
        self.post(row, json!({}))
    }

    fn outcome(&self, reply: &Reply) -> Outcome {
        match (by_status(reply), &self.bot) {
            (Outcome::Sent(_), Some(_)) => by_body(reply),
            // A webhook says `ok`. What stands in its place may say JSON, or a proxy's page that nobody asked for.
            (Outcome::Sent(_), None) if reply.body.trim_start().starts_with(['{', '<']) => {
                by_body(reply)
            }
            (outcome, _) => outcome,
        }
    }

    /// The first message of an episode begins a thread. Changes are told below it and it is brought up to date; when
    /// all is over it is only brought up to date. An edit reaches nobody's telephone, so what is new is also told in
    /// the channel.
    fn next(&self, row: &Row, thread: Option<&str>, replies: &[Reply]) -> Next {
        let thread = thread
            .filter(|_| self.bot.is_some())
            .and_then(|thread| thread.split_once('/'));
        let mut replies = replies;
        if let Some((channel, look)) = self.looks_up(row, thread) {
            let Some((looked, later)) = replies.split_first() else {
                return Next::Post(look);
            };
            match (found(looked, row), self.outcome(looked)) {
                (Some(ts), _) if thread.is_none() => {
                    return Next::Done(Outcome::Sent(Some(format!("{channel}/{ts}"))));
                }
                // What was told below the first message stands; the first message may not be up to date.
                (Some(_), _) => {}
                (None, again @ Outcome::TryAgain { .. }) => return Next::Done(again),
                // It is not there, or we may not look: it is told, in the worst case twice.
                (None, _) => replies = later,
            }
        }
        let Some((channel, ts)) = thread else {
            return match replies.last() {
                None => Next::Post(self.request(row)),
                Some(reply) => Next::Done(self.outcome(reply)),
            };
        };
        let is_end = row.message.reason == Reason::Resolved;
        let update = || self.call("chat.update", row, json!({"channel": channel, "ts": ts}));
        let Some(first) = replies.first() else {
            let is_news = row.message.reason == Reason::NewInGroup;
            let below = json!({"channel": channel, "thread_ts": ts, "reply_broadcast": is_news});
            return Next::Post(if is_end {
                update()
            } else {
                self.post(row, below)
            });
        };
        match (self.outcome(first), replies.get(1)) {
            (Outcome::GiveUp { error }, None) if LOST_MESSAGE.contains(&error.as_str()) => {
                Next::Post(self.request(row))
            }
            (Outcome::GiveUp { error }, Some(anew)) if LOST_MESSAGE.contains(&error.as_str()) => {
                Next::Done(self.outcome(anew))
            }
            (Outcome::Sent(_), None) if !is_end => Next::Post(update()),
            // What was told below it stays told, whatever became of bringing the first message up to date.
            (Outcome::Sent(_), _) => Next::Done(Outcome::Sent(None)),
            (outcome, _) => Next::Done(outcome),
        }
    }

    /// Bringing a message up to date counts towards another, higher limit.
    fn pause(&self, row: &Row, thread: Option<&str>) -> Duration {
        let is_edit =
            self.bot.is_some() && thread.is_some() && row.message.reason == Reason::Resolved;
        if is_edit { Duration::ZERO } else { PAUSE }
    }
}

/// Whether a channel is named by Slack's id and not by what people call it.
fn is_id(channel: &str) -> bool {
    channel.len() >= 2
        && channel.starts_with(['C', 'G', 'D'])
        && channel
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

/// What `conversations.history` and `.replies` tell.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    messages: Vec<Value>,
}

/// What a message carries so that it is found again: a number that no other server's outbox has.
fn mark(row: &Row) -> String {
    format!("{}.{}", row.id, row.created_at.0)
}

/// The message for this row among those that were looked up, by its `ts`.
fn found(looked: &Reply, row: &Row) -> Option<String> {
    let told: Told = serde_json::from_str(&looked.body).ok()?;
    let id = mark(row);
    let ours = told
        .messages
        .iter()
        .find(|message| message["metadata"]["event_payload"]["outbox_id"] == id.as_str())?;
    Some(ours["ts"].as_str()?.to_owned())
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    ts: String,
}

/// The Web API answers 200 with `ok: false` to what it refuses.
fn by_body(reply: &Reply) -> Outcome {
    match serde_json::from_str::<Answer>(&reply.body) {
        Ok(Answer {
            ok: true,
            channel,
            ts,
            ..
        }) if !ts.is_empty() => Outcome::Sent(Some(format!("{channel}/{ts}"))),
        Ok(Answer { ok: true, .. }) => Outcome::Sent(None),
        Ok(Answer { error, .. }) if PASSING.contains(&error.as_str()) => Outcome::TryAgain {
            after: reply.retry_after,
            error,
        },
        Ok(Answer { error, .. }) => Outcome::GiveUp { error },
        Err(_) => Outcome::TryAgain {
            after: reply.retry_after,
            error: "the reply is no JSON".to_owned(),
        },
    }
}

impl Slack {
    /// A title, a section for each alert (or the text that the settings ask for), and a link.
    fn blocks(&self, row: &Row) -> Vec<Value> {
        let message = &row.message;
        let said = |name| {
            self.wording
                .say(name, row)
                .map(|text| shortened(&text, SECTION_MAX))
        };
        let mut blocks: Vec<Value> = said("pretext")
            .map(|text| section(&text))
            .into_iter()
            .collect();
        // A title with a link or with Slack's own marks is no header: that is plain text.
        blocks.push(match (said("title"), said("title_link")) {
            (Some(title), Some(link)) => section(&format!(
                "*<{link}|{}>*",
                title.replace(['<', '>', '|'], " ")
            )),
            (Some(title), None) => section(&format!("*{title}*")),
            (None, _) => {
                let title = shortened(&subject(message), HEADER_MAX - 2);
                json!({"type": "header", "text": {"type": "plain_text", "text": title}})
            }
        });
        let told = match said("text") {
            Some(text) => {
                blocks.push(section(&text));
                message.alerts.len()
            }
            None => sections(message, &mut blocks),
        };
        let more = message.alerts.len() - told;
        let rest = if more > 0 {
            format!("+{more} more · ")
        } else {
            String::new()
        };
        let footer = said("footer")
            .map(|text| format!("{} · ", shortened(&text, 300)))
            .unwrap_or_default();
        let link = format!("{rest}{footer}<{}|Takt>", words::link(message));
        blocks.push(json!({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]}));
        blocks
    }
}

fn section(text: &str) -> Value {
    json!({"type": "section", "text": {"type": "mrkdwn", "text": text}})
}

/// What a telephone shows of the message: where one thing is told, in its own words.
fn headline(message: &Message) -> String {
    match words::parts(message).as_slice() {
        [part] => format!("{}: {}", subject(message), part.summary),
        _ => subject(message),
    }
}

/// A section for each part, as many as fit. Returns how many alerts that are.
fn sections(message: &Message, blocks: &mut Vec<Value>) -> usize {
    let (mut size, mut told) = (HEADER_MAX, 0);
    for part in words::parts(message) {
        let text = part_text(&part);
        size += text.len();
        if size > BLOCKS_MAX || blocks.len() > 45 {
            break;
        }
        told += part.alerts;
        blocks.push(section(&text));
    }
    told
}

/// How bad what is where since when, what to do about it, and below that what the kernel said. Instants are shown in the
/// reader's time zone.
fn part_text(part: &Part) -> String {
    let dot = match (part.status, part.severity.as_str()) {
        (Status::Resolved, _) => ":white_check_mark:",
        (Status::Firing, "critical") => ":red_circle:",
        (Status::Firing, "warning") => ":large_orange_circle:",
        (Status::Firing, _) => ":large_blue_circle:",
    };
    let local = |at: Timestamp| {
        format!(
            "<!date^{}^{{date_short_pretty}} {{time_secs}}|{}>",
            at.whole_seconds(),
            words::instant(at)
        )
    };
    let (name, summary) = (escaped(&part.name, 100), escaped(&part.summary, FACT_MAX));
    let severity = Part {
        severity: escaped(&part.severity, 50),
        ..part.clone()
    };
    let mut text = format!(
        "{dot} *{name}*: {summary}\n{}",
        words::when(&severity, &local)
    );
    for (name, fact) in &part.facts {
        text += &format!("\n*{name}:* {}", escaped(fact, FACT_MAX));
    }
    if !part.lines.is_empty() {
        text += &format!(
            "\n```{}```",
            escaped(&part.lines.replace("```", "~~~"), LINES_MAX)
        );
    }
    text
}

/// At most so many characters, with the three that mean something to Slack replaced; never half a replacement.
fn escaped(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut left = most;
    for c in text.chars() {
        let replaced = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            _ => "",
        };
        let size = replaced.len().max(1);
        if size > left {
            return out + " …";
        }
        left -= size;
        match replaced {
            "" => out.push(c),
            _ => out.push_str(replaced),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn what_got_no_answer_is_looked_for_before_it_is_told_again() {
        let doubtful = Row {
            is_in_doubt: true,
            ..row(1, "hot")
        };
        let bot = |channel: &str| Slack::bot("http://x/api", "t", channel);
        let reply = |body: &str| Reply {
            status: 200,
            retry_after: None,
            body: body.to_owned(),
        };
        let posts = |next: Next| match next {
            Next::Post(request) => request.url.rsplit('/').next().unwrap().to_owned(),
            Next::Done(outcome) => format!("{outcome:?}"),
        };
        let there = format!(
            r#"{{"ok":true,"messages":[{{"ts":"9.1"}},{{"ts":"9.2","metadata":{{"event_payload":{{"outbox_id":"{}"}}}}}}]}}"#,
            mark(&doubtful)
        );
        let (there, absent, denied) = (
            reply(&there),
            reply(r#"{"ok":true,"messages":[]}"#),
            reply(r#"{"ok":false,"error":"missing_scope"}"#),
        );
        let Next::Post(asked) = bot("C1").next(&doubtful, None, &[]) else {
            panic!("it asks")
        };
        assert_eq!(asked.url, "http://x/api/conversations.history");
        assert_eq!(
            asked.body,
            "channel=C1&oldest=1700&limit=200&include_all_metadata=true"
        );
        let found = bot("C1").next(&doubtful, None, std::slice::from_ref(&there));
        assert_eq!(found, Next::Done(Outcome::Sent(Some("C1/9.2".to_owned()))));
        for reply in [&absent, &denied] {
            assert_eq!(
                posts(bot("C1").next(&doubtful, None, std::slice::from_ref(reply))),
                "chat.postMessage"
            );
        }
        let busy = Reply {
            status: 429,
            retry_after: Some(Duration::from_secs(3)),
            body: String::new(),
        };
        assert!(matches!(
            bot("C1").next(&doubtful, None, &[busy]),
            Next::Done(Outcome::TryAgain { .. })
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
            posts(bot("#gpu").next(&news, Some("C1/8.1"), std::slice::from_ref(&there))),
            "chat.update"
        );
        assert_eq!(
            posts(bot("#gpu").next(&news, Some("C1/8.1"), std::slice::from_ref(&absent))),
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

    /// The methods called for a row of that reason with these replies, and what came of it.
    fn steps(
        reason: Reason,
        thread: Option<&str>,
        replies: &[&str],
    ) -> (Vec<String>, Option<Outcome>) {
        let slack = Slack::bot("http://x/api", "t", "#gpu");
        let mut row = row(1, "hot");
        row.message.reason = reason;
        let (mut calls, mut seen) = (Vec::new(), Vec::new());
        for body in replies.iter().map(Some).chain([None]) {
            match slack.next(&row, thread, &seen) {
                Next::Done(outcome) => return (calls, Some(outcome)),
                Next::Post(request) => {
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
            seen.push(Reply {
                status: 200,
                retry_after: None,
                body: (*body).to_owned(),
            });
        }
        (calls, None)
    }

    #[test]
    fn an_episode_is_one_message_with_its_changes_below() {
        let (ok, gone) = (
            "{\"ok\":true,\"channel\":\"C1\",\"ts\":\"9.9\"}",
            "{\"ok\":false,\"error\":\"message_not_found\"}",
        );
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
    fn a_page_in_place_of_a_webhooks_answer_is_no_delivery() {
        let webhook = Slack::webhook("http://x");
        let said = |body: &str| {
            webhook.outcome(&Reply {
                status: 200,
                retry_after: None,
                body: body.to_owned(),
            })
        };
        assert_eq!(
            (said("ok"), said("")),
            (Outcome::Sent(None), Outcome::Sent(None))
        );
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
            slack.outcome(&Reply {
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
}
