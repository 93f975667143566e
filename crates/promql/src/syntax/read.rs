//! From tokens to a tree (`promql/parser/generated_parser.y`, and what `parse.go` refuses while parsing).

use super::lex::{Kind, PREPROCESSORS, Token, tokens};
use super::text::unquote;
use super::tree::{
    Aggregate, Aggregation, BinaryExpression, Expression, ExpressionKind, GroupModifier,
    NumberLiteral, Operator, VectorMatching, VectorSelector,
};
use super::{Fault, MAX_DEPTH, duration};
use crate::functions;
use takt_model::quoted;

/// Reads a selector without modifiers.
pub(super) fn read_selector(text: &str) -> Result<VectorSelector, Fault> {
    let mut reader = Reader::new(text);
    if !reader.peek().is("{") && !is_name(reader.peek()) {
        return Err(reader.unexpected(""));
    }
    let selector = reader.selector()?;
    match reader.peek().kind {
        Kind::End => Ok(selector),
        _ => Err(reader.unexpected("")),
    }
}

/// Reads a query up to its first fault of grammar.
pub(super) fn read(query: &str) -> Result<Expression, Fault> {
    let mut reader = Reader::new(query);
    if reader.peek().kind == Kind::End {
        return Err(Fault::new(0, "no expression found in input"));
    }
    let whole = reader.expression(0, "")?;
    match reader.peek().kind {
        Kind::End => Ok(whole),
        _ => Err(reader.unexpected("")),
    }
}

