//! A generic webhook: Alertmanager's body (version 4), or a configured `payload`.

use super::channels::ChannelContext;
use super::http::{HttpChannel, HttpNotifier, HttpReply, HttpRequest, NextStep, by_status};
use super::http_config::address;
use super::payload::Payload;
use super::{Notifier, NotifierKind, no_split};
use crate::outbox::{Outcome, Row};
use crate::template::{MessageTemplate, MessageTemplates};
use crate::yaml::{Mistake, Node};
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
        url: Url::read(settings, url)?,
        alerts_max: fields.or_default("max_alerts", Node::number)?,
        payload: fields.optional("payload", Payload::read)?,
        templates: Arc::clone(&context.templates),
    };

    let sender = context.http_sender(settings, context.http_options(settings)?)?;
    Ok(Box::new(HttpChannel::new(webhook, sender)))
}

/// The address that gets the messages.
#[derive(Debug, Clone, PartialEq)]
pub enum Url {
    /// An address.
    Fixed(String),
    /// A template whose text is the address.
    Template(MessageTemplate),
}

impl Url {
    /// Reads the setting.
    ///
    /// # Errors
    /// If the text is neither an HTTP address nor a valid template.
    fn read(settings: &Node, text: String) -> Result<Self, Mistake> {
        if text.contains("{{") {
            return MessageTemplate::read(&text)
                .map(Self::Template)
                .map_err(|error| settings.mistake(error.to_string()));
        }
        address(settings, text).map(Self::Fixed)
    }

    /// The address for a row.
    ///
    /// # Errors
    /// If the template fails, or its text is no HTTP address.
    fn of(&self, templates: &MessageTemplates, row: &Row) -> Result<String, String> {
        match self {
            Self::Fixed(url) => Ok(url.clone()),
            Self::Template(template) => {
                let url = templates
                    .run(template, &row.message, row.created_at)
                    .map_err(|error| error.to_string())?;
                address(&Node::empty(), url).map_err(|mistake| mistake.what)
            }
        }
    }
}

/// A URL that gets messages as JSON.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The URL.
    pub url: Url,
    /// Largest number of alerts in a body; 0 is no limit.
    pub alerts_max: usize,
    /// The body, if not Alertmanager's.
    pub payload: Option<Payload>,
    /// Templates that the payload may call.
    pub templates: Arc<MessageTemplates>,
}

impl HttpNotifier for Webhook {
    fn request(&self, row: &Row) -> HttpRequest {
        // `next` has refused a row whose address cannot be made.
        let url = self.url.of(&self.templates, row).unwrap_or_default();
        let own = self
            .payload
            .as_ref()
            .map(|payload| payload.body(&self.templates, row));
        let body = match own {
            Some(Ok(body)) => body,
            // The alert is worth more than its form.
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
            url,
            headers: vec![
                ("Content-Type", "application/json".to_owned()),
                // A receiver can drop a message that comes twice after a crash.
                ("Idempotency-Key", row.id.to_string()),
            ],
            body: body.to_string(),
        }
    }

    fn outcome(&self, reply: &HttpReply) -> Outcome {
        by_status(reply)
    }

    fn next(&self, row: &Row, _thread: Option<&str>, replies: &[HttpReply]) -> NextStep {
        // A template of the address may depend on the alert, so each row is checked.
        match (replies.last(), self.url.of(&self.templates, row)) {
            (Some(reply), _) => NextStep::Done(self.outcome(reply)),
            (None, Ok(_)) => NextStep::Post(self.request(row)),
            (None, Err(error)) => NextStep::Done(Outcome::GiveUp {
                error: format!("the template of `url`: {error}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::row;
    use super::*;

    fn body(payload: &str) -> String {
        let webhook = Webhook {
            url: Url::Fixed("http://x".to_owned()),
            alerts_max: 0,
            payload: Some(Payload::read(&Node::read(payload).unwrap()).unwrap()),
            templates: Arc::default(),
        };
        webhook.request(&row(1, "hot")).body
    }

    #[test]
    fn the_address_may_be_a_template() {
        let webhook = |url: &str| {
            let url = Url::read(&Node::empty(), url.to_owned());
            url.map(|url| Webhook {
                url,
                alerts_max: 0,
                payload: None,
                templates: Arc::default(),
            })
        };

        let next = |url| webhook(url).unwrap().next(&row(1, "hot"), None, &[]);
        let NextStep::Post(request) = next("http://x/{{ .GroupLabels.alertname }}?s={{ .Status }}")
        else {
            panic!("no request");
        };
        assert_eq!(request.url, "http://x/GpuHot?s=firing");
        // No such field, and a text that is no address.
        for wrong in ["http://x/{{ .NoField }}", "{{ .Status }}"] {
            let NextStep::Done(Outcome::GiveUp { error }) = next(wrong) else {
                panic!("{wrong} has an address");
            };
            assert!(error.starts_with("the template of `url`: "), "{error}");
        }

        for wrong in ["http://x/{{ .Broken", "ftp://x", ""] {
            assert!(webhook(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_payload_is_json_whose_texts_are_templates() {
        let payload = "{summary: '{{ .Status }} {{ .GroupLabels.alertname }}', count: '{{ len \
             .Alerts }}', tags: [a, '{{ .Receiver }}'], deep: {'{{ .Status }}': true}, text: 'a: b: c', '1': ~}";
        let expected = r#"{"1":null,"count":1,"deep":{"firing":true},"summary":"firing GpuHot","tags":["a","ops"],"text":"a: b: c"}"#;
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
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
