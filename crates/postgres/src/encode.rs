//! Encodes values as PostgreSQL does, in text and in binary.

use duckdb::arrow::array::{Array, RecordBatch};
use duckdb::arrow::datatypes::{DataType, Schema};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use pgwire::api::Type;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::messages::data::DataRow;
use takt_store::sql::cell::{Cell, cell};
use takt_store::sql::json::{clock, decimal, json, span};

/// Microseconds from 1970 to 2000, PostgreSQL's epoch.
pub const EPOCH_MICROSECONDS: i64 = 946_684_800_000_000;
/// Days from 1970 to 2000.
pub const EPOCH_DAYS: i32 = 10_957;

/// Returns the columns of an answer with the formats from `format`.
pub fn fields(schema: &Schema, format: impl Fn(usize) -> FieldFormat) -> Vec<FieldInfo> {
    schema
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let kind = type_of(field.data_type());
            let size = size_of(&kind);
            FieldInfo::new(field.name().clone(), None, None, kind, format(at)).with_type_size(size)
        })
        .collect()
}

/// Returns PostgreSQL's type of a column. `pg.type_oid` in postgres.sql returns the same for the
/// catalog's columns.
fn type_of(kind: &DataType) -> Type {
    match kind {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Type::INT2,
        DataType::UInt16 | DataType::Int32 => Type::INT4,
        DataType::UInt32 | DataType::Int64 => Type::INT8,
        DataType::UInt64 | DataType::Decimal128(_, _) => Type::NUMERIC,
        DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Binary | DataType::LargeBinary => Type::BYTEA,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Date32 => Type::DATE,
        DataType::Time64(_) => Type::TIME,
        DataType::Interval(_) => Type::INTERVAL,
        DataType::Struct(_) | DataType::Map(_, _) => Type::JSON,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            match type_of(item.data_type()) {
                Type::BOOL => Type::BOOL_ARRAY,
                Type::INT2 => Type::INT2_ARRAY,
                Type::INT4 => Type::INT4_ARRAY,
                Type::INT8 => Type::INT8_ARRAY,
                Type::NUMERIC => Type::NUMERIC_ARRAY,
                Type::FLOAT4 => Type::FLOAT4_ARRAY,
                Type::FLOAT8 => Type::FLOAT8_ARRAY,
                Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
                Type::DATE => Type::DATE_ARRAY,
                Type::TEXT => Type::TEXT_ARRAY,
                _ => Type::JSON,
            }
        }
        _ => Type::TEXT,
    }
}

fn size_of(kind: &Type) -> i16 {
    match *kind {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => 8,
        Type::INTERVAL => 16,
        _ => -1,
    }
}

/// Encodes one row of an answer.
pub fn row(batch: &RecordBatch, at: usize, fields: &[FieldInfo]) -> DataRow {
    // Most values have fewer than 32 bytes, so one allocation is usually enough.
    let mut out = Vec::with_capacity(32 * fields.len());
    for (column, field) in batch.columns().iter().zip(fields) {
        let value = cell(column, at);
        put(&mut out, |out| match (value, field.format()) {
            (Cell::Null, _) => false,
            (value, FieldFormat::Text) => {
                out.extend_from_slice(text(&value, field.datatype()).as_bytes());
                true
            }
            (value, FieldFormat::Binary) => {
                binary(&value, field.datatype(), out);
                true
            }
        });
    }

    DataRow::new(
        out.as_slice().into(),
        i16::try_from(fields.len()).unwrap_or(i16::MAX),
    )
}