/// A walk over the tokens. Each method reads what its name says and stops behind it.
///
/// `within` ends the message about an unexpected token: ` in aggregation`.
pub(super) struct Reader<'a> {
    /// Never empty; the last token is not passed.
    tokens: Vec<Token<'a>>,
    next: usize,
    /// Number of expressions and durations that are being read.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            tokens: tokens(text),
            next: 0,
            depth: 0,
        }
    }

    // The methods that call each other recursively do little themselves, so that deep queries need little stack.

    /// An expression whose operators bind at least as tightly as given.
    fn expression(&mut self, tightness: u8, within: &str) -> Result<Expression, Fault> {
        self.descend()?;
        let mut lhs = self.operand(within)?;
        while let Some(found) = self.operator_binding(tightness) {
            let operator = self.binary_operator(found)?;
            // The right side takes all operators that bind tighter; those that do not are left to
            // this loop.
            let rhs = self.expression(operator.right_tightness, within)?;
            lhs = self.binary(lhs, *operator, rhs)?;
        }
        self.ascend();
        Ok(lhs)
    }

    /// The next token as an operator that binds at least as tightly as given.
    fn operator_binding(&self, tightness: u8) -> Option<(Operator, u8)> {
        let token = self.peek();
        if token.kind != Kind::Operator {
            return None;
        }
        Operator::find(token.text).filter(|(_, found)| *found >= tightness)
    }

    /// An operator with its modifiers.
    fn binary_operator(
        &mut self,
        (op, tightness): (Operator, u8),
    ) -> Result<Box<PendingOperator>, Fault> {
        let at = self.take().at;
        let (return_bool, matching) = self.matching()?;
        // Only `^` binds its right side first.
        let right_tightness = if op == Operator::Pow {
            tightness
        } else {
            tightness + 1
        };
        Ok(Box::new(PendingOperator {
            op,
            at,
            return_bool,
            matching,
            right_tightness,
        }))
    }

    fn binary(
        &self,
        lhs: Expression,
        operator: PendingOperator,
        rhs: Expression,
    ) -> Result<Expression, Fault> {
        let at = lhs.at;
        let binary = BinaryExpression {
            op: operator.op,
            op_at: operator.at,
            return_bool: operator.return_bool,
            matching: operator.matching,
            lhs,
            rhs,
        };
        self.node(at, ExpressionKind::Binary(Box::new(binary)))
    }

    /// Counts one more nested expression; fails where there are too many.
    pub(super) fn descend(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH + 1 {
            Err(self.too_deep())
        } else {
            Ok(())
        }
    }

    /// Ends what [`descend`](Self::descend) began.
    pub(super) fn ascend(&mut self) {
        self.depth -= 1;
    }

    /// A node that is not too far from its leaves.
    pub(super) fn node(&self, at: usize, kind: ExpressionKind) -> Result<Expression, Fault> {
        let expression = Expression::new(at, kind);
        if expression.height > MAX_DEPTH {
            Err(self.too_deep())
        } else {
            Ok(expression)
        }
    }

    pub(super) fn too_deep(&self) -> Fault {
        let text = format!("query is nested deeper than {MAX_DEPTH} operators and parentheses");
        Fault::new(self.peek().at, text)
    }

    fn operand(&mut self, within: &str) -> Result<Expression, Fault> {
        if self.peek().is("+") || self.peek().is("-") {
            return self.signed(within);
        }
        let operand = self.simple(within)?;
        self.modifiers(operand)
    }

    fn signed(&mut self, within: &str) -> Result<Expression, Fault> {
        let at = self.peek().at;
        let is_negative = self.take().is("-");
        // `-2 ^ 2` is -4: the sign applies to the power.
        let of = self.expression(Operator::POWER, within)?;
        self.node(at, with_sign(is_negative, of))
    }

    fn simple(&mut self, within: &str) -> Result<Expression, Fault> {
        let at = self.peek().at;
        let kind = match self.simple_kind(within)? {
            SimpleKind::Leaf => self.leaf(),
            SimpleKind::Paren => self.paren(within),
            SimpleKind::Call => self.call(within),
            SimpleKind::Aggregation(op) => self.aggregation(op),
        };
        self.node(at, kind?)
    }

    /// Whether an operand may begin with the next token.
    fn begins_operand(&self) -> bool {
        self.peek().is("+") || self.peek().is("-") || self.simple_kind("").is_ok()
    }

    fn simple_kind(&self, within: &str) -> Result<SimpleKind, Fault> {
        let first = self.peek();
        let second = self.peek_second();
        let opens = second.is_some_and(|next| next.is("("));

        Ok(match first.kind {
            Kind::Identifier if opens => SimpleKind::Call,
            Kind::Other if opens && is_preprocessor(first) => SimpleKind::Call,
            Kind::Other if first.is("(") => SimpleKind::Paren,
            Kind::Number | Kind::Duration | Kind::Text => SimpleKind::Leaf,
            Kind::Aggregation => {
                let begins =
                    |next: &&Token<'_>| ["(", "by", "without"].iter().any(|text| next.is(text));
                // Without them, the word names a metric.
                match second.filter(begins).and(Aggregation::find(first.text)) {
                    Some(op) => SimpleKind::Aggregation(op),
                    None => SimpleKind::Leaf,
                }
            }
            _ if first.is("{") || is_name(first) => SimpleKind::Leaf,
            _ => return Err(self.unexpected(within)),
        })
    }

    /// A number, a text or a selector.
    fn leaf(&mut self) -> Result<ExpressionKind, Fault> {
        Ok(match self.peek().kind {
            Kind::Number | Kind::Duration => ExpressionKind::Number(self.number()?),
            Kind::Text => ExpressionKind::Text(unquote(self.take().text)),
            _ => ExpressionKind::Selector(Box::new(self.selector()?)),
        })
    }

    fn paren(&mut self, within: &str) -> Result<ExpressionKind, Fault> {
        self.take();
        let of = Box::new(self.expression(0, within)?);
        self.expect(")", within)?;
        Ok(ExpressionKind::Paren(of))
    }

    /// A number or a duration; the next token is one.
    pub(super) fn number(&mut self) -> Result<NumberLiteral, Fault> {
        let token = self.take();
        if token.kind == Kind::Duration {
            let ms = duration::parse_ms(token.text).map_err(|text| Fault::new(token.at, text))?;
            return Ok(NumberLiteral {
                value: ms as f64 / 1e3,
                is_duration: true,
            });
        }

        let value = number_value(token.text).map_err(|reason| {
            let text = token.text;
            Fault::new(
                token.at,
                format!("error parsing number: strconv.ParseFloat: parsing {text:?}: {reason}"),
            )
        })?;

        Ok(NumberLiteral {
            value,
            is_duration: false,
        })
    }

    fn call(&mut self, within: &str) -> Result<ExpressionKind, Fault> {
        let name = self.take();
        let args = self.arguments(within)?;
        call_of(&name, args)
    }

    fn arguments(&mut self, within: &str) -> Result<Vec<Expression>, Fault> {
        self.expect("(", within)?;
        let mut args = Vec::new();
        if self.take_if(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression(0, within)?);
            if self.ends_arguments(within)? {
                return Ok(args);
            }
        }
    }

    /// Reads what follows an argument: whether the arguments end there.
    fn ends_arguments(&mut self, within: &str) -> Result<bool, Fault> {
        let Some(comma) = self.take_if(",") else {
            self.expect(")", within)?;
            return Ok(true);
        };
        // An unreadable token keeps its own message, which is more exact than this one.
        if !self.begins_operand() && !matches!(self.peek().kind, Kind::Bad(_)) {
            let text = "trailing commas not allowed in function call args";
            return Err(Fault::new(comma.at, text));
        }
        Ok(false)
    }

    fn aggregation(&mut self, op: Aggregation) -> Result<ExpressionKind, Fault> {
        let at = self.take().at;
        let grouping = self.grouping()?.map(Box::new);
        let args = self.arguments(" in aggregation")?;
        self.aggregate(at, op, grouping, args)
    }

    /// An aggregation whose arguments are read; its grouping may still follow.
    fn aggregate(
        &mut self,
        at: usize,
        op: Aggregation,
        grouping: Option<Box<(bool, Vec<String>)>>,
        mut args: Vec<Expression>,
    ) -> Result<ExpressionKind, Fault> {
        let grouping = match grouping {
            Some(grouping) => Some(*grouping),
            None => {
                let grouping = self.grouping()?;
                // Prometheus reads the next token before it counts the arguments.
                if grouping.is_none() && matches!(self.peek().kind, Kind::Bad(_)) {
                    return Err(self.unexpected(""));
                }
                grouping
            }
        };

        // Counted here and not in the check of types, as Prometheus does, so this fault comes
        // first.
        let expected = if op.parameter().is_some() { 2 } else { 1 };
        let count = args.len();
        if count == 0 {
            let text = "no arguments for aggregate expression provided";
            return Err(Fault::new(at, text));
        }

        let of = args.pop().filter(|_| count == expected);
        let Some(of) = of.map(Box::new) else {
            let text = format!(
                "wrong number of arguments for aggregate expression provided, expected {expected}, got {count}"
            );
            return Err(Fault::new(at, text));
        };

        let (is_without, labels) = grouping.unwrap_or_default();
        Ok(ExpressionKind::Aggregate(Box::new(Aggregate {
            op,
            is_without,
            labels,
            param: args.pop().map(Box::new),
            of,
        })))
    }

    /// `by (…)` or `without (…)`: whether it is `without`, and the labels. `None` where neither follows.
    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, Fault> {
        let is_without = self.peek().is("without");
        if !is_without && !self.peek().is("by") {
            return Ok(None);
        }
        self.take();
        Ok(Some((is_without, self.labels()?)))
    }

    fn labels(&mut self) -> Result<Vec<String>, Fault> {
        self.expect("(", " in grouping opts, expected \"(\"")?;
        let mut labels = Vec::new();
        loop {
            if self.take_if(")").is_some() {
                return Ok(labels);
            }

            let token = self.peek();
            // Keywords and operators are labels, too: `by (on, and)`; brackets and signs are not.
            let is_label = match token.kind {
                Kind::Identifier
                | Kind::Metric
                | Kind::Text
                | Kind::Keyword
                | Kind::Aggregation => true,
                Kind::Operator | Kind::Other => {
                    token.text.starts_with(|c: char| c.is_ascii_alphabetic())
                }
                _ => false,
            };

            if !is_label {
                return Err(self.unexpected(" in grouping opts, expected label"));
            }
            let token = self.take();

            let label = if token.kind == Kind::Text {
                unquote(token.text)
            } else {
                token.text.into()
            };

            if !label.is_label_name() {
                let text = format!("invalid label name for grouping: {}", label.quoted());
                return Err(Fault::new(token.at, text));
            }
            labels.push(label.text);

            if self.take_if(",").is_none() && !self.peek().is(")") {
                return Err(self.unexpected(" in grouping opts, expected \",\" or \")\""));
            }
        }
    }

    /// The modifiers between an operator and its right side: whether `bool` stands there, and how elements are matched.
    fn matching(&mut self) -> Result<(bool, VectorMatching), Fault> {
        let return_bool = self.take_if("bool").is_some();
        let mut matching = VectorMatching {
            is_on: self.peek().is("on"),
            ..VectorMatching::default()
        };

        if matching.is_on || self.peek().is("ignoring") {
            self.take();
            matching.labels = self.labels()?;
            let is_left = self.peek().is("group_left");
            if is_left || self.peek().is("group_right") {
                self.take();
                // Labels, or what may follow without them.
                let include = if self.peek().is("(") || !self.begins_operand() {
                    self.labels()?
                } else {
                    Vec::new()
                };
                matching.group = Some(GroupModifier { is_left, include });
            }
        }

        // `fill` sets both sides; each side alone may come first, once.
        if self.take_if("fill").is_some() {
            let value = self.fill_value()?;
            matching.fill_left = Some(value);
            matching.fill_right = Some(value);
        } else if self.take_if("fill_left").is_some() {
            matching.fill_left = Some(self.fill_value()?);
            if self.take_if("fill_right").is_some() {
                matching.fill_right = Some(self.fill_value()?);
            }
        } else if self.take_if("fill_right").is_some() {
            matching.fill_right = Some(self.fill_value()?);
            if self.take_if("fill_left").is_some() {
                matching.fill_left = Some(self.fill_value()?);
            }
        }

        Ok((return_bool, matching))
    }

    fn fill_value(&mut self) -> Result<f64, Fault> {
        self.expect("(", "")?;
        let is_negative = self.take_if("-").is_some();
        if !is_negative {
            self.take_if("+");
        }
        if !matches!(self.peek().kind, Kind::Number | Kind::Duration) {
            return Err(self.unexpected(""));
        }
        let value = self.number()?.value;
        self.expect(")", "")?;
        Ok(if is_negative { -value } else { value })
    }

    pub(super) fn peek(&self) -> &Token<'a> {
        &self.tokens[self.next]
    }

    pub(super) fn peek_second(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.next + 1)
    }

    pub(super) fn take(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        // The last token, the end or a fault, is seen again and again.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn take_if(&mut self, text: &str) -> Option<Token<'a>> {
        self.peek().is(text).then(|| self.take())
    }

    pub(super) fn expect(&mut self, text: &str, within: &str) -> Result<Token<'a>, Fault> {
        self.take_if(text).ok_or_else(|| self.unexpected(within))
    }

    /// The fault that the next token is.
    pub(super) fn unexpected(&self, within: &str) -> Fault {
        let token = self.peek();
        match &token.kind {
            Kind::Bad(message) => Fault::new(token.at, message.clone()),
            _ => {
                let text = format!("unexpected {}{within}", token.description());
                Fault::new(token.at, text)
            }
        }
    }
}

