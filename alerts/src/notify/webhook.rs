//! A generic webhook: Alertmanager's body (version 4), or a configured `payload`.

use super::channels::ChannelContext;
use super::http::{HttpChannel, HttpNotifier, HttpReply, HttpRequest, by_status};
use super::http_config::address;
use super::{Notifier, NotifierKind, no_split};
use crate::outbox::{Outcome, Row};
use crate::template::{MessageTemplate, MessageTemplates};
use crate::yaml::{Mistake, Node};
use serde_json::Value;
use std::sync::Arc;

const KEYS: &[&str] = &[
    "send_resolved",
    "url",
    "url_file",
    "http_config",
    "max_alerts",
    "timeout",
    "payload",
];

/// `webhook_configs`.
pub(super) const KIND: NotifierKind = NotifierKind {
    name: "webhook",
    config_key: "webhook_configs",
    sends_resolved: true,
    example: "{url: 'http://{server}/hook'}",
    split: no_split,
    build,
};

fn build(settings: &Node, context: &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake> {
    let fields = settings.fields(KEYS)?;
    let url = context
        .secret(settings, "url")?
        .ok_or_else(|| settings.mistake("needs `url` or `url_file`"))?;
    let webhook = Webhook {
        url: address(settings, url)?,
        alerts_max: fields.or_default("max_alerts", Node::number)?,
        payload: fields.optional("payload", Payload::read)?,
        templates: Arc::clone(&context.templates),
    };
    let sender = context.http_sender(settings, context.http_options(settings)?)?;
    Ok(Box::new(HttpChannel::new(webhook, sender)))
}

/// The configured body: JSON whose texts are templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// A text, a number or a switch. A result that is JSON, such as `5` or `["a"]`, is sent as
    /// JSON.
    Text(MessageTemplate),
    /// A list.
    List(Vec<Payload>),
    /// A mapping; its keys are no templates.
    Map(Vec<(String, Payload)>),
}

impl Payload {
    /// Reads the setting.
    ///
    /// # Errors
    /// If a text is no valid template.
    fn read(node: &Node) -> Result<Self, Mistake> {
        if let Ok(text) = node.text() {
            return MessageTemplate::read(text)
                .map(Self::Text)
                .map_err(|error| node.mistake(error.to_string()));
        }
        if let Ok(items) = node.list() {
            let items = items.iter().map(Self::read).collect::<Result<_, _>>()?;
            return Ok(Self::List(items));
        }
        let pairs = node.pairs()?;
        let pairs = pairs.map(|(key, value)| Ok((key.to_owned(), Self::read(value)?)));
        Ok(Self::Map(pairs.collect::<Result<_, Mistake>>()?))
    }

    /// The body for a row.
    ///
    /// # Errors
    /// If a template fails.
    fn body(&self, templates: &MessageTemplates, row: &Row) -> Result<Value, String> {
        match self {
            Self::Text(template) => {
                let text = templates.run(template, &row.message, row.created_at);
                let text = text.map_err(|error| error.to_string())?;
                Ok(json_of(&text))
            }
            Self::List(items) => {
                let items = items.iter().map(|item| item.body(templates, row));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            Self::Map(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), value.body(templates, row)?)));
                Ok(Value::Object(pairs.collect::<Result<_, String>>()?))
            }
        }
    }
}

/// The result of a template: JSON if it is a number, a switch, a list or a mapping, else text.
fn json_of(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::String(_) | Value::Null) | Err(_) => Value::String(text.to_owned()),
        Ok(value) => value,
    }
}

/// A URL that gets messages as JSON.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The URL.
    pub url: String,
    /// Largest number of alerts in a body; 0 is no limit.
    pub alerts_max: usize,
    /// The body, if not Alertmanager's.
    pub payload: Option<Payload>,
    /// Templates that the payload may call.
    pub templates: Arc<MessageTemplates>,
}

impl HttpNotifier for Webhook {
    fn request(&self, row: &Row) -> HttpRequest {
        let own = self
            .payload
            .as_ref()
            .map(|payload| payload.body(&self.templates, row));
        let body = match own {
            Some(Ok(body)) => body,
            Some(Err(error)) => {
                tracing::warn!(
                    error,
                    "the webhook's payload template failed; sending the default body"
                );
                row.message.webhook_body(self.alerts_max)
            }
            None => row.message.webhook_body(self.alerts_max),
        };
        HttpRequest {
            url: self.url.clone(),
            headers: vec![
                ("Content-Type", "application/json".to_owned()),
                ("Idempotency-Key", row.id.to_string()),
            ],
            body: body.to_string(),
        }
    }

    fn outcome(&self, reply: &HttpReply) -> Outcome {
        by_status(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::row;
    use super::*;

    fn body(payload: &str) -> String {
        let webhook = Webhook {
            url: "http://x".to_owned(),
            alerts_max: 0,
            payload: Some(Payload::read(&Node::read(payload).unwrap()).unwrap()),
            templates: Arc::default(),
        };
        webhook.request(&row(1, "hot")).body
    }

    #[test]
    fn a_payload_is_json_whose_texts_are_templates() {
        let payload = "{summary: '{{ .Status }} {{ .GroupLabels.alertname }}', count: '{{ len \
             .Alerts }}', tags: [a, '{{ .Receiver }}'], deep: {on: true}, text: 'a: b: c'}";
        let expected = r#"{"count":1,"deep":{"on":true},"summary":"firing GpuHot","tags":["a","ops"],"text":"a: b: c"}"#;
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&body(payload)), value(expected));
        let default = body("{summary: '{{ .NoField }}'}");
        assert!(
            default.contains("\"version\":\"4\""),
            "a template that fails: {default}"
        );
        let mistake = Payload::read(&Node::read("{a: ['{{ .Broken']}").unwrap());
        assert!(mistake.is_err());
    }
}
