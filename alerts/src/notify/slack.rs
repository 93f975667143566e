//! Slack: a bot with a token (the Web API), or an incoming webhook as the simple way.

use super::words::shortened;
use super::{HttpNotifier, Reply, Request, by_status, line, subject};
use crate::message::Message;
use crate::outbox::{Outcome, Row};
use serde::Deserialize;
use serde_json::{Value, json};

/// Slack's documented limit for a header's text.
const HEADER_MAX: usize = 150;

/// Slack allows 3,000 characters in a section; escaping may make five of one.
const SECTION_MAX: usize = 2_900;

/// Slack refuses messages from about 13,200 characters in all blocks on, a limit that it does not document.
const BLOCKS_MAX: usize = 12_000;

/// Errors of the Web API after which the same request may succeed.
const PASSING: [&str; 6] =
    ["ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"];

/// How Slack is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slack {
    url: String,
    bot: Option<Bot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bot {
    token: String,
    channel: String,
}

impl Slack {
    /// By an incoming webhook: its address decides the channel.
    pub fn webhook(url: &str) -> Self {
        Self { url: url.to_owned(), bot: None }
    }

    /// By a bot: `base` is `https://slack.com/api` but for tests.
    pub fn bot(base: &str, token: &str, channel: &str) -> Self {
        let bot = Bot { token: token.to_owned(), channel: channel.to_owned() };
        Self { url: format!("{base}/chat.postMessage"), bot: Some(bot) }
    }
}

impl HttpNotifier for Slack {
    fn request(&self, row: &Row) -> Request {
        let mut body = json!({"text": escaped(&subject(&row.message), 300), "blocks": blocks(&row.message)});
        let mut headers = vec![("Content-Type", "application/json; charset=utf-8".to_owned())];
        if let Some(bot) = &self.bot {
            headers.push(("Authorization", format!("Bearer {}", bot.token)));
            body["channel"] = json!(bot.channel);
            // After a crash the bot can look for its own message by this.
            body["metadata"] = json!({"event_type": "takt_alert", "event_payload": {"outbox_id": row.id.to_string()}});
        }
        Request { url: self.url.clone(), headers, body: body.to_string() }
    }

    fn outcome(&self, reply: &Reply) -> Outcome {
        match (by_status(reply), &self.bot) {
            (Outcome::Sent, Some(_)) => by_body(reply),
            (outcome, _) => outcome,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
}

/// The Web API answers 200 with `ok: false` to what it refuses.
fn by_body(reply: &Reply) -> Outcome {
    match serde_json::from_str::<Answer>(&reply.body) {
        Ok(Answer { ok: true, .. }) => Outcome::Sent,
        Ok(Answer { error, .. }) if PASSING.contains(&error.as_str()) => {
            Outcome::TryAgain { after: reply.retry_after, error }
        }
        Ok(Answer { error, .. }) => Outcome::GiveUp { error },
        Err(_) => Outcome::TryAgain { after: reply.retry_after, error: "the reply is no JSON".to_owned() },
    }
}

fn blocks(message: &Message) -> Vec<Value> {
    let header = shortened(&subject(message), HEADER_MAX - 2);
    let mut blocks = vec![json!({"type": "header", "text": {"type": "plain_text", "text": header}})];
    let (mut size, mut told) = (HEADER_MAX, 0);
    for alert in &message.alerts {
        let text = escaped(&line(alert), SECTION_MAX);
        size += text.len();
        if size > BLOCKS_MAX || blocks.len() > 45 {
            break;
        }
        blocks.push(json!({"type": "section", "text": {"type": "mrkdwn", "text": text}}));
        told += 1;
    }
    let more = message.alerts.len() - told;
    let rest = if more > 0 { format!("+{more} more · ") } else { String::new() };
    let link = format!("{rest}<{}|Takt>", message.external_url);
    blocks.push(json!({"type": "context", "elements": [{"type": "mrkdwn", "text": link}]}));
    blocks
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
    fn blocks_stay_within_slacks_limits() {
        for (alerts, words) in [(1, "too <hot>".to_owned()), (500, "hot".to_owned()), (30, "&".repeat(3_000))] {
            let request = Slack::bot("http://x/api", "t", "C1").request(&row(alerts, &words));
            let body: Value = serde_json::from_str(&request.body).unwrap();
            let blocks = body["blocks"].as_array().unwrap();
            assert!(blocks.len() <= 50);
            let texts: Vec<_> = blocks.iter().filter_map(|block| block["text"]["text"].as_str()).collect();
            assert!(texts.iter().all(|text| text.chars().count() <= 3_000));
            assert!(texts.iter().map(|text| text.len()).sum::<usize>() <= 12_200);
            assert!(!request.body.contains("<hot>"), "escaped");
        }
    }

    #[test]
    fn the_web_api_refuses_with_200() {
        let slack = Slack::bot("http://x/api", "t", "C1");
        let outcome = |body: &str| slack.outcome(&Reply { status: 200, retry_after: None, body: body.to_owned() });
        assert_eq!(
            outcome("{\"ok\":false,\"error\":\"channel_not_found\"}"),
            Outcome::GiveUp { error: "channel_not_found".to_owned() }
        );
        assert!(matches!(outcome("{\"ok\":false,\"error\":\"ratelimited\"}"), Outcome::TryAgain { .. }));
        assert!(matches!(outcome("<html>"), Outcome::TryAgain { .. }));
    }
}
