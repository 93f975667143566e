//! Go's `print`, `println` and `printf`.

use super::super::number::{fixed, print_float, scientific, significant};
use super::super::value::Value;

/// Go puts a space between two values unless one of them is text.
pub(super) fn print(args: &[Value<'_>]) -> String {
    let mut out = String::new();
    for (at, value) in args.iter().enumerate() {
        let is_text = |value: &Value<'_>| matches!(value, Value::Text(_));
        // As in Go, text on either side stands without a space.
        if at > 0 && !is_text(value) && !is_text(&args[at - 1]) {
            out.push(' ');
        }
        out.push_str(&value.print());
    }
    out
}

pub(super) fn print_line(args: &[Value<'_>]) -> String {
    let words: Vec<_> = args.iter().map(Value::print).collect();
    words.join(" ") + "\n"
}

/// Flags, width and precision between `%` and the verb.
#[derive(Default)]
struct Shape {
    left: bool,
    zeros: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
}

/// Largest width and precision of a verb, as in Go.
const WIDTH_MAX: usize = 1000;

pub(super) fn print_format(format: &str, args: &[Value<'_>]) -> String {
    let mut out = String::new();
    let mut rest = format;
    let mut used = 0;

    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (shape, behind) = shape(&rest[at + 1..]);
        let Some(verb) = behind.chars().next() else {
            out.push_str("%!(NOVERB)");
            return out;
        };

        rest = &behind[verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }

        match args.get(used) {
            Some(value) => out.push_str(&pad(&verb_text(verb, &shape, value), &shape, value)),
            None => out.push_str(&format!("%!{verb}(MISSING)")),
        }
        used += 1;
    }

    out.push_str(rest);
    // As in Go, a mistake in the format shows in the text and does not lose the message.
    if let Some(extra) = args.get(used..).filter(|extra| !extra.is_empty()) {
        let extra: Vec<_> = extra
            .iter()
            .map(|value| format!("{}={}", go_type(value), value.print()))
            .collect();
        out.push_str(&format!("%!(EXTRA {})", extra.join(", ")));
    }
    out
}

fn shape(text: &str) -> (Shape, &str) {
    let mut shape = Shape::default();
    let mut rest = text;
    loop {
        match rest.chars().next() {
            Some('-') => shape.left = true,
            Some('0') => shape.zeros = true,
            Some('+') => shape.plus = true,
            Some(' ' | '#') => {}
            _ => break,
        }
        rest = &rest[1..];
    }

    let digits = |text: &str| {
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len())
    };
    // As in Go, a wider field would only fill the message with spaces.
    let value = |digits: &str| digits.parse().unwrap_or(0).min(WIDTH_MAX);

    let end = digits(rest);
    shape.width = value(&rest[..end]);
    rest = &rest[end..];
    if let Some(behind) = rest.strip_prefix('.') {
        let end = digits(behind);
        shape.precision = Some(value(&behind[..end]));
        rest = &behind[end..];
    }
    (shape, rest)
}

fn verb_text(verb: char, shape: &Shape, value: &Value<'_>) -> String {
    let plus = |text: String, positive: bool| {
        if shape.plus && positive {
            format!("+{text}")
        } else {
            text
        }
    };

    match (verb, value) {
        ('v', value) => value.print().into_owned(),
        ('s', Value::Text(text)) => match shape.precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.to_string(),
        },
        ('q', Value::Text(text)) => format!("{text:?}"),
        // Bytes, as in Go.
        ('x', Value::Text(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('q', Value::Labels(_) | Value::Kv(_) | Value::List(_)) => value.print().into_owned(),
        (
            's' | 'x',
            Value::Labels(_)
            | Value::Kv(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Fields(_)
            | Value::Named(..)
            | Value::Time(_)
            | Value::Zone(_)
            | Value::Duration(_),
        ) => value.print().into_owned(),
        ('d', Value::Named(int, _)) => plus(int.to_string(), *int >= 0),
        ('d', Value::Duration(duration)) => {
            let nanos = duration.as_nanos();
            plus(nanos.to_string(), nanos >= 0)
        }
        ('d', Value::Int(int)) => plus(int.to_string(), *int >= 0),
        ('x', Value::Int(int)) => format!("{int:x}"),
        ('X', Value::Int(int)) => format!("{int:X}"),
        ('t', Value::Bool(value)) => value.to_string(),
        ('f' | 'F', Value::Float(v)) => plus(fixed(*v, shape.precision.unwrap_or(6)), *v >= 0.0),
        ('e', Value::Float(v)) => plus(scientific(*v, shape.precision.unwrap_or(6)), *v >= 0.0),
        ('g', Value::Float(v)) => plus(
            shape
                .precision
                .map_or_else(|| print_float(*v), |digits| significant(*v, digits)),
            *v >= 0.0,
        ),
        (verb, value) => format!("%!{verb}({}={})", go_type(value), value.print()),
    }
}

fn pad(text: &str, shape: &Shape, value: &Value<'_>) -> String {
    let missing = shape.width.saturating_sub(text.chars().count());
    // Zeros are put before the digits of a number, and never before text.
    let is_number = matches!(value, Value::Int(_) | Value::Float(_));
    match (missing, shape.left) {
        (0, _) => text.to_owned(),
        (missing, true) => text.to_owned() + &" ".repeat(missing),
        // The sign comes before the zeros.
        (missing, false) if shape.zeros && is_number => {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        (missing, false) => " ".repeat(missing) + text,
    }
}

fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Nil => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float64",
        Value::Text(_) => "string",
        Value::Labels(_) => "map[string]string",
        Value::Kv(_) => "template.KV",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
        Value::Fields(_) => "struct",
        Value::Named(..) => "time.Month",
        Value::Time(_) => "time.Time",
        Value::Zone(_) => "*time.Location",
        Value::Duration(_) => "time.Duration",
    }
}
