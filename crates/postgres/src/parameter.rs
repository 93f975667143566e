//! Inserts the parameters of prepared statements as literals.
//!
//! A parameter without a type from the client must have the meaning of an untyped literal in its
//! place. A literal has this meaning; a value that DuckDB binds already has a type.

use super::dialect::array_items;
use super::token::{Kind, Token};
use jiff::Timestamp;
use pgwire::api::Type;
use takt_store::quoted;

/// The reason why a parameter is unusable.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// The statement needs more parameters than the client sent.
    #[error("the parameter ${0} is missing")]
    Missing(usize),
    /// The bytes are not a value of the type.
    #[error("the parameter ${at} is not a value of type {kind}")]
    Value {
        /// Number of the parameter.
        at: usize,
        /// Type of the parameter.
        kind: String,
    },
    /// Takt does not support the binary form of the type.
    #[error(
        "the parameter ${at} is of type {kind}, which is not supported in binary; send it as text"
    )]
    Binary {
        /// Number of the parameter.
        at: usize,
        /// Type of the parameter.
        kind: String,
    },
}

/// A parameter as received.
#[derive(Debug, Clone, Copy)]
pub struct Parameter<'a> {
    /// The value; `None` for NULL.
    pub bytes: Option<&'a [u8]>,
    /// Whether the value is in the binary format.
    pub binary: bool,
    /// The type from the client.
    pub kind: Option<&'a Type>,
}

/// Returns the highest parameter number of a statement.
pub fn count(statement: &[Token<'_>]) -> usize {
    statement
        .iter()
        .filter(|token| token.kind == Kind::Parameter)
        .filter_map(|token| token.text[1..].parse().ok())
        .max()
        .unwrap_or(0)
}

/// Returns a literal for each parameter.
///
/// # Errors
/// If a value is malformed, or its type is unsupported.
pub fn literals(parameters: &[Parameter<'_>]) -> Result<Vec<String>, ParameterError> {
    let literals = parameters
        .iter()
        .enumerate()
        .map(|(at, parameter)| literal(at + 1, *parameter));
    // Without the parentheses, `1 -$1` could become a comment.
    literals
        .map(|text| {
            text.map(|text| {
                if text.starts_with('-') {
                    format!("({text})")
                } else {
                    text
                }
            })
        })
        .collect()
}

/// Returns the statement with its parameters inserted. The literals must live as long as the
/// tokens.
///
/// # Errors
/// If a parameter has no literal.
pub fn bind<'a>(
    statement: &[Token<'a>],
    literals: &'a [String],
) -> Result<Vec<Token<'a>>, ParameterError> {
    statement
        .iter()
        .map(|token| match token.kind {
            Kind::Parameter => {
                let number: usize = token.text[1..].parse().unwrap_or(0);
                let text = number
                    .checked_sub(1)
                    .and_then(|at| literals.get(at))
                    .ok_or(ParameterError::Missing(number))?;
                // Only an untyped text can be translated further (`$1::regclass`); other literals
                // stay whole.
                let kind = if text.starts_with('\'') && text.ends_with('\'') {
                    Kind::Text
                } else {
                    Kind::Number
                };
                Ok(Token { kind, text })
            }
            _ => Ok(*token),
        })
        .collect()
}

fn literal(at: usize, parameter: Parameter<'_>) -> Result<String, ParameterError> {
    let kind = parameter.kind.unwrap_or(&Type::UNKNOWN);
    let wrong = || ParameterError::Value {
        at,
        kind: kind.name().to_owned(),
    };

    let Some(bytes) = parameter.bytes else {
        return Ok(null(kind));
    };
    if parameter.binary {
        return from_binary(bytes, kind).ok_or_else(|| {
            if is_known(kind) {
                wrong()
            } else {
                ParameterError::Binary {
                    at,
                    kind: kind.name().to_owned(),
                }
            }
        });
    }
    let text = std::str::from_utf8(bytes)
        .ok()
        // PostgreSQL's texts have no zero byte, and DuckDB's lexer would end at it.
        .filter(|text| !text.contains('\0'))
        .ok_or_else(wrong)?;
    from_text(text, kind).ok_or_else(wrong)
}

/// Returns NULL with a cast to a type; without a cast if the type is unknown.
pub fn null(kind: &Type) -> String {
    match name(kind) {
        Some(name) => format!("NULL::{name}"),
        None => "NULL".to_owned(),
    }
}

/// Returns DuckDB's name of a type; `None` for texts and unknown types.
fn name(kind: &Type) -> Option<&'static str> {
    Some(match *kind {
        Type::BOOL => "BOOLEAN",
        Type::INT2 => "SMALLINT",
        Type::INT4 => "INTEGER",
        Type::INT8 | Type::OID => "BIGINT",
        Type::FLOAT4 => "FLOAT",
        Type::FLOAT8 => "DOUBLE",
        Type::NUMERIC => "DECIMAL(38, 10)",
        Type::TIMESTAMP | Type::TIMESTAMPTZ => "TIMESTAMP",
        Type::DATE => "DATE",
        Type::TIME => "TIME",
        Type::INTERVAL => "INTERVAL",
        Type::UUID => "UUID",
        Type::BYTEA => "BLOB",
        Type::INT2_ARRAY => "SMALLINT[]",
        Type::INT4_ARRAY => "INTEGER[]",
        Type::INT8_ARRAY => "BIGINT[]",
        Type::FLOAT8_ARRAY => "DOUBLE[]",
        Type::TEXT_ARRAY | Type::VARCHAR_ARRAY => "VARCHAR[]",
        _ => return None,
    })
}

