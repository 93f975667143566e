//! From the text of a test file to its tests.

use super::{AlertTest, ExpressionTest, Test, TestFile, series};
use crate::routing::matcher::{MatchOp, parse_matchers};
use crate::rules::ALERT_NAME;
use crate::yaml::{Mistake, Node};
use std::time::Duration;
use takt_model::{Labels, METRIC_NAME, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

impl TestFile {
    /// Reads the text of the file called `name`.
    ///
    /// # Errors
    /// At the first mistake; what is not covered, such as histograms, is one.
    pub fn read(name: &str, text: &str) -> Result<Self, Mistake> {
        file(name, text).map_err(|mistake| mistake.in_file(name))
    }
}

fn file(name: &str, text: &str) -> Result<TestFile, Mistake> {
    let root = Node::read(text)?;
    let fields = root.fields(&["rule_files", "evaluation_interval", "fuzzy_compare", "group_eval_order", "tests"])?;
    let evaluation_interval = fields.optional("evaluation_interval", Node::duration)?.unwrap_or(MINUTE);
    let tests = fields.or_default("tests", Node::list)?.iter().map(|node| test(node, evaluation_interval));
    let order = fields.or_default("group_eval_order", Node::texts)?;
    if let Some(twin) = order.iter().enumerate().find(|(at, name)| order[..*at].contains(name)) {
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
        let interval = fields.optional("interval", Node::duration)?.unwrap_or(evaluation_interval);
        if interval.is_zero() {
            return Err(node.mistake("`interval` has to be more than zero"));
        }
        Ok(Test {
            name: name.clone(),
            start: fields.optional("start_timestamp", instant)?.unwrap_or(Timestamp(0)),
            interval,
            series: list("input_series")?.iter().map(input).collect::<Result<_, _>>()?,
            alerts: list("alert_rule_test")?.iter().map(alert_test).collect::<Result<_, _>>()?,
            expressions: list("promql_expr_test")?.iter().map(expression_test).collect::<Result<_, _>>()?,
            external_labels: fields.or_default("external_labels", Node::text_pairs)?.into_iter().collect(),
            external_url: fields.or_default("external_url", Node::text)?.to_owned(),
        })
    };
    read().map_err(|mistake| mistake.within(format!("test `{name}`")))
}

/// Seconds since 1970, or RFC 3339.
fn instant(node: &Node) -> Result<Timestamp, Mistake> {
    let text = node.text()?;
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let written = || text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_millisecond()));
    let at = seconds.map(|seconds| Timestamp((seconds * 1000.0).round() as i64)).or_else(written);
    at.ok_or_else(|| node.mistake(format!("`{text}` is no instant such as 1700000000 or 2026-11-21T12:00:00Z")))
}

fn input(node: &Node) -> Result<(Labels, Vec<series::Value>), Mistake> {
    let fields = node.fields(&["series", "values"])?;
    let values = fields.require("values")?;
    let labels = labels(fields.require("series")?)?;
    Ok((labels, series::parse(values.text()?).map_err(|what| values.mistake(what))?))
}

fn alert_test(node: &Node) -> Result<AlertTest, Mistake> {
    let fields = node.fields(&["eval_time", "alertname", "exp_alerts"])?;
    let alert = fields.require("alertname")?.text()?.to_owned();
    let mut expected = Vec::new();
    for node in fields.or_default("exp_alerts", Node::list)? {
        let fields = node.fields(&["exp_labels", "exp_annotations"])?;
        let mut labels: Labels = fields.or_default("exp_labels", Node::text_pairs)?.into_iter().collect();
        labels.set(ALERT_NAME, &alert);
        let mut annotations = fields.or_default("exp_annotations", Node::text_pairs)?;
        annotations.sort();
        expected.push((labels, annotations));
    }
    Ok(AlertTest { at: fields.or_default("eval_time", Node::duration)?, alert, expected })
}

fn expression_test(node: &Node) -> Result<ExpressionTest, Mistake> {
    let fields = node.fields(&["expr", "eval_time", "exp_samples"])?;
    let mut expected = Vec::new();
    for node in fields.or_default("exp_samples", Node::list)? {
        let fields = node.fields(&["labels", "value", "histogram"])?;
        if let Some(histogram) = fields.get("histogram") {
            return Err(histogram.mistake("histograms are not covered"));
        }
        let none = Labels::new();
        let labels = fields.optional("labels", labels)?.unwrap_or(none);
        expected.push((labels, fields.optional("value", Node::number)?.unwrap_or(0.0)));
    }
    let at = fields.or_default("eval_time", Node::duration)?;
    Ok(ExpressionTest { at, expr: fields.require("expr")?.text()?.to_owned(), expected })
}

/// A series as Prometheus writes it: `up{job="node"}`.
fn labels(node: &Node) -> Result<Labels, Mistake> {
    let text = node.text()?.trim();
    let wrong = || node.mistake(format!("`{text}` is no series such as `up{{job=\"node\"}}`"));
    let (mut name, braces) = text.split_at(text.find('{').unwrap_or(text.len()));
    let mut braces = braces.to_owned();
    // A name that only quotes can hold stands in the braces, without a value: `{"gpu.power", node="g01"}`.
    if let Some((quoted, rest)) = quoted_name(text) {
        (name, braces) = (quoted, format!("{{{rest}"));
    }
    let braces = braces.as_str();
    if braces.starts_with('{') != braces.ends_with('}') {
        return Err(wrong());
    }
    let matchers = parse_matchers(braces).map_err(|_| wrong())?;
    if matchers.iter().any(|matcher| matcher.op() != MatchOp::Equal) {
        return Err(wrong());
    }
    let mut labels: Labels = matchers.iter().map(|matcher| (matcher.name(), matcher.value())).collect();
    match name.trim() {
        "" => {}
        name if name.contains(char::is_whitespace) && !text.starts_with("{\"") => return Err(wrong()),
        name => labels.set(METRIC_NAME, name),
    }
    Ok(labels)
}

/// `name` and what follows of `{"name", …}`.
fn quoted_name(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('{')?.trim_start().strip_prefix('"')?;
    let (name, rest) = inside.split_once('"')?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(',').or_else(|| rest.starts_with('}').then_some(rest))?;
    (!name.contains('\\')).then_some((name, rest))
}
