//! The tree of a query: each node with the byte at which it begins.

use super::duration::DurationExpression;
use super::text::TextLiteral;
use crate::functions::Function;
use std::fmt;
use takt_model::Timestamp;
use takt_model::{METRIC_NAME, Matcher};

/// A parsed query, or a part of one.
///
/// `Display` prints PromQL on one line; [`prettify`](Self::prettify) breaks long lines; `Serialize` gives the JSON of Prometheus'
/// `parse_query`.
#[derive(Debug, Clone)]
pub struct Expression {
    /// The byte of the query at which the part begins.
    pub(crate) at: usize,
    /// Length of the longest path from here down to a leaf; 0 for a leaf.
    pub(super) height: usize,
    pub(crate) kind: ExpressionKind,
}

/// The kinds of expressions in PromQL's grammar. Large ones are boxed: the parser holds several on the stack at each level.
#[derive(Debug, Clone)]
pub(crate) enum ExpressionKind {
    Number(NumberLiteral),
    Text(TextLiteral),
    Selector(Box<VectorSelector>),
    /// `selector[range]`
    Range(Box<RangeSelector>),
    /// `of[range:step]`
    Subquery(Box<Subquery>),
    Paren(Box<Expression>),
    Unary {
        is_negative: bool,
        of: Box<Expression>,
    },
    Binary(Box<BinaryExpression>),
    Call {
        function: &'static Function,
        args: Vec<Expression>,
    },
    Aggregate(Box<Aggregate>),
}

/// A number, or a duration in its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberLiteral {
    /// The number; for a duration, seconds.
    pub value: f64,
    pub is_duration: bool,
}

/// `name{matchers}` with its modifiers.
#[derive(Debug, Clone)]
pub(crate) struct VectorSelector {
    /// The metric's name before the braces; empty where none is written.
    pub name: String,
    /// The matchers between the braces, in the order of the text.
    pub matchers: Vec<Matcher>,
    pub shift: ShiftModifiers,
    pub extension: Option<Extension>,
}

/// `anchored` and `smoothed`: how a window treats its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    Anchored,
    Smoothed,
}

/// A selector's samples within a window.
#[derive(Debug, Clone)]
pub(crate) struct RangeSelector {
    pub of: VectorSelector,
    pub range: DurationExpression,
}

/// An expression evaluated at several instants within a window.
#[derive(Debug, Clone)]
pub(crate) struct Subquery {
    pub of: Box<Expression>,
    pub range: DurationExpression,
    /// `None`: the default interval.
    pub step: Option<DurationExpression>,
    pub shift: ShiftModifiers,
}

/// `@` and `offset`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShiftModifiers {
    pub at: Option<AtModifier>,
    pub offset: Option<DurationExpression>,
}

/// The instant after `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtModifier {
    Start,
    End,
    /// Milliseconds since 1970.
    Instant(Timestamp),
}

/// Two operands with their operator.
#[derive(Debug, Clone)]
pub(crate) struct BinaryExpression {
    pub op: Operator,
    /// The byte at which the operator stands.
    pub op_at: usize,
    pub return_bool: bool,
    pub matching: VectorMatching,
    pub lhs: Expression,
    pub rhs: Expression,
}

/// The modifiers between a binary operator and its right side.
#[derive(Debug, Clone, Default)]
pub(crate) struct VectorMatching {
    /// Whether `labels` are those of `on` rather than of `ignoring`.
    pub is_on: bool,
    pub labels: Vec<String>,
    pub group: Option<GroupModifier>,
    /// Value of a missing element on the left side.
    pub fill_left: Option<f64>,
    /// Value of a missing element on the right side.
    pub fill_right: Option<f64>,
}

/// `group_left` or `group_right` with the labels to copy.
#[derive(Debug, Clone)]
pub(crate) struct GroupModifier {
    pub is_left: bool,
    pub include: Vec<String>,
}

/// An aggregation with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Aggregate {
    pub op: Aggregation,
    /// Whether `labels` are those of `without` rather than of `by`.
    pub is_without: bool,
    pub labels: Vec<String>,
    pub param: Option<Box<Expression>>,
    pub of: Box<Expression>,
}