/// The kinds of operands, distinguished by their first two tokens.
enum SimpleKind {
    Leaf,
    Paren,
    Call,
    Aggregation(Aggregation),
}

/// A binary operator whose right side is not read yet.
struct PendingOperator {
    op: Operator,
    at: usize,
    return_bool: bool,
    matching: VectorMatching,
    /// How tightly the operators of the right side have to bind at least.
    right_tightness: u8,
}

fn with_sign(is_negative: bool, of: Expression) -> ExpressionKind {
    match of.kind {
        ExpressionKind::Number(number) if is_negative => ExpressionKind::Number(NumberLiteral {
            value: -number.value,
            ..number
        }),
        ExpressionKind::Number(number) => ExpressionKind::Number(number),
        _ => ExpressionKind::Unary {
            is_negative,
            of: Box::new(of),
        },
    }
}

fn call_of(name: &Token<'_>, args: Vec<Expression>) -> Result<ExpressionKind, Fault> {
    match functions::find(name.text) {
        Some(function) => Ok(ExpressionKind::Call { function, args }),
        None => {
            let text = format!("unknown function with name {}", quoted(name.text));
            Err(Fault::new(name.at, text))
        }
    }
}

fn is_preprocessor(token: &Token<'_>) -> bool {
    PREPROCESSORS.iter().any(|word| token.is(word))
}

