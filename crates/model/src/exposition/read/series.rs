//! Series on a page: a metric name and labels, in their formats.

use super::SyntaxError;
use crate::exposition::Format;
use crate::{Labels, METRIC_NAME};
use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// Splits a sample's line after the series. In the text format the value may follow at once:
/// `up{}1`, `up-1`.
pub(super) fn split_series(line: &[u8], format: Format) -> Result<(&[u8], &[u8]), SyntaxError<'_>> {
    let mut cursor = Cursor { rest: line, format };
    let name = cursor.bare_name(true).len();
    if name == 0 && line.first() != Some(&b'{') {
        return Err(SyntaxError {
            expected: "a metric name",
            found: line,
        });
    }

    cursor.skip_blank();
    let brace = line.len() - cursor.rest.len();
    // The blanks belong to the value then, so the split is after the name.
    if line.get(brace) != Some(&b'{') {
        return Ok(line.split_at(name));
    }

    // A brace within quotes does not end the labels, so quoted texts are skipped as a whole.
    let mut at = brace + 1;
    loop {
        let wrong = SyntaxError {
            expected: "a closing `}` after the labels",
            found: &line[brace..],
        };

        at += memchr2(b'"', b'}', &line[at..]).ok_or(wrong)?;
        if line[at] == b'}' {
            return Ok(line.split_at(at + 1));
        }

        at += quoted_end(&line[at..]).ok_or(SyntaxError {
            expected: "a closing quote",
            found: &line[at..],
        })?;
    }
}

/// Position after the closing quote of a quoted text.
pub(super) fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text[at] {
            b'"' => return Some(at + 1),
            // A backslash takes the byte after it, even a quote.
            _ => at += 2,
        }
    }
}

pub(super) fn parse_series(series: &[u8], format: Format) -> Result<Labels, SyntaxError<'_>> {
    let mut cursor = Cursor {
        rest: series,
        format,
    };
    let mut labels = Labels::new();
    // Prometheus refuses a page that repeats a label; the last value would win here without notice.
    let mut set = |name: &str, value: &str, found| match labels.get(name) {
        Some(_) => Err(SyntaxError {
            expected: "each label once",
            found,
        }),
        None => {
            labels.set(name, value);
            Ok(())
        }
    };

    let name = cursor.bare_name(true);
    if !name.is_empty() {
        set(METRIC_NAME, &String::from_utf8_lossy(name), series)?;
    }

    cursor.skip_blank();
    if cursor.rest.first() == Some(&b'{') {
        cursor.take(b'{', "`{`")?;
        parse_labels(&mut cursor, |name, value| match name {
            Name::Metric(raw) => set(METRIC_NAME, &unquote(raw)?, series),
            Name::Label(raw) if raw.starts_with(b"\"") => {
                set(&unquote(raw)?, &unquote(value)?, series)
            }
            Name::Label(raw) => set(&String::from_utf8_lossy(raw), &unquote(value)?, series),
        })?;
    }

    match (cursor.rest, labels.metric()) {
        ([], "") => Err(SyntaxError {
            expected: "a metric name",
            found: series,
        }),
        ([], _) => Ok(labels),
        (found, _) => Err(SyntaxError {
            expected: "a metric name",
            found,
        }),
    }
}

pub(super) fn emptied_labels(
    series: &[u8],
    format: Format,
) -> Result<Vec<String>, SyntaxError<'_>> {
    let mut cursor = Cursor {
        rest: series,
        format,
    };

    let mut emptied = Vec::new();
    cursor.bare_name(true);
    cursor.skip_blank();
    if cursor.rest.first() == Some(&b'{') {
        cursor.take(b'{', "`{`")?;
        parse_labels(&mut cursor, |name, value| {
            // The value is compared with its quotes, so that full values are not decoded.
            if let (Name::Label(raw), b"\"\"") = (name, value) {
                let is_quoted = raw.starts_with(b"\"");
                emptied.push(
                    if is_quoted {
                        unquote(raw)?
                    } else {
                        String::from_utf8_lossy(raw)
                    }
                    .into_owned(),
                );
            }
            Ok(())
        })?;
    }

    Ok(emptied)
}

