//! The vector that a rule compares: of `temperature > 90 unless maintenance` the temperature.

use crate::syntax::parse;
use crate::syntax::tree::{Expression, ExpressionKind, Operator};
use takt_model::Matcher;

/// The left side of a rule's comparison, as a query of its own; with a node, only the series of that node. `None` where the
/// rule is not PromQL or does not compare.
pub fn measured(rule: &str, node: Option<&str>) -> Option<String> {
    let mut compared = compared(parse(rule).ok()?)?;
    if let Some(node) = node {
        narrow(&mut compared, &Matcher::equal("node", node));
    }
    Some(compared.to_string())
}

fn compared(expression: Expression) -> Option<Expression> {
    match expression.kind {
        ExpressionKind::Paren(inner) => compared(*inner),
        ExpressionKind::Binary(binary) => match binary.op {
            // Both sides of `and` may compare; the result has the elements of the left one.
            Operator::And | Operator::Unless => compared(binary.lhs),
            // With `bool` the comparison gives 0 or 1 for each element, so the rule fires on all of
            // them.
            op if op.compares() && !binary.return_bool => match binary.lhs.kind {
                ExpressionKind::Number(_) => Some(binary.rhs),
                _ => Some(binary.lhs),
            },
            _ => None,
        },
        _ => None,
    }
}

/// Adds a matcher to each selector.
fn narrow(expression: &mut Expression, matcher: &Matcher) {
    match &mut expression.kind {
        ExpressionKind::Number(_) | ExpressionKind::Text(_) => {}
        ExpressionKind::Selector(selector) => selector.matchers.push(matcher.clone()),
        ExpressionKind::Range(window) => window.of.matchers.push(matcher.clone()),
        ExpressionKind::Subquery(subquery) => narrow(&mut subquery.of, matcher),
        ExpressionKind::Paren(of) | ExpressionKind::Unary { of, .. } => narrow(of, matcher),
        ExpressionKind::Aggregate(aggregate) => narrow(&mut aggregate.of, matcher),
        ExpressionKind::Call { args, .. } => args.iter_mut().for_each(|arg| narrow(arg, matcher)),
        ExpressionKind::Binary(binary) => {
            narrow(&mut binary.lhs, matcher);
            narrow(&mut binary.rhs, matcher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_left_side_of_the_comparison_on_the_alerts_node() {
        let of = |rule: &str| measured(rule, Some("g01"));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("heat > 90"), some(r#"heat{node="g01"}"#));
        assert_eq!(of("90 < heat"), some(r#"heat{node="g01"}"#));
        assert_eq!(
            of(
                "(rate(errors[5m]) / rate(packets[5m]) > 0.01) and up == 1 unless on (node) boot < 600"
            ),
            some(r#"rate(errors{node="g01"}[5m]) / rate(packets{node="g01"}[5m])"#)
        );
        assert_eq!(
            measured("max by (node) (up{a=\"b\"}) == 0", None),
            some(r#"max by (node) (up{a="b"})"#)
        );

        // Rules without one comparison at the top: a value, a function, `bool`, two alternatives, a
        // fault.
        assert_eq!(of("heat"), None);
        assert_eq!(of("vector(1)"), None);
        assert_eq!(of("a > bool 1"), None);
        assert_eq!(of("a > 1 or b > 1"), None);
        assert_eq!(of("heat >"), None);
    }
}
