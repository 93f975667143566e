//! The configured body of a webhook.

use crate::outbox::Row;
use crate::template::{MessageTemplate, MessageTemplates};
use crate::yaml::{Mistake, Node};
use serde_json::Value;

/// The configured body: JSON whose texts are templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// A number, a switch or null.
    Fixed(Value),
    /// A text. If it is YAML of another type, such as `5`, `["a"]` or `a: b`, that is sent.
    Text(MessageTemplate),
    /// A list.
    List(Vec<Payload>),
    /// A mapping; its keys are templates, too.
    Map(Vec<(MessageTemplate, Payload)>),
}

impl Payload {
    /// Reads the setting.
    ///
    /// # Errors
    /// If a text is not a valid template.
    pub(super) fn read(node: &Node) -> Result<Self, Mistake> {
        let template = |text: &str| {
            MessageTemplate::read(text).map_err(|error| node.mistake(error.to_string()))
        };

        // A value without quotes in the file, such as `5`, is no text and needs no template.
        if let Ok(text) = node.text() {
            return match json(node) {
                Value::String(_) => template(text).map(Self::Text),
                fixed => Ok(Self::Fixed(fixed)),
            };
        }

        if let Ok(items) = node.list() {
            let items = items.iter().map(Self::read).collect::<Result<_, _>>()?;
            return Ok(Self::List(items));
        }

        let pairs = node
            .pairs()?
            .map(|(key, value)| Ok((template(key)?, Self::read(value)?)));
        Ok(Self::Map(pairs.collect::<Result<_, Mistake>>()?))
    }

    /// The body for a row.
    ///
    /// # Errors
    /// If a template fails.
    pub(super) fn body(&self, templates: &MessageTemplates, row: &Row) -> Result<Value, String> {
        let run = |template| {
            templates
                .run(template, &row.message, row.created_at)
                .map_err(|error| error.to_string())
        };

        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Text(template) => run(template).map(json_of),
            Self::List(items) => {
                let items = items
                    .iter()
                    .map(|item| item.body(templates, row))
                    .collect::<Result<_, _>>()?;
                Ok(Value::Array(items))
            }
            Self::Map(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| Ok((run(key)?, value.body(templates, row)?)))
                    .collect::<Result<_, String>>()?;
                Ok(Value::Object(pairs))
            }
        }
    }
}

/// The result of a template, read as YAML; a text stays as it is, also one with a YAML tag (`!`).
fn json_of(text: String) -> Value {
    // A tag such as `!x` would be read and dropped, although the text begins with it.
    if text.trim_start().starts_with('!') {
        return Value::String(text);
    }
    match Node::read(&text).map(|node| json(&node)) {
        // A quoted text keeps its quotes, as in Alertmanager.
        Ok(Value::String(_)) | Err(_) => Value::String(text),
        Ok(value) => value,
    }
}

/// The value of a node, with the types of YAML 1.1 as Go's yaml.v2 reads them. Times stay text.
fn json(node: &Node) -> Value {
    // The order counts: a text without quotes may be a number, a text in quotes never is.
    if let Some(text) = node.plain() {
        return scalar(text);
    }
    if let Ok(text) = node.text() {
        return text.into();
    }
    if let Ok(items) = node.list() {
        return items.iter().map(json).collect();
    }
    node.pairs()
        .into_iter()
        .flatten()
        .map(|(key, node)| (key.to_owned(), json(node)))
        .collect()
}

/// The value of a text without quotes.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return true.into();
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return false.into();
        }
        _ => {}
    }
    // Words that Rust reads as numbers, such as `inf`, are text.
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return text.into();
    }

    // YAML 1.1 allows `_` in numbers, and `010` is eight.
    let plain = text.replace('_', "");
    let (is_negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };

    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        // A zero in front means octal, unless the digits say otherwise: `08` is read as a decimal below.
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };

    let is_number = digits.starts_with(|c: char| c.is_ascii_alphanumeric());
    match i128::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_number)
    {
        // A number beyond 64 bits becomes one with a fraction, as in Go.
        Some(number) if is_negative => match i64::try_from(-number) {
            Ok(number) => return number.into(),
            Err(_) => return whole(-number as f64),
        },
        Some(number) => match u64::try_from(number) {
            Ok(number) => return number.into(),
            Err(_) => return whole(number as f64),
        },
        None => {}
    }

    let is_float = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match plain.parse::<f64>() {
        Ok(number) if is_float && number.is_finite() => whole(number),
        _ => text.into(),
    }
}

/// A number without a fraction is written without `.0`, as in Go.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        (number as i64).into()
    } else {
        number.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies of Alertmanager 0.34 with the same payload.
    #[test]
    fn texts_are_read_as_yaml() {
        for (text, expected) in [
            ("5", "5"),
            ("-0x10", "-16"),
            ("010", "8"),
            ("08", "8"),
            ("1_000", "1000"),
            ("1e3", "1000"),
            (".5", "0.5"),
            ("1.2.3", r#""1.2.3""#),
            ("inf", r#""inf""#),
            ("1e400", r#""1e400""#),
            ("# comment", "null"),
            ("yes", "true"),
            ("Off", "false"),
            ("", "null"),
            ("~", "null"),
            ("[a, 1]", r#"["a",1]"#),
            ("a: b", r#"{"a":"b"}"#),
            ("a: {b: 'c: d'}", r#"{"a":{"b":"c: d"}}"#),
            ("a: b: c", r#""a: b: c""#),
            ("node g01 is down", r#""node g01 is down""#),
            ("!x y", r#""!x y""#),
            ("'quoted'", r#""'quoted'""#),
            ("2026-11-23T10:00:00Z", r#""2026-11-23T10:00:00Z""#),
        ] {
            assert_eq!(json_of(text.to_owned()).to_string(), expected, "{text}");
        }
    }
}