pub(super) enum Name<'a> {
    /// A quoted metric name among the labels.
    Metric(&'a [u8]),
    /// A label name, bare or quoted.
    Label(&'a [u8]),
}

/// Parses labels up to and including the closing brace. Passes names and values on unparsed.
pub(super) fn parse_labels<'a>(
    cursor: &mut Cursor<'a>,
    mut each: impl FnMut(Name<'a>, &'a [u8]) -> Result<(), SyntaxError<'a>>,
) -> Result<(), SyntaxError<'a>> {
    loop {
        cursor.skip_blank();
        if cursor.rest.first() == Some(&b'}') {
            return cursor.take(b'}', "`}`");
        }

        let is_quoted = cursor.rest.first() == Some(&b'"');
        let name = if is_quoted {
            cursor.quoted()?
        } else {
            cursor.bare_name(false)
        };
        if name.is_empty() || name == b"\"\"" {
            return Err(SyntaxError {
                expected: "a label name",
                found: cursor.rest,
            });
        }

        cursor.skip_blank();
        // `{"my.metric", a="b"}`: a quoted name without a value is the metric's.
        let is_metric = is_quoted && matches!(cursor.rest.first(), Some(b',' | b'}'));
        if is_metric {
            each(Name::Metric(name), b"")?;
        } else {
            cursor.take(b'=', "`=` after the label's name")?;
            cursor.skip_blank();
            each(Name::Label(name), cursor.quoted()?)?;
            cursor.skip_blank();
        }

        match (cursor.rest.first(), cursor.format) {
            (Some(b'}'), _) => {}
            // As in Prometheus: the text format needs no comma between two labels.
            (Some(b'"' | b'_' | b'a'..=b'z' | b'A'..=b'Z'), Format::Text) if !is_metric => {}
            _ => cursor.take(b',', "`,` or `}` after the label")?,
        }
    }
}

pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
    pub(super) format: Format,
}

impl<'a> Cursor<'a> {
    /// Skips blanks. OpenMetrics allows none around labels.
    pub(super) fn skip_blank(&mut self) {
        if self.format == Format::Text {
            self.rest = trim_blank(self.rest);
        }
    }

    pub(super) fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError<'a>> {
        match self.rest.split_first() {
            Some((&first, rest)) if first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(SyntaxError {
                expected,
                found: self.rest,
            }),
        }
    }

    pub(super) fn bare_name(&mut self, is_metric: bool) -> &'a [u8] {
        let end = (0..self.rest.len()).find(|&at| !is_name_byte(self.rest[at], at, is_metric));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    /// Parses a quoted text and returns it with its quotes.
    pub(super) fn quoted(&mut self) -> Result<&'a [u8], SyntaxError<'a>> {
        if self.rest.first() != Some(&b'"') {
            return Err(SyntaxError {
                expected: "a value in quotes",
                found: self.rest,
            });
        }

        let end = quoted_end(self.rest).ok_or(SyntaxError {
            expected: "a closing quote",
            found: self.rest,
        })?;

        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(text)
    }
}

pub(in crate::exposition) fn is_name_byte(byte: u8, at: usize, is_metric: bool) -> bool {
    byte.is_ascii_alphabetic()
        || byte == b'_'
        || (byte == b':' && is_metric)
        || (byte.is_ascii_digit() && at > 0)
}

/// Removes the quotes and resolves `\\`, `\"` and `\n`.
pub(super) fn unquote(quoted: &[u8]) -> Result<Cow<'_, str>, SyntaxError<'_>> {
    let inner = &quoted[1..quoted.len() - 1];
    let text = std::str::from_utf8(inner).map_err(|_| SyntaxError {
        expected: "valid UTF-8",
        found: inner,
    })?;
    Ok(unescape(text, ESCAPED))
}

pub(super) fn unescape<'t>(text: &'t str, escapes: &str) -> Cow<'t, str> {
    if memchr(b'\\', text.as_bytes()).is_none() {
        return text.into();
    }

    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some(escaped)) if escapes.contains(escaped) => {
                out.push(if escaped == 'n' { '\n' } else { escaped });
                chars.next();
            }
            // An unknown escape such as `\d` stays as it is, as in Prometheus.
            _ => out.push(c),
        }
    }
    out.into()
}

pub(super) fn trim_blank(text: &[u8]) -> &[u8] {
    let blank = text
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    &text[blank..]
}

/// Characters that a backslash escapes in a label value.
pub(super) const ESCAPED: &str = "\\n\"";
