//! A query with its types checked, its names looked up and its instants resolved.

use crate::error::Error;
use crate::functions::{self, Function};
use promql_parser::label::MatchOp as Parsed;
use promql_parser::parser::token::*;
use promql_parser::parser::{
    self as ast, AtModifier, Expr, LabelModifier, Offset, VectorMatchCardinality,
};
use std::cell::Cell;
use std::time::{Duration, SystemTime};
use takt_model::METRIC_NAME;
use takt_model::{MatchOp, Matcher};

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

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Type::Scalar => "scalar",
            Type::String => "string",
            Type::Vector => "instant vector",
            Type::Matrix => "range vector",
        })
    }
}

/// One node. Parentheses are gone: they have done their work in the parser.
#[derive(Debug)]
pub(crate) enum Node {
    Number(f64),
    Text(String),
    Selector(Selector),
    Window(Window),
    /// `nth` counts calls and aggregations as they are written.
    Call {
        function: &'static Function,
        args: Vec<Node>,
        nth: usize,
    },
    Negate(Box<Node>),
    Binary {
        op: Operator,
        lhs: Box<Node>,
        rhs: Box<Node>,
        matching: Matching,
        return_bool: bool,
    },
    Aggregate {
        op: Aggregation,
        grouping: Grouping,
        param: Option<Box<Node>>,
        of: Box<Node>,
        nth: usize,
    },
}

/// `name{…}` with its shift in time.
#[derive(Debug)]
pub(crate) struct Selector {
    pub matchers: Vec<Matcher>,
    pub shift: Shift,
}

/// `[range]` of a selector or of a subquery.
#[derive(Debug)]
pub(crate) struct Window {
    pub range_ms: i64,
    pub of: Windowed,
}

#[derive(Debug)]
pub(crate) enum Windowed {
    Series(Selector),
    /// `None`: the default interval.
    Subquery {
        of: Box<Node>,
        step_ms: Option<i64>,
        shift: Shift,
    },
}

impl Window {
    pub fn shift(&self) -> Shift {
        match &self.of {
            Windowed::Series(selector) => selector.shift,
            Windowed::Subquery { shift, .. } => *shift,
        }
    }
}

/// `@` and `offset`. The offset applies after `@`, in whichever order they are written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shift {
    pub at_ms: Option<i64>,
    pub offset_ms: i64,
}

impl Shift {
    /// The instant that is looked at when the query is evaluated at `now_ms`.
    pub fn apply(self, now_ms: i64) -> i64 {
        self.at_ms.unwrap_or(now_ms).saturating_sub(self.offset_ms)
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
    And,
    Or,
    Unless,
}

impl Operator {
    pub fn compares(self) -> bool {
        use Operator::*;
        matches!(
            self,
            Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual
        )
    }
}

/// Which labels decide what belongs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// `by`, `on`
    By(Vec<String>),
    /// `without`, `ignoring`; the metric's name never counts.
    Without(Vec<String>),
}

/// How the elements of two vectors find each other.
#[derive(Debug, Clone)]
pub(crate) struct Matching {
    pub grouping: Grouping,
    pub side: Side,
    /// Labels that `group_left(…)` copies from the one side.
    pub include: Vec<String>,
}

/// Which side may have several elements a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Neither.
    None,
    /// `group_left`
    Left,
    /// `group_right`
    Right,
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

impl Node {
    pub fn kind(&self) -> Type {
        match self {
            Node::Number(_) => Type::Scalar,
            Node::Text(_) => Type::String,
            Node::Selector(_) | Node::Aggregate { .. } => Type::Vector,
            Node::Window(_) => Type::Matrix,
            Node::Call { function, .. } => function.returns,
            Node::Negate(of) => of.kind(),
            Node::Binary { lhs, rhs, .. }
                if lhs.kind() == Type::Scalar && rhs.kind() == Type::Scalar =>
            {
                Type::Scalar
            }
            Node::Binary { .. } => Type::Vector,
        }
    }

    /// All selectors below, for questions about a query as a whole.
    pub fn selectors<'a>(&'a self, found: &mut Vec<&'a Selector>) {
        match self {
            Node::Number(_) | Node::Text(_) => {}
            Node::Selector(selector) => found.push(selector),
            Node::Window(Window {
                of: Windowed::Series(selector),
                ..
            }) => found.push(selector),
            Node::Window(Window {
                of: Windowed::Subquery { of, .. },
                ..
            })
            | Node::Negate(of) => of.selectors(found),
            Node::Call { args, .. } => args.iter().for_each(|arg| arg.selectors(found)),
            Node::Binary { lhs, rhs, .. } => [lhs, rhs]
                .into_iter()
                .for_each(|side| side.selectors(found)),
            Node::Aggregate { of, param, .. } => {
                [Some(of), param.as_ref()]
                    .into_iter()
                    .flatten()
                    .for_each(|node| node.selectors(found));
            }
        }
    }
}

/// What a plan depends on besides the text.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// First and last instant of the query: `@ start()`, `@ end()`.
    pub start_ms: i64,
    pub end_ms: i64,
    /// Whether what Prometheus calls experimental is allowed.
    pub experimental: bool,
    /// Calls and aggregations that were met.
    pub met: Cell<usize>,
}

