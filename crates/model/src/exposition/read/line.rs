//! Lines of a page: samples, comments and metadata, in each format.

use super::exemplar;
use super::number::{parse_int, parse_value};
use super::series::{Cursor, quoted_end, split_series, trim_blank};
use super::{Fact, Help, Metadata, MetricType, SyntaxError};
use crate::Timestamp;
use crate::exposition::Format;
use memchr::memchr2;

pub(super) enum ParsedLine<'a> {
    Sample(&'a [u8], f64, Option<Timestamp>, &'a [u8]),
    Metadata(Metadata<'a>),
    Nothing,
    End,
}

pub(super) fn text_line(line: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
    let line = trim_blank(line);
    let Some(&first) = line.first() else {
        return Ok(ParsedLine::Nothing);
    };
    if first == b'#' {
        return text_comment(&line[1..]);
    }

    let (series, rest) = split_series(line, Format::Text)?;
    let (value, rest) = split_token(trim_blank(rest));
    let value = parse_value(value)?;

    let rest = trim_blank(rest);
    if rest.is_empty() {
        return Ok(ParsedLine::Sample(series, value, None, b""));
    }

    let (token, rest) = split_token(rest);
    let at = parse_int(token).ok_or(SyntaxError {
        expected: "a timestamp in milliseconds",
        found: token,
    })?;

    match trim_blank(rest) {
        [] => Ok(ParsedLine::Sample(series, value, Some(Timestamp(at)), b"")),
        found => Err(SyntaxError {
            expected: "the end of the line after the timestamp",
            found,
        }),
    }
}

/// Parses the text after `#`. Lines other than `HELP` and `TYPE` are comments.
pub(super) fn text_comment(comment: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
    let (word, rest) = split_token(trim_blank(comment));
    let rest = trim_blank(rest);
    // As in Prometheus, `#HELP` without a blank is a comment.
    let is_free = !comment.starts_with(b" ") && !comment.starts_with(b"\t");
    match word {
        b"HELP" | b"TYPE" if !is_free && !rest.is_empty() => metadata(word, rest, Format::Text),
        _ => Ok(ParsedLine::Nothing),
    }
}

pub(super) fn openmetrics_line(line: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
    if let Some(comment) = line.strip_prefix(b"# ") {
        if comment == b"EOF" {
            return Ok(ParsedLine::End);
        }
        let (word, rest) = split_token(comment);
        return match (word, rest) {
            (b"HELP" | b"TYPE" | b"UNIT", [b' ', rest @ ..]) => {
                metadata(word, rest, Format::OpenMetrics)
            }
            // OpenMetrics has no free comments, unlike the text format.
            _ => Err(SyntaxError {
                expected: "HELP, TYPE, UNIT or EOF",
                found: comment,
            }),
        };
    }

    let (series, rest) = split_series(line, Format::OpenMetrics)?;
    let (value, rest) = split_token(one_space(rest, "a value")?);
    let value = parse_value(value)?;
    let (at, rest) = openmetrics_timestamp(rest)?;

    let exemplar = if rest.is_empty() {
        rest
    } else {
        one_space(rest, "an exemplar")?
    };

    // Parsed later and only on demand, but a malformed one makes the page invalid, as in
    // Prometheus.
    if !exemplar.is_empty() {
        exemplar::check(exemplar)?;
    }

    Ok(ParsedLine::Sample(series, value, at, exemplar))
}

/// Parses a space and seconds since 1970, if present.
pub(super) fn openmetrics_timestamp(
    rest: &[u8],
) -> Result<(Option<Timestamp>, &[u8]), SyntaxError<'_>> {
    if rest.is_empty() || rest.starts_with(b" #") {
        return Ok((None, rest));
    }

    let (token, rest) = split_token(one_space(rest, "a timestamp in seconds")?);
    let wrong = SyntaxError {
        expected: "a timestamp in seconds",
        found: token,
    };

    let seconds = parse_value(token).map_err(|_| wrong)?;
    if !seconds.is_finite() {
        return Err(wrong);
    }
    // The conversion ends at the limits of i64. The store drops a sample that is far from now.
    Ok((Some(Timestamp((seconds * 1e3).round() as i64)), rest))
}

/// Parses metadata. `word` is `HELP`, `TYPE` or `UNIT`; `rest` begins with the metric's name.
pub(super) fn metadata<'a>(
    word: &'a [u8],
    rest: &'a [u8],
    format: Format,
) -> Result<ParsedLine<'a>, SyntaxError<'a>> {
    let is_quoted = rest.starts_with(b"\"");
    let (metric, text) = if is_quoted {
        let end = quoted_end(rest).ok_or(SyntaxError {
            expected: "a closing quote",
            found: rest,
        })?;
        (&rest[1..end - 1], &rest[end..])
    } else {
        let mut cursor = Cursor { rest, format };
        match cursor.bare_name(true) {
            b"" => {
                return Err(SyntaxError {
                    expected: "a metric name",
                    found: rest,
                });
            }
            name => (name, cursor.rest),
        }
    };

    let text = match (format, text) {
        (Format::Text, _) => trim_blank(text),
        (Format::OpenMetrics, [b' ', text @ ..]) => text,
        (Format::OpenMetrics, _) => {
            return Err(SyntaxError {
                expected: "one space after the metric's name",
                found: text,
            });
        }
    };

    let fact = match word {
        b"HELP" => Fact::Help(Help(text, format)),
        b"TYPE" => Fact::Type(MetricType::parse(text.trim_ascii_end(), format).ok_or(
            SyntaxError {
                expected: "a metric type",
                found: text,
            },
        )?),
        // `# UNIT` may have an empty unit.
        _ if text.is_empty()
            || metric
                .strip_suffix(text)
                .is_some_and(|name| name.ends_with(b"_")) =>
        {
            Fact::Unit(text)
        }
        _ => {
            return Err(SyntaxError {
                expected: "a unit that ends the metric's name",
                found: text,
            });
        }
    };

    Ok(ParsedLine::Metadata(Metadata {
        metric,
        is_quoted,
        fact,
    }))
}

pub(super) fn one_space<'a>(
    rest: &'a [u8],
    expected: &'static str,
) -> Result<&'a [u8], SyntaxError<'a>> {
    rest.strip_prefix(b" ").ok_or(SyntaxError {
        expected,
        found: rest,
    })
}

pub(super) fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(memchr2(b' ', b'\t', text).unwrap_or(text.len()))
}
