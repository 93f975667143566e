//! Exemplars of OpenMetrics: an example of what a sample counts, such as the trace of a request.

use super::SyntaxError;
use super::line::{one_space, openmetrics_timestamp, split_token};
use super::number::parse_value;
use super::series::{Cursor, Name, parse_labels, unquote};
use crate::exposition::Format;
use crate::{Labels, Timestamp};

/// An exemplar as written behind a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Labels that identify the example, such as `trace_id`.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// Time of the observation, if the target sent one.
    pub at: Option<Timestamp>,
}

/// Checks the syntax of an exemplar.
pub(super) fn check(text: &[u8]) -> Result<(), SyntaxError<'_>> {
    each_label(text, |_, _| Ok(())).map(drop)
}

/// Parses an exemplar.
pub(super) fn parse(text: &[u8]) -> Result<Exemplar, SyntaxError<'_>> {
    let mut labels = Labels::new();
    let (value, at) = each_label(text, |name, value| {
        let value = unquote(value)?;
        if name.starts_with(b"\"") {
            labels.set(&unquote(name)?, &value);
        } else {
            labels.set(&String::from_utf8_lossy(name), &value);
        }
        Ok(())
    })?;
    Ok(Exemplar { labels, value, at })
}

/// Passes the labels on, and returns the value and the time.
fn each_label<'a>(
    text: &'a [u8],
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), SyntaxError<'a>>,
) -> Result<(f64, Option<Timestamp>), SyntaxError<'a>> {
    let labels = text.strip_prefix(b"# ").ok_or(SyntaxError {
        expected: "an exemplar",
        found: text,
    })?;

    let mut cursor = Cursor {
        rest: labels,
        format: Format::OpenMetrics,
    };
    cursor.take(b'{', "`{` of the exemplar's labels")?;
    parse_labels(&mut cursor, |name, value| match name {
        // A quoted name without a value would be a metric, which only samples have.
        Name::Metric(found) => Err(SyntaxError {
            expected: "a label",
            found,
        }),
        Name::Label(name) => each(name, value),
    })?;

    let (value, rest) = split_token(one_space(cursor.rest, "the exemplar's value")?);
    let value = parse_value(value)?;
    match openmetrics_timestamp(rest)? {
        (at, []) => Ok((value, at)),
        (_, found) => Err(SyntaxError {
            expected: "the end of the line after the exemplar",
            found,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_value_and_time() {
        let exemplar = parse(br#"# {trace_id="a\"b","x.y"="1"} 0.5 1.25"#).unwrap();
        let labels = [("trace_id", "a\"b"), ("x.y", "1")];
        assert_eq!(exemplar.labels, labels.into_iter().collect());
        assert_eq!(exemplar.value, 0.5);
        assert_eq!(exemplar.at, Some(Timestamp(1250)));
        assert_eq!(parse(b"# {} 1").unwrap().at, None);
    }
}
