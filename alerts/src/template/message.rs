//! Templates of messages: Alertmanager's `templates` files and the texts in its receivers.

use super::parse::{Defines, Part, parse};
use super::value::{Value, fail};
use super::{Dialect, RouteLabel, TemplateError, World, eval, example, time};
use crate::message::{Message, MessageAlert, Status};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use takt_model::{Labels, Timestamp};

/// Alertmanager's predefined templates, with Takt's texts.
const READY: &str = include_str!("ready.tmpl");

static READY_DEFINES: LazyLock<Defines> = LazyLock::new(|| {
    parse(READY, Dialect::Messages)
        .map(|(_, defines)| defines)
        .unwrap_or_default()
});

/// Templates that messages may call by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageTemplates(Defines);

/// A text of a receiver, such as Slack's `title`.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageTemplate {
    body: Vec<Part>,
    defines: Defines,
}

impl MessageTemplates {
    /// Adds the templates of a file; they replace templates of the same name.
    ///
    /// # Errors
    /// If the file is not a valid template file.
    pub fn add(&mut self, text: &str) -> Result<(), TemplateError> {
        self.0.extend(parse(text, Dialect::Messages)?.1);
        Ok(())
    }

    /// The template's text for a message at `now`.
    ///
    /// # Errors
    /// If the template fails.
    pub fn run(
        &self,
        template: &MessageTemplate,
        message: &Message,
        now: Timestamp,
    ) -> Result<String, TemplateError> {
        self.evaluate(template, message, now, false)
    }

    /// Like [`run`](Self::run), for HTML: printed values are escaped, unless `safeHtml` comes last.
    ///
    /// # Errors
    /// If the template fails.
    pub fn run_html(
        &self,
        template: &MessageTemplate,
        message: &Message,
        now: Timestamp,
    ) -> Result<String, TemplateError> {
        self.evaluate(template, message, now, true)
    }

    /// Runs all branches of a template for invented messages, and returns an error that does not depend
    /// on the message.
    ///
    /// # Errors
    /// If the template uses an unknown member or template, or a function with a wrong number of
    /// arguments.
    pub fn check(&self, template: &MessageTemplate) -> Result<(), TemplateError> {
        for message in example::messages() {
            let route_label = |_: &str| Ok(String::new());
            let world = World {
                external_url: &message.external_url,
                query: None,
                at: Timestamp::from_seconds(1_000_000),
                is_html: false,
                route_label: Some(&route_label),
            };

            let dot = data(&message)?;
            // The template's own definitions first, then the site's files, then the predefined ones.
            let defines = [&template.defines, &self.0, &*READY_DEFINES];
            let known = vec![("$", dot.clone())];
            eval::rehearse(&template.body, &defines, &world, &dot, known)?;
        }
        Ok(())
    }

    fn evaluate(
        &self,
        template: &MessageTemplate,
        message: &Message,
        now: Timestamp,
        is_html: bool,
    ) -> Result<String, TemplateError> {
        let route_label = |name: &str| {
            Ok(message
                .route_labels
                .get(name)
                .unwrap_or_default()
                .to_owned())
        };
        self.evaluate_with(template, message, now, is_html, &route_label)
    }

    fn evaluate_with(
        &self,
        template: &MessageTemplate,
        message: &Message,
        now: Timestamp,
        is_html: bool,
        route_label: &RouteLabel<'_>,
    ) -> Result<String, TemplateError> {
        let world = World {
            external_url: &message.external_url,
            query: None,
            at: now,
            is_html,
            route_label: Some(route_label),
        };
        let dot = data(message)?;
        let defines = [&template.defines, &self.0, &*READY_DEFINES];
        eval::run(
            &template.body,
            &defines,
            &world,
            &dot,
            vec![("$", dot.clone())],
        )
    }
}

/// Runs the templates in the labels of a message's route. A label may name others with
/// `routeLabels`.
struct RouteLabels<'a> {
    templates: &'a MessageTemplates,
    message: &'a Message,
    now: Timestamp,
    /// Texts of the labels that have been run.
    done: RefCell<BTreeMap<String, String>>,
    /// Labels that are being run, the outermost first.
    busy: RefCell<Vec<String>>,
}

