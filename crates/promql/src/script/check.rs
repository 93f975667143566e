//! Whether an answer is the one that a script expects.

use super::command::{About, Eval, Message, Row, When, unquoted};
use crate::annotations::Annotations;
use crate::column::Element;
use crate::error::Error;
use crate::numbers::almost_equal;
use crate::value::{Answer, Sample, Series, Value};
use std::fmt;
use std::sync::Arc;
use takt_model::Labels;
use takt_model::Timestamp;
use takt_model::error_chain;
use takt_model::native::NativeHistogram;
use takt_model::notation::{NotedHistogram, NotedValue};

/// Floats that differ by less, relatively, are equal; as in Prometheus' runner.
const EPSILON: f64 = 1e-6;

/// The value, where one was expected and it is right.
pub(super) fn check<'a>(
    eval: &Eval,
    answer: &'a Result<Answer, Error>,
) -> Result<Option<&'a Value>, String> {
    let answer = match answer {
        Err(error) if eval.fails => {
            check_messages(eval, About::Failure, &[&error_chain(error)])?;
            return Ok(None);
        }
        Err(error) => return Err(error_chain(error)),
        Ok(_) if eval.fails => return Err("expected the query to fail, but it did not".to_owned()),
        Ok(answer) => answer,
    };
    // As in Prometheus' runner, without places.
    let Annotations { warnings, infos } = &answer.annotations;
    check_messages(eval, About::Warning, &Vec::from_iter(warnings.keys()))?;
    check_messages(eval, About::Info, &Vec::from_iter(infos.keys()))?;
    check_value(eval, &answer.value)?;
    Ok(Some(&answer.value))
}

/// Every expectation is met by some message, and every message by some expectation where there is any.
fn check_messages(eval: &Eval, about: About, messages: &[&String]) -> Result<(), String> {
    let expected: Vec<&Message> = eval
        .messages
        .iter()
        .filter(|(kind, _)| *kind == about)
        .map(|(_, m)| m)
        .collect();
    let word = match about {
        About::Failure => "error",
        About::Warning => "warning",
        About::Info => "info",
    };
    if expected
        .iter()
        .any(|message| matches!(message, Message::None))
    {
        return match messages.first() {
            Some(message) => Err(format!("expected no {word}, got {message:?}")),
            None => Ok(()),
        };
    }

    // Before surprises are looked for: a wrong text is both, and the expected one is more helpful.
    if let Some(unmet) = expected
        .iter()
        .find(|expected| !messages.iter().any(|message| meets(expected, message)))
    {
        return Err(format!("expected {word} {unmet:?}, got {messages:?}"));
    }
    let surprising = |message: &&&String| !expected.iter().any(|expected| meets(expected, message));
    match messages.iter().find(surprising) {
        Some(message) if !expected.is_empty() => Err(format!("unexpected {word} {message:?}")),
        _ => Ok(()),
    }
}

fn meets(expected: &Message, message: &str) -> bool {
    match expected {
        Message::Any => true,
        Message::None => false,
        Message::Text(text) => text == message || unquoted(text) == message,
        Message::Regex(regex) => regex.is_match(message),
    }
}

fn check_value(eval: &Eval, value: &Value) -> Result<(), String> {
    match (value, eval.when) {
        (Value::String { text, .. }, _) => match &eval.text {
            Some(expected) if expected == text => Ok(()),
            Some(expected) => Err(format!("expected the text {expected:?}, got {text:?}")),
            None => Err(format!("got the text {text:?}")),
        },
        (Value::Scalar(point), _) => check_scalar(eval, point.value),
        (Value::Vector(samples), _) => {
            let samples = samples
                .iter()
                .map(|sample| (&sample.labels, of_sample(sample)))
                .collect::<Vec<_>>();
            check_vector(eval, &samples)
        }
        (
            Value::Matrix(series),
            When::Range {
                start,
                end,
                step_ms,
            },
        ) => {
            // Missing values at the end are legal, but a script with too many values is written
            // wrongly.
            check_matrix(eval, series, start, step_ms)?;
            let longest = eval
                .rows
                .iter()
                .map(|row| row.values.len())
                .max()
                .unwrap_or(0) as i64;
            if longest > 0 && start.plus_ms((longest - 1) * step_ms) > end {
                Err("more values are expected than there are steps".to_owned())
            } else {
                Ok(())
            }
        }
        (Value::Matrix(series), When::Instant { .. }) => match eval.matrix {
            Some((start, step_ms)) => check_matrix(eval, series, start, step_ms),
            None => {
                Err("got a range vector, which an instant query has to expect by name".to_owned())
            }
        },
    }
}