/// Returns the type that clients see for a parameter of a DuckDB type.
pub fn reported_type(name: Option<&str>) -> Type {
    match name {
        Some("BOOLEAN") => Type::BOOL,
        Some("TINYINT" | "SMALLINT" | "UTINYINT") => Type::INT2,
        Some("INTEGER" | "USMALLINT") => Type::INT4,
        Some("BIGINT" | "UINTEGER") => Type::INT8,
        Some("UBIGINT" | "HUGEINT" | "UHUGEINT" | "DECIMAL") => Type::NUMERIC,
        Some("FLOAT") => Type::FLOAT4,
        Some("DOUBLE") => Type::FLOAT8,
        Some("TIMESTAMP" | "TIMESTAMP_S" | "TIMESTAMP_MS" | "TIMESTAMP_NS") => Type::TIMESTAMP,
        Some("DATE") => Type::DATE,
        Some("TIME") => Type::TIME,
        Some("INTERVAL") => Type::INTERVAL,
        Some("UUID") => Type::UUID,
        Some("BLOB") => Type::BYTEA,
        _ => Type::TEXT,
    }
}

fn is_known(kind: &Type) -> bool {
    name(kind).is_some() || is_text(kind)
}

fn is_text(kind: &Type) -> bool {
    matches!(
        *kind,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::JSON
    )
}

fn from_text(text: &str, kind: &Type) -> Option<String> {
    Some(match *kind {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            text.trim().parse::<i64>().ok()?.to_string()
        }
        Type::FLOAT4 | Type::FLOAT8 => double(parse_double(text)?),
        Type::NUMERIC => match text.trim() {
            // As written, because a double would lose digits. The parse only shows that it is a
            // plain number.
            digits if digits.parse::<f64>().is_ok_and(f64::is_finite) => digits.to_owned(),
            // A number of too many digits is no infinity.
            digits if digits.contains(|c: char| c.is_ascii_digit()) => return None,
            word => double(parse_double(word)?),
        },
        Type::BOOL => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" => "TRUE".to_owned(),
            "f" | "false" | "0" | "off" | "no" => "FALSE".to_owned(),
            _ => return None,
        },
        Type::BYTEA => {
            // PostgreSQL's older escape format is not read; drivers send hexadecimal digits since
            // 9.0.
            let digits = text.strip_prefix("\\x")?;
            let bytes = (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
            blob(&bytes.collect::<Option<Vec<u8>>>()?)
        }
        // The offset is applied here, because DuckDB would ignore it.
        Type::TIMESTAMPTZ => timestamp(parse_instant(text)?.as_microsecond()),
        ref kind if kind.name().starts_with('_') => {
            let items: Vec<String> = array_items(text)?
                .into_iter()
                .map(|item| item.map_or_else(|| "NULL".to_owned(), |item| quoted(&item)))
                .collect();
            let list = format!("[{}]", items.join(", "));
            name(kind).map_or_else(|| list.clone(), |name| format!("{list}::{name}"))
        }
        ref kind => match name(kind) {
            Some(name) => format!("{}::{name}", quoted(text)),
            None => quoted(text),
        },
    })
}

