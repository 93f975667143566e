//! Metrics pages in protobuf (`io.prometheus.client.MetricFamily`, delimited): the only format that carries native histograms.
//!
//! A page becomes text, with one line for each part of a native histogram, so that a scrape reads it as any other page.

use crate::native::{HistogramFields, read_histogram};
use crate::wire::{Fields, WireError};
use std::fmt::Write;
use takt_model::native::{HistogramError, NATIVE_LABEL, NativeHistogram, ResetHint};
use takt_model::{is_plain_label, quoted};

/// Media type of a page.
pub const CONTENT_TYPE: &str = "application/vnd.google.protobuf";

/// Value for the header `Accept`, with the rank of protobuf before text.
pub const ACCEPTED: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7";

/// Why a page cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page is not the expected protobuf.
    #[error(transparent)]
    Damaged(#[from] WireError),
    /// A text is not UTF-8.
    #[error("a name or label is not valid UTF-8")]
    NotUtf8,
    /// The text would be too long.
    #[error("the page has more than {0} bytes as text")]
    TooLong(usize),
    /// A native histogram breaks a rule.
    #[error("the histogram {metric}: {error}")]
    Histogram {
        /// Name of the metric.
        metric: String,
        /// The rule.
        error: HistogramError,
    },
}

/// Types of metrics, by their numbers.
const KINDS: [&str; 6] = [
    "counter",
    "gauge",
    "summary",
    "untyped",
    "histogram",
    "histogram",
];
/// The type of histograms whose counts may fall.
const GAUGE_HISTOGRAM: u64 = 5;

/// Returns the page as text 0.0.4 of up to `limit` bytes. A native histogram has a line for each of its parts, and none for its
/// classic buckets.
///
/// # Errors
/// If the page is damaged or too long, or a native histogram breaks a rule.
pub fn text_page(page: &[u8], limit: usize) -> Result<Vec<u8>, PageError> {
    let mut out = PageText {
        // The text is longer than the protobuf, whose numbers and lengths are binary.
        text: String::with_capacity(2 * page.len()),
        limit,
    };
    let mut rest = Fields(page);
    while !rest.0.is_empty() {
        let length = usize::try_from(rest.take_varint()?).map_err(|_| WireError)?;
        let (family, after) = rest.0.split_at_checked(length).ok_or(WireError)?;
        write_family(family, &mut out)?;
        rest = Fields(after);
    }
    Ok(out.text.into_bytes())
}

/// The text of a page.
struct PageText {
    text: String,
    limit: usize,
}

fn write_family(family: &[u8], out: &mut PageText) -> Result<(), PageError> {
    let mut name = "";
    let mut help = "";
    let mut kind = 0;

    for field in Fields(family) {
        match field? {
            (1, text) => name = utf8(text.bytes()?)?,
            (2, text) => help = utf8(text.bytes()?)?,
            (3, number) => kind = number.varint()?,
            _ => {}
        }
    }

    let index = usize::try_from(kind).unwrap_or(usize::MAX);
    // A type of a later version still has samples.
    let word = KINDS.get(index).copied().unwrap_or("untyped");
    let described = if is_plain_name(name) {
        name.to_owned()
    } else {
        quoted(name)
    };

    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a text cannot fail.
    let _ = writeln!(out.text, "# HELP {described} {help}");
    let _ = writeln!(out.text, "# TYPE {described} {word}");

    // A second pass, as name and type may come after the metrics in a message.
    for field in Fields(family) {
        if let (4, metric) = field? {
            write_metric(name, kind, metric.bytes()?, out)?;
        }
    }
    Ok(())
}

/// Writes the lines of one metric.
fn write_metric(name: &str, kind: u64, metric: &[u8], out: &mut PageText) -> Result<(), PageError> {
    let mut line = LineWriter {
        name,
        labels: Vec::new(),
        at: None,
        out,
    };

    // Labels and time first: they belong to every line, and may come last.
    for field in Fields(metric) {
        match field? {
            (1, pair) => {
                let mut label = ("", "");
                for field in Fields(pair.bytes()?) {
                    match field? {
                        (1, text) => label.0 = utf8(text.bytes()?)?,
                        (2, text) => label.1 = utf8(text.bytes()?)?,
                        _ => {}
                    }
                }
                line.labels.push(label);
            }
            (6, at) => line.at = Some(at.varint()?.cast_signed()),
            _ => {}
        }
    }

    for field in Fields(metric) {
        match field? {
            (2 | 3 | 5, value) => {
                let mut number = 0.0;
                for field in Fields(value.bytes()?) {
                    if let (1, value) = field? {
                        number = value.double()?;
                    }
                }
                line.write("", None, number)?;
            }
            (4, summary) => write_summary(&mut line, summary.bytes()?)?,
            (7, histogram) => write_histogram(&mut line, kind, histogram.bytes()?)?,
            _ => {}
        }
    }
    Ok(())
}

