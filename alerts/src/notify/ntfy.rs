//! ntfy: push messages to telephones, by topic.

use super::channels::ChannelContext;
use super::http::{HttpChannel, HttpNotifier, HttpReply, HttpRequest, by_status};
use super::http_config::address;
use super::{
    ACKNOWLEDGE, ChannelPlace, Notifier, NotifierKind, link, no_split, subject, text,
    words::shortened,
};
use crate::message::Status;
use crate::outbox::{Outcome, Row};
use crate::yaml::{Mistake, Node};

/// ntfy turns longer messages into attachments.
const MESSAGE_MAX: usize = 3_500;

/// The public server.
const DEFAULT_URL: &str = "https://ntfy.sh";

const KEYS: &[&str] = &[
    "send_resolved",
    "url",
    "topic",
    "token",
    "token_file",
    "http_config",
];

/// `ntfy_configs`.
pub(super) const KIND: NotifierKind = NotifierKind {
    name: "ntfy",
    config_key: "ntfy_configs",
    sends_resolved: true,
    example: "{url: 'http://{server}', topic: lab}",
    split: no_split,
    build,
};

fn build(settings: &Node, context: &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake> {
    let fields = settings.fields(KEYS)?;
    let topic = fields.require("topic")?.text()?.to_owned();
    let url = fields.optional("url", |node| node.text().map(str::to_owned))?;
    let url = address(settings, url.unwrap_or_else(|| DEFAULT_URL.to_owned()))?;

    let ntfy = Ntfy {
        url,
        topic,
        token: context.secret(settings, "token")?,
    };

    let sender = context.http_sender(settings, context.http_options(settings)?)?;
    Ok(Box::new(HttpChannel::new(ntfy, sender)))
}

/// A topic of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ntfy {
    /// URL of the server.
    pub url: String,
    /// The topic.
    pub topic: String,
    /// Access token of the topic.
    pub token: Option<String>,
}

impl HttpNotifier for Ntfy {
    fn request(&self, row: &Row) -> HttpRequest {
        let message = &row.message;
        let is_critical = message
            .alerts
            .iter()
            .any(|alert| alert.labels.get("severity") == Some("critical"));

        // ntfy's priorities go from 1 to 5; 3 is the usual one.

        let priority = match (message.status, is_critical) {
            (Status::Firing, true) => 5,
            (Status::Firing, false) => 4,
            (Status::Resolved, _) => 3,
        };

        let mut body = serde_json::json!({
            "topic": self.topic,
            "title": shortened(&subject(message), 200),
            "message": shortened(&text(message), MESSAGE_MAX),
            "priority": priority,
            "click": link(message),
        });
        if let Some(url) = &message.acknowledge_url {
            // The button opens a page: a request in the background would act without a question.
            body["actions"] = serde_json::json!([
                {"action": "view", "label": ACKNOWLEDGE, "url": url},
            ]);
        }

        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        if let Some(token) = &self.token {
            headers.push(("Authorization", format!("Bearer {token}")));
        }
        HttpRequest {
            url: self.url.clone(),
            headers,
            body: body.to_string(),
        }
    }

    fn outcome(&self, reply: &HttpReply) -> Outcome {
        by_status(reply)
    }

    /// Names the receiver: who knows a topic can read it.
    /// The topic is a secret: knowing it is enough to read the messages.
    fn place(&self, _row: &Row) -> Option<ChannelPlace> {
        Some(ChannelPlace {
            service: "ntfy",
            name: None,
        })
    }
}
