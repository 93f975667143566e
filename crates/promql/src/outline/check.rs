//! Types of parts (`promql/parser/parse.go`, `checkAST`).

use super::lex::Token;
use super::{Binary, Fault, Outline, Part};
use crate::functions;
use crate::plan::Type;

const COMPARISONS: [&str; 6] = ["==", "!=", "<=", "<", ">=", ">"];
const SETS: [&str; 3] = ["and", "or", "unless"];

/// The type of a query, or its first fault of types. A function that is not known here is taken for one that fits.
pub(crate) fn check(of: &Outline<'_>) -> Result<Type, Fault> {
    match &of.part {
        Part::Number => Ok(Type::Scalar),
        Part::Text => Ok(Type::String),
        Part::Selector(_) => Ok(Type::Vector),
        Part::Paren(inner) => check(inner),
        Part::Window {
            of: inner,
            is_subquery,
            ..
        } => match check(inner)? {
            Type::Vector => Ok(Type::Matrix),
            _ if !is_subquery => Ok(Type::Matrix),
            other => {
                // Prometheus has this one without the documented names.
                let other = if other == Type::Matrix {
                    "matrix".to_owned()
                } else {
                    other.to_string()
                };
                fault(
                    of.at,
                    format!("subquery is only allowed on instant vector, got {other} instead"),
                )
            }
        },
        Part::Unary(inner) => match check(inner)? {
            kind @ (Type::Scalar | Type::Vector) => Ok(kind),
            other => fault(
                of.at,
                format!(
                    "unary expression only allowed on expressions of type scalar or instant vector, got \"{other}\""
                ),
            ),
        },
        Part::Binary(binary) => check_binary(of.at, binary),
        Part::Aggregate { name, args } => check_aggregation(name, args),
        Part::Call { name, args } => check_call(of.at, name, args),
    }
}

fn check_aggregation(name: &str, args: &[Outline<'_>]) -> Result<Type, Fault> {
    if let Some(of) = args.last() {
        expect(of, Type::Vector, "aggregation expression")?;
    }
    if let [param, _] = args {
        let wanted = if name == "count_values" {
            Type::String
        } else {
            Type::Scalar
        };
        expect(param, wanted, "aggregation parameter")?;
    }
    Ok(Type::Vector)
}

fn check_call(at: usize, name: &str, args: &[Outline<'_>]) -> Result<Type, Fault> {
    let Some(function) = functions::find(name) else {
        args.iter().try_for_each(|arg| check(arg).map(|_| ()))?;
        return Ok(Type::Vector);
    };
    let (named, given) = (function.args.len(), args.len());
    let least = named - usize::from(function.more.is_some());
    let wrong = |bound: &str, count: usize| {
        fault(
            at,
            format!("expected {bound}{count} argument(s) in call to \"{name}\", got {given}"),
        )
    };
    match function.more {
        None if given != named => return wrong("", named),
        Some(_) if given < least => return wrong("at least ", least),
        Some(more) if given - least > more => return wrong("at most ", least + more),
        _ => {}
    }
    for (nth, arg) in args.iter().enumerate() {
        let wanted = function
            .args
            .get(nth)
            .or(function.args.last())
            .copied()
            .unwrap_or(Type::Vector);
        expect(arg, wanted, &format!("call to function \"{name}\""))?;
    }
    Ok(function.returns)
}

fn check_binary(
    at: usize,
    Binary {
        lhs,
        op,
        matching,
        rhs,
    }: &Binary<'_>,
) -> Result<Type, Fault> {
    let (left, right) = (check(lhs)?, check(rhs)?);
    let scalars = left == Type::Scalar && right == Type::Scalar;
    if matching.is_bool && !is_of(&COMPARISONS, op) {
        return fault(
            op.at,
            "bool modifier can only be used on comparison operators".to_owned(),
        );
    }
    if is_of(&COMPARISONS, op) && !matching.is_bool && scalars {
        return fault(
            op.at,
            "comparisons between scalars must use BOOL modifier".to_owned(),
        );
    }
    let group = matching.group.as_deref().unwrap_or_default();
    if let Some(label) = matching
        .labels
        .iter()
        .find(|label| matching.is_on && group.contains(label))
    {
        return fault(
            op.at,
            format!("label {label:?} must not occur in ON and GROUP clause at once"),
        );
    }
    for (side, kind) in [(lhs, left), (rhs, right)] {
        if !matches!(kind, Type::Scalar | Type::Vector) {
            let text = "binary expression must contain only scalar and instant vector types";
            return fault(side.at, text.to_owned());
        }
    }
    let name = op.text.to_ascii_lowercase();
    let are_vectors = left == Type::Vector && right == Type::Vector;
    if !are_vectors && !matching.labels.is_empty() {
        return fault(
            at,
            "vector matching only allowed between instant vectors".to_owned(),
        );
    }
    if are_vectors && is_of(&SETS, op) && matching.group.is_some() {
        return fault(at, format!("no grouping allowed for {name:?} operation"));
    }
    if !are_vectors && is_of(&SETS, op) {
        return fault(
            at,
            format!("set operator {name:?} not allowed in binary scalar expression"),
        );
    }
    Ok(if scalars { Type::Scalar } else { Type::Vector })
}

fn is_of(operators: &[&str], op: &Token<'_>) -> bool {
    operators.iter().any(|name| op.is(name))
}

fn expect(of: &Outline<'_>, wanted: Type, context: &str) -> Result<(), Fault> {
    match check(of)? {
        got if got == wanted => Ok(()),
        got => fault(
            of.at,
            format!("expected type {wanted} in {context}, got {got}"),
        ),
    }
}

fn fault<T>(at: usize, text: String) -> Result<T, Fault> {
    Err(Fault { at, text })
}
