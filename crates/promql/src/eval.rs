//! The walk over a plan: each node becomes columns over the steps of a grid.

mod call;
mod grid;

pub(crate) use grid::{Grid, StepSamples};

use crate::annotations::Remarks;
use crate::budget::{Budget, Limits};
use crate::column::{Column, Element, settle_names};
use crate::error::Error;
use crate::functions::{Body, Whole};
use crate::matching::Pairing;
use crate::numbers::{go_max, go_min};
use crate::plan::{Context, Node, Operator, Type};
use crate::source::{HistogramPoint, Point, Source};
use crate::syntax::Expression;
use crate::value::{Answer, Sample, Series, Value};
use crate::{aggregate, binary, syntax};
use std::sync::Arc;
use takt_model::Timestamp;

/// Settings of an evaluation besides the query, the time and the data.
#[derive(Debug, Clone)]
pub struct Options {
    /// How far back an instant selector looks for a sample, milliseconds.
    pub lookback_ms: i64,
    /// Step of a subquery without a step of its own, milliseconds: the global evaluation interval.
    pub subquery_step_ms: i64,
    /// Whether functions, aggregations and modifiers that Prometheus calls experimental are evaluated instead of refused.
    pub experimental: bool,
    /// Whether computed values keep the metric's name until the end of the query, so that `by`, `on` and `label_replace` still
    /// see the name (Prometheus' feature `promql-delayed-name-removal`).
    pub delayed_names: bool,
    /// Whether the right side of `and` and `unless` is not evaluated where the left side is empty. The result is empty either
    /// way, but an error of the right side stays unnoticed. For rules, whose left sides are mostly empty.
    pub lazy: bool,
    /// Bounds of this query.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            experimental: false,
            delayed_names: false,
            lazy: false,
            limits: Limits::default(),
        }
    }
}

/// Evaluates a query at one instant.
pub fn instant(
    source: &dyn Source,
    query: &str,
    at: Timestamp,
    options: &Options,
) -> Result<Answer, Error> {
    instant_parsed(source, &syntax::parse(query)?, query, at, options)
}

/// As [`instant`], for a query that was parsed before. `query` is its text.
pub fn instant_parsed(
    source: &dyn Source,
    parsed: &Expression,
    query: &str,
    at: Timestamp,
    options: &Options,
) -> Result<Answer, Error> {
    let grid = Grid {
        start: at,
        step_ms: 1,
        steps: 1,
    };

    let span = QuerySpan {
        grid,
        end: at,
        // `step()` is zero in an instant query, while the grid needs a step to divide by.
        step_ms: 0,
    };

    run(
        source,
        (query, Some(parsed)),
        span,
        options,
        |evaluator, node| {
            let point = |value| Point { at, value };
            Ok(match node {
                // Elsewhere, functions and aggregations use up windows and texts.
                Node::Window(window) => {
                    Value::Matrix(in_label_order(evaluator.window_points(window, &grid)?))
                }
                Node::Text(text) => Value::String {
                    at,
                    text: text.text.clone(),
                },
                node if node.kind() == Type::Scalar => {
                    Value::Scalar(point(evaluator.scalar(node, &grid)?[0]))
                }
                node => {
                    let columns = settle_names(evaluator.vector(node, &grid)?)?;
                    let samples = columns
                        .into_iter()
                        .filter_map(|column| {
                            let sample = |labels, value, histogram| Sample {
                                labels,
                                point: point(value),
                                histogram,
                            };
                            match column.element(0)? {
                                Element::Float(value) => Some(sample(column.labels, value, None)),
                                Element::Histogram(histogram) => {
                                    Some(sample(column.labels, f64::NAN, Some(histogram)))
                                }
                            }
                        })
                        .collect();
                    Value::Vector(samples)
                }
            })
        },
    )
}

