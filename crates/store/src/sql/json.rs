//! Converts query results to JSON.

use super::Rows;
use super::cell::{Cell, ResultSet, cell};
use duckdb::arrow::array::Array;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;
use std::io::{self, Write};

/// Converts the rows of a result.
pub(super) fn rows(answer: &ResultSet) -> Rows {
    Rows {
        columns: columns(answer),
        rows: each_row(answer).collect(),
        truncated: answer.truncated(),
    }
}

/// Writes a result as [`rows`] would be written, one row at a time: as values, they take many times
/// the memory of the result.
///
/// # Errors
/// If `out` fails.
pub fn write_rows(answer: &ResultSet, mut out: impl Write) -> io::Result<()> {
    out.write_all(br#"{"columns":"#)?;
    serde_json::to_writer(&mut out, &columns(answer))?;
    out.write_all(br#","rows":["#)?;
    for (at, row) in each_row(answer).enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut out, &row)?;
    }
    write!(out, r#"],"truncated":{}}}"#, answer.truncated())
}

fn columns(answer: &ResultSet) -> Vec<String> {
    let fields = answer.schema().fields();
    fields.iter().map(|field| field.name().clone()).collect()
}

fn each_row(answer: &ResultSet) -> impl Iterator<Item = Vec<Value>> {
    answer.batches().iter().flat_map(|batch| {
        (0..batch.num_rows()).map(|row| {
            batch
                .columns()
                .iter()
                .map(|column| json(cell(column, row)))
                .collect()
        })
    })
}

/// Converts a value. Numbers that JSON cannot represent exactly become strings.
pub fn json(value: Cell<'_>) -> Value {
    // Readers in JavaScript and many others take numbers as doubles, which lose digits above this.
    const EXACT: i128 = 1 << 53;
    match value {
        Cell::Null => Value::Null,
        Cell::Bool(b) => b.into(),
        Cell::Int(n) => match i64::try_from(n) {
            Ok(small) if n.abs() <= EXACT => small.into(),
            _ => n.to_string().into(),
        },
        Cell::Decimal(n, scale) => match decimal(n, scale).parse::<f64>() {
            Ok(x) if n.abs() <= EXACT => number(x),
            _ => decimal(n, scale).into(),
        },
        Cell::Float(x) => number(x.into()),
        Cell::Double(x) => number(x),
        Cell::Text(text) => text.into(),
        Cell::Bytes(bytes) => bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into(),
        // A time that no calendar has stays a number.
        Cell::Timestamp(n) => {
            Timestamp::from_microsecond(n).map_or_else(|_| n.into(), |at| at.to_string().into())
        }
        Cell::Date(days) => {
            let day = Date::constant(1970, 1, 1).checked_add(jiff::Span::new().days(days));
            day.map_or_else(|_| days.into(), |day| day.to_string().into())
        }
        Cell::Time(n) => clock(n).into(),
        Cell::Interval {
            months,
            days,
            microseconds,
        } => span(months, days, microseconds).into(),
        Cell::List(items) => (0..items.len())
            .map(|at| json(cell(items.as_ref(), at)))
            .collect(),
        Cell::Struct(fields) => fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json(value)))
            .collect(),
        Cell::Map(pairs) => pairs
            .into_iter()
            .map(|(key, value)| (key_text(key), json(value)))
            .collect(),
        Cell::Other(kind) => format!("a value of type {kind}").into(),
    }
}

fn key_text(key: Cell<'_>) -> String {
    // Keys of JSON are texts, so any other key takes its JSON form.
    match json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// JSON has no NaN and infinity; they become strings in Prometheus' spelling.
fn number(x: f64) -> Value {
    match serde_json::Number::from_f64(x) {
        Some(finite) => finite.into(),
        None if x.is_nan() => "NaN".into(),
        None => if x > 0.0 { "+Inf" } else { "-Inf" }.into(),
    }
}

/// Writes a decimal number with all its decimal places.
pub fn decimal(n: i128, scale: i8) -> String {
    let places = usize::try_from(scale).unwrap_or(0);

    // At least one digit stands in front of the point.
    let digits = format!("{:0>width$}", n.unsigned_abs(), width = places + 1);
    let (whole, part) = digits.split_at(digits.len() - places);
    let sign = if n < 0 { "-" } else { "" };
    if part.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{part}")
    }
}

/// Writes a time of day as `09:05:00`, with microseconds if they are not zero.
pub fn clock(microseconds: i64) -> String {
    let sign = if microseconds < 0 { "-" } else { "" };
    let seconds = microseconds.unsigned_abs() / 1_000_000;
    let part = microseconds.unsigned_abs() % 1_000_000;
    let text = format!(
        "{sign}{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    if part == 0 {
        text
    } else {
        format!("{text}.{part:06}").trim_end_matches('0').to_owned()
    }
}

/// Writes an interval like PostgreSQL: `1 mon 2 days 03:04:05`.
pub fn span(months: i32, days: i32, microseconds: i64) -> String {
    let mut parts = Vec::new();
    let mut part = |n: i32, one: &str, more: &str| {
        if n != 0 {
            parts.push(format!("{n} {}", if n == 1 { one } else { more }));
        }
    };
    part(months / 12, "year", "years");
    part(months % 12, "mon", "mons");
    part(days, "day", "days");

    // An empty interval is `00:00:00`, as in PostgreSQL.
    if microseconds != 0 || parts.is_empty() {
        parts.push(clock(microseconds));
    }
    parts.join(" ")
}
