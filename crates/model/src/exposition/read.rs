//! Reading a page.
//!
//! A target answers nearly the same page at every scrape. So a page is walked line by line without copying, and the
//! walker is told which series it will probably meet next: then one comparison replaces the search for the end of the
//! labels, and only the value is read. Labels are taken apart once in the life of a series ([`Sample::labels`]).
//!
//! What is accepted is what Prometheus 3 accepts: text 0.0.4 with UTF-8 names in quotes, OpenMetrics 1.0 with exemplars
//! (checked, then left) and its closing `# EOF`.

use super::Format;
use crate::{Labels, METRIC_NAME, Timestamp};
use memchr::{memchr, memchr2};
use std::borrow::Cow;
use std::fmt;

/// A page that cannot be understood. One wrong line spoils the whole page: half a page would look like a healthy
/// target that lost half its series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {found}")]
pub struct ReadError {
    /// The line, counted from 1.
    pub line: usize,
    /// What should have stood there.
    pub expected: &'static str,
    /// What stands there, cut short.
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

/// One line that says something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// Something about a metric: its help, type or unit.
    Metadata(Metadata<'a>),
}

/// A sample as it stands in the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// The series as written, `name{label="value"}`: equal text means the same series.
    pub series: &'a [u8],
    /// Whether `series` is the text that the caller expected.
    pub as_expected: bool,
    /// The value.
    pub value: f64,
    /// When it was taken, where the target says so.
    pub at: Option<Timestamp>,
    /// The line, counted from 1.
    pub line: usize,
    /// How `series` is written.
    format: Format,
}

impl Sample<'_> {
    /// Takes the series' text apart.
    ///
    /// # Errors
    /// When it is no series, names a label twice or has no metric name.
    pub fn labels(&self) -> Result<Labels, ReadError> {
        parse_series(self.series, self.format).map_err(|wrong| wrong.on_line(self.line))
    }

    /// The names of the labels that the page sets to nothing. [`Labels`] does not have them, since such a label is the
    /// same as none; a federating server sets them so that its own are not added.
    ///
    /// # Errors
    /// As [`Self::labels`].
    pub fn emptied_labels(&self) -> Result<Vec<String>, ReadError> {
        emptied_labels(self.series, self.format).map_err(|wrong| wrong.on_line(self.line))
    }
}

/// What a page says about one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metadata<'a> {
    /// The metric's name as it stands in the page.
    metric: &'a [u8],
    /// What is said.
    pub fact: Fact<'a>,
}

impl Metadata<'_> {
    /// The metric's name. In OpenMetrics a counter's family is named without the `_total` of its samples.
    pub fn metric(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.metric)
    }
}

/// A fact about a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fact<'a> {
    /// What it means.
    Help(Help<'a>),
    /// How it behaves.
    Type(MetricType),
    /// The base unit, which is also the end of its name.
    Unit(&'a [u8]),
}

/// A help text, still escaped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Help<'a>(&'a [u8], Format);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only in OpenMetrics are quotes escaped in a help text, too.
        let escaped = if self.1 == Format::Text {
            "\\n"
        } else {
            ESCAPED
        };
        f.write_str(&unescape(&String::from_utf8_lossy(self.0), escaped))
    }
}

/// What a backslash changes in a label's value.
const ESCAPED: &str = "\\n\"";

/// The types that either format knows.
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
    /// The word for it in OpenMetrics and in Prometheus' API.
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

/// A walk through one page.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    format: Format,
    rest: &'a [u8],
    line: usize,
    ended: bool,
}

impl<'a> Page<'a> {
    /// Begins at the first line.
    pub fn new(format: Format, text: &'a [u8]) -> Self {
        Self {
            format,
            rest: text,
            line: 0,
            ended: false,
        }
    }

    /// What was not read yet; it begins with a line.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many lines were read.
    pub fn lines(&self) -> usize {
        self.line
    }

    /// Skips `bytes` at the beginning of [`rest`](Self::rest), which are `lines` lines that the caller has read before, in this
    /// format.
    pub fn skip(&mut self, bytes: usize, lines: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.line += lines;
    }