fn write_summary(line: &mut LineWriter<'_>, summary: &[u8]) -> Result<(), PageError> {
    let mut count = 0.0;
    let mut sum = 0.0;

    for field in Fields(summary) {
        match field? {
            (1, number) => count = number.varint()? as f64,
            (2, number) => sum = number.double()?,
            (3, pair) => {
                let [quantile, value] = two_numbers(pair.bytes()?)?;
                line.write("", Some(("quantile", &number(quantile))), value)?;
            }
            _ => {}
        }
    }

    line.write("_sum", None, sum)?;
    line.write("_count", None, count)?;
    Ok(())
}

fn write_histogram(line: &mut LineWriter<'_>, kind: u64, message: &[u8]) -> Result<(), PageError> {
    // A target may send both forms of one histogram; the native one has the finer buckets.
    if is_native(message)? {
        let read = read_histogram(message, HistogramFields::Exposition)?;
        let mut histogram: NativeHistogram = read
            .value
            .map_err(|error| PageError::Histogram {
                metric: line.name.to_owned(),
                error,
            })?
            .unwrap_or_default();
        if kind == GAUGE_HISTOGRAM {
            histogram.hint = ResetHint::Gauge;
        }
        for (part, value) in histogram.parts() {
            line.write("", Some((NATIVE_LABEL, &part.to_string())), value)?;
        }
        return Ok(());
    }

    let mut count = 0.0;
    let mut sum = 0.0;
    let mut has_infinity = false;

    for field in Fields(message) {
        match field? {
            (1, number) => count = number.varint()? as f64,
            (4, number) => count = number.double()?,
            (2, number) => sum = number.double()?,
            (3, bucket) => {
                let [bound, in_bucket] = bucket_numbers(bucket.bytes()?)?;
                // Clients may leave out the last bucket, whose count is that of the histogram.
                has_infinity |= bound == f64::INFINITY;
                line.write("_bucket", Some(("le", &number(bound))), in_bucket)?;
            }
            _ => {}
        }
    }

    if !has_infinity {
        line.write("_bucket", Some(("le", "+Inf")), count)?;
    }
    line.write("_sum", None, sum)?;
    line.write("_count", None, count)?;
    Ok(())
}

