//! Parses exposition pages.
//!
//! A target returns nearly the same page at every scrape. The parser walks a page line by line
//! without copying. Its caller passes the series that probably comes next: a match replaces the
//! search for the end of the labels by one comparison, and only the value is parsed. The labels of
//! a series are parsed once ([`Sample::labels`]).
//!
//! It accepts the formats of Prometheus 3: text 0.0.4 with quoted UTF-8 names, and OpenMetrics 1.0
//! with exemplars and its closing `# EOF`.

mod exemplar;

pub use exemplar::Exemplar;

use super::Format;
use crate::{Labels, METRIC_NAME, Timestamp, normal_spelling, parse_float};
use memchr::{memchr, memchr2};
use std::borrow::Cow;
use std::fmt;

/// A page that cannot be parsed. One invalid line invalidates the whole page: half a page would
/// look like a healthy target that lost half its series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {found}")]
pub struct ReadError {
    /// Line, counted from 1.
    pub line: usize,
    /// Expected text.
    pub expected: &'static str,
    /// Actual text, truncated.
    pub found: String,
}

impl ReadError {
    fn new(line: usize, expected: &'static str, found: &[u8]) -> Self {
        const SHOWN: usize = 40;
        let text = String::from_utf8_lossy(&found[..found.len().min(4 * SHOWN)]);
        let found = match text.char_indices().nth(SHOWN) {
            _ if found.is_empty() => "the end of the line".to_owned(),
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        };
        Self {
            line,
            expected,
            found,
        }
    }
}

/// A line with content.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// Metadata of a metric: help, type or unit.
    Metadata(Metadata<'a>),
}

/// A sample as written in the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// The series as written, `name{label="value"}`. Equal texts are the same series.
    pub series: &'a [u8],
    /// Whether `series` is the text that the caller expected.
    pub as_expected: bool,
    /// The value.
    pub value: f64,
    /// Timestamp, if the target sent one.
    pub at: Option<Timestamp>,
    /// Line, counted from 1.
    pub line: usize,
    /// Format of `series`.
    format: Format,
    /// Type of the last `TYPE` line before the sample.
    kind: Option<MetricType>,
    /// The exemplar as written, from its `# `; empty if the sample has none.
    exemplar: &'a [u8],
}

impl Sample<'_> {
    /// Parses the series.
    ///
    /// # Errors
    /// If the text is invalid, repeats a label or lacks a metric name.
    pub fn labels(&self) -> Result<Labels, ReadError> {
        parse_series(self.series, self.format).map_err(|wrong| wrong.on_line(self.line))
    }

    /// Parses the series, with the number in `le` of a histogram or in `quantile` of a summary in
    /// its one spelling: `1.0` for `1`. As in Prometheus 3, the type is that of the last `TYPE`
    /// line, whichever metric it names.
    ///
    /// # Errors
    /// As [`Self::labels`].
    pub fn normal_labels(&self) -> Result<Labels, ReadError> {
        let mut labels = self.labels()?;
        let name = match self.kind {
            Some(MetricType::Histogram) => "le",
            Some(MetricType::Summary) => "quantile",
            _ => return Ok(labels),
        };
        if let Some(normal) = labels.get(name).and_then(normal_spelling) {
            labels.set(name, &normal);
        }
        Ok(labels)
    }

    /// The exemplar, if the sample has one and its labels are valid UTF-8.
    pub fn exemplar(&self) -> Option<Exemplar> {
        if self.exemplar.is_empty() {
            return None;
        }
        exemplar::parse(self.exemplar).ok()
    }

    /// Returns the names of labels with an empty value. [`Labels`] omits them, because an empty
    /// label equals an absent one. A federating server sets them to keep its own labels from being
    /// added.
    ///
    /// # Errors
    /// As [`Self::labels`].
    pub fn emptied_labels(&self) -> Result<Vec<String>, ReadError> {
        emptied_labels(self.series, self.format).map_err(|wrong| wrong.on_line(self.line))
    }
}

/// Metadata of one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metadata<'a> {
    /// The metric's name as written.
    metric: &'a [u8],
    /// The metadata.
    pub fact: Fact<'a>,
}