    /// The next line that says something, or `None` at the end. `expected` is the text of the series that probably
    /// comes next; a wrong guess costs one comparison, an empty one nothing.
    ///
    /// # Errors
    /// At the first line that is wrong; what comes after it is not to be read.
    #[inline]
    pub fn next_line(&mut self, expected: &[u8]) -> Result<Option<Line<'a>>, ReadError> {
        match self.next_expected(expected) {
            Some(sample) => Ok(Some(Line::Sample(sample))),
            None => self.next_unexpected(),
        }
    }

    /// The line `expected`, one space, a plain number, line feed. Everything else is read by the long way.
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
                Said::Sample(series, value, at) => {
                    let (line, format) = (self.line, self.format);
                    let sample = Sample {
                        series,
                        as_expected: false,
                        value,
                        at,
                        line,
                        format,
                    };
                    return Ok(Some(Line::Sample(sample)));
                }
                Said::Metadata(metadata) => return Ok(Some(Line::Metadata(metadata))),
                Said::Nothing => {}
                Said::End => self.ended = true,
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

enum Said<'a> {
    Sample(&'a [u8], f64, Option<Timestamp>),
    Metadata(Metadata<'a>),
    Nothing,
    End,
}

/// What is wrong with a line: what should have stood where `found` begins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wrong<'a> {
    expected: &'static str,
    found: &'a [u8],
}

impl Wrong<'_> {
    fn on_line(self, line: usize) -> ReadError {
        ReadError::new(line, self.expected, self.found)
    }
}

fn text_line(line: &[u8]) -> Result<Said<'_>, Wrong<'_>> {
    let line = trim_blank(line);
    let Some(&first) = line.first() else {
        return Ok(Said::Nothing);
    };
    if first == b'#' {
        return text_comment(&line[1..]);
    }
    let (series, rest) = split_series(line, Format::Text)?;
    let (value, rest) = split_token(trim_blank(rest));
    let value = parse_value(value)?;
    let rest = trim_blank(rest);
    if rest.is_empty() {
        return Ok(Said::Sample(series, value, None));
    }
    let (token, rest) = split_token(rest);
    let at = parse_int(token).ok_or(Wrong {
        expected: "a timestamp in milliseconds",
        found: token,
    })?;
    match trim_blank(rest) {
        [] => Ok(Said::Sample(series, value, Some(Timestamp(at)))),
        found => Err(Wrong {
            expected: "the end of the line after the timestamp",
            found,
        }),
    }
}

/// What follows the `#`. Only `HELP` and `TYPE` mean something; the rest is for people.
fn text_comment(comment: &[u8]) -> Result<Said<'_>, Wrong<'_>> {
    let (word, rest) = split_token(trim_blank(comment));
    let rest = trim_blank(rest);
    let is_free = !comment.starts_with(b" ") && !comment.starts_with(b"\t");
    match word {
        b"HELP" | b"TYPE" if !is_free && !rest.is_empty() => metadata(word, rest, Format::Text),
        _ => Ok(Said::Nothing),
    }
}

fn openmetrics_line(line: &[u8]) -> Result<Said<'_>, Wrong<'_>> {
    if let Some(comment) = line.strip_prefix(b"# ") {
        if comment == b"EOF" {
            return Ok(Said::End);
        }
        let (word, rest) = split_token(comment);
        return match (word, rest) {
            (b"HELP" | b"TYPE" | b"UNIT", [b' ', rest @ ..]) => {
                metadata(word, rest, Format::OpenMetrics)
            }
            _ => Err(Wrong {
                expected: "HELP, TYPE, UNIT or EOF",
                found: comment,
            }),
        };
    }
    let (series, rest) = split_series(line, Format::OpenMetrics)?;
    let (value, rest) = split_token(one_space(rest, "a value")?);
    let value = parse_value(value)?;
    let (at, rest) = openmetrics_timestamp(rest)?;
    if !rest.is_empty() {
        check_exemplar(one_space(rest, "an exemplar")?)?;
    }
    Ok(Said::Sample(series, value, at))
}

