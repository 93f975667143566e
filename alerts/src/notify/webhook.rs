//! A generic webhook, with the body that Alertmanager sends (version 4).

use super::{HttpNotifier, Reply, Request, by_status};
use crate::outbox::{Outcome, Row};

/// Where to post to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The address.
    pub url: String,
    /// The header `Authorization`, if it asks for one.
    pub authorization: Option<String>,
    /// How many alerts one message tells at most; 0 is all.
    pub alerts_max: usize,
}

impl HttpNotifier for Webhook {
    fn request(&self, row: &Row) -> Request {
        let mut headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Idempotency-Key", row.id.to_string()),
        ];
        headers.extend(
            self.authorization
                .clone()
                .map(|value| ("Authorization", value)),
        );
        Request {
            url: self.url.clone(),
            headers,
            body: row.message.webhook_body(self.alerts_max).to_string(),
        }
    }

    fn outcome(&self, reply: &Reply) -> Outcome {
        by_status(reply)
    }
}