/// Whether a histogram has spans or a zero bucket.
fn is_native(message: &[u8]) -> Result<bool, WireError> {
    // As in Prometheus, one of an empty histogram's spans or a zero bucket shows that it is native.
    for field in Fields(message) {
        match field? {
            (9 | 12, _) => return Ok(true),
            (6 | 8, number) if number.double()? > 0.0 => return Ok(true),
            (7, number) if number.varint()? > 0 => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

fn two_numbers(message: &[u8]) -> Result<[f64; 2], WireError> {
    let mut found = [0.0; 2];
    for field in Fields(message) {
        match field? {
            (1, number) => found[0] = number.double()?,
            (2, number) => found[1] = number.double()?,
            _ => {}
        }
    }
    Ok(found)
}

/// Upper bound and cumulative count of a classic bucket.
fn bucket_numbers(message: &[u8]) -> Result<[f64; 2], WireError> {
    let mut found = [0.0; 2];
    for field in Fields(message) {
        match field? {
            (1, number) => found[1] = number.varint()? as f64,
            (2, number) => found[0] = number.double()?,
            (4, number) => found[1] = number.double()?,
            _ => {}
        }
    }
    Ok(found)
}

/// Writes lines with the labels of one metric.
struct LineWriter<'a> {
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    /// Timestamp in milliseconds.
    at: Option<i64>,
    out: &'a mut PageText,
}

impl LineWriter<'_> {
    fn write(
        &mut self,
        suffix: &str,
        extra: Option<(&str, &str)>,
        value: f64,
    ) -> Result<(), PageError> {
        let limit = self.out.limit;
        let out = &mut self.out.text;
        let metric = format!("{}{suffix}", self.name);
        let is_plain = is_plain_name(&metric);

        // Any UTF-8 is a name; other names than the classic ones stand in quotes among the labels.
        if is_plain {
            out.push_str(&metric);
        }
        out.push('{');
        if !is_plain {
            out.push_str(&escaped(&metric));
            out.push(',');
        }

        for (name, value) in self.labels.iter().copied().chain(extra) {
            if is_plain_label(name) {
                out.push_str(name);
            } else {
                out.push_str(&escaped(name));
            }
            out.push('=');
            out.push_str(&escaped(value));
            out.push(',');
        }

        out.push_str("} ");
        out.push_str(&number(value));
        if let Some(at) = self.at {
            let _ = write!(out, " {at}");
        }
        out.push('\n');

        // Labels come again with each bucket, so a small page can be a long text.
        if out.len() > limit {
            return Err(PageError::TooLong(limit));
        }
        Ok(())
    }
}

/// A text in quotes, as text pages escape it.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    format!("\"{}\"", text.replace('"', "\\\""))
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// Whether a metric's name needs no quotes.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !name.is_empty()
        && name.chars().all(is_plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn utf8(bytes: &[u8]) -> Result<&str, PageError> {
    std::str::from_utf8(bytes).map_err(|_| PageError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::push_varint;
    use proptest::prelude::*;

    fn message(number: u64, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_varint(&mut out, number << 3 | 2);
        push_varint(&mut out, content.len() as u64);
        out.extend(content);
        out
    }

    fn double(number: u8, value: f64) -> Vec<u8> {
        [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
    }

    fn family(name: &str, kind: u8, metrics: &[Vec<u8>]) -> Vec<u8> {
        let mut content = message(1, name.as_bytes());
        content.extend(message(2, b"Its help."));
        content.extend([0x18, kind]);
        for metric in metrics {
            content.extend(message(4, metric));
        }
        let mut out = Vec::new();
        push_varint(&mut out, content.len() as u64);
        out.extend(content);
        out
    }

    fn label(name: &str, value: &str) -> Vec<u8> {
        let pair = [message(1, name.as_bytes()), message(2, value.as_bytes())];
        message(1, &pair.concat())
    }

    fn page() -> Vec<u8> {
        let native = [
            vec![0x08, 6],
            double(2, 7.5),
            vec![0x28, 2],
            // Two spans: buckets 1 and 2, then bucket 5.
            vec![0x62, 4, 0x08, 2, 0x10, 2, 0x62, 4, 0x08, 4, 0x10, 1],
            vec![0x6a, 3, 2, 4, 1],
        ];
        let classic = [
            vec![0x08, 3],
            double(2, 1.25),
            message(3, &[vec![0x08, 2], double(2, 0.5)].concat()),
        ];
        let summary = [
            vec![0x08, 4],
            double(2, 9.0),
            message(3, &[double(1, 0.5), double(2, 2.0)].concat()),
        ];
        [
            family(
                "steps_total",
                0,
                &[[label("node", "g\"01"), message(3, &double(1, 5.0))].concat()],
            ),
            family("la.tency", 4, &[message(7, &native.concat())]),
            family("wait", 4, &[message(7, &classic.concat())]),
            family(
                "size",
                2,
                &[[message(4, &summary.concat()), vec![0x30, 100]].concat()],
            ),
        ]
        .concat()
    }

    #[test]
    fn a_page_becomes_text_with_the_parts_of_native_histograms() {
        let text = String::from_utf8(text_page(&page(), 1 << 16).unwrap()).unwrap();
        let expected = r#"# HELP steps_total Its help.
# TYPE steps_total counter
steps_total{node="g\"01",} 5
# HELP "la.tency" Its help.
# TYPE "la.tency" histogram
{"la.tency",__native__="count",} 6
{"la.tency",__native__="layout",} 4
{"la.tency",__native__="sum",} 7.5
{"la.tency",__native__="p1",} 1
{"la.tency",__native__="p2",} 3
{"la.tency",__native__="p5",} 2
# HELP wait Its help.
# TYPE wait histogram
wait_bucket{le="0.5",} 2
wait_bucket{le="+Inf",} 3
wait_sum{} 1.25
wait_count{} 3
# HELP size Its help.
# TYPE size summary
size{quantile="0.5",} 2 100
size_sum{} 9 100
size_count{} 4 100
"#;
        assert_eq!(text, expected);
        // The reader of scrapes understands it.
        let text = text.into_bytes();
        let mut lines =
            takt_model::exposition::Page::new(takt_model::exposition::Format::Text, &text);
        let mut samples = 0;
        while let Some(line) = lines.next_line(&[]).unwrap() {
            if let takt_model::exposition::Line::Sample(sample) = line {
                sample.normal_labels().unwrap();
                samples += 1;
            }
        }
        assert_eq!(samples, 14);
    }

    #[test]
    fn a_page_that_is_too_long_as_text_is_refused() {
        // The whole text has some 500 bytes.
        assert_eq!(text_page(&page(), 300), Err(PageError::TooLong(300)));
    }

    #[test]
    fn a_bad_histogram_names_its_metric() {
        // A span of one bucket without a count for it.
        let native = [0x08, 6, 0x28, 2, 0x62, 2, 0x10, 1];
        let page = family("bad", 4, &[message(7, &native)]);
        assert_eq!(
            text_page(&page, 1 << 16).unwrap_err().to_string(),
            "the histogram bad: the spans describe another number of buckets than there are counts"
        );
    }

    proptest! {
        #[test]
        fn any_page_is_read_or_refused(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut page = page();
            for (at, byte) in edits {
                let at = at.index(page.len());
                page[at] = byte;
            }
            page.truncate(cut.index(page.len() + 1));
            let _ = text_page(&page, 1 << 12);
        }
    }
}