impl Metadata<'_> {
    /// Name of the metric. In OpenMetrics, the family of a counter lacks the `_total` of its
    /// samples.
    pub fn metric(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.metric)
    }
}

/// A piece of metadata.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fact<'a> {
    /// Help text.
    Help(Help<'a>),
    /// Type.
    Type(MetricType),
    /// Base unit, which is also the suffix of the name.
    Unit(&'a [u8]),
}

/// A help text, still escaped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Help<'a>(&'a [u8], Format);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only OpenMetrics escapes quotes in help texts.
        let escaped = if self.1 == Format::Text {
            "\\n"
        } else {
            ESCAPED
        };
        f.write_str(&unescape(&String::from_utf8_lossy(self.0), escaped))
    }
}

/// Characters that a backslash escapes in a label value.
const ESCAPED: &str = "\\n\"";

/// The types of both formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the formats' own")]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
    Summary,
    GaugeHistogram,
    StateSet,
    Info,
    Unknown,
}

impl MetricType {
    /// Name of the type in OpenMetrics and in Prometheus' API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::GaugeHistogram => "gaugehistogram",
            Self::StateSet => "stateset",
            Self::Info => "info",
            Self::Unknown => "unknown",
        }
    }

    fn parse(word: &[u8], format: Format) -> Option<Self> {
        Some(match (word, format) {
            (b"counter", _) => Self::Counter,
            (b"gauge", _) => Self::Gauge,
            (b"histogram", _) => Self::Histogram,
            (b"summary", _) => Self::Summary,
            (b"untyped", Format::Text) | (b"unknown", Format::OpenMetrics) => Self::Unknown,
            (b"gaugehistogram", Format::OpenMetrics) => Self::GaugeHistogram,
            (b"stateset", Format::OpenMetrics) => Self::StateSet,
            (b"info", Format::OpenMetrics) => Self::Info,
            _ => return None,
        })
    }
}

/// Parser of one page.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    format: Format,
    rest: &'a [u8],
    line: usize,
    ended: bool,
    /// Type of the last `TYPE` line.
    kind: Option<MetricType>,
}

impl<'a> Page<'a> {
    /// Returns a parser at the first line.
    pub fn new(format: Format, text: &'a [u8]) -> Self {
        Self {
            format,
            rest: text,
            line: 0,
            ended: false,
            kind: None,
        }
    }

    /// Unread text; it begins at a line.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of lines read.
    pub fn lines(&self) -> usize {
        self.line
    }

    /// Skips `bytes` at the start of [`rest`](Self::rest): `lines` lines that the caller has parsed
    /// before, in this format. `kind` is the type of the last `TYPE` line among them, if they have
    /// one.
    pub fn skip(&mut self, bytes: usize, lines: usize, kind: Option<MetricType>) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.line += lines;
        self.kind = kind.or(self.kind);
    }

    /// Returns the next line with content, or `None` at the end. `expected` is the text of the
    /// series that probably comes next. A wrong guess costs one comparison; an empty one costs
    /// nothing.
    ///
    /// # Errors
    /// At the first invalid line. The lines after it must not be used.
    #[inline]
    pub fn next_line(&mut self, expected: &[u8]) -> Result<Option<Line<'a>>, ReadError> {
        match self.next_expected(expected) {
            Some(sample) => Ok(Some(Line::Sample(sample))),
            None => self.next_unexpected(),
        }
    }

    /// Parses a line of `expected`, one space, a plain number and a line feed. Other lines take the
    /// general path.
    #[inline]
    fn next_expected(&mut self, expected: &[u8]) -> Option<Sample<'a>> {
        if expected.is_empty() || self.ended {
            return None;
        }
        let number = self.rest.strip_prefix(expected)?.strip_prefix(b" ")?;
        let (value, length) = decimal(number)?;
        let rest = number[length..].strip_prefix(b"\n")?;
        let series = &self.rest[..expected.len()];
        self.rest = rest;
        self.line += 1;
        Some(Sample {
            series,
            as_expected: true,
            value,
            at: None,
            line: self.line,
            format: self.format,
            kind: self.kind,
            exemplar: b"",
        })
    }

    fn next_unexpected(&mut self) -> Result<Option<Line<'a>>, ReadError> {
        while !self.rest.is_empty() && !self.ended {
            let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
            let line = &self.rest[..end];
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            self.line += 1;
            let said = match self.format {
                Format::Text => text_line(line),
                Format::OpenMetrics => openmetrics_line(line),
            };
            match said.map_err(|wrong| wrong.on_line(self.line))? {
                ParsedLine::Sample(series, value, at, exemplar) => {
                    let sample = Sample {
                        series,
                        as_expected: false,
                        value,
                        at,
                        line: self.line,
                        format: self.format,
                        kind: self.kind,
                        exemplar,
                    };
                    return Ok(Some(Line::Sample(sample)));
                }
                ParsedLine::Metadata(metadata) => {
                    if let Fact::Type(kind) = metadata.fact {
                        self.kind = Some(kind);
                    }
                    return Ok(Some(Line::Metadata(metadata)));
                }
                ParsedLine::Nothing => {}
                ParsedLine::End => self.ended = true,
            }
        }
        match self.format {
            Format::OpenMetrics if !self.ended => Err(ReadError {
                line: self.line + 1,
                expected: "`# EOF`",
                found: "the end of the page".to_owned(),
            }),
            Format::OpenMetrics if !self.rest.is_empty() => Err(ReadError::new(
                self.line + 1,
                "nothing after `# EOF`",
                self.rest,
            )),
            _ => Ok(None),
        }
    }
}