impl RouteLabels<'_> {
    /// The text of a label; empty if the route has no such label.
    fn text(&self, name: &str) -> Result<String, TemplateError> {
        let source = self.message.route_labels.get(name).unwrap_or_default();
        if !source.contains("{{") {
            return Ok(source.to_owned());
        }

        // A label that several others name is run once.
        if let Some(text) = self.done.borrow().get(name) {
            return Ok(text.clone());
        }
        // Labels that name each other would never end.
        if self.busy.borrow().iter().any(|outer| outer == name) {
            let names = self.busy.borrow().join(" -> ");
            return fail(format!(
                "the route's labels name each other: {names} -> {name}"
            ));
        }

        let template = MessageTemplate::read(source)?;
        self.busy.borrow_mut().push(name.to_owned());
        let text = self.templates.evaluate_with(
            &template,
            self.message,
            self.now,
            false,
            &|name: &str| self.text(name),
        );
        self.busy.borrow_mut().pop();

        let text = text?;
        self.done.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text)
    }
}

impl MessageTemplates {
    /// The labels of the message's route with their templates replaced by texts. A label whose
    /// template fails is left out, as in Alertmanager, and logged.
    pub fn route_labels(&self, message: &Message, now: Timestamp) -> Labels {
        let labels = RouteLabels {
            templates: self,
            message,
            now,
            done: RefCell::default(),
            busy: RefCell::default(),
        };

        message
            .route_labels
            .iter()
            .filter_map(|(name, _)| {
                let text = labels.text(name).inspect_err(|error| {
                    tracing::warn!(label = name, %error, "the template of a route's label failed");
                });
                Some((name.to_owned(), text.ok()?))
            })
            .collect()
    }
}

impl MessageTemplate {
    /// Reads a text.
    ///
    /// # Errors
    /// If the text is not a valid template.
    pub fn read(text: &str) -> Result<Self, TemplateError> {
        parse(text, Dialect::Messages).map(|(body, defines)| Self { body, defines })
    }
}

/// The data of a message for Alertmanager's templates.
fn data(message: &Message) -> Result<Value<'_>, TemplateError> {
    let kv = |labels| Value::Kv(Cow::Borrowed(labels));
    let alerts = message.alerts.iter().map(alert).collect::<Result<_, _>>()?;
    Ok(Value::fields(
        "the message",
        vec![
            ("Receiver", Value::text(message.quoted_receiver())),
            ("Status", status(message.status)),
            ("NotificationReason", Value::text(message.reason.words())),
            ("Alerts", Value::list(alerts)),
            ("GroupLabels", kv(&message.group_labels)),
            ("CommonLabels", kv(&message.common_labels)),
            ("CommonAnnotations", words(&message.common_annotations)),
            ("RouteLabels", kv(&message.route_labels)),
            ("GroupKey", Value::text(message.group_key.as_str())),
            ("ExternalURL", Value::text(message.external_url.as_str())),
        ],
    ))
}

fn alert(alert: &MessageAlert) -> Result<Value<'_>, TemplateError> {
    // An alert that fires has no end.
    let ends_at = match alert.ends_at {
        Some(end) => Value::time(end)?,
        None => Value::Time(time::zero()?),
    };
    Ok(Value::fields(
        "an alert",
        vec![
            ("Status", status(alert.status)),
            ("Labels", Value::Kv(Cow::Borrowed(&alert.labels))),
            ("Annotations", words(&alert.annotations)),
            ("StartsAt", Value::time(alert.starts_at)?),
            ("EndsAt", ends_at),
            ("GeneratorURL", Value::text(alert.generator_url.as_str())),
            ("Fingerprint", Value::text(alert.fingerprint.to_string())),
        ],
    ))
}

fn status(status: Status) -> Value<'static> {
    Value::text(match status {
        Status::Firing => "firing",
        Status::Resolved => "resolved",
    })
}

fn words(words: &BTreeMap<String, String>) -> Value<'static> {
    Value::Kv(Cow::Owned(words.iter().collect::<Labels>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_values_can_be_read() {
        let defines = parse(READY, Dialect::Messages).unwrap().1;
        assert!(
            defines.contains_key("slack.default.title") && READY_DEFINES.len() == defines.len()
        );
    }
}