impl Expression {
    pub(super) fn new(at: usize, kind: ExpressionKind) -> Self {
        let mut expression = Self {
            at,
            height: 0,
            kind,
        };
        // Kept in each node: to measure the tree again at each level would be quadratic.
        expression.height = expression
            .children()
            .iter()
            .map(|child| child.height + 1)
            .max()
            .unwrap_or(0);
        expression
    }

    /// The parts directly below, in the order of the text.
    pub(crate) fn children(&self) -> Vec<&Expression> {
        match &self.kind {
            ExpressionKind::Number(_)
            | ExpressionKind::Text(_)
            | ExpressionKind::Selector(_)
            | ExpressionKind::Range(_) => Vec::new(),
            ExpressionKind::Subquery(subquery) => vec![&subquery.of],
            ExpressionKind::Paren(of) | ExpressionKind::Unary { of, .. } => vec![of],
            ExpressionKind::Binary(binary) => vec![&binary.lhs, &binary.rhs],
            ExpressionKind::Call { args, .. } => args.iter().collect(),
            ExpressionKind::Aggregate(aggregate) => aggregate
                .param
                .as_deref()
                .into_iter()
                .chain([&*aggregate.of])
                .collect(),
        }
    }

    /// The conditions of each selector in the expression, in the order of the text.
    pub fn selectors(&self) -> Vec<Vec<Matcher>> {
        let mut found = Vec::new();
        self.collect_selectors(&mut found);
        found
    }

    fn collect_selectors(&self, found: &mut Vec<Vec<Matcher>>) {
        match &self.kind {
            ExpressionKind::Selector(selector) => found.push(selector.conditions()),
            ExpressionKind::Range(window) => found.push(window.of.conditions()),
            _ => {
                for child in self.children() {
                    child.collect_selectors(found);
                }
            }
        }
    }

    /// Whether the value depends on the query's start, end or step, so that a range query may differ from instant ones.
    pub(crate) fn depends_on_query_times(&self) -> bool {
        let shifts = |shift: &ShiftModifiers| {
            matches!(shift.at, Some(AtModifier::Start | AtModifier::End))
                || shift
                    .offset
                    .as_ref()
                    .is_some_and(DurationExpression::is_of_query)
        };
        let own = match &self.kind {
            ExpressionKind::Selector(selector) => shifts(&selector.shift),
            ExpressionKind::Range(window) => shifts(&window.of.shift) || window.range.is_of_query(),
            ExpressionKind::Subquery(subquery) => {
                shifts(&subquery.shift)
                    || subquery.range.is_of_query()
                    || subquery
                        .step
                        .as_ref()
                        .is_some_and(DurationExpression::is_of_query)
            }
            ExpressionKind::Call { function, .. } => {
                matches!(function.name, "start" | "end" | "step" | "range")
            }
            _ => false,
        };
        own || self
            .children()
            .into_iter()
            .any(Self::depends_on_query_times)
    }

    /// The type of the value, as far as the operands have the types that they need.
    pub(crate) fn value_type(&self) -> Type {
        match &self.kind {
            ExpressionKind::Number(_) => Type::Scalar,
            ExpressionKind::Text(_) => Type::String,
            ExpressionKind::Selector(_) | ExpressionKind::Aggregate(_) => Type::Vector,
            ExpressionKind::Range(_) | ExpressionKind::Subquery(_) => Type::Matrix,
            ExpressionKind::Paren(of) | ExpressionKind::Unary { of, .. } => of.value_type(),
            ExpressionKind::Binary(binary) => {
                let is_scalar = |side: &Expression| side.value_type() == Type::Scalar;
                if is_scalar(&binary.lhs) && is_scalar(&binary.rhs) {
                    Type::Scalar
                } else {
                    Type::Vector
                }
            }
            ExpressionKind::Call { function, .. } => function.returns,
        }
    }
}

impl VectorSelector {
    /// All conditions, the metric's name first.
    pub(crate) fn conditions(&self) -> Vec<Matcher> {
        (!self.name.is_empty())
            .then(|| Matcher::metric(&self.name))
            .into_iter()
            .chain(self.matchers.iter().cloned())
            .collect()
    }

    /// A matcher within the braces that names the metric.
    pub(super) fn name_matcher(&self) -> Option<&Matcher> {
        self.matchers
            .iter()
            .find(|matcher| matcher.name() == METRIC_NAME)
    }
}

