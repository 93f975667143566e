//! A query with its names looked up, its instants resolved and its durations computed.
//!
//! The parser has checked the types. What is refused here, by name, is what Takt does not evaluate, and what Prometheus calls
//! experimental unless that is allowed.

use crate::error::Error;
use crate::functions::{Body, Function, Whole};
use crate::syntax::TextLiteral;
use crate::syntax::duration::{DurationExpression, QueryTimes};
use crate::syntax::tree::{
    Aggregate, AtModifier, BinaryExpression, Expression, ExpressionKind, Extension, RangeSelector,
    ShiftModifiers, Subquery, VectorSelector,
};
use std::time::Instant;
use takt_model::Matcher;
use takt_model::Timestamp;

pub(crate) use crate::syntax::tree::{Aggregation, Operator, Type};

/// One node. Parentheses are gone: they are of no use once the text is parsed.
#[derive(Debug)]
pub(crate) enum Node {
    Number(f64),
    Text(TextLiteral),
    Selector(Selector),
    Window(Window),
    Call {
        function: &'static Function,
        args: Vec<Node>,
        places: CallPlaces,
    },
    Negate(Box<Node>),
    Binary {
        op: Operator,
        lhs: Box<Node>,
        rhs: Box<Node>,
        matching: Matching,
        return_bool: bool,
        places: CallPlaces,
    },
    Aggregate {
        op: Aggregation,
        grouping: Grouping,
        param: Option<Box<Node>>,
        of: Box<Node>,
        places: CallPlaces,
    },
}

/// The bytes of the query at which a call or an aggregation and its arguments begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallPlaces {
    pub whole: usize,
    pub args: Vec<usize>,
}

/// `name{…}` with its shift in time.
#[derive(Debug)]
pub(crate) struct Selector {
    pub matchers: Vec<Matcher>,
    pub shift: Shift,
    /// `anchored` or `smoothed`.
    pub extension: Option<Extension>,
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
    /// `anchored` or `smoothed`.
    pub fn extension(&self) -> Option<Extension> {
        match &self.of {
            Windowed::Series(selector) => selector.extension,
            Windowed::Subquery { .. } => None,
        }
    }

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
    pub at: Option<Timestamp>,
    pub offset_ms: i64,
}

impl Shift {
    /// The instant that is looked at when the query is evaluated at `now`.
    #[inline]
    pub fn apply(self, now: Timestamp) -> Timestamp {
        self.at.unwrap_or(now).minus_ms(self.offset_ms)
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
    /// Value of an element that the left side lacks.
    pub fill_left: Option<f64>,
    /// Value of an element that the right side lacks.
    pub fill_right: Option<f64>,
}

/// The side that may have several elements a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Neither.
    None,
    /// `group_left`
    Left,
    /// `group_right`
    Right,
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

    /// Whether `@` makes the value the same at each step, so that Prometheus evaluates the node once.
    pub fn is_step_invariant(&self) -> bool {
        match self {
            Node::Number(_) | Node::Text(_) => true,
            Node::Selector(selector) => selector.shift.at.is_some(),
            Node::Window(window) => window.shift().at.is_some(),
            Node::Negate(of) | Node::Aggregate { of, .. } => of.is_step_invariant(),
            Node::Binary { lhs, rhs, .. } => lhs.is_step_invariant() && rhs.is_step_invariant(),
            Node::Call { function, args, .. } => {
                // Their value changes with the step even where their argument does not.
                let depends_on_time =
                    matches!(function.name, "time" | "timestamp" | "predict_linear")
                        || matches!(function.body, Body::Date(_));
                !depends_on_time && args.iter().all(Node::is_step_invariant)
            }
        }
    }

    /// Collects all selectors below.
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

/// The properties of a query, besides its text, that a plan depends on.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// First and last instant of the query: `@ start()`, `@ end()`.
    pub start: Timestamp,
    pub end: Timestamp,
    /// Step of a range query; 0 for an instant query.
    pub step_ms: i64,
    /// Whether features that Prometheus calls experimental are allowed.
    pub experimental: bool,
    /// The instant after which matchers accept nothing.
    pub deadline: Option<Instant>,
}

impl Context {
    /// Plans a parsed query.
    pub fn plan(&self, expression: &Expression) -> Result<Node, Error> {
        match &expression.kind {
            ExpressionKind::Paren(of) => self.plan(of),
            ExpressionKind::Number(number) => Ok(Node::Number(number.value)),
            ExpressionKind::Text(text) => Ok(Node::Text(text.clone())),
            ExpressionKind::Selector(selector) => Ok(Node::Selector(self.selector(selector)?)),
            ExpressionKind::Range(window) => self.window(window),
            ExpressionKind::Subquery(subquery) => self.subquery(subquery),
            ExpressionKind::Unary { is_negative, of } => {
                let of = self.plan(of)?;
                // `+` changes nothing, not even the name.
                Ok(if *is_negative {
                    Node::Negate(Box::new(of))
                } else {
                    of
                })
            }
            ExpressionKind::Binary(binary) => self.binary(expression.at, binary),
            ExpressionKind::Aggregate(aggregate) => self.aggregate(expression.at, aggregate),
            ExpressionKind::Call { function, args } => self.call(expression.at, function, args),
        }
    }

    fn selector(&self, selector: &VectorSelector) -> Result<Selector, Error> {
        if let Some(extension) = selector.extension
            && !self.experimental
        {
            let text = format!("experimental modifier {}", extension.name());
            return Err(unsupported(text));
        }

        // A regular expression over many series may take long, so the matchers look at the clock,
        // too.
        let conditions = selector
            .conditions()
            .into_iter()
            .map(|m| m.until(self.deadline))
            .collect();
        Ok(Selector {
            matchers: conditions,
            shift: self.shift(&selector.shift)?,
            extension: selector.extension,
        })
    }