/// Whether a token may name a metric.
pub(super) fn is_name(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Identifier | Kind::Metric | Kind::Aggregation => true,
        Kind::Keyword => [
            "by",
            "without",
            "offset",
            "smoothed",
            "anchored",
            "fill",
            "fill_left",
            "fill_right",
        ]
        .iter()
        .any(|name| token.is(name)),
        Kind::Operator => ["and", "or", "unless"].iter().any(|name| token.is(name)),
        Kind::Other => is_preprocessor(token),
        _ => false,
    }
}

/// Whether each underscore stands between two digits, or between `0x` and a digit.
fn separates_digits(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let (digits, is_hex) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, true),
        None => (lower.as_str(), false),
    };
    let is_digit =
        |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit() || is_hex && c.is_ascii_hexdigit());
    digits.match_indices('_').all(|(at, _)| {
        // Go takes `0x_ff` but not `_ff`.
        let is_first = is_hex && at == 0;
        (is_first || is_digit(digits[..at].chars().next_back()))
            && is_digit(digits[at + 1..].chars().next())
    })
}

/// The value of a number as Go reads it (`strconv.ParseInt` with base 0, then `ParseFloat`); fails with Go's reason.
fn number_value(text: &str) -> Result<f64, &'static str> {
    if text.contains('_') && !separates_digits(text) {
        return Err("invalid syntax");
    }

    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let lower = digits.to_ascii_lowercase();
    let integer = if let Some(hex) = lower.strip_prefix("0x") {
        // Go has fractions of hexadecimal numbers only with an exponent, which the lexer refuses.
        return i64::from_str_radix(hex, 16)
            .map(|integer| integer as f64)
            .map_err(|_| "invalid syntax");
    } else if lower.len() > 1 && lower.starts_with('0') {
        // `089` is no octal number, so it is read as a decimal one below, as in Prometheus.
        i64::from_str_radix(&lower, 8).ok()
    } else {
        None
    };

    if let Some(integer) = integer {
        return Ok(integer as f64);
    }

    let value: f64 = lower.parse().map_err(|_| "invalid syntax")?;
    if value.is_infinite() && lower != "inf" {
        Err("value out of range")
    } else {
        Ok(value)
    }
}