impl Context {
    /// Plans a parsed query.
    pub fn plan(&self, expr: &Expr) -> Result<Node, Error> {
        match expr {
            Expr::Paren(paren) => self.plan(&paren.expr),
            Expr::NumberLiteral(number) => Ok(Node::Number(number.val)),
            Expr::StringLiteral(text) => Ok(Node::Text(text.val.clone())),
            Expr::VectorSelector(selector) => Ok(Node::Selector(self.selector(selector)?)),
            Expr::MatrixSelector(window) => Ok(Node::Window(Window {
                range_ms: range(window.range)?,
                of: Windowed::Series(self.selector(&window.vs)?),
            })),
            Expr::Subquery(subquery) => self.subquery(subquery),
            Expr::Unary(unary) => {
                let of = self.plan(&unary.expr)?;
                match of.kind() {
                    Type::Scalar | Type::Vector => Ok(Node::Negate(Box::new(of))),
                    other => Err(Error::parse(format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got \"{other}\""
                    ))),
                }
            }
            Expr::Binary(binary) => self.binary(binary),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            Expr::Call(call) => self.call(call),
            Expr::Extension(_) => Err(Error::Unsupported("an extension of the grammar".to_owned())),
        }
    }

    fn selector(&self, selector: &ast::VectorSelector) -> Result<Selector, Error> {
        Ok(Selector {
            matchers: matchers(selector)?,
            shift: self.shift(&selector.at, &selector.offset)?,
        })
    }

    fn shift(&self, at: &Option<AtModifier>, offset: &Option<Offset>) -> Result<Shift, Error> {
        let at_ms = match at {
            None => None,
            Some(AtModifier::Start) => Some(self.start_ms),
            Some(AtModifier::End) => Some(self.end_ms),
            Some(AtModifier::At(time)) => Some(match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(after) => millis(after)?,
                Err(before) => -millis(before.duration())?,
            }),
        };
        let offset_ms = match offset {
            None => 0,
            Some(Offset::Pos(back)) => millis(*back)?,
            Some(Offset::Neg(ahead)) => -millis(*ahead)?,
        };
        Ok(Shift { at_ms, offset_ms })
    }

    fn subquery(&self, subquery: &ast::SubqueryExpr) -> Result<Node, Error> {
        let of = Box::new(self.plan(&subquery.expr)?);
        if of.kind() != Type::Vector {
            return Err(Error::parse(format!(
                "subquery is only allowed on instant vector, got {} instead",
                of.kind()
            )));
        }
        let shift = self.shift(&subquery.at, &subquery.offset)?;
        let step_ms = subquery.step.map(range).transpose()?;
        Ok(Node::Window(Window {
            range_ms: range(subquery.range)?,
            of: Windowed::Subquery { of, step_ms, shift },
        }))
    }

    fn count(&self) -> usize {
        self.met.replace(self.met.get() + 1)
    }

    fn call(&self, call: &ast::Call) -> Result<Node, Error> {
        let name = call.func.name;
        let function = functions::find(name)
            .ok_or_else(|| Error::Unsupported(format!("function {name}()")))?;
        if function.experimental && !self.experimental {
            return Err(Error::Unsupported(format!(
                "experimental function {name}()"
            )));
        }
        let nth = self.count();
        let args = call
            .args
            .args
            .iter()
            .map(|arg| self.plan(arg))
            .collect::<Result<Vec<_>, _>>()?;
        for (at, arg) in args.iter().enumerate() {
            let wanted = function
                .args
                .get(at)
                .or(function.args.last())
                .copied()
                .unwrap_or(Type::Vector);
            expect(arg.kind(), wanted, &format!("call to function {name:?}"))?;
        }
        Ok(Node::Call {
            function,
            args,
            nth,
        })
    }

    fn aggregate(&self, aggregate: &ast::AggregateExpr) -> Result<Node, Error> {
        use Aggregation::*;
        let (op, param_type, experimental) = match aggregate.op.id() {
            T_SUM => (Sum, None, false),
            T_AVG => (Avg, None, false),
            T_MIN => (Min, None, false),
            T_MAX => (Max, None, false),
            T_COUNT => (Count, None, false),
            T_GROUP => (Group, None, false),
            T_STDDEV => (Stddev, None, false),
            T_STDVAR => (Stdvar, None, false),
            T_QUANTILE => (Quantile, Some(Type::Scalar), false),
            T_TOPK => (Topk, Some(Type::Scalar), false),
            T_BOTTOMK => (Bottomk, Some(Type::Scalar), false),
            T_COUNT_VALUES => (CountValues, Some(Type::String), false),
            T_LIMITK => (Limitk, Some(Type::Scalar), true),
            T_LIMIT_RATIO => (LimitRatio, Some(Type::Scalar), true),
            _ => return Err(Error::Unsupported(format!("aggregation {}", aggregate.op))),
        };
        if experimental && !self.experimental {
            return Err(Error::Unsupported(format!(
                "experimental aggregation {}",
                aggregate.op
            )));
        }
        let nth = self.count();
        let param = aggregate
            .param
            .as_ref()
            .map(|param| self.plan(param))
            .transpose()?;
        let of = Box::new(self.plan(&aggregate.expr)?);
        expect(of.kind(), Type::Vector, "aggregation expression")?;
        if let (Some(param), Some(wanted)) = (&param, param_type) {
            expect(param.kind(), wanted, "aggregation parameter")?;
        }
        let grouping = grouping(&aggregate.modifier).unwrap_or(Grouping::By(Vec::new()));
        Ok(Node::Aggregate {
            op,
            grouping,
            param: param.map(Box::new),
            of,
            nth,
        })
    }

    fn binary(&self, binary: &ast::BinaryExpr) -> Result<Node, Error> {
        let op = match binary.op.id() {
            T_ADD => Operator::Add,
            T_SUB => Operator::Sub,
            T_MUL => Operator::Mul,
            T_DIV => Operator::Div,
            T_MOD => Operator::Mod,
            T_POW => Operator::Pow,
            T_ATAN2 => Operator::Atan2,
            T_EQLC => Operator::Equal,
            T_NEQ => Operator::NotEqual,
            T_LSS => Operator::Less,
            T_LTE => Operator::LessEqual,
            T_GTR => Operator::Greater,
            T_GTE => Operator::GreaterEqual,
            T_LAND => Operator::And,
            T_LOR => Operator::Or,
            T_LUNLESS => Operator::Unless,
            _ => return Err(Error::Unsupported(format!("operator {}", binary.op))),
        };
        let (lhs, rhs) = (
            Box::new(self.plan(&binary.lhs)?),
            Box::new(self.plan(&binary.rhs)?),
        );
        for side in [&lhs, &rhs] {
            if !matches!(side.kind(), Type::Scalar | Type::Vector) {
                let text = "binary expression must contain only scalar and instant vector types";
                return Err(Error::parse(text.to_owned()));
            }
        }
        let modifier = binary.modifier.clone().unwrap_or_default();
        if modifier.fill_values.lhs.is_some() || modifier.fill_values.rhs.is_some() {
            return Err(Error::Unsupported("experimental modifier fill".to_owned()));
        }
        let (side, include) = match modifier.card {
            VectorMatchCardinality::ManyToOne(labels) => (Side::Left, labels.labels),
            VectorMatchCardinality::OneToMany(labels) => (Side::Right, labels.labels),
            VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany => {
                (Side::None, Vec::new())
            }
        };
        let grouping = grouping(&modifier.matching).unwrap_or(Grouping::Without(Vec::new()));
        let matching = Matching {
            grouping,
            side,
            include,
        };
        Ok(Node::Binary {
            op,
            lhs,
            rhs,
            matching,
            return_bool: modifier.return_bool,
        })
    }
}