    fn shift(&self, modifiers: &ShiftModifiers) -> Result<Shift, Error> {
        let at = modifiers.at.map(|at| match at {
            AtModifier::Start => self.start,
            AtModifier::End => self.end,
            AtModifier::Instant(at) => at,
        });
        let offset = modifiers.offset.as_ref();
        let offset_ms = offset
            .map(|offset| self.duration(offset, true))
            .transpose()?
            .unwrap_or(0);
        Ok(Shift { at, offset_ms })
    }

    fn duration(&self, of: &DurationExpression, may_be_negative: bool) -> Result<i64, Error> {
        // Durations are computed in seconds, as `step()` and `range()` give them.
        let times = QueryTimes {
            step: self.step_ms as f64 / 1e3,
            range: (self.end - self.start) as f64 / 1e3,
        };
        of.evaluate(times, may_be_negative)
            .map_err(Error::Execution)
    }

    fn window(&self, RangeSelector { of, range }: &RangeSelector) -> Result<Node, Error> {
        Ok(Node::Window(Window {
            range_ms: self.duration(range, false)?,
            of: Windowed::Series(self.selector(of)?),
        }))
    }

    fn subquery(&self, subquery: &Subquery) -> Result<Node, Error> {
        let of = Box::new(self.plan(&subquery.of)?);
        let shift = self.shift(&subquery.shift)?;
        let step = subquery.step.as_ref();
        let step_ms = step.map(|step| self.duration(step, false)).transpose()?;
        Ok(Node::Window(Window {
            range_ms: self.duration(&subquery.range, false)?,
            of: Windowed::Subquery { of, step_ms, shift },
        }))
    }

    fn call(
        &self,
        at: usize,
        function: &'static Function,
        args: &[Expression],
    ) -> Result<Node, Error> {
        let name = function.name;
        if matches!(function.body, Body::Unsupported) {
            return Err(unsupported(format!("function {name}()")));
        }
        if function.experimental && !self.experimental {
            return Err(unsupported(format!("experimental function {name}()")));
        }

        // The answer is known before the evaluation, so these calls become numbers.
        let seconds = |ms: i64| Ok(Node::Number(ms as f64 / 1e3));
        match function.body {
            Body::Whole(Whole::Start) => return seconds(self.start.0),
            Body::Whole(Whole::End) => return seconds(self.end.0),
            Body::Whole(Whole::Step) => return seconds(self.step_ms),
            Body::Whole(Whole::Range) => return seconds(self.end - self.start),
            _ => {}
        }

        let nodes = args.iter().map(|arg| self.plan(arg));
        Ok(Node::Call {
            function,
            places: CallPlaces {
                whole: at,
                args: args.iter().map(place_of_argument).collect(),
            },
            args: nodes.collect::<Result<_, _>>()?,
        })
    }

    fn aggregate(&self, at: usize, aggregate: &Aggregate) -> Result<Node, Error> {
        let op = aggregate.op;
        if op.is_experimental() && !self.experimental {
            let name = op.name();
            return Err(unsupported(format!("experimental aggregation {name}")));
        }

        let param = aggregate.param.as_deref();
        let labels = aggregate.labels.clone();
        Ok(Node::Aggregate {
            op,
            grouping: if aggregate.is_without {
                Grouping::Without(labels)
            } else {
                Grouping::By(labels)
            },
            places: CallPlaces {
                whole: at,
                args: param
                    .into_iter()
                    .chain([&*aggregate.of])
                    .map(|arg| arg.at)
                    .collect(),
            },
            param: param
                .map(|param| self.plan(param))
                .transpose()?
                .map(Box::new),
            of: Box::new(self.plan(&aggregate.of)?),
        })
    }

    fn binary(&self, at: usize, binary: &BinaryExpression) -> Result<Node, Error> {
        let op = binary.op;
        if matches!(op, Operator::TrimUpper | Operator::TrimLower) {
            let text = "trimming native histograms (</ and >/)";
            return Err(unsupported(text.to_owned()));
        }

        // Prometheus has `fill` behind `promql-binop-fill-modifiers`.
        let modifiers = &binary.matching;
        let fills = modifiers.fill_left.is_some() || modifiers.fill_right.is_some();
        if fills && !self.experimental {
            return Err(unsupported("experimental modifier fill".to_owned()));
        }

        let labels = modifiers.labels.clone();
        let group = modifiers.group.as_ref();
        let matching = Matching {
            grouping: if modifiers.is_on {
                Grouping::By(labels)
            } else {
                Grouping::Without(labels)
            },
            side: match group {
                None => Side::None,
                Some(group) if group.is_left => Side::Left,
                Some(_) => Side::Right,
            },
            include: group.map_or(Vec::new(), |group| group.include.clone()),
            fill_left: modifiers.fill_left,
            fill_right: modifiers.fill_right,
        };

        Ok(Node::Binary {
            op,
            lhs: Box::new(self.plan(&binary.lhs)?),
            rhs: Box::new(self.plan(&binary.rhs)?),
            matching,
            return_bool: binary.return_bool,
            places: CallPlaces {
                whole: at,
                args: Vec::new(),
            },
        })
    }
}

/// The byte at which an argument begins. Prometheus loses the place of a subquery while it evaluates it.
fn place_of_argument(arg: &Expression) -> usize {
    match &arg.kind {
        ExpressionKind::Subquery(_) => 0,
        _ => arg.at,
    }
}

fn unsupported(feature: String) -> Error {
    Error::Unsupported(feature)
}