/// Evaluates a query at `start`, `start + step_ms`, … up to `end`.
pub fn range(
    source: &dyn Source,
    query: &str,
    start: Timestamp,
    end: Timestamp,
    step_ms: i64,
    options: &Options,
) -> Result<Answer, Error> {
    if step_ms <= 0 {
        return Err(Error::Invalid(
            "zero or negative query resolution step widths are not accepted".to_owned(),
        ));
    }
    if end < start {
        return Err(Error::Invalid(
            "end timestamp must not be before start time".to_owned(),
        ));
    }

    let grid = Grid::new(start, end, step_ms);
    let span = QuerySpan { grid, end, step_ms };

    run(source, (query, None), span, options, |evaluator, node| {
        let columns = match node.kind() {
            Type::Scalar => {
                let values = evaluator
                    .scalar(node, &grid)?
                    .into_iter()
                    .map(Some)
                    .collect();
                vec![Column {
                    values,
                    ..Column::default()
                }]
            }
            Type::Vector => settle_names(evaluator.vector(node, &grid)?)?,
            _ => return Err(wrong_type(node, Type::Vector)),
        };

        let series = columns
            .into_iter()
            .map(|column| {
                // Counted first: a list that doubles could take twice the memory that the budget
                // knows of.
                let mut points = Vec::with_capacity(column.values.iter().flatten().count());
                let present = grid
                    .times()
                    .zip(column.values)
                    .filter_map(|(at, value)| value.map(|value| Point { at, value }));
                points.extend(present);
                let histograms = grid
                    .times()
                    .zip(column.histograms)
                    .filter_map(|(at, found)| {
                        found.map(|histogram| HistogramPoint { at, histogram })
                    });
                Series {
                    labels: column.labels,
                    points,
                    histograms: histograms.collect(),
                }
            })
            .collect();

        Ok(Value::Matrix(in_label_order(series)))
    })
}

fn in_label_order(mut series: Vec<Series>) -> Vec<Series> {
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    series
}

/// The times of a query.
struct QuerySpan {
    /// The instants of evaluation.
    grid: Grid,
    /// The end that the query was given, which need not be the last instant.
    end: Timestamp,
    /// 0 for an instant query.
    step_ms: i64,
}

/// Evaluates a query, given as its text and, if it was parsed before, its tree.
fn run(
    source: &dyn Source,
    (query, parsed): (&str, Option<&Expression>),
    span: QuerySpan,
    options: &Options,
    evaluate: impl FnOnce(&mut Evaluator<'_>, &Node) -> Result<Value, Error>,
) -> Result<Answer, Error> {
    let grid = span.grid;
    let budget = Budget::new(options.limits.clone());
    // Before the query is parsed: a grid of billions of steps fails here.
    budget.hold(grid.steps)?;
    let context = Context {
        start: grid.start,
        end: span.end,
        step_ms: span.step_ms,
        experimental: options.experimental,
        deadline: options.limits.deadline,
    };

    let own;
    let expression = match parsed {
        Some(parsed) => parsed,
        None => {
            own = syntax::parse(query)?;
            &own
        }
    };

    let kind = expression.value_type();
    // A range query of a range vector would be a matrix of matrices.
    if span.step_ms > 0 && !matches!(kind, Type::Scalar | Type::Vector) {
        return Err(Error::Invalid(format!(
            "invalid expression type \"{kind}\" for range query, must be Scalar or instant Vector"
        )));
    }

    let node = context.plan(expression)?;
    let remarks = Remarks::default();
    let samples = StepSamples::new(grid);
    let mut evaluator = Evaluator {
        source,
        options,
        budget: &budget,
        remarks,
        samples,
    };

    let value = evaluate(&mut evaluator, &node)?;
    let Evaluator {
        remarks, samples, ..
    } = evaluator;

    let annotations = remarks.placed(query);
    Ok(Answer {
        value,
        annotations,
        peak_samples: budget.peak(),
        samples_per_step: samples.into_counts(),
    })
}

/// State that all nodes of one query share.
pub(crate) struct Evaluator<'a> {
    pub source: &'a dyn Source,
    pub options: &'a Options,
    pub budget: &'a Budget,
    pub remarks: Remarks,
    pub samples: StepSamples,
}