fn check_scalar(eval: &Eval, value: f64) -> Result<(), String> {
    match eval.rows.as_slice() {
        [
            Row {
                labels: None,
                values,
            },
        ] => match values.as_slice() {
            [NotedValue::Float(expected)] if almost_equal(*expected, value, EPSILON) => Ok(()),
            expected => Err(format!(
                "expected {}, got the scalar {value}",
                show(expected)
            )),
        },
        _ => Err(format!("got the scalar {value}")),
    }
}

fn check_vector(eval: &Eval, samples: &[(&Labels, Element)]) -> Result<(), String> {
    let mut expected = Vec::with_capacity(eval.rows.len());
    for row in &eval.rows {
        match (&row.labels, row.values.as_slice()) {
            (Some(labels), [value @ (NotedValue::Float(_) | NotedValue::Histogram(_))]) => {
                expected.push((labels, value));
            }
            (Some(labels), values) => {
                let values = show(values);
                return Err(format!("{labels}: an instant has one value, not {values}"));
            }
            (None, _) => return Err("expected a scalar, got a vector".to_owned()),
        }
    }

    // Without `eval_ordered` the order does not count, as in Prometheus' runner.
    for (place, (labels, value)) in samples.iter().enumerate() {
        let found = expected
            .iter()
            .position(|(known, _)| known == labels)
            .ok_or_else(|| format!("unexpected {labels} with value {value}"))?;
        if eval.ordered && found != place {
            return Err(format!(
                "expected {labels} at place {}, got it at {}",
                found + 1,
                place + 1
            ));
        }
        if !is_same(expected[found].1, value) {
            return Err(format!(
                "expected {} for {labels}, got {value}",
                show_one(expected[found].1)
            ));
        }
    }
    let missing = expected
        .iter()
        .find(|(labels, _)| !samples.iter().any(|(known, _)| known == labels));
    match missing {
        Some((labels, value)) => Err(format!(
            "expected {labels} with value {}, got nothing",
            show_one(value)
        )),
        None => Ok(()),
    }
}

fn of_sample(sample: &Sample) -> Element {
    match &sample.histogram {
        Some(histogram) => Element::Histogram(Arc::clone(histogram)),
        None => Element::Float(sample.point.value),
    }
}

/// The values of a series in the order of time.
fn of_series(series: &Series) -> Vec<(Timestamp, Element)> {
    let floats = series
        .points
        .iter()
        .map(|point| (point.at, Element::Float(point.value)));
    let histograms = series
        .histograms
        .iter()
        .map(|point| (point.at, Element::Histogram(Arc::clone(&point.histogram))));
    let mut all = Vec::from_iter(floats.chain(histograms));
    all.sort_by_key(|(at, _)| *at);
    all
}

fn is_same(expected: &NotedValue, got: &Element) -> bool {
    match (expected, got) {
        (NotedValue::Float(expected), Element::Float(got)) => {
            almost_equal(*expected, *got, EPSILON)
        }
        (NotedValue::Histogram(expected), Element::Histogram(got)) => {
            is_same_histogram(expected, got)
        }
        _ => false,
    }
}

/// A hint counts only where the script names one. `unknown` and `not_reset` are the same to us.
fn is_same_histogram(noted: &NotedHistogram, got: &NativeHistogram) -> bool {
    let expected = &noted.histogram;
    let close = |expected: f64, got: f64| almost_equal(expected, got, EPSILON);
    let same_buckets = |expected: &[(i32, f64)], got: &[(i32, f64)]| {
        // An empty bucket in the middle of a span is the same as none.
        let mut got = got.iter().filter(|(_, count)| *count != 0.0);
        let all = expected.iter().all(|(index, count)| {
            got.next()
                .is_some_and(|(other, found)| index == other && close(*count, *found))
        });
        all && got.next().is_none()
    };
    let same_bounds = expected.custom_values.len() == got.custom_values.len()
        && (expected.custom_values.iter().zip(&*got.custom_values))
            .all(|(expected, got)| close(*expected, *got));
    expected.schema == got.schema
        && same_bounds
        && (!noted.has_hint || expected.hint == got.hint)
        && close(expected.count, got.count)
        && close(expected.sum, got.sum)
        && close(expected.zero_count, got.zero_count)
        && close(expected.zero_threshold, got.zero_threshold)
        && same_buckets(&expected.positive, &got.positive)
        && same_buckets(&expected.negative, &got.negative)
}

