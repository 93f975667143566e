//! PromQL from a tree (`promql/parser/{printer.go,prettier.go}`).

use super::duration::{DurationExpression, format_ms};
use super::tree::{
    Aggregate, AtModifier, BinaryExpression, Expression, ExpressionKind, RangeSelector,
    ShiftModifiers, Subquery, VectorMatching, VectorSelector,
};
use crate::numbers::format_g;
use std::fmt;
use takt_model::{METRIC_NAME, MatchOp, quoted};

/// Longest expression that [`Expression::prettify`] leaves on one line, bytes.
const MAX_LINE: usize = 100;

impl Expression {
    /// The query as PromQL, with long parts broken into indented lines.
    pub fn prettify(&self) -> String {
        pretty(self, 0)
    }
}

fn pretty(of: &Expression, level: usize) -> String {
    let indent = "  ".repeat(level);
    let whole = of.to_string();
    // Prometheus forgets to indent a subquery that fits on one line.
    if whole.len() <= MAX_LINE {
        return match of.kind {
            ExpressionKind::Subquery(_) => whole,
            _ => indent + &whole,
        };
    }

    let below = |child| pretty(child, level + 1);
    match &of.kind {
        ExpressionKind::Number(_)
        | ExpressionKind::Text(_)
        | ExpressionKind::Selector(_)
        | ExpressionKind::Range(_) => indent + &whole,
        ExpressionKind::Subquery(subquery) => {
            pretty(&subquery.of, level) + &SubqueryWindow(subquery).to_string()
        }
        ExpressionKind::Paren(inner) => format!("{indent}(\n{}\n{indent})", below(inner)),
        ExpressionKind::Unary {
            is_negative,
            of: inner,
        } => {
            let sign = if *is_negative { "-" } else { "+" };
            format!("{indent}{sign}{}", pretty(inner, level).trim())
        }
        ExpressionKind::Binary(binary) => format!(
            "{}\n{indent}{}\n{}",
            below(&binary.lhs),
            OperatorWithModifiers(binary),
            below(&binary.rhs)
        ),
        ExpressionKind::Call { function, args } => {
            let args: Vec<String> = args.iter().map(below).collect();
            format!(
                "{indent}{}(\n{}\n{indent})",
                function.name,
                args.join(",\n")
            )
        }
        ExpressionKind::Aggregate(aggregate) => {
            let param = aggregate.param.as_deref();
            let param = param.map_or(String::new(), |param| below(param) + ",\n");
            let head = AggregateHead(aggregate);
            let of = below(&aggregate.of);
            format!("{indent}{head}(\n{param}{of}\n{indent})")
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExpressionKind::Number(number) => write!(f, "{number}"),
            ExpressionKind::Text(literal) => f.write_str(&literal.quoted()),
            ExpressionKind::Selector(selector) => {
                write!(f, "{}", Bare(selector))?;
                write_modifiers(f, selector)
            }
            ExpressionKind::Range(window) => {
                let RangeSelector { of, range } = &**window;
                write!(f, "{}[{}]", Bare(of), WithUnits(range))?;
                let shift = &of.shift;
                if let Some(extension) = of.extension {
                    write!(f, " {}", extension.name())?;
                }
                write_at(f, shift)?;
                write_offset(f, shift)
            }
            ExpressionKind::Subquery(subquery) => {
                write!(f, "{}{}", subquery.of, SubqueryWindow(subquery))
            }
            ExpressionKind::Paren(of) => write!(f, "({of})"),
            ExpressionKind::Unary { is_negative, of } => {
                let sign = if *is_negative { "-" } else { "+" };
                write!(f, "{sign}{of}")
            }
            ExpressionKind::Binary(binary) => {
                let op = OperatorWithModifiers(binary);
                write!(f, "{} {op} {}", binary.lhs, binary.rhs)
            }
            ExpressionKind::Call { function, args } => {
                write!(f, "{}(", function.name)?;
                for (nth, arg) in args.iter().enumerate() {
                    let comma = if nth > 0 { ", " } else { "" };
                    write!(f, "{comma}{arg}")?;
                }
                f.write_str(")")
            }
            ExpressionKind::Aggregate(aggregate) => {
                write!(f, "{}(", AggregateHead(aggregate))?;
                if let Some(param) = &aggregate.param {
                    write!(f, "{param}, ")?;
                }
                write!(f, "{})", aggregate.of)
            }
        }
    }
}

