//! Whether an answer is the one that a script expects.

use super::command::{About, Eval, Message, Row, When, unquoted};
use super::notation::Slot;
use crate::annotations::Annotations;
use crate::error::Error;
use crate::numbers::almost_equal;
use crate::source::Point;
use crate::value::{Answer, Series, Value};
use takt_model::Labels;
use takt_model::Timestamp;
use takt_model::error_chain;

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
                .map(|sample| (&sample.labels, sample.point.value))
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
            check_matrix(eval, series, start, step_ms)?;
            let longest = eval
                .rows
                .iter()
                .map(|row| row.slots.len())
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
                slots,
            },
        ] => match slots.as_slice() {
            [Slot::Value(expected)] if almost_equal(*expected, value, EPSILON) => Ok(()),
            expected => Err(format!("expected {expected:?}, got the scalar {value}")),
        },
        _ => Err(format!("got the scalar {value}")),
    }
}

fn check_vector(eval: &Eval, samples: &[(&Labels, f64)]) -> Result<(), String> {
    let mut expected = Vec::with_capacity(eval.rows.len());
    for row in &eval.rows {
        match (&row.labels, row.slots.as_slice()) {
            (Some(labels), [Slot::Value(value)]) => expected.push((labels, *value)),
            (Some(labels), slots) => {
                return Err(format!("{labels}: an instant has one value, not {slots:?}"));
            }
            (None, _) => return Err("expected a scalar, got a vector".to_owned()),
        }
    }
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
        if !almost_equal(expected[found].1, *value, EPSILON) {
            return Err(format!(
                "expected {} for {labels}, got {value}",
                expected[found].1
            ));
        }
    }
    let missing = expected
        .iter()
        .find(|(labels, _)| !samples.iter().any(|(known, _)| known == labels));
    match missing {
        Some((labels, value)) => Err(format!("expected {labels} with value {value}, got nothing")),
        None => Ok(()),
    }
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
        let points = row
            .slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| match slot {
                Slot::Value(value) => Some(Point {
                    at: start.plus_ms(at as i64 * step_ms),
                    value: *value,
                }),
                _ => None,
            });
        expected.push((
            row.labels.clone().unwrap_or_default(),
            points.collect::<Vec<_>>(),
        ));
    }
    for (place, Series { labels, points, .. }) in series.iter().enumerate() {
        let found = expected
            .iter()
            .position(|(known, _)| known == labels)
            .ok_or_else(|| format!("unexpected {labels} with {points:?}"))?;
        if eval.ordered && found != place {
            return Err(format!(
                "expected {labels} at place {}, got it at {}",
                found + 1,
                place + 1
            ));
        }
        let wanted = &expected[found].1;
        let same =
            |(a, b): (&Point, &Point)| a.at == b.at && almost_equal(a.value, b.value, EPSILON);
        if wanted.len() != points.len() || !wanted.iter().zip(points).all(same) {
            return Err(format!(
                "expected {} for {labels}, got {}",
                show(wanted),
                show(points)
            ));
        }
    }
    let missing = |(labels, points): &&(Labels, Vec<Point>)| {
        !points.is_empty() && !series.iter().any(|series| series.labels == *labels)
    };
    match expected.iter().find(missing) {
        Some((labels, points)) => Err(format!(
            "expected {} for {labels}, got nothing",
            show(points)
        )),
        None => Ok(()),
    }
}

fn show(points: &[Point]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|p| format!("{}@{}", p.value, p.at.as_seconds()))
        .collect();
    format!("[{}]", points.join(" "))
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
    let at_instant = |series: &'_ Series| {
        series
            .points
            .iter()
            .find(|point| point.at == at)
            .map(|p| p.value)
    };
    let samples: Vec<(&Labels, f64)> = series
        .iter()
        .filter_map(|s| Some((&s.labels, at_instant(s)?)))
        .collect();
    match (instant, samples.as_slice()) {
        (Value::Scalar(_), [(_, value)]) => check_scalar(eval, *value),
        (Value::Scalar(_), _) => Err("got no scalar".to_owned()),
        _ => check_vector(eval, &samples),
    }
}