fn check_matrix(
    eval: &Eval,
    series: &[Series],
    start: Timestamp,
    step_ms: i64,
) -> Result<(), String> {
    let mut expected = Vec::with_capacity(eval.rows.len());
    for row in &eval.rows {
        // A scalar over a range is a series without labels.
        let values = row.values.iter().enumerate();
        let values = values
            .filter(|(_, value)| matches!(value, NotedValue::Float(_) | NotedValue::Histogram(_)))
            .map(|(step, value)| (start.plus_ms(step as i64 * step_ms), value));
        expected.push((
            row.labels.clone().unwrap_or_default(),
            Vec::from_iter(values),
        ));
    }

    // Instants are compared, too: a value at the wrong step is wrong.
    for (place, one) in series.iter().enumerate() {
        let labels = &one.labels;
        let got = of_series(one);
        let found = expected
            .iter()
            .position(|(known, _)| known == labels)
            .ok_or_else(|| format!("unexpected {labels} with {}", show_at(&got)))?;
        if eval.ordered && found != place {
            return Err(format!(
                "expected {labels} at place {}, got it at {}",
                found + 1,
                place + 1
            ));
        }
        let wanted = &expected[found].1;
        let same = wanted
            .iter()
            .zip(&got)
            .all(|((at, wanted), (other, got))| at == other && is_same(wanted, got));
        if wanted.len() != got.len() || !same {
            return Err(format!(
                "expected {} for {labels}, got {}",
                show_wanted(wanted),
                show_at(&got)
            ));
        }
    }

    // A row of blanks alone expects a series without samples, which is the same as no series.
    let missing = |(labels, values): &&(Labels, Vec<(Timestamp, &NotedValue)>)| {
        !values.is_empty() && !series.iter().any(|series| series.labels == *labels)
    };
    match expected.iter().find(missing) {
        Some((labels, values)) => Err(format!(
            "expected {} for {labels}, got nothing",
            show_wanted(values)
        )),
        None => Ok(()),
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Float(value) => value.fmt(f),
            Element::Histogram(histogram) => show_histogram(histogram).fmt(f),
        }
    }
}

/// With the schema, which the bounds of buckets do not always show.
fn show_histogram(histogram: &NativeHistogram) -> String {
    format!("{histogram} of schema {}", histogram.schema)
}

fn show_one(value: &NotedValue) -> String {
    match value {
        NotedValue::Float(value) => value.to_string(),
        NotedValue::Histogram(noted) => show_histogram(&noted.histogram),
        NotedValue::Missing => "_".to_owned(),
        NotedValue::Stale => "stale".to_owned(),
    }
}

fn show(values: &[NotedValue]) -> String {
    Vec::from_iter(values.iter().map(show_one)).join(" ")
}

fn show_wanted(values: &[(Timestamp, &NotedValue)]) -> String {
    let values = values
        .iter()
        .map(|(at, value)| format!("{}@{}", show_one(value), at.as_seconds()));
    format!("[{}]", Vec::from_iter(values).join(" "))
}

fn show_at(values: &[(Timestamp, Element)]) -> String {
    let values = values
        .iter()
        .map(|(at, value)| format!("{value}@{}", at.as_seconds()));
    format!("[{}]", Vec::from_iter(values).join(" "))
}

/// Whether a range query says at one instant what the instant query said.
pub(super) fn check_middle(
    eval: &Eval,
    instant: &Value,
    range: &Value,
    at: Timestamp,
) -> Result<(), String> {
    let Value::Matrix(series) = range else {
        return Err("not a matrix".to_owned());
    };
    let at_instant = |series: &Series| {
        of_series(series)
            .into_iter()
            .find(|(found, _)| *found == at)
            .map(|(_, value)| value)
    };
    let samples: Vec<(&Labels, Element)> = series
        .iter()
        .filter_map(|s| Some((&s.labels, at_instant(s)?)))
        .collect();
    match (instant, samples.as_slice()) {
        (Value::Scalar(_), [(_, Element::Float(value))]) => check_scalar(eval, *value),
        (Value::Scalar(_), _) => Err("got no scalar".to_owned()),
        _ => check_vector(eval, &samples),
    }
}
