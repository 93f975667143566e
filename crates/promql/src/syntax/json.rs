//! The JSON of a tree, as Prometheus' `parse_query` gives it (`web/api/v1/translate_ast.go`).

use super::duration::{DurationExpression, DurationKind};
use super::tree::{
    AtModifier, BinaryExpression, Expression, ExpressionKind, Extension, Type, VectorMatching,
    VectorSelector,
};
use crate::functions::Function;
use crate::numbers::format_f;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use takt_model::Timestamp;
use takt_model::{METRIC_NAME, Matcher};

impl Serialize for Expression {
    fn serialize<S>(&self, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
    {
        tree(self).serialize(serializer)
    }
}

fn tree(of: &Expression) -> Value {
    match &of.kind {
        ExpressionKind::Number(number) => {
            json!({
                "type": "numberLiteral",
                "val": format_f(number.value),
            })
        }
        ExpressionKind::Text(literal) => json!({"type": "stringLiteral", "val": literal.text}),
        ExpressionKind::Paren(of) => json!({"type": "parenExpr", "expr": tree(of)}),
        ExpressionKind::Unary { is_negative, of } => json!({
            "type": "unaryExpr",
            "op": if *is_negative { "-" } else { "+" },
            "expr": tree(of),
        }),
        ExpressionKind::Selector(selector) => selector_tree("vectorSelector", selector),
        ExpressionKind::Range(window) => {
            let mut value = selector_tree("matrixSelector", &window.of);
            value["range"] = json!(window.range.literal_ms());
            value["rangeExpr"] = computed(&window.range);
            value
        }
        ExpressionKind::Subquery(subquery) => json!({
            "type": "subquery",
            "expr": tree(&subquery.of),
            "range": subquery.range.literal_ms(),
            "rangeExpr": computed(&subquery.range),
            "step": subquery
                .step
                .as_ref()
                .map_or(0, DurationExpression::literal_ms),
            "stepExpr": subquery.step.as_ref().map_or(Value::Null, computed),
            "offset": subquery
                .shift
                .offset
                .as_ref()
                .map_or(0, DurationExpression::literal_ms),
            "offsetExpr": subquery.shift.offset.as_ref().map_or(Value::Null, computed),
            "timestamp": timestamp(subquery.shift.at),
            "startOrEnd": start_or_end(subquery.shift.at),
        }),
        ExpressionKind::Binary(binary) => json!({
            "type": "binaryExpr",
            "op": binary.op.name(),
            "lhs": tree(&binary.lhs),
            "rhs": tree(&binary.rhs),
            "matching": binary
                .vector_matching()
                .map(|matching| matching_tree(binary, matching)),
            "bool": binary.return_bool,
        }),
        ExpressionKind::Call { function, args } => json!({
            "type": "call",
            "func": function_tree(function),
            "args": args.iter().map(tree).collect::<Vec<_>>(),
        }),
        ExpressionKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.op.name(),
            "expr": tree(&aggregate.of),
            "param": aggregate.param.as_deref().map(tree),
            "grouping": aggregate.labels,
            "without": aggregate.is_without,
        }),
    }
}

fn selector_tree(kind: &str, selector: &VectorSelector) -> Value {
    let offset = selector.shift.offset.as_ref();
    let mut matchers: Vec<Value> = selector.matchers.iter().map(matcher_tree).collect();

    // Prometheus keeps the name as the last matcher, besides the field.
    if !selector.name.is_empty() {
        matchers.push(json!({
            "name": METRIC_NAME,
            "value": selector.name,
            "type": "=",
        }));
    }

    json!({
        "type": kind,
        "name": selector.name,
        "offset": offset.map_or(0, DurationExpression::literal_ms),
        "offsetExpr": offset.map_or(Value::Null, computed),
        "matchers": matchers,
        "timestamp": timestamp(selector.shift.at),
        "startOrEnd": start_or_end(selector.shift.at),
        "anchored": selector.extension == Some(Extension::Anchored),
        "smoothed": selector.extension == Some(Extension::Smoothed),
    })
}

fn matcher_tree(matcher: &Matcher) -> Value {
    json!({
        "name": matcher.name(),
        "value": matcher.value(),
        "type": matcher.op().to_string(),
    })
}

fn matching_tree(binary: &BinaryExpression, matching: &VectorMatching) -> Value {
    let card = match &matching.group {
        Some(group) if group.is_left => "many-to-one",
        Some(_) => "one-to-many",
        // Set operators match any number on both sides.
        None if binary.op.is_set() => "many-to-many",
        None => "one-to-one",
    };

    let include = matching.group.as_ref().map(|group| group.include.clone());
    json!({
        "card": card,
        "labels": matching.labels,
        "on": matching.is_on,
        "include": include.unwrap_or_default(),
        "fillValues": {
            "lhs": number(matching.fill_left),
            "rhs": number(matching.fill_right),
        },
    })
}

/// A number as Go writes it into JSON: an integer without a fraction.
fn number(value: Option<f64>) -> Value {
    match value {
        Some(value) if value.fract() == 0.0 && value.abs() < 9e15 => json!(value as i64),
        other => json!(other),
    }
}

fn function_tree(function: &Function) -> Value {
    let args: Vec<&str> = function.args.iter().map(|arg| arg.api_name()).collect();

    // As in Go's table: 0 for a fixed number, -1 for any number.
    let variadic = match function.more {
        None => 0,
        Some(usize::MAX) => -1,
        Some(more) => i64::try_from(more).unwrap_or(-1),
    };
    json!({
        "name": function.name,
        "argTypes": args,
        "variadic": variadic,
        "returnType": function.returns.api_name(),
    })
}

/// The tree of a duration that has to be computed; null for a literal.
fn computed(duration: &DurationExpression) -> Value {
    match duration.literal() {
        Some(_) => Value::Null,
        None => duration_tree(duration),
    }
}

fn duration_tree(duration: &DurationExpression) -> Value {
    let (op, lhs, rhs) = match &duration.kind {
        DurationKind::Literal(literal) => {
            return json!({
                "type": "numberLiteral",
                "val": format_f(literal.value),
                "duration": literal.is_duration,
            });
        }
        DurationKind::Step => ("step", Value::Null, Value::Null),
        DurationKind::Range => ("range", Value::Null, Value::Null),
        DurationKind::Negative(of) => ("-", Value::Null, duration_tree(of)),
        DurationKind::Binary(op, operands) => {
            let [lhs, rhs] = operands.as_ref();
            (op.name(), duration_tree(lhs), duration_tree(rhs))
        }
    };

    json!({
        "type": "durationExpr",
        "op": op,
        "lhs": lhs,
        "rhs": rhs,
        "wrapped": duration.is_wrapped,
    })
}

fn timestamp(at: Option<AtModifier>) -> Option<Timestamp> {
    match at {
        Some(AtModifier::Instant(at)) => Some(at),
        _ => None,
    }
}

fn start_or_end(at: Option<AtModifier>) -> Option<&'static str> {
    match at {
        Some(AtModifier::Start) => Some("start"),
        Some(AtModifier::End) => Some("end"),
        _ => None,
    }
}

impl BinaryExpression {
    /// The matching, where both sides are vectors.
    pub(super) fn vector_matching(&self) -> Option<&VectorMatching> {
        let is_vector = |side: &Expression| side.value_type() == Type::Vector;
        (is_vector(&self.lhs) && is_vector(&self.rhs)).then_some(&self.matching)
    }
}