impl Evaluator<'_> {
    /// A node of type scalar: one value a step.
    pub fn scalar(&mut self, node: &Node, grid: &Grid) -> Result<Vec<f64>, Error> {
        // Numbers take a value for each step, like series.
        self.budget.hold(grid.steps)?;
        match node {
            Node::Number(value) => Ok(vec![*value; grid.steps]),
            Node::Negate(of) => Ok(self
                .scalar(of, grid)?
                .into_iter()
                .map(|value| -value)
                .collect()),
            Node::Binary { op, lhs, rhs, .. } => {
                let lhs = self.scalar(lhs, grid)?;
                let rhs = self.scalar(rhs, grid)?;
                Ok(lhs
                    .into_iter()
                    .zip(rhs)
                    .map(|(l, r)| binary::scalars(*op, l, r))
                    .collect())
            }
            Node::Call { function, args, .. } => match function.body {
                Body::Whole(Whole::Pi) => Ok(vec![std::f64::consts::PI; grid.steps]),
                Body::Whole(Whole::Time) => Ok(grid.times().map(Timestamp::as_seconds).collect()),
                Body::Whole(Whole::MaxOf | Whole::MinOf) => {
                    let lhs = self.scalar(&args[0], grid)?;
                    let rhs = self.scalar(&args[1], grid)?;
                    let pick = if matches!(function.body, Body::Whole(Whole::MaxOf)) {
                        go_max
                    } else {
                        go_min
                    };
                    let pairs = lhs
                        .into_iter()
                        .zip(rhs)
                        .map(|(lhs, rhs)| pick(lhs, rhs))
                        .collect();
                    Ok(pairs)
                }
                _ => {
                    let columns = self.vector(&args[0], grid)?;
                    Ok((0..grid.steps)
                        .map(|step| only_value(&columns, step))
                        .collect())
                }
            },
            _ => Err(wrong_type(node, Type::Scalar)),
        }
    }

    /// A node of type instant vector. Afterwards only the result counts as held.
    pub fn vector(&mut self, node: &Node, grid: &Grid) -> Result<Vec<Column>, Error> {
        if grid.steps == 0 {
            return Ok(Vec::new());
        }
        // The inputs of the node are gone once its result exists.
        let held = self.budget.held();
        let columns = self.vector_unsettled(node, grid)?;
        self.budget.settle(held);
        self.budget.hold(columns.iter().map(Column::size).sum())?;
        Ok(columns)
    }

    fn vector_unsettled(&mut self, node: &Node, grid: &Grid) -> Result<Vec<Column>, Error> {
        match node {
            Node::Selector(selector) => self.instant_values(selector, grid),
            Node::Call {
                function,
                args,
                places,
            } => self.call(function, args, places, grid),
            Node::Negate(of) => self.negated(of, grid),
            Node::Aggregate { .. } => self.aggregate(node, grid),
            Node::Binary { .. } => self.binary(node, grid),
            Node::Number(_) | Node::Text(_) | Node::Window(_) => {
                Err(wrong_type(node, Type::Vector))
            }
        }
    }

    // Each kind of node has a function of its own, which keeps small what a deep query takes of the stack.

    fn aggregate(&mut self, node: &Node, grid: &Grid) -> Result<Vec<Column>, Error> {
        let Node::Aggregate {
            op,
            grouping,
            param,
            of,
            places,
        } = node
        else {
            return Err(wrong_type(node, Type::Vector));
        };

        let param = match param.as_deref() {
            None => aggregate::Param::None,
            Some(Node::Text(text)) => aggregate::Param::Text(text),
            Some(param) => aggregate::Param::Scalar(self.scalar(param, grid)?),
        };
        let columns = self.vector(of, grid)?;

        aggregate::aggregate(
            *op,
            grouping,
            &param,
            columns,
            grid.steps,
            self.budget,
            &mut self.remarks.about(places),
        )
    }

    fn binary(&mut self, node: &Node, grid: &Grid) -> Result<Vec<Column>, Error> {
        let Node::Binary {
            op,
            lhs,
            rhs,
            matching,
            return_bool,
            places,
        } = node
        else {
            return Err(wrong_type(node, Type::Vector));
        };

        let (place, scalar, vector) = match (lhs.kind(), rhs.kind()) {
            (Type::Vector, Type::Vector) => {
                let lhs = self.vector(lhs, grid)?;
                // Rules like `up == 0 and …` are empty most of the time, and their right side may
                // be expensive.
                if self.options.lazy
                    && lhs.is_empty()
                    && matches!(op, Operator::And | Operator::Unless)
                {
                    return Ok(lhs);
                }
                let rhs = self.vector(rhs, grid)?;
                let pairing = Pairing {
                    op: *op,
                    matching,
                    return_bool: *return_bool,
                    steps: grid.steps,
                    budget: self.budget,
                };
                let columns = pairing.vectors(lhs, rhs, &mut self.remarks.about(places))?;
                return if self.options.delayed_names {
                    Ok(columns)
                } else {
                    settle_names(columns)
                };
            }
            (Type::Scalar, _) => (binary::Place::Left, lhs, rhs),
            _ => (binary::Place::Right, rhs, lhs),
        };

        let scalar = self.scalar(scalar, grid)?;
        let columns = self.vector(vector, grid)?;
        let about = &mut self.remarks.about(places);
        let columns = binary::with_scalar(*op, columns, &scalar, place, *return_bool, about);

        // A filter keeps its elements, and so their names.
        if op.compares() && !return_bool {
            Ok(columns)
        } else {
            self.unnamed(columns)
        }
    }

    /// All values with the other sign.
    fn negated(&mut self, of: &Node, grid: &Grid) -> Result<Vec<Column>, Error> {
        let mut columns = self.vector(of, grid)?;
        for column in &mut columns {
            for value in column.values.iter_mut().flatten() {
                *value = -*value;
            }
            for histogram in column.histograms.iter_mut().flatten() {
                // Copied only if another column shares the histogram.
                Arc::make_mut(histogram).scale(-1.0);
            }
        }
        self.unnamed(columns)
    }

    /// The columns without their names, as a computed value is no longer the metric of that name.
    pub fn unnamed(&self, mut columns: Vec<Column>) -> Result<Vec<Column>, Error> {
        columns.iter_mut().for_each(|column| column.nameless = true);
        if self.options.delayed_names {
            Ok(columns)
        } else {
            settle_names(columns)
        }
    }
}