/// A selector without modifiers.
struct Bare<'a>(&'a VectorSelector);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selector = self.0;
        f.write_str(&selector.name)?;

        let mut matchers: Vec<String> = selector
            .matchers
            .iter()
            .filter(|m| {
                // Such a matcher is the name, printed above.
                m.name() != METRIC_NAME
                    || m.op() != MatchOp::Equal
                    || m.value() != selector.name
                    || m.value().is_empty()
            })
            .map(ToString::to_string)
            .collect();

        matchers.sort();
        if matchers.is_empty() {
            Ok(())
        } else {
            write!(f, "{{{}}}", matchers.join(","))
        }
    }
}

fn write_modifiers(f: &mut fmt::Formatter<'_>, selector: &VectorSelector) -> fmt::Result {
    write_at(f, &selector.shift)?;
    if let Some(extension) = selector.extension {
        write!(f, " {}", extension.name())?;
    }
    write_offset(f, &selector.shift)
}

fn write_at(f: &mut fmt::Formatter<'_>, shift: &ShiftModifiers) -> fmt::Result {
    match shift.at {
        None => Ok(()),
        Some(AtModifier::Start) => f.write_str(" @ start()"),
        Some(AtModifier::End) => f.write_str(" @ end()"),
        Some(AtModifier::Instant(at)) => write!(f, " @ {at}"),
    }
}

fn write_offset(f: &mut fmt::Formatter<'_>, shift: &ShiftModifiers) -> fmt::Result {
    match &shift.offset {
        Some(offset) if shift.has_offset() => write!(f, " offset {}", WithUnits(offset)),
        _ => Ok(()),
    }
}

/// A duration in which a literal has units, whether or not it was written with them.
struct WithUnits<'a>(&'a DurationExpression);

impl fmt::Display for WithUnits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.literal() {
            Some(_) => f.write_str(&format_ms(self.0.literal_ms())),
            None => write!(f, "{}", self.0),
        }
    }
}

/// `[range:step]` with the modifiers.
struct SubqueryWindow<'a>(&'a Subquery);

impl fmt::Display for SubqueryWindow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subquery {
            range, step, shift, ..
        } = self.0;
        write!(f, "[{}:", WithUnits(range))?;
        if let Some(step) = step {
            write!(f, "{}", WithUnits(step))?;
        }
        f.write_str("]")?;
        write_at(f, shift)?;
        write_offset(f, shift)
    }
}

/// `sum by (…) `, with the blank before the arguments where there are labels.
struct AggregateHead<'a>(&'a Aggregate);

impl fmt::Display for AggregateHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aggregate {
            op,
            is_without,
            labels,
            ..
        } = self.0;
        f.write_str(op.name())?;
        if *is_without {
            write!(f, " without ({}) ", Labels(labels))
        } else if labels.is_empty() {
            Ok(())
        } else {
            write!(f, " by ({}) ", Labels(labels))
        }
    }
}

/// A binary operator with the modifiers that Prometheus prints.
struct OperatorWithModifiers<'a>(&'a BinaryExpression);

impl fmt::Display for OperatorWithModifiers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = self.0;
        f.write_str(binary.op.name())?;
        if binary.return_bool {
            f.write_str(" bool")?;
        }

        let Some(matching) = binary.vector_matching() else {
            return Ok(());
        };
        if !matching.labels.is_empty() || matching.is_on || matching.group.is_some() {
            let word = if matching.is_on { "on" } else { "ignoring" };
            write!(f, " {word} ({})", Labels(&matching.labels))?;
        }

        if let Some(group) = &matching.group {
            let side = if group.is_left { "left" } else { "right" };
            write!(f, " group_{side} ({})", Labels(&group.include))?;
        }

        write_fill(f, matching)
    }
}

fn write_fill(f: &mut fmt::Formatter<'_>, matching: &VectorMatching) -> fmt::Result {
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => write!(f, " fill ({})", format_g(left)),
        (left, right) => {
            if let Some(left) = left {
                write!(f, " fill_left ({})", format_g(left))?;
            }
            if let Some(right) = right {
                write!(f, " fill_right ({})", format_g(right))?;
            }
            Ok(())
        }
    }
}

/// Label names, quoted where they are not plain words.
struct Labels<'a>(&'a [String]);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, label) in self.0.iter().enumerate() {
            let comma = if nth > 0 { ", " } else { "" };
            if takt_model::is_plain_label(label) {
                write!(f, "{comma}{label}")?;
            } else {
                write!(f, "{comma}{}", quoted(label))?;
            }
        }
        Ok(())
    }
}