fn from_binary(bytes: &[u8], kind: &Type) -> Option<String> {
    Some(match *kind {
        Type::INT2 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::INT4 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::INT8 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::OID => u32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        Type::FLOAT4 => double(f32::from_be_bytes(bytes.try_into().ok()?).into()),
        Type::FLOAT8 => double(f64::from_be_bytes(bytes.try_into().ok()?)),
        Type::BOOL => if *bytes.first()? == 0 {
            "FALSE"
        } else {
            "TRUE"
        }
        .to_owned(),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => timestamp(
            i64::from_be_bytes(bytes.try_into().ok()?)
                .checked_add(super::encode::EPOCH_MICROSECONDS)?,
        ),
        Type::DATE => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?)
                .checked_add(super::encode::EPOCH_DAYS)?;
            format!("(DATE '1970-01-01' + {days})")
        }
        Type::TIME => format!(
            "(TIME '00:00:00' + to_microseconds({}))",
            i64::from_be_bytes(bytes.try_into().ok()?)
        ),
        Type::UUID => {
            let digits: String = <[u8; 16]>::try_from(bytes)
                .ok()?
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("'{digits}'::UUID")
        }
        Type::BYTEA => blob(bytes),
        Type::NUMERIC => numeric(bytes)?,
        ref kind if is_text(kind) => quoted(
            std::str::from_utf8(bytes)
                .ok()
                .filter(|text| !text.contains('\0'))?,
        ),
        // The items have the type in the array's own head, which must not be trusted to be the
        // parameter's.
        ref kind if kind.name().starts_with('_') => {
            let (items, of) = binary_items(bytes)?;
            let items = items.into_iter().map(|item| {
                item.map_or_else(|| Some("NULL".to_owned()), |item| from_binary(item, &of))
            });
            let list = format!("[{}]", items.collect::<Option<Vec<_>>>()?.join(", "));
            name(kind).map_or_else(|| list.clone(), |name| format!("{list}::{name}"))
        }
        _ => return None,
    })
}

/// Returns the items of an array of at most one dimension, and their type.
fn binary_items(bytes: &[u8]) -> Option<(Vec<Option<&[u8]>>, Type)> {
    let word = |at: usize| Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    // Words: dimensions, whether there are NULLs, the items' type, and per dimension length and
    // first index.
    let of = Type::from_oid(u32::try_from(word(8)?).ok()?)?;
    // PostgreSQL has no arrays of arrays. In a message that has them, each level would take a part of the stack.
    if of.name().starts_with('_') {
        return None;
    }
    let count = match word(0)? {
        0 => 0,
        1 => usize::try_from(word(12)?).ok()?,
        _ => return None,
    };
    // Without a reserve: the number comes from the client, and 2^31 items would be 32 GiB.
    let mut items = Vec::new();
    let mut at = 20;
    for _ in 0..count {
        let length = word(at)?;
        at += 4;
        items.push(match usize::try_from(length) {
            Ok(length) => {
                let item = bytes.get(at..at.checked_add(length)?)?;
                at += length;
                Some(item)
            }
            // A length of -1 means NULL.
            Err(_) => None,
        });
    }
    Some((items, of))
}