enum ParsedLine<'a> {
    Sample(&'a [u8], f64, Option<Timestamp>, &'a [u8]),
    Metadata(Metadata<'a>),
    Nothing,
    End,
}

/// A syntax error: the text expected at the start of `found`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SyntaxError<'a> {
    expected: &'static str,
    found: &'a [u8],
}

impl SyntaxError<'_> {
    fn on_line(self, line: usize) -> ReadError {
        ReadError::new(line, self.expected, self.found)
    }
}

fn text_line(line: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
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
fn text_comment(comment: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
    let (word, rest) = split_token(trim_blank(comment));
    let rest = trim_blank(rest);
    let is_free = !comment.starts_with(b" ") && !comment.starts_with(b"\t");
    match word {
        b"HELP" | b"TYPE" if !is_free && !rest.is_empty() => metadata(word, rest, Format::Text),
        _ => Ok(ParsedLine::Nothing),
    }
}

fn openmetrics_line(line: &[u8]) -> Result<ParsedLine<'_>, SyntaxError<'_>> {
    if let Some(comment) = line.strip_prefix(b"# ") {
        if comment == b"EOF" {
            return Ok(ParsedLine::End);
        }
        let (word, rest) = split_token(comment);
        return match (word, rest) {
            (b"HELP" | b"TYPE" | b"UNIT", [b' ', rest @ ..]) => {
                metadata(word, rest, Format::OpenMetrics)
            }
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
    if !exemplar.is_empty() {
        exemplar::check(exemplar)?;
    }
    Ok(ParsedLine::Sample(series, value, at, exemplar))
}

/// Parses a space and seconds since 1970, if present.
fn openmetrics_timestamp(rest: &[u8]) -> Result<(Option<Timestamp>, &[u8]), SyntaxError<'_>> {
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
fn metadata<'a>(
    word: &'a [u8],
    rest: &'a [u8],
    format: Format,
) -> Result<ParsedLine<'a>, SyntaxError<'a>> {
    let (metric, text) = if rest.starts_with(b"\"") {
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
    Ok(ParsedLine::Metadata(Metadata { metric, fact }))
}

/// Splits a sample's line after the series. In the text format the value may follow at once:
/// `up{}1`, `up-1`.
fn split_series(line: &[u8], format: Format) -> Result<(&[u8], &[u8]), SyntaxError<'_>> {
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
    if line.get(brace) != Some(&b'{') {
        return Ok(line.split_at(name));
    }
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
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        match text[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

fn parse_series(series: &[u8], format: Format) -> Result<Labels, SyntaxError<'_>> {
    let mut cursor = Cursor {
        rest: series,
        format,
    };
    let mut labels = Labels::new();
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

fn emptied_labels(series: &[u8], format: Format) -> Result<Vec<String>, SyntaxError<'_>> {
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

enum Name<'a> {
    /// A quoted metric name among the labels.
    Metric(&'a [u8]),
    /// A label name, bare or quoted.
    Label(&'a [u8]),
}

/// Parses labels up to and including the closing brace. Passes names and values on unparsed.
fn parse_labels<'a>(
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

struct Cursor<'a> {
    rest: &'a [u8],
    format: Format,
}

impl<'a> Cursor<'a> {
    /// Skips blanks. OpenMetrics allows none around labels.
    fn skip_blank(&mut self) {
        if self.format == Format::Text {
            self.rest = trim_blank(self.rest);
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError<'a>> {
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

    fn bare_name(&mut self, is_metric: bool) -> &'a [u8] {
        let end = (0..self.rest.len()).find(|&at| !is_name_byte(self.rest[at], at, is_metric));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    /// Parses a quoted text and returns it with its quotes.
    fn quoted(&mut self) -> Result<&'a [u8], SyntaxError<'a>> {
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

fn is_name_byte(byte: u8, at: usize, is_metric: bool) -> bool {
    byte.is_ascii_alphabetic()
        || byte == b'_'
        || (byte == b':' && is_metric)
        || (byte.is_ascii_digit() && at > 0)
}

/// Removes the quotes and resolves `\\`, `\"` and `\n`.
fn unquote(quoted: &[u8]) -> Result<Cow<'_, str>, SyntaxError<'_>> {
    let inner = &quoted[1..quoted.len() - 1];
    let text = std::str::from_utf8(inner).map_err(|_| SyntaxError {
        expected: "valid UTF-8",
        found: inner,
    })?;
    Ok(unescape(text, ESCAPED))
}

fn unescape<'t>(text: &'t str, escapes: &str) -> Cow<'t, str> {
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
            _ => out.push(c),
        }
    }
    out.into()
}

fn trim_blank(text: &[u8]) -> &[u8] {
    let blank = text
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    &text[blank..]
}

fn one_space<'a>(rest: &'a [u8], expected: &'static str) -> Result<&'a [u8], SyntaxError<'a>> {
    rest.strip_prefix(b" ").ok_or(SyntaxError {
        expected,
        found: rest,
    })
}

fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(memchr2(b' ', b'\t', text).unwrap_or(text.len()))
}

fn parse_int(token: &[u8]) -> Option<i64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

fn parse_value(token: &[u8]) -> Result<f64, SyntaxError<'_>> {
    if let Some((value, length)) = decimal(token)
        && length == token.len()
    {
        return Ok(value);
    }
    let parsed = std::str::from_utf8(token).ok().and_then(parse_float);
    parsed.ok_or(SyntaxError {
        expected: "a number",
        found: token,
    })
}

/// Parses the decimal number at the start of `text`, if one rounding yields the nearest double: up
/// to 15 digits and an exact power of ten (Clinger's fast path). Returns the number and its length.
/// Nearly all samples take this path.
#[inline]
fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    let digit = |at: usize| {
        text.get(at)
            .map(|byte| byte.wrapping_sub(b'0'))
            .filter(|&digit| digit < 10)
    };
    let is_negative = text.first() == Some(&b'-');
    let begin = usize::from(is_negative);
    let mut at = begin;
    let mut mantissa = 0_u64;
    let mut exponent = 0_i32;
    while let Some(next) = digit(at) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(next));
        at += 1;
    }
    let mut digits = at - begin;
    if text.get(at) == Some(&b'.') {
        let point = at;
        at += 1;
        while let Some(next) = digit(at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(next));
            at += 1;
        }
        digits += at - point - 1;
        exponent = -i32::try_from(at - point - 1).ok()?;
    }
    if digits == 0 || digits > 15 {
        return None;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let is_down = text.get(at + 1) == Some(&b'-');
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let tens = digit(at)?;
        let (power, length) = digit(at + 1).map_or((tens, 1), |ones| (tens * 10 + ones, 2));
        at += length;
        if digit(at).is_some() {
            return None;
        }
        exponent += if is_down {
            -i32::from(power)
        } else {
            i32::from(power)
        };
    }
    let scale = POWERS.get(exponent.unsigned_abs() as usize)?;
    let value = if exponent < 0 {
        mantissa as f64 / scale
    } else {
        mantissa as f64 * scale
    };
    Some((if is_negative { -value } else { value }, at))
}

#[cfg(test)]
mod tests;
