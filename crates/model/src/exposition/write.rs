//! Writes exposition pages.

use super::Format;
use super::read::is_name_byte;
use crate::Kind;
use crate::samples::{Group, Samples};
use memchr::{memchr2, memchr3};

/// Writes a page from the samples of several collectors. Each metric must come from only one of
/// them.
pub fn write_page<'a>(
    format: Format,
    parts: impl IntoIterator<Item = &'a Samples>,
    out: &mut String,
) {
    for group in parts.into_iter().flat_map(Samples::groups) {
        write_metadata(format, group, out);
        out.push_str(&group.lines);
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
}

fn write_metadata(format: Format, group: &Group, out: &mut String) {
    let (name, kind) = match (format, group.kind) {
        (Format::Text, Kind::Counter) => (group.name.as_ref(), "counter"),
        // Each format has its own word for an unknown type.
        (Format::Text, Kind::Unknown) => (group.name.as_ref(), "untyped"),
        (_, Kind::Gauge) => (group.name.as_ref(), "gauge"),
        (_, Kind::Histogram) => (group.name.as_ref(), "histogram"),
        (_, Kind::Summary) => (group.name.as_ref(), "summary"),
        (Format::OpenMetrics, Kind::Unknown) => (group.name.as_ref(), "unknown"),
        // In OpenMetrics the family's name lacks the suffix that its samples must have. A counter
        // without that suffix, like DCGM's, cannot be declared as a counter.
        (Format::OpenMetrics, Kind::Counter) => match group.name.strip_suffix("_total") {
            Some(family) => (family, "counter"),
            None => (group.name.as_ref(), "unknown"),
        },
    };

    out.push_str("# HELP ");
    out.push_str(name);
    out.push(' ');
    push_escaped(out, &group.help, format == Format::OpenMetrics);
    out.push_str("\n# TYPE ");
    out.push_str(name);
    out.push(' ');
    out.push_str(kind);
    out.push('\n');
}

/// Appends a metric's name as metadata write it: in quotes, unless it is a classic one.
pub fn push_metric_name(out: &mut String, name: &str) {
    push_name(out, name, true);
}

/// Appends a series: `up{job="node"}`, or `{"my.metric","my.label"="x"}` with names that are no classic ones.
pub fn push_series<'a>(
    out: &mut String,
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    // A metric's name in quotes stands among the labels.
    let is_bare = is_classic(metric, true);
    if is_bare {
        out.push_str(metric);
    }
    out.push('{');
    if !is_bare {
        push_quoted(out, metric);
    }

    for (at, (name, value)) in labels.into_iter().enumerate() {
        if at > 0 || !is_bare {
            out.push(',');
        }
        push_name(out, name, false);
        out.push('=');
        push_quoted(out, value);
    }
    out.push('}');
}

fn push_name(out: &mut String, name: &str, is_metric: bool) {
    if is_classic(name, is_metric) {
        out.push_str(name);
    } else {
        push_quoted(out, name);
    }
}

/// Returns whether a name needs no quotes. Since Prometheus 3, any text is a name.
fn is_classic(name: &str, is_metric: bool) -> bool {
    let mut bytes = name.bytes().enumerate();
    !name.is_empty() && bytes.all(|(at, byte)| is_name_byte(byte, at, is_metric))
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text, true);
    out.push('"');
}

/// Appends a label value with `\`, `"` and line feed escaped.
pub(crate) fn push_escaped_label(out: &mut String, value: &str) {
    push_escaped(out, value, true);
}

fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    // Nearly no text needs an escape, and a search for three bytes is much faster than a copy by
    // characters.
    let special = if quotes {
        memchr3(b'\\', b'\n', b'"', text.as_bytes())
    } else {
        memchr2(b'\\', b'\n', text.as_bytes())
    };

    if special.is_none() {
        return out.push_str(text);
    }
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
}

