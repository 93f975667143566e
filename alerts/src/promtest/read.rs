//! From the text of a test file to its tests.

use super::{AlertTest, ExpressionTest, Outcome, Test, TestFile};
use crate::rules::{ALERT_NAME, ON_EXPORTER_DOWN};
use crate::unquote::unquote;
use crate::yaml::{Mistake, Node};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use takt_model::notation::{self, NotedValue};
use takt_model::{Labels, METRIC_NAME, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

impl TestFile {
    /// Reads the text of the file called `name`.
    ///
    /// # Errors
    /// At the first mistake.
    pub fn read(name: &str, text: &str) -> Result<Self, Mistake> {
        file(name, text).map_err(|mistake| mistake.in_file(name))
    }
}

fn file(name: &str, text: &str) -> Result<TestFile, Mistake> {
    let root = Node::read(text)?;
    let fields = root.fields(&[
        "rule_files",
        "evaluation_interval",
        "fuzzy_compare",
        "group_eval_order",
        "tests",
    ])?;

    let evaluation_interval = fields
        .optional("evaluation_interval", Node::duration)?
        // As in promtool, zero is no interval of its own.
        .filter(|interval| !interval.is_zero())
        .unwrap_or(MINUTE);
    let tests = fields
        .or_default("tests", Node::list)?
        .iter()
        .map(|node| test(node, evaluation_interval));

    let order = fields.or_default("group_eval_order", Node::texts)?;
    if let Some(twin) = order
        .iter()
        .enumerate()
        .find(|(at, name)| order[..*at].contains(name))
    {
        return Err(root.mistake(format!("`group_eval_order` names `{}` twice", twin.1)));
    }

    Ok(TestFile {
        name: name.to_owned(),
        fuzzy_compare: fields.or_default("fuzzy_compare", Node::boolean)?,
        rule_files: fields.or_default("rule_files", Node::texts)?,
        evaluation_interval,
        group_eval_order: order,
        tests: tests.collect::<Result<_, _>>()?,
    })
}

fn test(node: &Node, evaluation_interval: Duration) -> Result<Test, Mistake> {
    let fields = node.fields(&[
        "name",
        "start_timestamp",
        "interval",
        "input_series",
        "alert_rule_test",
        "promql_expr_test",
        "external_labels",
        "external_url",
    ])?;

    let name = fields.or_default("name", Node::text)?.to_owned();
    let read = || -> Result<Test, Mistake> {
        let list = |key: &str| fields.or_default(key, Node::list);
        let interval = fields
            .optional("interval", Node::duration)?
            .filter(|interval| !interval.is_zero())
            .unwrap_or(evaluation_interval);
        Ok(Test {
            name: name.clone(),
            start: fields
                .optional("start_timestamp", instant)?
                .unwrap_or(Timestamp(0)),
            interval,
            series: list("input_series")?
                .iter()
                .map(input)
                .filter_map(Result::transpose)
                .collect::<Result<_, _>>()?,
            alerts: list("alert_rule_test")?
                .iter()
                .map(alert_test)
                .collect::<Result<_, _>>()?,
            expressions: list("promql_expr_test")?
                .iter()
                .map(expression_test)
                .collect::<Result<_, _>>()?,
            external_labels: fields
                .or_default("external_labels", Node::text_pairs)?
                .into_iter()
                .collect(),
            external_url: fields.or_default("external_url", Node::text)?.to_owned(),
        })
    };
    read().map_err(|mistake| mistake.within(format!("test `{name}`")))
}

/// Seconds since 1970, or RFC 3339.
fn instant(node: &Node) -> Result<Timestamp, Mistake> {
    let text = node.text()?;

    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| seconds.is_finite());
    seconds
        .map(|seconds| Timestamp((seconds * 1000.0).round() as i64))
        .or_else(|| text.parse::<jiff::Timestamp>().ok().map(Timestamp::from))
        .ok_or_else(|| {
            node.mistake(format!(
                "`{text}` is not an instant such as 1700000000 or 2026-11-21T12:00:00Z"
            ))
        })
}

