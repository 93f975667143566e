//! ntfy: a push to telephones, by topic.

use super::{HttpNotifier, Reply, Request, by_status, link, subject, text, words::shortened};
use crate::message::Status;
use crate::outbox::{Outcome, Row};

/// ntfy turns longer messages into attachments.
const MESSAGE_MAX: usize = 3_500;

/// A topic of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ntfy {
    /// The server.
    pub url: String,
    /// The topic.
    pub topic: String,
    /// An access token, if the topic asks for one.
    pub token: Option<String>,
}

impl HttpNotifier for Ntfy {
    fn request(&self, row: &Row) -> Request {
        let message = &row.message;
        let is_page = message
            .alerts
            .iter()
            .any(|alert| alert.labels.get("severity") == Some("critical"));
        let priority = match (message.status, is_page) {
            (Status::Firing, true) => 5,
            (Status::Firing, false) => 4,
            (Status::Resolved, _) => 3,
        };
        let body = serde_json::json!({
            "topic": self.topic,
            "title": shortened(&subject(message), 200),
            "message": shortened(&text(message), MESSAGE_MAX),
            "priority": priority,
            "click": link(message),
        });
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        headers.extend(
            self.token
                .as_ref()
                .map(|token| ("Authorization", format!("Bearer {token}"))),
        );
        Request {
            url: self.url.clone(),
            headers,
            body: body.to_string(),
        }
    }

    fn outcome(&self, reply: &Reply) -> Outcome {
        by_status(reply)
    }
}