fn grouping(modifier: &Option<LabelModifier>) -> Option<Grouping> {
    modifier.as_ref().map(|modifier| match modifier {
        LabelModifier::Include(labels) => Grouping::By(labels.labels.clone()),
        LabelModifier::Exclude(labels) => Grouping::Without(labels.labels.clone()),
    })
}

fn expect(got: Type, wanted: Type, context: &str) -> Result<(), Error> {
    match got == wanted {
        true => Ok(()),
        false => Err(Error::parse(format!(
            "expected type {wanted} in {context}, got {got}"
        ))),
    }
}

/// A selector's conditions, the metric's name first.
pub(crate) fn matchers(selector: &ast::VectorSelector) -> Result<Vec<Matcher>, Error> {
    if !selector.matchers.or_matchers.is_empty() {
        return Err(Error::Unsupported(
            "\"or\" between label matchers".to_owned(),
        ));
    }
    let name = selector
        .name
        .iter()
        .map(|name| Ok(Matcher::equal(METRIC_NAME, name)));
    name.chain(selector.matchers.matchers.iter().map(matcher))
        .collect()
}

fn matcher(parsed: &promql_parser::label::Matcher) -> Result<Matcher, Error> {
    let op = match &parsed.op {
        Parsed::Equal => MatchOp::Equal,
        Parsed::NotEqual => MatchOp::NotEqual,
        // Compiled anew: to the parser's expression the dot is no newline, which since Prometheus 3 it is.
        Parsed::Re(_) => MatchOp::Regex,
        Parsed::NotRe(_) => MatchOp::NotRegex,
    };
    Matcher::new(&parsed.name, op, &parsed.value)
        .map_err(|_| Error::parse(format!("error parsing regexp {:?}", parsed.value)))
}

fn range(duration: Duration) -> Result<i64, Error> {
    match millis(duration)? {
        0 => Err(Error::parse("duration must be greater than 0".to_owned())),
        ms => Ok(ms),
    }
}

fn millis(duration: Duration) -> Result<i64, Error> {
    // Prometheus keeps a duration in nanoseconds in an i64, so nothing longer reaches it either.
    match i64::try_from(duration.as_nanos()) {
        Ok(nanos) => Ok(nanos / 1_000_000),
        Err(_) => Err(Error::parse("duration out of range".to_owned())),
    }
}
