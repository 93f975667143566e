//! Types of parts (`promql/parser/parse.go`, `checkAST`).

use super::Fault;
use super::tree::{Aggregate, BinaryExpression, Expression, ExpressionKind, Type, VectorSelector};
use crate::functions::Function;
use takt_model::quoted;

/// The type of a query. Fails with the first fault of types.
pub(super) fn check(of: &Expression) -> Result<Type, Fault> {
    match &of.kind {
        ExpressionKind::Number(_) | ExpressionKind::Text(_) => {}
        ExpressionKind::Selector(selector) => check_selector(of.at, selector)?,
        ExpressionKind::Range(window) => check_selector(of.at, &window.of)?,
        ExpressionKind::Paren(inner) => {
            check(inner)?;
        }
        ExpressionKind::Subquery(subquery) => {
            let found = check(&subquery.of)?;
            if found != Type::Vector {
                // Prometheus does not use the documented names of types here.
                let found = found.api_name();
                let text =
                    format!("subquery is only allowed on instant vector, got {found} instead");
                return fault(of.at, text);
            }
        }
        ExpressionKind::Unary { of: inner, .. } => {
            let found = check(inner)?;
            if !matches!(found, Type::Scalar | Type::Vector) {
                let text = format!(
                    "unary expression only allowed on expressions of type scalar or instant vector, got \"{found}\""
                );
                return fault(of.at, text);
            }
        }
        ExpressionKind::Binary(binary) => check_binary(of.at, binary)?,
        ExpressionKind::Aggregate(aggregate) => check_aggregation(aggregate)?,
        ExpressionKind::Call { function, args } => check_call(of.at, function, args)?,
    }
    Ok(of.value_type())
}

fn check_selector(at: usize, selector: &VectorSelector) -> Result<(), Fault> {
    if selector.name.is_empty() {
        // `{}` and `{a=""}` would select every series of the store.
        let has_condition = selector.matchers.iter().any(|m| !m.accepts(""));
        if has_condition {
            return Ok(());
        }
        let text = "vector selector must contain at least one non-empty matcher";
        return fault(at, text.to_owned());
    }

    match selector.name_matcher() {
        None => Ok(()),
        Some(other) => {
            let first = quoted(&selector.name);
            let second = quoted(other.value());
            let text = format!("metric name must not be set twice: {first} or {second}");
            fault(at, text)
        }
    }
}

fn check_aggregation(aggregate: &Aggregate) -> Result<(), Fault> {
    expect(&aggregate.of, Type::Vector, "aggregation expression")?;
    match (&aggregate.param, aggregate.op.parameter()) {
        (Some(param), Some(wanted)) => expect(param, wanted, "aggregation parameter"),
        _ => Ok(()),
    }
}

fn check_call(at: usize, function: &Function, args: &[Expression]) -> Result<(), Fault> {
    let name = function.name;
    let named = function.args.len();
    let given = args.len();
    let least = named - usize::from(function.more.is_some());

    let wrong = |bound: &str, count: usize| {
        let text =
            format!("expected {bound}{count} argument(s) in call to \"{name}\", got {given}");
        fault(at, text)
    };

    match function.more {
        None if given != named => return wrong("", named),
        Some(_) if given < least => return wrong("at least ", least),
        Some(more) if given - least > more => return wrong("at most ", least + more),
        _ => {}
    }

    // The conditions would fail the check of selectors, which must not select everything.
    if let [of, conditions] = args
        && name == "info"
    {
        check_conditions(at, conditions)?;
        return expect(of, Type::Vector, "call to function \"info\"");
    }

    for (nth, arg) in args.iter().enumerate() {
        // Further arguments have the type of the last named one, as in `label_join`.
        let wanted = function
            .args
            .get(nth)
            .or(function.args.last())
            .copied()
            .unwrap_or(Type::Vector);
        expect(arg, wanted, &format!("call to function \"{name}\""))?;
    }
    Ok(())
}

/// The second argument of `info` is a selector without a name. It may select everything.
fn check_conditions(at: usize, conditions: &Expression) -> Result<(), Fault> {
    let found = conditions.value_type();
    if found != Type::Vector {
        let text = format!(
            "expected type {} in call to function \"info\", got {found}",
            Type::Vector
        );
        return fault(at, text);
    }

    let only = "expected label selectors only";
    match &conditions.kind {
        ExpressionKind::Selector(selector) if selector.name.is_empty() => Ok(()),
        ExpressionKind::Selector(_) => {
            let text = format!("{only}, got vector selector instead");
            fault(conditions.at, text)
        }
        _ => fault(conditions.at, only.to_owned()),
    }
}

fn check_binary(at: usize, binary: &BinaryExpression) -> Result<(), Fault> {
    let left = check(&binary.lhs)?;
    let right = check(&binary.rhs)?;
    let op = binary.op;
    let name = op.name();

    let matching = &binary.matching;
    if binary.return_bool && !op.compares() {
        let text = "bool modifier can only be used on comparison operators";
        return fault(binary.op_at, text.to_owned());
    }

    let are_scalars = left == Type::Scalar && right == Type::Scalar;
    if op.compares() && !binary.return_bool && are_scalars {
        let text = "comparisons between scalars must use BOOL modifier";
        return fault(binary.op_at, text.to_owned());
    }

    // A label of `on` is in the result anyway; copying it would contradict the match.
    let group = matching.group.as_ref();
    let include = group.map_or(&[][..], |group| group.include.as_slice());
    let twice = matching
        .labels
        .iter()
        .find(|label| matching.is_on && include.contains(label));
    if let Some(label) = twice {
        let label = quoted(label);
        let text = format!("label {label} must not occur in ON and GROUP clause at once");
        return fault(binary.op_at, text);
    }
    for (side, found) in [(&binary.lhs, left), (&binary.rhs, right)] {
        if !matches!(found, Type::Scalar | Type::Vector) {
            let text = "binary expression must contain only scalar and instant vector types";
            return fault(side.at, text.to_owned());
        }
    }

    // The order of these checks decides which message is seen; it is Prometheus'.
    let are_vectors = left == Type::Vector && right == Type::Vector;
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    let text = if !are_vectors && !matching.labels.is_empty() {
        "vector matching only allowed between instant vectors".to_owned()
    } else if !are_vectors && fills {
        "filling in missing series only allowed between instant vectors".to_owned()
    } else if !are_vectors && op.is_set() {
        format!("set operator \"{name}\" not allowed in binary scalar expression")
    } else if op.is_set() && are_vectors && group.is_some() {
        format!("no grouping allowed for \"{name}\" operation")
    } else if op.is_set() && are_vectors && fills {
        "filling in missing series not allowed for set operators".to_owned()
    } else {
        return Ok(());
    };

    fault(at, text)
}

fn expect(of: &Expression, wanted: Type, context: &str) -> Result<(), Fault> {
    let found = check(of)?;
    if found == wanted {
        Ok(())
    } else {
        let text = format!("expected type {wanted} in {context}, got {found}");
        fault(of.at, text)
    }
}

fn fault<T>(at: usize, text: String) -> Result<T, Fault> {
    Err(Fault::new(at, text))
}