/// Decodes digits to the base of 10,000, as `encode` writes them.
fn numeric(bytes: &[u8]) -> Option<String> {
    let words: Vec<i16> = bytes
        .chunks_exact(2)
        .map(|pair| i16::from_be_bytes([pair[0], pair[1]]))
        .collect();
    let [count, weight, sign, places, digits @ ..] = words.as_slice() else {
        return None;
    };
    let count = usize::try_from(*count).ok()?;
    let places = usize::try_from(*places).ok()?;
    let digit = |power: i32| -> i16 {
        let at = i32::from(*weight) - power;
        usize::try_from(at)
            .ok()
            .filter(|at| *at < count)
            .and_then(|at| digits.get(at))
            .copied()
            .unwrap_or(0)
    };
    let sign = match *sign as u16 {
        0 => "",
        0x4000 => "-",
        0xC000 => return Some(double(f64::NAN)),
        0xD000 => return Some(double(f64::INFINITY)),
        0xF000 => return Some(double(f64::NEG_INFINITY)),
        _ => return None,
    };
    // Groups that the client left out are zeros.
    let whole: String = (0..=i32::from(*weight).max(0))
        .rev()
        .map(|power| format!("{:04}", digit(power)))
        .collect();
    let part: String = (1..=places.div_ceil(4) as i32)
        .map(|power| format!("{:04}", digit(-power)))
        .collect();
    let whole = whole.trim_start_matches('0');
    let part = part.get(..places)?;
    Some(format!(
        "{sign}{}{}{part}",
        if whole.is_empty() { "0" } else { whole },
        if places > 0 { "." } else { "" }
    ))
}

fn parse_double(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn double(x: f64) -> String {
    format!("'{x:e}'::DOUBLE")
}

fn blob(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("\\x{byte:02X}")).collect();
    format!("'{digits}'::BLOB")
}

fn timestamp(microseconds: i64) -> String {
    format!("make_timestamp({microseconds})")
}