/// A space and seconds since the epoch, if that is what comes next.
fn openmetrics_timestamp(rest: &[u8]) -> Result<(Option<Timestamp>, &[u8]), Wrong<'_>> {
    if rest.is_empty() || rest.starts_with(b" #") {
        return Ok((None, rest));
    }
    let (token, rest) = split_token(one_space(rest, "a timestamp in seconds")?);
    let wrong = Wrong {
        expected: "a timestamp in seconds",
        found: token,
    };
    let ms = (parse_value(token).map_err(|_| wrong)? * 1e3).round();
    // Beyond this every instant is nonsense, and neither could DuckDB hold it.
    match ms.abs() < 1e16 {
        true => Ok((Some(Timestamp(ms as i64)), rest)),
        false => Err(wrong),
    }
}

fn check_exemplar(exemplar: &[u8]) -> Result<(), Wrong<'_>> {
    let labels = exemplar.strip_prefix(b"# ").ok_or(Wrong {
        expected: "an exemplar",
        found: exemplar,
    })?;
    let mut cursor = Cursor {
        rest: labels,
        format: Format::OpenMetrics,
    };
    cursor.take(b'{', "`{` of the exemplar's labels")?;
    parse_labels(&mut cursor, |name, _| match name {
        Name::Metric(found) => Err(Wrong {
            expected: "a label",
            found,
        }),
        Name::Label(_) => Ok(()),
    })?;
    let (value, rest) = split_token(one_space(cursor.rest, "the exemplar's value")?);
    parse_value(value)?;
    match openmetrics_timestamp(rest)? {
        (_, []) => Ok(()),
        (_, found) => Err(Wrong {
            expected: "the end of the line after the exemplar",
            found,
        }),
    }
}