/// The four types of PromQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    String,
    /// An instant vector.
    Vector,
    /// A range vector.
    Matrix,
}

impl Type {
    /// The type's name in the HTTP API.
    pub fn api_name(self) -> &'static str {
        match self {
            Type::Scalar => "scalar",
            Type::String => "string",
            Type::Vector => "vector",
            Type::Matrix => "matrix",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Scalar => "scalar",
            Type::String => "string",
            Type::Vector => "instant vector",
            Type::Matrix => "range vector",
        })
    }
}

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// `</`, which trims native histograms.
    TrimUpper,
    /// `>/`, which trims native histograms.
    TrimLower,
    And,
    Or,
    Unless,
}

impl Operator {
    /// All operators as they are written, with how tightly they bind.
    const ALL: [(Operator, &'static str, u8); 18] = [
        (Operator::Or, "or", 1),
        (Operator::And, "and", 2),
        (Operator::Unless, "unless", 2),
        (Operator::Equal, "==", 3),
        (Operator::NotEqual, "!=", 3),
        (Operator::LessEqual, "<=", 3),
        (Operator::Less, "<", 3),
        (Operator::GreaterEqual, ">=", 3),
        (Operator::Greater, ">", 3),
        (Operator::TrimUpper, "</", 3),
        (Operator::TrimLower, ">/", 3),
        (Operator::Add, "+", 4),
        (Operator::Sub, "-", 4),
        (Operator::Mul, "*", 5),
        (Operator::Div, "/", 5),
        (Operator::Mod, "%", 5),
        (Operator::Atan2, "atan2", 5),
        (Operator::Pow, "^", Operator::POWER),
    ];
    /// How tightly `^` binds; a sign binds its operand as tightly as `*` does.
    pub const POWER: u8 = 6;

    /// The operator of that text, with how tightly it binds.
    pub fn find(text: &str) -> Option<(Self, u8)> {
        Self::ALL
            .iter()
            .find(|(_, name, _)| text.eq_ignore_ascii_case(name))
            .map(|(op, _, tightness)| (*op, *tightness))
    }

    /// All operators.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(op, ..)| *op)
    }

    /// The operator as it is written.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(op, ..)| *op == self)
            .map_or("", |(_, name, _)| name)
    }

    /// Whether the operator compares.
    pub fn compares(self) -> bool {
        use Operator::*;
        matches!(
            self,
            Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual
        )
    }

    /// Whether the operator is `and`, `or` or `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, Operator::And | Operator::Or | Operator::Unless)
    }
}

/// Aggregation operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Quantile,
    Topk,
    Bottomk,
    Limitk,
    LimitRatio,
    CountValues,
}

impl Aggregation {
    const ALL: [(Aggregation, &'static str); 14] = [
        (Aggregation::Sum, "sum"),
        (Aggregation::Avg, "avg"),
        (Aggregation::Count, "count"),
        (Aggregation::Min, "min"),
        (Aggregation::Max, "max"),
        (Aggregation::Group, "group"),
        (Aggregation::Stddev, "stddev"),
        (Aggregation::Stdvar, "stdvar"),
        (Aggregation::Topk, "topk"),
        (Aggregation::Bottomk, "bottomk"),
        (Aggregation::CountValues, "count_values"),
        (Aggregation::Quantile, "quantile"),
        (Aggregation::Limitk, "limitk"),
        (Aggregation::LimitRatio, "limit_ratio"),
    ];

    /// The aggregation of that name, in whichever case it is written.
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, name)| text.eq_ignore_ascii_case(name))
            .map(|(op, _)| *op)
    }

    /// All aggregations.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(op, _)| *op)
    }

    /// The aggregation's name.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(op, _)| *op == self)
            .map_or("", |(_, name)| name)
    }

    /// The type of the parameter, for aggregations that take one.
    pub fn parameter(self) -> Option<Type> {
        use Aggregation::*;
        match self {
            Topk | Bottomk | Quantile | Limitk | LimitRatio => Some(Type::Scalar),
            CountValues => Some(Type::String),
            Sum | Avg | Min | Max | Count | Group | Stddev | Stdvar => None,
        }
    }

    /// Whether Prometheus calls the aggregation experimental.
    pub fn is_experimental(self) -> bool {
        matches!(self, Aggregation::Limitk | Aggregation::LimitRatio)
    }
}