/// Writes a value after its length; the length of NULL is -1. `write` returns whether the value is
/// NULL.
fn put(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> bool) {
    let start = out.len();
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    if write(out) {
        let length = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Formats a value as PostgreSQL does.
fn text(value: &Cell<'_>, kind: &Type) -> String {
    match value {
        Cell::Null => String::new(),
        Cell::Bool(b) => if *b { "t" } else { "f" }.to_owned(),
        Cell::Int(n) => n.to_string(),
        Cell::Decimal(n, scale) => decimal(*n, *scale),
        Cell::Float(x) => float(f64::from(*x), format!("{x}"), format!("{x:e}")),
        Cell::Double(x) => float(*x, format!("{x}"), format!("{x:e}")),
        Cell::Text(text) => (*text).to_owned(),
        Cell::Bytes(bytes) => bytes
            .iter()
            .fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
        // All times are UTC.
        Cell::Timestamp(n) => match *kind {
            Type::TIMESTAMPTZ => format!("{}+00", instant(*n)),
            _ => instant(*n),
        },
        Cell::Date(days) => date(*days),
        Cell::Time(n) => clock(*n),
        Cell::Interval {
            months,
            days,
            microseconds,
        } => span(*months, *days, *microseconds),
        Cell::List(items) if *kind != Type::JSON => list(items.as_ref()),
        other => json(other.clone()).to_string(),
    }
}

fn float(x: f64, plain: String, scientific: String) -> String {
    if x.is_nan() {
        "NaN".to_owned()
    } else if x.is_infinite() {
        if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if x == 0.0 || (1e-4..1e15).contains(&x.abs()) {
        plain
    } else {
        // PostgreSQL writes 1e20 as 1e+20, and 1e-5 as 1e-05.
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, digits) = exponent
            .strip_prefix('-')
            .map_or(('+', exponent), |digits| ('-', digits));
        format!("{mantissa}e{sign}{digits:0>2}")
    }
}

fn instant(microseconds: i64) -> String {
    match Timestamp::from_microsecond(microseconds) {
        Ok(at) => at
            .to_zoned(TimeZone::UTC)
            .datetime()
            .to_string()
            .replacen('T', " ", 1),
        // DuckDB's infinite times are the ends of the range, which no calendar has.
        Err(_) => if microseconds > 0 {
            "infinity"
        } else {
            "-infinity"
        }
        .to_owned(),
    }
}

fn date(days: i32) -> String {
    let day = jiff::civil::Date::constant(1970, 1, 1).checked_add(jiff::Span::new().days(days));
    day.map_or_else(
        |_| if days > 0 { "infinity" } else { "-infinity" }.to_owned(),
        |day| day.to_string(),
    )
}

/// Formats a list: `{1,NULL,"a b"}`.
fn list(items: &dyn Array) -> String {
    let kind = type_of(items.data_type());

    let items = (0..items.len()).map(|at| match cell(items, at) {
        Cell::Null => "NULL".to_owned(),
        value => {
            let text = text(&value, &kind);
            // PostgreSQL's rule for quotes: without them, `NULL` and blanks would be read
            // otherwise.
            let bare = !text.is_empty()
                && !text.eq_ignore_ascii_case("null")
                && !text.contains(|c: char| c.is_whitespace() || "{}\",\\".contains(c));
            if bare {
                text
            } else {
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
        }
    });

    format!("{{{}}}", items.collect::<Vec<_>>().join(","))
}

/// Encodes a value in PostgreSQL's binary format.
fn binary(value: &Cell<'_>, kind: &Type, out: &mut Vec<u8>) {
    match (value, kind) {
        (Cell::Bool(b), _) => out.push(u8::from(*b)),
        // The casts lose nothing: `type_of` chose the type from the column's width.
        (Cell::Int(n), &Type::INT2) => out.extend_from_slice(&(*n as i16).to_be_bytes()),
        (Cell::Int(n), &Type::INT4) => out.extend_from_slice(&(*n as i32).to_be_bytes()),
        (Cell::Int(n), &Type::INT8) => out.extend_from_slice(&(*n as i64).to_be_bytes()),
        (Cell::Int(n), _) => numeric(*n, 0, out),
        (Cell::Decimal(n, scale), _) => numeric(*n, usize::try_from(*scale).unwrap_or(0), out),
        (Cell::Float(x), _) => out.extend_from_slice(&x.to_be_bytes()),
        (Cell::Double(x), _) => out.extend_from_slice(&x.to_be_bytes()),
        (Cell::Bytes(bytes), _) => out.extend_from_slice(bytes),
        (Cell::Timestamp(n), _) => {
            out.extend_from_slice(&n.saturating_sub(EPOCH_MICROSECONDS).to_be_bytes())
        }
        (Cell::Date(days), _) => {
            out.extend_from_slice(&days.saturating_sub(EPOCH_DAYS).to_be_bytes())
        }
        (Cell::Time(n), _) => out.extend_from_slice(&n.to_be_bytes()),
        (
            Cell::Interval {
                months,
                days,
                microseconds,
            },
            _,
        ) => {
            out.extend_from_slice(&microseconds.to_be_bytes());
            out.extend_from_slice(&days.to_be_bytes());
            out.extend_from_slice(&months.to_be_bytes());
        }
        (Cell::List(items), kind) if *kind != Type::JSON => binary_list(items.as_ref(), out),
        (other, kind) => out.extend_from_slice(text(other, kind).as_bytes()),
    }
}

/// Encodes an array of one dimension: the number of dimensions, whether it contains NULLs, the
/// items' type, their number, the first index, the items.
fn binary_list(items: &dyn Array, out: &mut Vec<u8>) {
    let kind = type_of(items.data_type());

    // An empty array has no dimension, and then neither a length nor a first index.
    let dimensions = i32::from(!items.is_empty());
    for n in [dimensions, i32::from(items.null_count() > 0)] {
        out.extend_from_slice(&n.to_be_bytes());
    }

    out.extend_from_slice(&kind.oid().to_be_bytes());
    if dimensions == 0 {
        return;
    }

    for n in [i32::try_from(items.len()).unwrap_or(i32::MAX), 1] {
        out.extend_from_slice(&n.to_be_bytes());
    }

    for at in 0..items.len() {
        put(out, |out| match cell(items, at) {
            Cell::Null => false,
            value => {
                binary(&value, &kind, out);
                true
            }
        });
    }
}

/// Encodes digits to the base of 10,000, the weight of the first, the sign, and the decimal places.
fn numeric(n: i128, places: usize, out: &mut Vec<u8>) {
    let text = decimal(
        n.unsigned_abs().min(i128::MAX as u128) as i128,
        i8::try_from(places).unwrap_or(0),
    );

    // Digits are grouped by four from the decimal point, so both sides are padded away from it.
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let padded = format!(
        "{:0>whole_width$}{:0<part_width$}",
        whole,
        part,
        whole_width = whole.len().div_ceil(4) * 4,
        part_width = part.len().div_ceil(4) * 4
    );

    let groups: Vec<i16> = padded
        .as_bytes()
        .chunks(4)
        .map(|group| {
            group
                .iter()
                .fold(0, |n, digit| n * 10 + i16::from(digit - b'0'))
        })
        .collect();

    // PostgreSQL leaves out groups of zeros at both ends.
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    let used = groups.len() - groups.iter().rev().take_while(|&&group| group == 0).count();
    let digits = groups.get(leading..used).unwrap_or_default();
    // The power of 10,000 of the first group; negative for a small fraction.
    let weight = if digits.is_empty() {
        0
    } else {
        whole.len().div_ceil(4) as i16 - 1 - leading as i16
    };

    let sign = if n < 0 { 0x4000_u16 as i16 } else { 0 };

    for n in [digits.len() as i16, weight, sign, places as i16]
        .iter()
        .chain(digits)
    {
        out.extend_from_slice(&n.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_postgresql_prints_them() {
        for (x, printed) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e20, "1e+20"),
            (1.5e-5, "1.5e-05"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(&Cell::Double(x), &Type::FLOAT8), printed);
        }
        assert_eq!(text(&Cell::Decimal(-1205, 2), &Type::NUMERIC), "-12.05");
    }

    #[test]
    fn instants_are_printed_in_utc() {
        assert_eq!(
            text(&Cell::Timestamp(1_500_000), &Type::TIMESTAMP),
            "1970-01-01 00:00:01.5"
        );
        assert_eq!(
            text(&Cell::Timestamp(0), &Type::TIMESTAMPTZ),
            "1970-01-01 00:00:00+00"
        );
        assert_eq!(
            text(&Cell::Timestamp(i64::MAX), &Type::TIMESTAMP),
            "infinity"
        );
        assert_eq!(text(&Cell::Date(-1), &Type::DATE), "1969-12-31");
        let span = Cell::Interval {
            months: 14,
            days: 1,
            microseconds: 61_000_000,
        };
        assert_eq!(text(&span, &Type::INTERVAL), "1 year 2 mons 1 day 00:01:01");
    }

    #[test]
    fn numerics_are_sent_in_groups_of_four_digits() {
        let sent = |n, places| {
            let mut out = Vec::new();
            numeric(n, places, &mut out);
            out.chunks(2)
                .map(|pair| i16::from_be_bytes([pair[0], pair[1]]))
                .collect::<Vec<_>>()
        };
        assert_eq!(sent(0, 0), [0, 0, 0, 0]);
        assert_eq!(sent(12_345, 0), [2, 1, 0, 0, 1, 2345]);
        assert_eq!(sent(-120_500, 4), [2, 0, 0x4000, 4, 12, 500]);
        // 0.00005: all groups before the second one after the point are zeros.
        assert_eq!(sent(5, 5), [1, -2, 0, 5, 5000]);
        assert_eq!(sent(10_000, 0), [1, 1, 0, 0, 1]);
    }
}
