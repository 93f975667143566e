//! Tests of the page parser.

use super::number::parse_value;
use super::*;
use crate::exposition::write_page;
use crate::{Kind, METRIC_NAME, Samples};
use proptest::collection;
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
fn valid_text_lines() {
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
        // An empty series in the table stands for a page that is refused.
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
fn invalid_text_lines() {
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
fn valid_openmetrics_lines() {
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
fn invalid_openmetrics_lines() {
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
fn a_name_in_quotes_is_the_same_in_metadata_and_samples() {
    let text = b"# HELP \"my \\\"metric\\\"\" Help.\n{\"my \\\"metric\\\"\"} 1\n";
    let mut page = Page::new(Format::Text, text);
    let mut names = Vec::new();
    while let Some(line) = page.next_line(b"").unwrap() {
        names.push(match line {
            Line::Metadata(metadata) => metadata.metric().into_owned(),
            Line::Sample(sample) => sample.labels().unwrap().metric().to_owned(),
        });
    }
    assert_eq!(names, ["my \"metric\"", "my \"metric\""]);
}

#[test]
fn metadata_is_returned() {
    // In the text format only `\\` and `\n` are escapes; the backslash before a quote stays.
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
fn invalid_utf8_is_rejected_in_labels_and_accepted_in_help() {
    // Help texts are only shown, so Latin-1 in one must not cost the target its samples.
    let mut page = Page::new(Format::Text, b"# HELP a gr\xfc\xdfe\na{x=\"\xff\"} 1\n");
    assert!(matches!(page.next_line(b""), Ok(Some(Line::Metadata(_)))));
    let Ok(Some(Line::Sample(sample))) = page.next_line(b"") else {
        panic!("no sample")
    };
    assert_eq!(sample.labels().unwrap_err().expected, "valid UTF-8");
}

#[test]
fn a_guess_does_not_change_the_result() {
    // Lines that begin like the guess but are other series, and numbers that the fast path does not
    // take.
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

#[test]
fn any_number_may_follow_an_expected_series() {
    let numbers = [
        // More than 15 digits, and words: the fast path gives these up.
        ("0.12345678901234567", 0.123_456_789_012_345_67),
        ("12345678901234567890", 12_345_678_901_234_567_890.0),
        ("+Inf", f64::INFINITY),
        ("7", 7.0),
    ];
    let lines: Vec<String> = numbers
        .iter()
        .map(|(text, _)| format!("a{{x=\"1\"}} {text}\n"))
        .collect();
    let text = lines.concat();
    let mut page = Page::new(Format::Text, text.as_bytes());
    for (text, value) in numbers {
        let Ok(Some(Line::Sample(sample))) = page.next_line(b"a{x=\"1\"}") else {
            panic!("no sample with {text}")
        };
        assert_eq!(sample.value, value);
        assert!(sample.as_expected);
    }
    assert_eq!(page.next_line(b"a").unwrap(), None);
}

fn bits(value: f64) -> u64 {
    // Formats keep no payload of NaN, so all NaNs count as one.
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

type Written = Vec<(String, Vec<(String, String)>, f64)>;

fn written() -> impl Strategy<Value = Written> {
    let labels = collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,5}", ".{1,8}", 0..4);
    let sample = (
        "[a-zA-Z_:][a-zA-Z0-9_:]{0,8}",
        labels.prop_map(|labels| labels.into_iter().collect()),
        any::<f64>(),
    );
    collection::vec(sample, 0..12)
}

proptest! {
    #[test]
    fn pages_round_trip(samples in written(), is_text: bool) {
        let format = if is_text {
            Format::Text
        } else {
            Format::OpenMetrics
        };
        let mut given = Samples::new();
        for (name, labels, value) in &samples {
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
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
        let mut read: Vec<_> = read
            .into_iter()
            .map(|(series, value, at)| (series, bits(value), at))
            .collect();

        // Samples of one metric are written together, so the order may change.
        read.sort();
        expected.sort();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(text: Vec<u8>, guess: Vec<u8>, is_text: bool) {
        let format = if is_text {
            Format::Text
        } else {
            Format::OpenMetrics
        };
        let mut page = Page::new(format, &text);
        while let Ok(Some(line)) = page.next_line(&guess) {
            if let Line::Sample(sample) = line {
                let _ = sample.labels();
            }
        }
    }

    #[test]
    fn similar_pages_do_not_panic(
        // Made of the pieces of the formats: arbitrary bytes rarely get past the first character.
        text in "([a{}=\",\\\\# \n\t0-9.eE+-]|HELP|TYPE|UNIT|EOF|# |NaN|a\\{x=\"1\"\\} 1\n){0,40}",
        is_text: bool,
    ) {
        let format = if is_text {
            Format::Text
        } else {
            Format::OpenMetrics
        };
        let _ = read(format, &text);
    }

    #[test]
    fn numbers_agree_with_the_standard_library(
        text in "-?[0-9]{0,17}(\\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?",
    ) {
        let ours = parse_value(text.as_bytes()).ok().map(f64::to_bits);
        let std = text
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .map(f64::to_bits);
        prop_assert_eq!(ours, std);
    }
}

#[test]
fn bounds_and_quantiles_of_typed_metrics_have_one_spelling() {
    // As Prometheus 3.14 stores these pages: the type is that of the last line `TYPE`.
    let text = "untyped{le=\"1\"} 1\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\",quantile=\"1\"} 1\n\
                other{le=\"1e6\"} 1\n# HELP h x\nthird{le=\"x\"} 1\n# TYPE s summary\ns{quantile=\"0.50\",le=\"1\"} 1\n\
                # TYPE g gauge\ng{le=\"1\",quantile=\"1\"} 1\n";
    assert_eq!(
        normal(Format::Text, text),
        [
            r#"untyped{le="1"}"#,
            r#"h_bucket{le="1.0"}"#,
            r#"h_bucket{le="+Inf", quantile="1"}"#,
            r#"other{le="1e+06"}"#,
            r#"third{le="x"}"#,
            r#"s{le="1", quantile="0.5"}"#,
            r#"g{le="1", quantile="1"}"#,
        ]
    );
    let text = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\n# TYPE g gaugehistogram\ng_bucket{le=\"1\"} 1\n# EOF\n";
    assert_eq!(
        normal(Format::OpenMetrics, text),
        [r#"h_bucket{le="1.0"}"#, r#"g_bucket{le="1"}"#]
    );
}

fn normal(format: Format, text: &str) -> Vec<String> {
    let mut page = Page::new(format, text.as_bytes());
    let mut all = Vec::new();
    while let Some(line) = page.next_line(b"").unwrap() {
        if let Line::Sample(sample) = line {
            all.push(sample.normal_labels().unwrap().to_string());
        }
    }
    all
}

#[test]
fn a_time_beyond_all_times_is_a_time() {
    let text = b"a 1 99999999999999999999\nb 1 -1e300\n# EOF\n";
    let mut page = Page::new(Format::OpenMetrics, text);
    let mut times = Vec::new();
    while let Some(line) = page.next_line(b"").unwrap() {
        if let Line::Sample(sample) = line {
            times.push(sample.at.unwrap().0);
        }
    }
    assert_eq!(times, [i64::MAX, i64::MIN]);
}
