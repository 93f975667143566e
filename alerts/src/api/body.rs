//! Reads request bodies as Alertmanager does. Invalid JSON and wrong types are 400; a missing
//! required field is 422 with code 602; another media type is 415. `null` is an empty value, and
//! text after the value is ignored.

use super::{Refusal, times};
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use takt_model::Timestamp;

/// Parses the body called `name`.
pub(super) fn read(name: &str, headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Refusal> {
    let sent = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        // Go's default for a request without a type, which is then refused.
        .unwrap_or("application/x-www-form-urlencoded");
    let media = sent.split(';').next().unwrap_or_default().trim();

    if bytes.is_empty() {
        return Err(Refusal::required(name));
    }
    if !media.eq_ignore_ascii_case("application/json") {
        let message =
            format!("unsupported media type {media:?}, only [application/json] are allowed");
        return Err(Refusal::coded(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            415,
            message,
        ));
    }
    // Only the first value counts; Alertmanager ignores what follows.
    serde_json::Deserializer::from_slice(bytes)
        .into_iter()
        .next()
        .unwrap_or(Ok(Value::Null))
        .map_err(|error| unread(name, error.to_string()))
}

/// The error for an invalid body called `name`.
fn unread(name: &str, why: String) -> Refusal {
    Refusal::coded(
        StatusCode::BAD_REQUEST,
        400,
        format!("parsing {name} body from \"\" failed, because {why}"),
    )
}

/// An object in a body.
pub(super) struct Object<'b> {
    /// Name of the whole body.
    name: &'static str,
    /// Path of the object in the body, with a dot at the end: `matchers.0.`
    place: String,
    fields: Option<&'b Map<String, Value>>,
}

impl<'b> Object<'b> {
    /// The object; `null` is an object without fields.
    pub(super) fn of(name: &'static str, place: String, value: &'b Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(fields) => Ok(Self {
                name,
                place,
                fields: Some(fields),
            }),
            Value::Null => Ok(Self {
                name,
                place,
                fields: None,
            }),
            other => Err(unread(name, format!("{} is not an object", found(other)))),
        }
    }

    /// A field; `None` if it is missing or `null`.
    fn get(&self, field: &str) -> Option<&'b Value> {
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// A field, read by `read`; its error names the expected type.
    fn field<T>(
        &self,
        field: &str,
        read: impl FnOnce(&'b Value) -> Result<T, &'static str>,
    ) -> Result<Option<T>, Refusal> {
        let wrong = |value: &Value, should| {
            unread(
                self.name,
                format!("{}{field} is {}, not {should}", self.place, found(value)),
            )
        };
        self.get(field)
            .map(|value| read(value).map_err(|should| wrong(value, should)))
            .transpose()
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'b str>, Refusal> {
        self.field(field, |value| value.as_str().ok_or("a text"))
    }

    pub(super) fn boolean(&self, field: &str) -> Result<Option<bool>, Refusal> {
        self.field(field, |value| value.as_bool().ok_or("true or false"))
    }

    pub(super) fn list(&self, field: &str) -> Result<Option<&'b [Value]>, Refusal> {
        self.field(field, |value| {
            value.as_array().map(Vec::as_slice).ok_or("a list")
        })
    }

    /// A mapping of texts; `null` is the empty text.
    pub(super) fn texts(&self, field: &str) -> Result<Option<BTreeMap<String, String>>, Refusal> {
        self.field(field, |value| {
            let pairs = value.as_object().ok_or("an object")?.iter();
            let text = |value: &Value| match value {
                Value::Null => Ok(String::new()),
                value => value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or("an object of texts"),
            };
            pairs
                .map(|(name, value)| Ok((name.clone(), text(value)?)))
                .collect()
        })
    }

    /// A time; the outer `None` is a missing field, the inner one is Go's zero time.
    pub(super) fn instant(&self, field: &str) -> Result<Option<Option<Timestamp>>, Refusal> {
        self.text(field)?
            .map(|text| times::read(Some(text)).map_err(|error| unread(self.name, error)))
            .transpose()
    }

    /// A required field.
    pub(super) fn required<T>(&self, field: &str, value: Option<T>) -> Result<T, Refusal> {
        value.ok_or_else(|| Refusal::required(&format!("{}{field}", self.place)))
    }

    /// The error for a field of the right type with an invalid value.
    pub(super) fn invalid(&self, code: u32, field: &str, must: &str) -> Refusal {
        let message = format!("{}{field} in body {must}", self.place);
        Refusal::coded(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl Refusal {
    /// An error with one of Alertmanager's codes.
    pub(super) fn coded(status: StatusCode, code: u32, message: impl Into<String>) -> Self {
        Self(status, json!({"code": code, "message": message.into()}))
    }

    /// The error for a missing required field.
    pub(super) fn required(field: &str) -> Self {
        Self::coded(
            StatusCode::UNPROCESSABLE_ENTITY,
            602,
            format!("{field} in body is required"),
        )
    }
}