/// `scalar(v)`: the only element's value, NaN unless there is exactly one.
fn only_value(columns: &[Column], step: usize) -> f64 {
    let mut present = columns.iter().filter_map(|column| column.values[step]);
    match (present.next(), present.next()) {
        (Some(value), None) => value,
        _ => f64::NAN,
    }
}

/// The parser checks types, so this is not reached; an error is still better than a panic.
fn wrong_type(node: &Node, wanted: Type) -> Error {
    Error::Execution(format!("expected type {wanted}, got {}", node.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_lazy_query_does_not_evaluate_what_cannot_matter() {
        // The right side has an error: two elements for one.
        let wrong = "(vector(1) * on () {__name__=~\"a|b\"})";
        let mut source = Memory::new();
        for name in ["a", "b"] {
            source.add(
                [("__name__", name)].into_iter().collect(),
                [(Timestamp(0), Some(1.0))],
            );
        }
        let evaluates = |query: &str, lazy| {
            let options = Options {
                lazy,
                ..Options::default()
            };
            instant(&source, query, Timestamp(0), &options).is_ok()
        };
        for (left, op, fails) in [
            ("nothing", "and", false),
            ("nothing", "unless", false),
            // The result of `or` depends on the right side, so its error shows.
            ("nothing", "or", true),
            ("a", "and", true),
        ] {
            let query = format!("{left} {op} {wrong}");
            assert!(!evaluates(&query, false), "{query}");
            assert_eq!(!evaluates(&query, true), fails, "{query}");
        }
    }
}