/// Appends a value in its shortest form that parses as the same number.
pub(crate) fn push_value(out: &mut String, value: f64) {
    // Integers below 2^53 are exact, and most samples are integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    // As an integer, -0 would lose its sign.
    if value.trunc() == value && value.abs() < EXACT && !(value == 0.0 && value.is_sign_negative())
    {
        out.push_str(itoa::Buffer::new().format(value as i64));
    } else if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        out.push_str(ryu::Buffer::new().format_finite(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Metric};
    use proptest::prelude::*;

    const SENT: Metric = Metric::counter(
        "sent_bytes_total",
        "Bytes sent.\nAll of \"them\".",
        &["device"],
    );
    const NAMED: Family = Family {
        prefix: "node_memory_",
        help: "Field {}.",
        kind: Kind::Gauge,
        labels: &[],
    };
    const NONE: &[&str] = &[];

    fn page(format: Format) -> String {
        let mut samples = Samples::new();
        samples.push(&SENT, &["eth0"], 1.0);
        samples.push_field(&NAMED, "MemFree_bytes", NONE, 0.5);
        samples.push(&SENT, &["a\"b\\c\nd"], f64::INFINITY);
        let mut out = String::new();
        write_page(format, [&samples], &mut out);
        out
    }

    #[test]
    fn text_page() {
        assert_eq!(
            page(Format::Text),
            "# HELP sent_bytes_total Bytes sent.\\nAll of \"them\".\n# TYPE sent_bytes_total counter\n\
             sent_bytes_total{device=\"eth0\"} 1\nsent_bytes_total{device=\"a\\\"b\\\\c\\nd\"} +Inf\n\
             # HELP node_memory_MemFree_bytes Field MemFree_bytes.\n# TYPE node_memory_MemFree_bytes gauge\n\
             node_memory_MemFree_bytes 0.5\n"
        );
    }

    #[test]
    fn names_that_are_not_classic_stand_in_quotes() {
        let series = |metric: &str, labels: &[(&str, &str)]| {
            let mut out = String::new();
            push_series(&mut out, metric, labels.iter().copied());
            out
        };
        assert_eq!(series("up", &[]), "up{}");
        assert_eq!(
            series("node:up", &[("job", "a\"b"), ("my.label", "c")]),
            r#"node:up{job="a\"b","my.label"="c"}"#
        );
        assert_eq!(series("my.metric", &[]), r#"{"my.metric"}"#);
        assert_eq!(
            series("3\"x", &[("a:b", "c")]),
            r#"{"3\"x","a:b"="c"}"#,
            "a colon belongs to metrics only"
        );
        let mut name = String::new();
        push_metric_name(&mut name, "my.metric");
        assert_eq!(name, r#""my.metric""#);
    }

    #[test]
    fn openmetrics_page() {
        assert_eq!(
            page(Format::OpenMetrics),
            "# HELP sent_bytes Bytes sent.\\nAll of \\\"them\\\".\n# TYPE sent_bytes counter\n\
             sent_bytes_total{device=\"eth0\"} 1\nsent_bytes_total{device=\"a\\\"b\\\\c\\nd\"} +Inf\n\
             # HELP node_memory_MemFree_bytes Field MemFree_bytes.\n# TYPE node_memory_MemFree_bytes gauge\n\
             node_memory_MemFree_bytes 0.5\n# EOF\n"
        );
    }

    #[test]
    fn clearing_leaves_nothing_behind() {
        let mut samples = Samples::new();
        samples.push(&SENT, &["eth0"], 1.0);

        samples.clear();
        let mut out = String::new();
        write_page(Format::Text, [&samples], &mut out);
        assert_eq!(out.as_str(), "");
        assert_eq!(samples.len(), 0);
    }

    proptest! {
        #[test]
        fn a_value_reads_back_as_the_same_number(value: f64) {
            let mut out = String::new();
            push_value(&mut out, value);
            let read: f64 = out.parse().expect("a number");
            prop_assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()));
        }
    }
}
