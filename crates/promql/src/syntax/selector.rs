//! Selectors, windows, durations and the modifiers behind them.

use super::Fault;
use super::duration::{DurationExpression, DurationKind, DurationOperator, MAX_SECONDS};
use super::lex::{Kind, Token};
use super::read::{Reader, is_name};
use super::text::unquote;
use super::tree::{
    AtModifier, Expression, ExpressionKind, Extension, NumberLiteral, RangeSelector,
    ShiftModifiers, Subquery, VectorSelector,
};
use crate::numbers::format_f;
use takt_model::Timestamp;
use takt_model::{MatchOp, Matcher, quoted};

/// The tokens that a duration may begin with, as messages name them.
const DURATION: &str = "number, duration, step(), or range()";

impl Reader<'_> {
    pub(super) fn selector(&mut self) -> Result<VectorSelector, Fault> {
        let name = if is_name(self.peek()) {
            self.take().text.to_owned()
        } else {
            String::new()
        };

        let mut matchers = Vec::new();
        if self.take_if("{").is_some() {
            while self.take_if("}").is_none() {
                matchers.push(self.matcher()?);
                if self.take_if(",").is_none() && !self.peek().is("}") {
                    return Err(self.unexpected(" in label matching, expected \",\" or \"}\""));
                }
            }
        }

        Ok(VectorSelector {
            name,
            matchers,
            shift: ShiftModifiers::default(),
            extension: None,
        })
    }

    fn matcher(&mut self) -> Result<Matcher, Fault> {
        let label = self.peek().clone();
        let name = match label.kind {
            Kind::Identifier => label.text.to_owned(),
            Kind::Text => unquote(label.text).text,
            _ => {
                return Err(self.unexpected(" in label matching, expected identifier or \"}\""));
            }
        };

        self.take();
        let Some(op) = match_op(self.peek()) else {
            // A quoted metric's name stands alone.
            return match label.kind {
                Kind::Text => Ok(Matcher::metric(&name)),
                _ => Err(self.unexpected(" in label matching, expected label matching operator")),
            };
        };

        self.take();
        if self.peek().kind != Kind::Text {
            return Err(self.unexpected(" in label matching, expected string"));
        }
        let value = unquote(self.take().text).text;

        Matcher::new(&name, op, &value).map_err(|error| {
            // Without the reason: Go's wording is not Rust's.
            let text = if error.source.is_too_large() {
                format!("regular expression is too large: {}", quoted(&value))
            } else {
                format!("error parsing regexp {}", quoted(&value))
            };
            Fault::new(label.at, text)
        })
    }

    /// The windows and modifiers behind an operand.
    pub(super) fn modifiers(&mut self, mut operand: Expression) -> Result<Expression, Fault> {
        loop {
            let next = self.peek();
            if next.is("[") {
                operand = self.window(operand)?;
            } else if next.is("offset") {
                self.take();
                let offset = self.offset()?;
                set_offset(&mut operand, offset)?;
            } else if next.is("@") {
                self.take();
                let instant = self.instant(operand.at)?;
                set_at(&mut operand, instant)?;
            } else if next.is("anchored") {
                self.take();
                set_extension(&mut operand, Extension::Anchored)?;
            } else if next.is("smoothed") {
                self.take();
                set_extension(&mut operand, Extension::Smoothed)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn window(&mut self, of: Expression) -> Result<Expression, Fault> {
        let bracket = self.take();
        let range = self.positive_duration(&format!(
            " in subquery or range selector, expected {DURATION}"
        ))?;

        let at = of.at;
        if self.take_if(":").is_some() {
            let step = if self.peek().is("]") {
                None
            } else {
                let within = format!(
                    " in subquery selector, expected {}, or \"]\"",
                    DURATION.replace(" or ", " ")
                );
                Some(self.positive_duration(&within)?)
            };
            self.expect("]", " in subquery selector, expected \"]\"")?;
            let subquery = Subquery {
                of: Box::new(of),
                range,
                step,
                shift: ShiftModifiers::default(),
            };
            return self.node(at, ExpressionKind::Subquery(Box::new(subquery)));
        }

        self.expect("]", " in subquery or range, expected \":\" or \"]\"")?;

        // At the bracket, where Prometheus puts it, not at the operand.
        let refused = |text: &str| Err(Fault::new(bracket.at, text));

        match of.kind {
            ExpressionKind::Selector(selector) if selector.shift.has_offset() => {
                refused("no offset modifiers allowed before range")
            }
            ExpressionKind::Selector(selector)
                if matches!(selector.shift.at, Some(AtModifier::Instant(_))) =>
            {
                refused("no @ modifiers allowed before range")
            }
            ExpressionKind::Selector(of) => {
                let window = RangeSelector { of: *of, range };
                self.node(at, ExpressionKind::Range(Box::new(window)))
            }
            _ => refused("ranges only allowed for vector selectors"),
        }
    }

    fn instant(&mut self, operand_at: usize) -> Result<AtModifier, Fault> {
        let within = " in @, expected timestamp";
        let word = self.peek().clone();
        if word.is("start") || word.is("end") {
            self.take();
            self.expect("(", within)?;
            self.expect(")", within)?;
            return Ok(if word.is("start") {
                AtModifier::Start
            } else {
                AtModifier::End
            });
        }

        let is_negative = self.take_if("-").is_some();
        if !is_negative {
            self.take_if("+");
        }
        if !matches!(self.peek().kind, Kind::Number | Kind::Duration) {
            return Err(self.unexpected(within));
        }

        let seconds = self.number()?.value;
        let seconds = if is_negative { -seconds } else { seconds };

        // Prometheus' bound, which is one of seconds; the milliseconds below saturate.
        if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
            let seconds = if seconds.is_finite() {
                format!("{seconds:.6}")
            } else {
                format_f(seconds)
            };
            let text = format!("timestamp out of bounds for @ modifier: {seconds}");
            return Err(Fault::new(operand_at, text));
        }

        Ok(AtModifier::Instant(Timestamp(
            (seconds * 1e3).round() as i64
        )))
    }

    /// A duration after `offset`. A literal ends it: `a offset 5m * 2` is `(a offset 5m) * 2`.
    fn offset(&mut self) -> Result<DurationExpression, Fault> {
        let within = format!(" in offset, expected {DURATION}");
        let begins_with_paren = self.peek().is("(");
        if begins_with_paren {
            return self.duration(0, &within);
        }
        let sign = self.peek().clone();
        if sign.is("-") || sign.is("+") {
            self.take();
            let of = self.duration_operand(&within)?;
            return signed(&sign, of);
        }
        self.duration_operand(&within)
    }

    fn positive_duration(&mut self, within: &str) -> Result<DurationExpression, Fault> {
        let duration = self.duration(0, within)?;
        match duration.literal() {
            Some(literal) if literal.value <= 0.0 || literal.value.is_nan() => {
                Err(Fault::new(duration.at, "duration must be greater than 0"))
            }
            _ => Ok(duration),
        }
    }

    /// A duration whose operators bind at least as tightly as given.
    fn duration(&mut self, tightness: u8, within: &str) -> Result<DurationExpression, Fault> {
        self.descend()?;
        let mut lhs = self.duration_operand(within)?;

        let mut chain = 0;
        while let Some((op, found)) =
            duration_operator(self.peek()).filter(|(_, found)| *found >= tightness)
        {
            // A chain of operators nests on its left side, which the count of `descend` does not
            // see.
            chain += 1;
            if chain > super::MAX_DEPTH {
                return Err(self.too_deep());
            }

            let op_at = self.take().at;
            let above = if op == DurationOperator::Pow {
                found
            } else {
                found + 1
            };

            let rhs = self.duration(above, within)?;
            let is_zero = rhs.literal().is_some_and(|literal| literal.value == 0.0);
            match op {
                DurationOperator::Div if is_zero => {
                    return Err(Fault::new(op_at, "division by zero"));
                }
                DurationOperator::Mod if is_zero => {
                    return Err(Fault::new(op_at, "modulo by zero"));
                }
                _ => {}
            }

            lhs = DurationExpression {
                at: lhs.at,
                is_wrapped: false,
                kind: DurationKind::Binary(op, Box::new([lhs, rhs])),
            };
        }
        self.ascend();
        Ok(lhs)
    }

    fn duration_operand(&mut self, within: &str) -> Result<DurationExpression, Fault> {
        let first = self.peek().clone();
        let at = first.at;
        let computed = |kind| DurationExpression {
            at,
            is_wrapped: false,
            kind,
        };
        if matches!(first.kind, Kind::Number | Kind::Duration) {
            let literal = self.number()?;
            return in_range(at, literal).map(computed);
        }
        if first.is("+") || first.is("-") {
            self.take();
            let of = self.duration(DurationOperator::POWER, within)?;
            return signed(&first, of);
        }
        if first.is("(") {
            self.take();
            let inner = self.duration(0, within)?;
            self.expect(")", within)?;
            // Prometheus forgets parentheses around a literal, so they are not printed either.
            let is_wrapped = inner.literal().is_none();
            return Ok(DurationExpression {
                is_wrapped,
                ..inner
            });
        }
        let word = first.text.to_ascii_lowercase();
        let two_operands = match word.as_str() {
            _ if first.kind != Kind::Other => return Err(self.unexpected(within)),
            "step" | "range" => {
                self.take();
                self.expect("(", within)?;
                self.expect(")", within)?;
                return Ok(computed(if word == "step" {
                    DurationKind::Step
                } else {
                    DurationKind::Range
                }));
            }
            "min_of" => DurationOperator::MinOf,
            "max_of" => DurationOperator::MaxOf,
            _ => return Err(self.unexpected(within)),
        };
        self.take();
        self.expect("(", within)?;
        let lhs = self.duration(0, within)?;
        self.expect(",", within)?;
        let rhs = self.duration(0, within)?;
        self.expect(")", within)?;
        let operands = Box::new([lhs, rhs]);
        Ok(computed(DurationKind::Binary(two_operands, operands)))
    }
}

fn duration_operator(token: &Token<'_>) -> Option<(DurationOperator, u8)> {
    (token.kind == Kind::Operator)
        .then(|| DurationOperator::find(token.text))
        .flatten()
}

fn match_op(token: &Token<'_>) -> Option<MatchOp> {
    [
        ("=", MatchOp::Equal),
        ("!=", MatchOp::NotEqual),
        ("=~", MatchOp::Regex),
        ("!~", MatchOp::NotRegex),
    ]
    .into_iter()
    .find(|(text, _)| token.is(text))
    .map(|(_, op)| op)
}

fn in_range(at: usize, literal: NumberLiteral) -> Result<DurationKind, Fault> {
    if literal.value.abs() > MAX_SECONDS {
        Err(Fault::new(at, "duration out of range"))
    } else if literal.value.is_nan() {
        Err(Fault::new(at, "duration is NaN or infinite"))
    } else {
        Ok(DurationKind::Literal(literal))
    }
}

fn signed(sign: &Token<'_>, of: DurationExpression) -> Result<DurationExpression, Fault> {
    let at = sign.at;
    let kind = match of.literal() {
        // A literal stays one, so that its sign is checked while parsing.
        Some(literal) if sign.is("-") => DurationKind::Literal(NumberLiteral {
            value: -literal.value,
            ..literal
        }),
        Some(literal) => DurationKind::Literal(literal),
        None if sign.is("-") => DurationKind::Negative(Box::new(of)),
        None => return Ok(of),
    };
    Ok(DurationExpression {
        at,
        is_wrapped: false,
        kind,
    })
}

impl ShiftModifiers {
    /// Whether an offset other than 0 is set; Prometheus takes 0 for none.
    pub(super) fn has_offset(&self) -> bool {
        let offset = self.offset.as_ref();
        offset.is_some_and(|offset| offset.literal().is_none_or(|literal| literal.value != 0.0))
    }
}

fn shift_of(operand: &mut Expression) -> Option<&mut ShiftModifiers> {
    match &mut operand.kind {
        ExpressionKind::Selector(selector) => Some(&mut selector.shift),
        ExpressionKind::Range(window) => Some(&mut window.of.shift),
        ExpressionKind::Subquery(subquery) => Some(&mut subquery.shift),
        _ => None,
    }
}

fn set_offset(operand: &mut Expression, offset: DurationExpression) -> Result<(), Fault> {
    let at = operand.at;
    let Some(shift) = shift_of(operand) else {
        return misplaced(at, "offset");
    };
    if shift.has_offset() {
        return Err(Fault::new(at, "offset may not be set multiple times"));
    }
    shift.offset = Some(offset);
    Ok(())
}

fn set_at(operand: &mut Expression, instant: AtModifier) -> Result<(), Fault> {
    let at = operand.at;
    let Some(shift) = shift_of(operand) else {
        return misplaced(at, "@");
    };
    if shift.at.replace(instant).is_some() {
        return Err(Fault::new(
            at,
            "@ <timestamp> may not be set multiple times",
        ));
    }
    Ok(())
}

fn misplaced(at: usize, modifier: &str) -> Result<(), Fault> {
    let before =
        "must be preceded by an instant vector selector or range vector selector or a subquery";
    Err(Fault::new(at, format!("{modifier} modifier {before}")))
}

fn set_extension(operand: &mut Expression, extension: Extension) -> Result<(), Fault> {
    let name = extension.name();
    let selector = match &mut operand.kind {
        ExpressionKind::Selector(selector) => selector,
        ExpressionKind::Range(window) => &mut window.of,
        ExpressionKind::Subquery(_) => {
            let text = format!("{name} modifier is not supported for subqueries");
            return Err(Fault::new(operand.at, text));
        }
        _ => {
            let text = format!("{name} modifier not implemented");
            return Err(Fault::new(operand.at, text));
        }
    };
    match selector.extension.replace(extension) {
        // The same modifier twice is legal in Prometheus.
        Some(other) if other != extension => Err(Fault::new(
            operand.at,
            "anchored and smoothed modifiers cannot be used together",
        )),
        _ => Ok(()),
    }
}

impl Extension {
    /// The modifier as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Extension::Anchored => "anchored",
            Extension::Smoothed => "smoothed",
        }
    }
}
