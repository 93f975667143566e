//! What a rule measures: of `temperature > 90 unless maintenance` the temperature.

use super::syntax;
use promql_parser::label::{MatchOp, Matcher, Matchers};
use promql_parser::parser::{Expr, VectorSelector, token};

/// The left side of a rule's comparison, as a query of its own; narrowed to the series of one node where a node is
/// given. Nothing where the rule compares nothing.
pub fn measured(rule: &str, node: Option<&str>) -> Option<String> {
    let mut compared = compared(syntax::parse(rule).ok()?)?;
    if let Some(node) = node {
        narrow(&mut compared, node);
    }
    Some(compared.to_string())
}

fn compared(expr: Expr) -> Option<Expr> {
    match expr {
        Expr::Paren(inner) => compared(*inner.expr),
        Expr::Binary(binary) => match binary.op.id() {
            token::T_LAND | token::T_LUNLESS => compared(*binary.lhs),
            _ if binary.op.is_comparison_operator() && !binary.return_bool() => match *binary.lhs {
                Expr::NumberLiteral(_) => Some(*binary.rhs),
                lhs => Some(lhs),
            },
            _ => None,
        },
        _ => None,
    }
}

fn narrow(expr: &mut Expr, node: &str) {
    let of_node = |selector: &mut VectorSelector| {
        let matchers = std::mem::replace(&mut selector.matchers, Matchers::new(Vec::new()));
        selector.matchers = matchers.append(Matcher::new(MatchOp::Equal, "node", node));
    };
    match expr {
        Expr::Aggregate(aggregate) => narrow(&mut aggregate.expr, node),
        Expr::Unary(unary) => narrow(&mut unary.expr, node),
        Expr::Binary(binary) => {
            narrow(&mut binary.lhs, node);
            narrow(&mut binary.rhs, node);
        }
        Expr::Paren(paren) => narrow(&mut paren.expr, node),
        Expr::Subquery(subquery) => narrow(&mut subquery.expr, node),
        Expr::VectorSelector(selector) => of_node(selector),
        Expr::MatrixSelector(matrix) => of_node(&mut matrix.vs),
        Expr::Call(call) => call.args.args.iter_mut().for_each(|arg| narrow(arg, node)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
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
        assert_eq!(of("heat"), None);
        assert_eq!(of("vector(1)"), None);
        assert_eq!(of("a > bool 1"), None);
        assert_eq!(of("a > 1 or b > 1"), None);
        assert_eq!(of("heat >"), None);
    }
}