/// A series, which need not have values. To promtool, both are one text.
fn input(node: &Node) -> Result<Option<(Labels, Vec<NotedValue>)>, Mistake> {
    let fields = node.fields(&["series", "values"])?;
    let text = |key: &str| fields.or_default(key, Node::text).map(str::to_owned);

    // promtool reads name and values as one text, so the values may stand behind the name.
    let written = text("series")?;
    let line = format!("{written} {}", text("values")?);
    if line.trim().is_empty() {
        return Ok(None);
    }

    let series = fields.get("series").unwrap_or(node);
    let (labels, rest) = metric(&line).ok_or_else(|| not_a_series(series, &written))?;
    let values = values(fields.get("values").unwrap_or(node), rest)?;
    Ok(Some((labels, values)))
}

/// Words that name no metric.
const RESERVED: [&str; 8] = [
    "atan2",
    "bool",
    "group_left",
    "group_right",
    "ignoring",
    "inf",
    "nan",
    "on",
];

/// The labels at the start of a text, and what follows them. A name is followed by its braces without a blank.
fn metric(text: &str) -> Option<(Labels, &str)> {
    let text = text.trim_start();

    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';

    let (name, rest) = text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()));
    let is_reserved = RESERVED.contains(&name.to_ascii_lowercase().as_str());
    if is_reserved || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    // Two braces begin a native histogram, not the labels.
    let braces = rest.starts_with('{') && !rest.starts_with("{{");
    let (mut labels, rest) = if braces {
        pairs(rest)?
    } else {
        (Labels::new(), rest)
    };

    if !rest.starts_with(char::is_whitespace) {
        return None;
    }

    if !name.is_empty() {
        if labels.get(METRIC_NAME).is_some() {
            return None;
        }
        labels.set(METRIC_NAME, name);
    }
    (!labels.is_empty()).then_some((labels, rest))
}

fn not_a_series(node: &Node, text: &str) -> Mistake {
    node.mistake(format!(
        "`{text}` is not a series such as `up{{job=\"node\"}}`"
    ))
}

fn values(node: &Node, text: &str) -> Result<Vec<NotedValue>, Mistake> {
    notation::values(text).map_err(|error| node.mistake(error.to_string()))
}

fn alert_test(node: &Node) -> Result<AlertTest, Mistake> {
    let fields = node.fields(&["eval_time", "alertname", "exp_alerts"])?;
    let alert = fields.require("alertname")?.text()?.to_owned();
    if alert.is_empty() {
        return Err(node.mistake("`alertname` is empty"));
    }

    let mut expected = Vec::new();
    for node in fields.or_default("exp_alerts", Node::list)? {
        let fields = node.fields(&["exp_labels", "exp_annotations"])?;
        let mut labels: Labels = fields
            .or_default("exp_labels", Node::text_pairs)?
            .into_iter()
            .collect();
        labels.set(ALERT_NAME, &alert);

        let mut annotations = fields.or_default("exp_annotations", Node::text_pairs)?;
        // To promtool, this instruction for Takt is an annotation like others.
        annotations.retain(|(name, _)| name != ON_EXPORTER_DOWN);
        annotations.sort();
        expected.push((labels, annotations));
    }
    Ok(AlertTest {
        at: fields.or_default("eval_time", Node::duration)?,
        alert,
        expected,
    })
}

fn expression_test(node: &Node) -> Result<ExpressionTest, Mistake> {
    let fields = node.fields(&["expr", "eval_time", "exp_samples"])?;
    let mut expected = Vec::new();
    for node in fields.or_default("exp_samples", Node::list)? {
        let fields = node.fields(&["labels", "value", "histogram"])?;

        let none = Labels::new();
        let labels = fields.optional("labels", labels)?.unwrap_or(none);
        // A sample without a value is 0, and a histogram comes before it.
        let float = Outcome::Float(fields.or_default("value", float)?);
        let histogram = fields.or_default("histogram", histogram)?;
        expected.push((labels, histogram.unwrap_or(float)));
    }

    let at = fields.or_default("eval_time", Node::duration)?;
    Ok(ExpressionTest {
        at,
        expr: fields.require("expr")?.text()?.to_owned(),
        expected,
    })
}

/// A number, of which YAML also writes `.inf`, `.nan` and `0x10`.
fn float(node: &Node) -> Result<f64, Mistake> {
    let text = node.text()?;

    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (-1.0, unsigned),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = unsigned
        .strip_prefix("0x")
        .map(|hex| u64::from_str_radix(hex, 16));

    match (unsigned, hex) {
        (".inf" | ".Inf" | ".INF", _) => Ok(sign * f64::INFINITY),
        (".nan" | ".NaN" | ".NAN", _) => Ok(f64::NAN),
        (_, Some(Ok(value))) => Ok(sign * value as f64),
        _ => node.number(),
    }
}