/// `word` is `HELP`, `TYPE` or `UNIT`; `rest` begins with the metric's name.
fn metadata<'a>(word: &'a [u8], rest: &'a [u8], format: Format) -> Result<Said<'a>, Wrong<'a>> {
    let (metric, text) = if rest.starts_with(b"\"") {
        let end = quoted_end(rest).ok_or(Wrong {
            expected: "a closing quote",
            found: rest,
        })?;
        (&rest[1..end - 1], &rest[end..])
    } else {
        let mut cursor = Cursor { rest, format };
        match cursor.bare_name(true) {
            b"" => {
                return Err(Wrong {
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
            return Err(Wrong {
                expected: "one space after the metric's name",
                found: text,
            });
        }
    };
    let fact = match word {
        b"HELP" => Fact::Help(Help(text, format)),
        b"TYPE" => Fact::Type(
            MetricType::parse(text.trim_ascii_end(), format).ok_or(Wrong {
                expected: "a metric type",
                found: text,
            })?,
        ),
        // `# UNIT` may also say that there is none.
        _ if text.is_empty()
            || metric
                .strip_suffix(text)
                .is_some_and(|name| name.ends_with(b"_")) =>
        {
            Fact::Unit(text)
        }
        _ => {
            return Err(Wrong {
                expected: "a unit that ends the metric's name",
                found: text,
            });
        }
    };
    Ok(Said::Metadata(Metadata { metric, fact }))
}

/// Splits a sample's line behind the series. In text the value may follow at once, as in `up{}1` and `up-1`.
fn split_series(line: &[u8], format: Format) -> Result<(&[u8], &[u8]), Wrong<'_>> {
    let mut cursor = Cursor { rest: line, format };
    let name = cursor.bare_name(true).len();
    if name == 0 && line.first() != Some(&b'{') {
        return Err(Wrong {
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
        let wrong = Wrong {
            expected: "a closing `}` after the labels",
            found: &line[brace..],
        };
        at += memchr2(b'"', b'}', &line[at..]).ok_or(wrong)?;
        if line[at] == b'}' {
            return Ok(line.split_at(at + 1));
        }
        at += quoted_end(&line[at..]).ok_or(Wrong {
            expected: "a closing quote",
            found: &line[at..],
        })?;
    }
}

/// The position behind the closing quote of the text that begins with a quote.
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

fn parse_series(series: &[u8], format: Format) -> Result<Labels, Wrong<'_>> {
    let mut cursor = Cursor {
        rest: series,
        format,
    };
    let mut labels = Labels::new();
    let mut set = |name: &str, value: &str, found| match labels.get(name) {
        Some(_) => Err(Wrong {
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
        ([], "") => Err(Wrong {
            expected: "a metric name",
            found: series,
        }),
        ([], _) => Ok(labels),
        (found, _) => Err(Wrong {
            expected: "a metric name",
            found,
        }),
    }
}

fn emptied_labels(series: &[u8], format: Format) -> Result<Vec<String>, Wrong<'_>> {
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
    /// A quoted metric name that stands among the labels.
    Metric(&'a [u8]),
    /// A label's name, bare or in quotes.
    Label(&'a [u8]),
}

/// Reads labels up to and including the closing brace; names and values are handed on as they are written.
fn parse_labels<'a>(
    cursor: &mut Cursor<'a>,
    mut each: impl FnMut(Name<'a>, &'a [u8]) -> Result<(), Wrong<'a>>,
) -> Result<(), Wrong<'a>> {
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
            return Err(Wrong {
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
            // As Prometheus has it: in text nothing need stand between two labels.
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
    /// OpenMetrics has no blanks around labels.
    fn skip_blank(&mut self) {
        if self.format == Format::Text {
            self.rest = trim_blank(self.rest);
        }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), Wrong<'a>> {
        match self.rest.split_first() {
            Some((&first, rest)) if first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(Wrong {
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

    /// A text in quotes, quotes included.
    fn quoted(&mut self) -> Result<&'a [u8], Wrong<'a>> {
        if self.rest.first() != Some(&b'"') {
            return Err(Wrong {
                expected: "a value in quotes",
                found: self.rest,
            });
        }
        let end = quoted_end(self.rest).ok_or(Wrong {
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

/// Takes the quotes off and resolves `\\`, `\"` and `\n`.
fn unquote(quoted: &[u8]) -> Result<Cow<'_, str>, Wrong<'_>> {
    let inner = &quoted[1..quoted.len() - 1];
    let text = std::str::from_utf8(inner).map_err(|_| Wrong {
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

fn one_space<'a>(rest: &'a [u8], expected: &'static str) -> Result<&'a [u8], Wrong<'a>> {
    rest.strip_prefix(b" ").ok_or(Wrong {
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

fn parse_value(token: &[u8]) -> Result<f64, Wrong<'_>> {
    if let Some((value, length)) = decimal(token)
        && length == token.len()
    {
        return Ok(value);
    }
    let parsed: Option<f64> = std::str::from_utf8(token)
        .ok()
        .and_then(|text| text.parse().ok());
    // What Go does not take: digits that say more than a double holds, and a NaN with a sign.
    let begins_with = |of: fn(&u8) -> bool| {
        token
            .iter()
            .find(|byte| !b"+-".contains(byte))
            .is_some_and(of)
    };
    let is_right = |value: &f64| match value {
        value if value.is_infinite() => begins_with(|byte| matches!(byte, b'i' | b'I')),
        value if value.is_nan() => matches!(token.first(), Some(b'n' | b'N')),
        _ => true,
    };
    parsed.filter(is_right).ok_or(Wrong {
        expected: "a number",
        found: token,
    })
}

/// The decimal number that `text` begins with and its length, where one rounding gives the nearest double: up to 15
/// digits and a power of ten that a double holds exactly (Clinger's fast path). Nearly all samples are of this kind.
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
    let (mut at, mut mantissa, mut exponent) = (begin, 0_u64, 0_i32);
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
mod tests {
    use super::*;
    use crate::exposition::write_page;
    use crate::{Kind, Samples};
    use proptest::prelude::*;

    type Read = Vec<(String, f64, Option<i64>)>;

    fn read(format: Format, text: &str) -> Result<Read, ReadError> {
        let mut page = Page::new(format, text.as_bytes());
        let mut samples = Vec::new();
        while let Some(line) = page.next_line(b"")? {
            if let Line::Sample(sample) = line {
                samples.push((
                    sample.labels()?.to_string(),
                    sample.value,
                    sample.at.map(|at| at.0),
                ));
            }
        }
        Ok(samples)
    }

    fn one(format: Format, text: &str) -> (String, f64, Option<i64>) {
        let mut samples = read(format, text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(samples.len(), 1, "{text:?}");
        samples.remove(0)
    }

    #[test]
    fn text_lines_that_are_right() {
        for (text, series, value, at) in [
            ("a 1\n", "a", 1.0, None),
            ("a 1", "a", 1.0, None),
            ("  a\t 1.5e3 \n", "a", 1500.0, None),
            ("a 1 -5\n", "a", 1.0, Some(-5)),
            ("a 1 1700000000123 \n", "a", 1.0, Some(1_700_000_000_123)),
            ("a{} 1\n", "a", 1.0, None),
            ("a {x=\"1\"} 1\n", r#"a{x="1"}"#, 1.0, None),
            (
                "a{ x = \"1\" , y=\"2\", } 1\n",
                r#"a{x="1", y="2"}"#,
                1.0,
                None,
            ),
            ("a{x=\"}\"}1\n", r#"a{x="}"}"#, 1.0, None),
            ("a-1\n", "a", -1.0, None),
            ("a.5 7\n", "a", 0.5, Some(7)),
            (
                "a{x=\"1\"y=\"2\" z=\"3\"} 1\n",
                r#"a{x="1", y="2", z="3"}"#,
                1.0,
                None,
            ),
            ("# HELP a.b text\n# HELP a{} text\na 1\n", "a", 1.0, None),
            (
                "a{x=\"a\\\"b\\\\c\\nd\\e\"} 1\n",
                "a{x=\"a\\\"b\\\\c\\nd\\\\e\"}",
                1.0,
                None,
            ),
            ("a{x=\"\"} 1\n", "a", 1.0, None),
            ("{\"my.metric\"} 1\n", "my.metric", 1.0, None),
            (
                "{\"my.metric\",\"a b\"=\"c\"} 1\n",
                r#"my.metric{a b="c"}"#,
                1.0,
                None,
            ),
            (
                "{x=\"1\",\"my.metric\"} 1\n",
                r#"my.metric{x="1"}"#,
                1.0,
                None,
            ),
            ("{__name__=\"a\"} 1\n", "a", 1.0, None),
            ("# EOF\na:b_c 0x\n# HELP", "", 0.0, None),
            ("a +Inf\n", "a", f64::INFINITY, None),
            ("a -inf\n", "a", f64::NEG_INFINITY, None),
            ("a +Infinity\n", "a", f64::INFINITY, None),
            ("a +.5\n", "a", 0.5, None),
            ("a 5.\n", "a", 5.0, None),
            ("a 1.7976931348623157e+308\n", "a", f64::MAX, None),
            (
                "#a\n# HELP\n#HELP a b\n# just so\n\n \t\n# HELP a\n# TYPE a untyped\na 1\n",
                "a",
                1.0,
                None,
            ),
        ] {
            if series.is_empty() {
                assert!(read(Format::Text, text).is_err(), "{text:?}");
            } else {
                assert_eq!(
                    one(Format::Text, text),
                    (series.to_owned(), value, at),
                    "{text:?}"
                );
            }
        }
        assert!(one(Format::Text, "a NaN\n").1.is_nan());
    }

    #[test]
    fn text_lines_that_are_wrong() {
        for (text, message) in [
            (
                "<html>\n",
                r#"line 1: expected a metric name, found "<html>""#,
            ),
            (
                "a 1\n\nb\n",
                "line 3: expected a number, found the end of the line",
            ),
            ("a one\n", r#"line 1: expected a number, found "one""#),
            ("a 1_000\n", r#"line 1: expected a number, found "1_000""#),
            ("a 1e400\n", r#"line 1: expected a number, found "1e400""#),
            ("a -NaN\n", r#"line 1: expected a number, found "-NaN""#),
            ("a 0x1p3\n", r#"line 1: expected a number, found "0x1p3""#),
            ("a 0x1F\n", r#"line 1: expected a number, found "0x1F""#),
            ("a 1\r\n", r#"line 1: expected a number, found "1\r""#),
            (
                "a 1 2 3\n",
                r#"line 1: expected the end of the line after the timestamp, found "3""#,
            ),
            (
                "a 1 2.5\n",
                r#"line 1: expected a timestamp in milliseconds, found "2.5""#,
            ),
            (
                "a 1 # {x=\"1\"} 1\n",
                r##"line 1: expected a timestamp in milliseconds, found "#""##,
            ),
            (
                "a{x=\"1\" 1\n",
                r#"line 1: expected a closing `}` after the labels, found "{x=\"1\" 1""#,
            ),
            (
                "a{x=\"1} 1\n",
                r#"line 1: expected a closing quote, found "\"1} 1""#,
            ),
            (
                "a{x=\"1\\\"} 1\n",
                r#"line 1: expected a closing quote, found "\"1\\\"} 1""#,
            ),
            (
                "a{x} 1\n",
                r#"line 1: expected `=` after the label's name, found "}""#,
            ),
            (
                "a{x=1} 1\n",
                r#"line 1: expected a value in quotes, found "1}""#,
            ),
            (
                "a{x=\"1\";y=\"2\"} 1\n",
                r#"line 1: expected `,` or `}` after the label, found ";y=\"2\"}""#,
            ),
            ("a,1\n", r#"line 1: expected a number, found ",1""#),
            (
                "a{x=\"1\",,} 1\n",
                r#"line 1: expected a label name, found ",}""#,
            ),
            ("a{,} 1\n", r#"line 1: expected a label name, found ",}""#),
            (
                "a{x:y=\"1\"} 1\n",
                r#"line 1: expected `=` after the label's name, found ":y=\"1\"}""#,
            ),
            (
                "a{x=\"1\",x=\"2\"} 1\n",
                r#"line 1: expected each label once, found "a{x=\"1\",x=\"2\"}""#,
            ),
            (
                "a{\"b\"} 1\n",
                r#"line 1: expected each label once, found "a{\"b\"}""#,
            ),
            (
                "{x=\"1\"} 1\n",
                r#"line 1: expected a metric name, found "{x=\"1\"}""#,
            ),
            ("{\"\"} 1\n", r#"line 1: expected a label name, found "}""#),
            ("é 1\n", r#"line 1: expected a metric name, found "é 1""#),
            ("9a 1\n", r#"line 1: expected a metric name, found "9a 1""#),
            (
                "# TYPE a\n",
                "line 1: expected a metric type, found the end of the line",
            ),
            (
                "# TYPE a stateset\n",
                r#"line 1: expected a metric type, found "stateset""#,
            ),
            (
                "# HELP 1a x\n",
                r#"line 1: expected a metric name, found "1a x""#,
            ),
        ] {
            let error = read(Format::Text, text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text:?}");
        }
    }

    #[test]
    fn openmetrics_lines_that_are_right() {
        for (text, series, value, at) in [
            ("a 1\n# EOF\n", "a", 1.0, None),
            ("a 1\n# EOF", "a", 1.0, None),
            (
                "a 1 1520879607.789\n# EOF\n",
                "a",
                1.0,
                Some(1_520_879_607_789),
            ),
            (
                "a_total 1 # {id=\"#}\"} 0.5 1520879607\n# EOF\n",
                "a_total",
                1.0,
                None,
            ),
            ("a_total 1 7 # {} 0.5\n# EOF\n", "a_total", 1.0, Some(7000)),
            (
                "# TYPE a_seconds stateset\n# UNIT a_seconds seconds\n# HELP a_seconds \na 1\n# EOF\n",
                "a",
                1.0,
                None,
            ),
            ("# HELP \"a.b\" x\n{\"a.b\"} 1\n# EOF\n", "a.b", 1.0, None),
        ] {
            assert_eq!(
                one(Format::OpenMetrics, text),
                (series.to_owned(), value, at),
                "{text:?}"
            );
        }
        assert_eq!(read(Format::OpenMetrics, "# EOF\n"), Ok(vec![]));
    }

    #[test]
    fn openmetrics_lines_that_are_wrong() {
        for (text, message) in [
            ("", "line 1: expected `# EOF`, found the end of the page"),
            (
                "a 1\n",
                "line 2: expected `# EOF`, found the end of the page",
            ),
            (
                "# EOF\na 1\n",
                r#"line 2: expected nothing after `# EOF`, found "a 1\n""#,
            ),
            (
                "\n# EOF\n",
                "line 1: expected a metric name, found the end of the line",
            ),
            (
                "# a comment\n# EOF\n",
                r#"line 1: expected HELP, TYPE, UNIT or EOF, found "a comment""#,
            ),
            (
                "a  1\n# EOF\n",
                "line 1: expected a number, found the end of the line",
            ),
            (
                "a 1 NaN\n# EOF\n",
                r#"line 1: expected a timestamp in seconds, found "NaN""#,
            ),
            (
                "a 1 1 1\n# EOF\n",
                r#"line 1: expected an exemplar, found "1""#,
            ),
            (
                "a 1 # {x=\"1\"}\n# EOF\n",
                "line 1: expected the exemplar's value, found the end of the line",
            ),
            (
                "a 1 # {x=\"1\" 1\n# EOF\n",
                r#"line 1: expected `,` or `}` after the label, found " 1""#,
            ),
            (
                "a 1 # {\"x\"} 1\n# EOF\n",
                r#"line 1: expected a label, found "\"x\"""#,
            ),
            (
                "# TYPE a untyped\n# EOF\n",
                r#"line 1: expected a metric type, found "untyped""#,
            ),
            (
                "# HELP a\n# EOF\n",
                "line 1: expected one space after the metric's name, found the end of the line",
            ),
            (
                "a {x=\"1\"} 1\n# EOF\n",
                r#"line 1: expected a number, found "{x=\"1\"}""#,
            ),
            (
                "a{ x=\"1\"} 1\n# EOF\n",
                r#"line 1: expected a label name, found " x=\"1\"}""#,
            ),
            (
                "a{x=\"1\" } 1\n# EOF\n",
                r#"line 1: expected `,` or `}` after the label, found " }""#,
            ),
            (
                "a{x= \"1\"} 1\n# EOF\n",
                r#"line 1: expected a value in quotes, found " \"1\"}""#,
            ),
            (
                "a{x=\"1\"y=\"2\"} 1\n# EOF\n",
                r#"line 1: expected `,` or `}` after the label, found "y=\"2\"}""#,
            ),
            ("a.5\n# EOF\n", r#"line 1: expected a value, found ".5""#),
            (
                "# UNIT a_bytes seconds\n# EOF\n",
                r#"line 1: expected a unit that ends the metric's name, found "seconds""#,
            ),
            (
                "# UNIT milliseconds seconds\n# EOF\n",
                r#"line 1: expected a unit that ends the metric's name, found "seconds""#,
            ),
        ] {
            let error = read(Format::OpenMetrics, text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text:?}");
        }
    }

    #[test]
    fn metadata_is_handed_on() {
        let text =
            b"# HELP a_total \\\"Bytes\\\" \\\\ sent.\\nAll.\n# TYPE a_total counter\na_total 1\n";
        let mut page = Page::new(Format::Text, text);
        let mut facts = Vec::new();
        while let Some(line) = page.next_line(b"").unwrap() {
            if let Line::Metadata(metadata) = line {
                facts.push(match metadata.fact {
                    Fact::Help(help) => format!("{} help {help}", metadata.metric()),
                    Fact::Type(kind) => format!("{} type {}", metadata.metric(), kind.as_str()),
                    Fact::Unit(_) => unreachable!("text 0.0.4 has no units"),
                });
            }
        }
        assert_eq!(
            facts,
            [
                "a_total help \\\"Bytes\\\" \\ sent.\nAll.",
                "a_total type counter"
            ]
        );
    }

    #[test]
    fn bad_bytes_spoil_a_label_but_not_a_help_text() {
        let mut page = Page::new(Format::Text, b"# HELP a gr\xfc\xdfe\na{x=\"\xff\"} 1\n");
        assert!(matches!(page.next_line(b""), Ok(Some(Line::Metadata(_)))));
        let Ok(Some(Line::Sample(sample))) = page.next_line(b"") else {
            panic!("no sample")
        };
        assert_eq!(sample.labels().unwrap_err().expected, "valid UTF-8");
    }

    #[test]
    fn a_guess_changes_how_a_line_is_read_but_not_what_it_says() {
        let text = b"a 1\na {x=\"1\"} 2\nab 3\na{x=\"1\"} 4 5\na 0.1\na +Inf\n";
        for guess in ["", "a", "ab", "a{x=\"1\"}", "a {x=\"1\"}"] {
            let mut page = Page::new(Format::Text, text);
            let mut seen = Vec::new();
            while let Some(Line::Sample(sample)) = page.next_line(guess.as_bytes()).unwrap() {
                assert!(!sample.as_expected || sample.series == guess.as_bytes());
                seen.push((
                    sample.labels().unwrap().to_string(),
                    sample.value,
                    sample.at,
                    sample.line,
                ));
            }
            let x = r#"a{x="1"}"#.to_owned();
            assert_eq!(
                seen,
                [
                    ("a".to_owned(), 1.0, None, 1),
                    (x.clone(), 2.0, None, 2),
                    ("ab".to_owned(), 3.0, None, 3),
                    (x, 4.0, Some(Timestamp(5)), 4),
                    ("a".to_owned(), 0.1, None, 5),
                    ("a".to_owned(), f64::INFINITY, None, 6),
                ],
                "{guess}"
            );
        }
    }

    fn bits(value: f64) -> u64 {
        if value.is_nan() {
            f64::NAN.to_bits()
        } else {
            value.to_bits()
        }
    }

    type Written = Vec<(String, Vec<(String, String)>, f64)>;

    fn written() -> impl Strategy<Value = Written> {
        let labels = proptest::collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,5}", ".{1,8}", 0..4);
        let sample = (
            "[a-zA-Z_:][a-zA-Z0-9_:]{0,8}",
            labels.prop_map(|labels| labels.into_iter().collect()),
            any::<f64>(),
        );
        proptest::collection::vec(sample, 0..12)
    }

    proptest! {
        #[test]
        fn a_written_page_reads_back(samples in written(), is_text: bool) {
            let format = if is_text { Format::Text } else { Format::OpenMetrics };
            let mut given = Samples::new();
            for (name, labels, value) in &samples {
                let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                given.push_foreign(name, Kind::Gauge, "Help \\ \n \" text.", &labels, *value);
            }
            let mut text = String::new();
            write_page(format, [&given], &mut text);
            let mut expected: Vec<_> = samples
                .iter()
                .map(|(name, labels, value)| {
                    let mut all: Labels = labels.iter().map(|(name, value)| (name, value)).collect();
                    all.set(METRIC_NAME, name);
                    (all.to_string(), bits(*value), None)
                })
                .collect();
            let read = read(format, &text).expect("our own page");
            let mut read: Vec<_> = read.into_iter().map(|(series, value, at)| (series, bits(value), at)).collect();
            read.sort();
            expected.sort();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn no_bytes_make_it_panic(text: Vec<u8>, guess: Vec<u8>, is_text: bool) {
            let format = if is_text { Format::Text } else { Format::OpenMetrics };
            let mut page = Page::new(format, &text);
            while let Ok(Some(line)) = page.next_line(&guess) {
                if let Line::Sample(sample) = line {
                    let _ = sample.labels();
                }
            }
        }

        #[test]
        fn nothing_like_a_page_makes_it_panic(
            text in "([a{}=\",\\\\# \n\t0-9.eE+-]|HELP|TYPE|UNIT|EOF|# |NaN|a\\{x=\"1\"\\} 1\n){0,40}",
            is_text: bool,
        ) {
            let format = if is_text { Format::Text } else { Format::OpenMetrics };
            let _ = read(format, &text);
        }

        #[test]
        fn numbers_are_what_the_standard_library_says(text in "-?[0-9]{0,17}(\\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?") {
            let ours = parse_value(text.as_bytes()).ok().map(f64::to_bits);
            let std = text.parse().ok().filter(|value: &f64| value.is_finite()).map(f64::to_bits);
            prop_assert_eq!(ours, std);
        }
    }
}
