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
mod line;
mod number;
mod series;

pub use exemplar::Exemplar;

use super::Format;
use crate::{Labels, Timestamp, normal_spelling};
use line::{ParsedLine, openmetrics_line, text_line};
use memchr::memchr;
use number::{decimal, parse_value};
pub(super) use series::is_name_byte;
use series::{ESCAPED, emptied_labels, parse_series, unescape};
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
        // A character has at most 4 bytes, and a hostile line of megabytes must not be decoded for
        // 40 of them.
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
            // With other types the label is free text, and a rule may compare it as it is written.
            _ => return Ok(labels),
        };
        if let Some(normal) = labels.get(name).and_then(normal_spelling) {
            labels.set(name, &normal);
        }
        Ok(labels)
    }

    /// The exemplar, if the sample has one and its labels are valid UTF-8.
    #[inline]
    pub fn exemplar(&self) -> Option<Exemplar> {
        if self.exemplar.is_empty() {
            return None;
        }
        // The syntax was checked with the line. Only the UTF-8 of its labels can fail, and costs
        // the exemplar, not the sample.
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
    /// The metric's name as written, without its quotes.
    metric: &'a [u8],
    /// Whether the name is written in quotes, and so with escapes.
    is_quoted: bool,
    /// The metadata.
    pub fact: Fact<'a>,
}

impl Metadata<'_> {
    /// Name of the metric. In OpenMetrics, the family of a counter lacks the `_total` of its
    /// samples.
    pub fn metric(&self) -> Cow<'_, str> {
        let name = String::from_utf8_lossy(self.metric);
        if self.is_quoted {
            unescape(&name, ESCAPED).into_owned().into()
        } else {
            name
        }
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
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of lines read.
    #[inline]
    pub fn lines(&self) -> usize {
        self.line
    }

    /// Skips `bytes` at the start of [`rest`](Self::rest): `lines` lines that the caller has parsed
    /// before, in this format. `kind` is the type of the last `TYPE` line among them, if they have
    /// one.
    #[inline]
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

    /// Parses a line of `expected`, one space, a number and a line feed. Other lines take the general
    /// path.
    #[inline]
    fn next_expected(&mut self, expected: &[u8]) -> Option<Sample<'a>> {
        if expected.is_empty() || self.ended {
            return None;
        }

        let number = self.rest.strip_prefix(expected)?.strip_prefix(b" ")?;
        // Only the whole line is known to be valid: `1 5` has a timestamp, and takes the general
        // path.
        let (value, length) = decimal(number)
            .filter(|&(_, length)| number.get(length) == Some(&b'\n'))
            .or_else(|| long_number(number))?;

        let rest = &number[length + 1..];
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

        // Without `# EOF`, the page was cut off on its way: half of its series would look as if
        // they had ended.
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

/// Parses any number that ends with the line: one with many digits, infinity, or NaN. Returns the
/// number and its length.
fn long_number(text: &[u8]) -> Option<(f64, usize)> {
    let end = memchr(b'\n', text)?;
    let value = parse_value(&text[..end]).ok()?;
    Some((value, end))
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

#[cfg(test)]
mod tests;