/// Reads one native histogram. `None` for an empty text.
fn histogram(node: &Node) -> Result<Option<Outcome>, Mistake> {
    let values = values(node, node.text()?)?;
    match values.as_slice() {
        [] => Ok(None),
        [NotedValue::Histogram(noted)] => {
            Ok(Some(Outcome::Histogram(Arc::clone(&noted.histogram))))
        }
        _ => Err(node.mistake("expected one native histogram such as `{{sum:1 count:2}}`")),
    }
}

/// A series as Prometheus writes it: `up{job="node"}`, or `{"gpu.power", node="g01"}` with a name
/// that only quotes can hold.
fn labels(node: &Node) -> Result<Labels, Mistake> {
    let text = node.text()?.trim();
    let read = || -> Option<Labels> {
        let (name, braces) = text.split_at(text.find('{').unwrap_or(text.len()));
        let name = name.trim();
        let mut labels = if braces.is_empty() {
            Labels::new()
        } else {
            let (labels, behind) = pairs(braces)?;
            behind.is_empty().then_some(labels)?
        };

        match name {
            "" => {}
            name if name.contains(char::is_whitespace) || labels.get(METRIC_NAME).is_some() => {
                return None;
            }
            name => labels.set(METRIC_NAME, name),
        }
        Some(labels)
    };
    read().ok_or_else(|| not_a_series(node, text))
}

/// Labels in braces, each name once, and what follows them; a text without a name is the metric's.
fn pairs(braces: &str) -> Option<(Labels, &str)> {
    let mut rest = braces.strip_prefix('{')?.trim_start();
    let mut labels = Labels::new();
    let mut seen = BTreeSet::new();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, behind) = match quoted(rest) {
            Some((name, behind)) => (name, behind),
            None => {
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let is_name = end > 0 && !rest.starts_with(|c: char| c.is_ascii_digit());
                is_name.then(|| (rest[..end].to_owned(), rest[end..].trim_start()))?
            }
        };

        let (name, value, behind) = match behind.strip_prefix('=') {
            Some(behind) => {
                let (value, behind) = quoted(behind.trim_start())?;
                (name, value, behind)
            }
            None if rest.starts_with(['"', '\'', '`']) => (METRIC_NAME.to_owned(), name, behind),
            None => return None,
        };

        if !seen.insert(name.clone()) {
            return None;
        }
        labels.set(&name, &value);
        rest = if behind.starts_with('}') {
            behind
        } else {
            behind.strip_prefix(',')?.trim_start()
        };
    }
}

/// A text in one of PromQL's three kinds of quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))?;

    let inside = &text[1..];
    let mut escaped = false;
    let end = inside.find(|c| {
        let closes = c == quote && !escaped;
        escaped = c == '\\' && !escaped && quote != '`';
        closes
    })?;
    let raw = &inside[..end];
    let value = match quote {
        '`' => raw.to_owned(),

        // The two kinds of quotes have different escapes.
        '\'' => unquote(&raw.replace("\\'", "'").replace('"', "\\\""))?,
        _ => unquote(raw)?,
    };
    Some((value, inside[end + 1..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read_as_promql_reads_them() {
        for (text, printed) in [
            ("up", Some("up")),
            ("m:x {}", Some("m:x")),
            (r#"m{a="b,}",}"#, Some(r#"m{a="b,}"}"#)),
            (r"m{a='b', c = `\d`}", Some(r#"m{a="b", c="\\d"}"#)),
            (r#"m{a="\u0041\""}"#, Some(r#"m{a="A\""}"#)),
            (r#"{"m.x", "a b"="c"}"#, Some(r#"m.x{a b="c"}"#)),
            ("m{a=b}", None),
            (r#"m{a="b",a="c"}"#, None),
            (r#"m{a=~"b"}"#, None),
            (r#"m{a="b" c="d"}"#, None),
            (r#"m{a="\d"}"#, None),
            (r#"m{0a="x"}"#, None),
            (r#"m{__name__="x"}"#, None),
            ("m{", None),
            ("m{}x", None),
            ("m a", None),
        ] {
            let node = Node::read("{x: }").unwrap().with_text("x", text);
            let read = labels(node.get("x").unwrap())
                .ok()
                .map(|labels| labels.to_string());
            assert_eq!(read.as_deref(), printed, "{text}");
        }
    }
}
