//! The values of expressions in templates.

use super::number::print_float;
use super::{TemplateError, time};
use jiff::tz::TimeZone;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use takt_model::{Labels, Timestamp};

/// A value. Clones are cheap: large values are shared.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    /// A plain map of texts; missing keys are empty.
    Labels(Cow<'a, Labels>),
    /// A map of texts with the methods of message templates (`SortedPairs`, `Remove`, …).
    Kv(Cow<'a, Labels>),
    List(Rc<Vec<Value<'a>>>),
    Map(Rc<BTreeMap<String, Value<'a>>>),
    /// A struct: an alert, a sample, a pair.
    Fields(Rc<Fields<'a>>),
    /// A number with a name, by which it is printed: a month, a day of the week.
    Named(i64, String),
    Time(jiff::Zoned),
    Zone(TimeZone),
    Duration(jiff::SignedDuration),
}

/// A struct: its type and its fields.
#[derive(Debug)]
pub struct Fields<'a> {
    /// Name of the type, for error messages.
    pub kind: &'static str,
    /// The fields, in the order of printing.
    pub fields: Vec<(&'static str, Value<'a>)>,
}

pub(super) fn fail<T>(what: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError::new(what.into()))
}

/// A failure that no data avoids.
pub(super) fn mistake<T>(what: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError {
        text: what.into(),
        is_mistake: true,
    })
}

impl<'a> Value<'a> {
    pub(super) fn fields(kind: &'static str, fields: Vec<(&'static str, Value<'a>)>) -> Self {
        Self::Fields(Rc::new(Fields { kind, fields }))
    }

    pub(super) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(Rc::new(items))
    }

    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn time(at: Timestamp) -> Result<Self, TemplateError> {
        let at = jiff::Timestamp::try_from(at)
            .map_err(|_| TemplateError::new("a time that cannot be written".to_owned()))?;
        Ok(Self::Time(at.to_zoned(TimeZone::UTC)))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nil => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number with a fraction",
            Self::Text(_) => "text",
            Self::Labels(_) | Self::Kv(_) => "labels",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Fields(fields) => fields.kind,
            Self::Named(..) => "a named number",
            Self::Time(_) => "a time",
            Self::Zone(_) => "a time zone",
            Self::Duration(_) => "a duration",
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Labels(labels) | Self::Kv(labels) => !labels.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Named(number, _) => *number != 0,
            Self::Fields(_) | Self::Time(_) | Self::Zone(_) => true,
            Self::Duration(duration) => !duration.is_zero(),
        }
    }

    /// The keys and values that `range` iterates over.
    pub(super) fn items(&self) -> Result<Vec<(Value<'a>, Value<'a>)>, TemplateError> {
        let text = |text: &str| Value::Text(Cow::Owned(text.to_owned()));
        Ok(match self {
            Self::Nil => Vec::new(),
            Self::Int(count) => (0..*count)
                .map(|n| (Self::Int(n), Self::Int(n)))
                // Longer loops would only cost time: a message cannot show as many items.
                .take(10_000)
                .collect(),
            Self::Labels(labels) | Self::Kv(labels) => labels
                .iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            Self::List(items) => items
                .iter()
                .enumerate()
                .map(|(at, item)| (Self::Int(at as i64), item.clone()))
                .collect(),
            Self::Map(map) => map
                .iter()
                .map(|(name, value)| (text(name), value.clone()))
                .collect(),
            other => return fail(format!("`range` cannot walk over {}", other.name())),
        })
    }

    /// The text that Go prints with `%v`.
    pub(super) fn print(&self) -> Cow<'_, str> {
        let joined = |all: Vec<String>, before: &str, after: &str| {
            Cow::Owned(format!("{before}{}{after}", all.join(" ")))
        };

        match self {
            Self::Nil => Cow::Borrowed("<no value>"),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Float(value) => Cow::Owned(print_float(*value)),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Labels(labels) => joined(
                labels
                    .iter()
                    .map(|(name, value)| format!("{name}:{value}"))
                    .collect(),
                "map[",
                "]",
            ),
            // Alertmanager's own form of a set of pairs.
            Self::Kv(labels) => {
                let pairs: Vec<_> = sorted(labels)
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                Cow::Owned(pairs.join(", "))
            }
            Self::List(items) => joined(
                items.iter().map(|item| item.print().into_owned()).collect(),
                "[",
                "]",
            ),
            Self::Map(map) => joined(
                map.iter()
                    .map(|(name, value)| format!("{name}:{}", value.print()))
                    .collect(),
                "map[",
                "]",
            ),
            Self::Fields(all) => joined(
                all.fields
                    .iter()
                    .map(|(_, value)| value.print().into_owned())
                    .collect(),
                "{",
                "}",
            ),
            Self::Named(_, name) => Cow::Borrowed(name),
            Self::Time(at) => Cow::Owned(time::format(at, time::PRINTED)),
            Self::Zone(zone) => Cow::Owned(time::zone_name(zone)),
            Self::Duration(duration) => Cow::Owned(time::print_duration(*duration)),
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Nil => Json::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Labels(labels) | Self::Kv(labels) => labels
                .iter()
                .map(|(name, value)| (name.to_owned(), Json::from(value)))
                .collect(),
            Self::List(items) => items.iter().map(Value::json).collect(),
            Self::Map(map) => map
                .iter()
                .map(|(name, value)| (name.clone(), value.json()))
                .collect(),
            Self::Fields(all) => {
                // As in Go's tags: `GeneratorURL` becomes `generatorURL`, not `generatorUrl`.
                let name = |name: &str| match name.strip_suffix("URL") {
                    Some(before) => lower_first(before) + "URL",
                    None => lower_first(name),
                };
                all.fields
                    .iter()
                    .map(|(field, value)| (name(field), value.json()))
                    .collect()
            }
            Self::Named(number, _) => (*number).into(),
            Self::Time(at) => at.timestamp().to_string().into(),
            // In Go a zone has no public fields.
            Self::Zone(_) => Json::Object(serde_json::Map::new()),
            Self::Duration(duration) => i64::try_from(duration.as_nanos())
                .unwrap_or(i64::MAX)
                .into(),
            Self::Text(text) => text.as_ref().into(),
        }
    }
}

fn lower_first(name: &str) -> String {
    let mut chars = name.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().collect::<String>() + chars.as_str())
        .unwrap_or_default()
}

/// The pairs, the alert's name first, then sorted by name.
pub(super) fn sorted(labels: &Labels) -> Vec<(&str, &str)> {
    let mut pairs: Vec<_> = labels.iter().collect();
    pairs.sort_by_key(|(name, _)| *name != crate::rules::ALERT_NAME);
    pairs
}