/// Parses a time such as `2026-10-25 01:00:00.5+02`, also with `T` and `Z`. Without an offset it is
/// UTC.
pub fn parse_instant(text: &str) -> Option<Timestamp> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    let zone = time.find(['+', '-', 'Z']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone = match zone {
        "" | "Z" => "Z".to_owned(),
        // `+02`, as PostgreSQL prints full hours.
        hours if hours.len() == 3 => format!("{hours}:00"),
        other => other.to_owned(),
    };
    format!("{date}T{time}{zone}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    fn text(text: &str, kind: Type) -> Result<String, String> {
        let parameter = Parameter {
            bytes: Some(text.as_bytes()),
            binary: false,
            kind: Some(&kind),
        };
        literal(1, parameter).map_err(|error| error.to_string())
    }

    #[test]
    fn an_array_of_arrays_is_refused_however_deep() {
        let oid = Type::TEXT_ARRAY.oid();
        let mut array: Vec<u8> = Vec::new();
        for _ in 0..20_000 {
            let mut outer: Vec<u8> = Vec::new();
            for word in [1, 0, oid, 1, 1, array.len() as u32] {
                outer.extend(word.to_be_bytes());
            }
            // Only the heads are nested: whole copies of each level would take minutes.
            outer.extend(array.iter().take(4096));
            array = outer;
        }
        let parameter = Parameter {
            bytes: Some(&array),
            binary: true,
            kind: Some(&Type::TEXT_ARRAY),
        };
        assert!(literal(1, parameter).is_err());
    }

    #[test]
    fn a_text_becomes_a_literal_of_its_type() {
        for (given, kind, expected) in [
            ("it's", Type::UNKNOWN, "'it''s'"),
            ("-7", Type::INT4, "-7"),
            ("1.50", Type::NUMERIC, "1.50"),
            ("NaN", Type::FLOAT8, "'NaN'::DOUBLE"),
            ("NaN", Type::NUMERIC, "'NaN'::DOUBLE"),
            ("Infinity", Type::NUMERIC, "'inf'::DOUBLE"),
            ("-Infinity", Type::NUMERIC, "'-inf'::DOUBLE"),
            ("t", Type::BOOL, "TRUE"),
            (
                "2026-10-01 00:00:00",
                Type::TIMESTAMP,
                "'2026-10-01 00:00:00'::TIMESTAMP",
            ),
            (
                "1970-01-01 02:00:00+02:00",
                Type::TIMESTAMPTZ,
                "make_timestamp(0)",
            ),
            (
                "1970-01-01 00:00:00.5+00",
                Type::TIMESTAMPTZ,
                "make_timestamp(500000)",
            ),
            ("\\x00ff", Type::BYTEA, "'\\x00\\xFF'::BLOB"),
            ("{1,NULL}", Type::INT4_ARRAY, "['1', NULL]::INTEGER[]"),
        ] {
            assert_eq!(
                text(given, kind.clone()).unwrap(),
                expected,
                "{given} {kind}"
            );
        }
        assert_eq!(
            text("x", Type::INT4).unwrap_err(),
            "the parameter $1 is not a value of type int4"
        );
        assert_eq!(
            text("1e400", Type::NUMERIC).unwrap_err(),
            "the parameter $1 is not a value of type numeric"
        );
        assert_eq!(
            text("a\0b", Type::TEXT).unwrap_err(),
            "the parameter $1 is not a value of type text"
        );
    }

    #[test]
    fn binary_says_the_same() {
        let binary = |bytes: &[u8], kind: Type| {
            let parameter = Parameter {
                bytes: Some(bytes),
                binary: true,
                kind: Some(&kind),
            };
            literal(1, parameter).map_err(|error| error.to_string())
        };
        assert_eq!(binary(&(-7_i64).to_be_bytes(), Type::INT8).unwrap(), "-7");
        assert_eq!(
            binary(&0_i64.to_be_bytes(), Type::TIMESTAMPTZ).unwrap(),
            "make_timestamp(946684800000000)"
        );
        assert_eq!(
            // Two groups, 12 and 500, of which the first has weight 0; negative; four places.
            binary(&[0, 2, 0, 0, 0x40, 0, 0, 4, 0, 12, 1, 244], Type::NUMERIC).unwrap(),
            "-12.0500"
        );
        for (sign, expected) in [
            (0xC0, "'NaN'::DOUBLE"),
            (0xD0, "'inf'::DOUBLE"),
            (0xF0, "'-inf'::DOUBLE"),
        ] {
            let sent = binary(&[0, 0, 0, 0, sign, 0, 0, 0], Type::NUMERIC);
            assert_eq!(sent.unwrap(), expected);
        }
        assert_eq!(
            binary(&[1], Type::INT8).unwrap_err(),
            "the parameter $1 is not a value of type int8"
        );
        assert!(
            binary(&[1], Type::POINT)
                .unwrap_err()
                .contains("send it as text")
        );
        let array = [
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1][..],
            &[0, 0, 0, 4, 0, 0, 0, 9],
        ]
        .concat();
        assert_eq!(binary(&array, Type::INT4_ARRAY).unwrap(), "[9]::INTEGER[]");
    }

    #[test]
    fn a_literal_cannot_leave_its_quotes() {
        let statement = tokens("SELECT $1, '$1', $2");
        let literals = [text("'; DROP", Type::TEXT).unwrap(), "2".to_owned()];
        let bound = bind(&statement, &literals).unwrap();
        assert_eq!(
            bound.iter().map(|token| token.text).collect::<String>(),
            "SELECT '''; DROP', '$1', 2"
        );
        assert_eq!(count(&statement), 2);
        assert_eq!(
            bind(&statement, &literals[..1]).unwrap_err().to_string(),
            "the parameter $2 is missing"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in collection::vec(any::<u8>(), 0..40),
            binary: bool,
            oid in prop::sample::select(vec![16, 17, 20, 21, 23, 25, 26, 700, 701, 1007, 1009, 1082, 1083, 1114, 1184, 1700, 2950]),
        ) {
            let kind = Type::from_oid(oid);
            let _ = literal(
                1,
                Parameter {
                    bytes: Some(&bytes),
                    binary,
                    kind: kind.as_ref(),
                },
            );
        }
    }
}
