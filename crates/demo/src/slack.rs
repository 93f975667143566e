//! A Slack workspace with one channel: the part of the Web API that Takt calls, and a page that
//! shows the messages.

use axum::extract::State;
use axum::response::Html;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Id of the channel.
const CHANNEL: &str = "C0DEMO";

/// Maximum number of messages; older ones are dropped.
const MAX_MESSAGES: usize = 2000;

/// The channel.
#[derive(Debug, Clone, Default)]
pub struct Channel(Arc<Mutex<Vec<Message>>>);

/// A message, or a reply in the thread of another one.
#[derive(Debug)]
struct Message {
    /// Slack's id of the message.
    ts: String,
    /// Id of the first message of the thread, for replies.
    thread: Option<String>,
    /// Content as Takt sent it last.
    body: Value,
    updates: u32,
}

impl Channel {
    /// Routes of the API (below `/slack/api`) and the page.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/slack/api/chat.postMessage", post(post_message))
            .route("/slack/api/chat.update", post(update))
            .route("/slack", get(page))
            .with_state(self)
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn post_message(State(channel): State<Channel>, Json(body): Json<Value>) -> Json<Value> {
    let mut messages = channel.messages();
    let thread = body["thread_ts"].as_str().map(str::to_owned);
    // As in Slack, a reply needs its first message.
    let is_known = |thread: &String| messages.iter().any(|message| message.ts == *thread);
    if thread.as_ref().is_some_and(|thread| !is_known(thread)) {
        return Json(json!({ "ok": false, "error": "thread_not_found" }));
    }

    let now = jiff::Timestamp::now();
    // Messages of one second differ in the fraction. The id must be unique in the channel.
    let ts = format!("{}.{:06}", now.as_second(), messages.len());
    if messages.len() >= MAX_MESSAGES {
        messages.remove(0);
    }

    messages.push(Message {
        ts: ts.clone(),
        thread,
        body,
        updates: 0,
    });
    Json(json!({ "ok": true, "channel": CHANNEL, "ts": ts }))
}

async fn update(State(channel): State<Channel>, Json(body): Json<Value>) -> Json<Value> {
    let mut messages = channel.messages();
    let ts = body["ts"].as_str().unwrap_or_default();
    let Some(message) = messages.iter_mut().find(|message| message.ts == ts) else {
        return Json(json!({ "ok": false, "error": "message_not_found" }));
    };

    let ts = message.ts.clone();
    message.body = body;
    message.updates += 1;
    Json(json!({ "ok": true, "channel": CHANNEL, "ts": ts }))
}

/// Names of pictures in Takt's messages.
const EMOJI: [(&str, &str); 4] = [
    (":red_circle:", "🔴"),
    (":large_orange_circle:", "🟠"),
    (":large_blue_circle:", "🔵"),
    (":white_check_mark:", "✅"),
];

const STYLE: &str = "\
    code{display:block;background:#f4f4f4;padding:.3rem .5rem;font-size:.85rem}\
    body{font:15px/1.45 system-ui,sans-serif;max-width:52rem;margin:1.5rem auto;\
    padding:0 1rem;color:#1d1c1d;background:#fff}h1{font-size:1.1rem}\
    article{border-top:1px solid #ddd;padding:.7rem 0}\
    article article{border:0;border-left:3px solid #ddd;padding:.3rem .8rem;margin:.4rem .5rem}\
    time,small{color:#616061;font-size:.8rem}p{margin:.3rem 0;white-space:pre-wrap}\
    @media(prefers-color-scheme:dark){body{color:#d1d2d3;background:#1a1d21}\
    code{background:#26292e}\
    article,article article{border-color:#3a3d42}}";

async fn page(State(channel): State<Channel>) -> Html<String> {
    let messages = channel.messages();
    let mut out = format!(
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=10>\
         <title>#gpu-alerts</title><style>{STYLE}</style>\
         <h1>#gpu-alerts <small>the Slack channel of the demo</small></h1>"
    );

    let first = messages.iter().filter(|message| message.thread.is_none());
    let mut count = 0;
    // The newest thread first, and its replies in the order of time.
    for message in first.rev() {
        count += 1;
        let replies = messages
            .iter()
            .filter(|reply| reply.thread.as_deref() == Some(&message.ts));
        write_message(&mut out, message);
        for reply in replies {
            write_message(&mut out, reply);
            out.push_str("</article>");
        }
        out.push_str("</article>");
    }
    if count == 0 {
        out.push_str("<p>No message yet. The first fault happens within half a minute.</p>");
    }
    Html(out)
}

fn write_message(out: &mut String, message: &Message) {
    let seconds = message
        .ts
        .split('.')
        .next()
        .and_then(|text| text.parse().ok());
    let at = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    let at = at.map_or_else(String::new, |at| {
        at.to_zoned(TimeZone::system())
            .strftime("%H:%M:%S")
            .to_string()
    });
    let edited = if message.updates > 0 { " (edited)" } else { "" };
    let _ = write!(out, "<article><time>Takt {at}{edited}</time>");

    let blocks = message.body["blocks"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut texts: Vec<&str> = Vec::new();
    blocks
        .iter()
        .for_each(|block| collect_texts(block, &mut texts));
    // `text` is what Slack shows in a notification. It is the whole message where there are no blocks.
    if texts.is_empty() {
        texts.extend(message.body["text"].as_str());
    }
    for text in texts {
        let _ = write!(out, "<p>{}</p>", fenced(text));
    }
}

/// Converts Slack's names of pictures, and text between three backticks; the rest as [`markup`].
fn fenced(text: &str) -> String {
    EMOJI
        .iter()
        .fold(text.to_owned(), |text, (name, picture)| {
            text.replace(name, picture)
        })
        // Every second part stands between two fences.
        .split("```")
        .enumerate()
        .map(|(index, part)| {
            if index % 2 == 0 {
                markup(part)
            } else {
                let part = part.replace('<', "&lt;").replace('>', "&gt;");
                format!("<code>{}</code>", part.trim())
            }
        })
        .collect()
}

/// Collects the texts of a block in order of reading.
fn collect_texts<'v>(block: &'v Value, texts: &mut Vec<&'v str>) {
    match block {
        Value::Object(fields) => {
            if let Some(text) = fields.get("text").and_then(Value::as_str) {
                texts.push(text);
            }
            // A text may be nested in any field: sections, contexts and fields of a table.
            fields
                .values()
                .for_each(|field| collect_texts(field, texts));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        _ => {}
    }
}

/// Converts Slack's markup: `*bold*`, and `<URL|text>`. The text is escaped as Slack wants it,
/// which is also safe in HTML except for the angle brackets of links.
fn markup(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(&bold(before));
        // A bracket without an end is no link.
        let Some((link, after)) = after.split_once('>') else {
            rest = after;
            continue;
        };
        let (url, label) = link.split_once('|').unwrap_or((link, link));

        // Other schemes, such as `javascript:`, become plain text.
        if url.starts_with("http://") || url.starts_with("https://") {
            let url = url.replace('"', "%22");
            let _ = write!(out, "<a href=\"{url}\">{}</a>", bold(label));
        } else {
            out.push_str(&bold(label));
        }
        rest = after;
    }
    out.push_str(&bold(rest));
    out
}

fn bold(text: &str) -> String {
    let text = text.replace('>', "&gt;").replace('"', "&quot;");
    // An odd star is no markup, as with `2 * 3`.
    let parts: Vec<&str> = text.split('*').collect();
    let is_paired = parts.len() % 2 == 1;
    if !is_paired {
        return text;
    }
    parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            if index % 2 == 1 {
                format!("<b>{part}</b>")
            } else {
                (*part).to_owned()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_s_markup_becomes_html_and_no_more() {
        assert_eq!(
            markup("*XID 79* on <http://x/alerts|g01> &lt;b&gt; <!here> 2 > 1"),
            "<b>XID 79</b> on <a href=\"http://x/alerts\">g01</a> &lt;b&gt; !here 2 &gt; 1"
        );
        assert_eq!(markup("a <javascript:x|y>"), "a y");
    }

    #[test]
    fn pictures_and_quoted_lines_look_as_in_slack() {
        assert_eq!(
            fenced(":red_circle: *XID*\n```NVRM: <unknown> *a*```\nend"),
            "🔴 <b>XID</b>\n<code>NVRM: &lt;unknown&gt; *a*</code>\nend"
        );
    }

    #[tokio::test]
    async fn replies_and_updates_need_a_message() {
        let channel = Channel::default();
        let send = |body| post_message(State(channel.clone()), Json(body));

        let first = send(json!({"text": "a"})).await.0;
        let ts = first["ts"].clone();
        assert_eq!(first["ok"], true);

        let reply = send(json!({"text": "b", "thread_ts": ts})).await.0;
        assert_eq!(reply["ok"], true);
        // A thread that this channel does not know.
        let lost = send(json!({"text": "c", "thread_ts": "1.2"})).await.0;
        assert_eq!(lost["error"], "thread_not_found");
        let changed = update(State(channel.clone()), Json(json!({"ts": ts, "text": "d"})))
            .await
            .0;
        assert_eq!(changed["ok"], true);

        let page = page(State(channel)).await.0;
        assert!(
            page.contains("<p>d</p>") && page.contains("<p>b</p>"),
            "{page}"
        );
        assert!(!page.contains("<p>a</p>"));
    }
}
