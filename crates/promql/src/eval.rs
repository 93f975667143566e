//! The walk over a plan: each node becomes columns over the steps of a grid.

use crate::annotations::Remarks;
use crate::budget::{Budget, Limits};
use crate::column::{Column, Element, settle_names};
use crate::error::Error;
use crate::functions::{self, Body, Date, Function, Whole};
use crate::matching::Pairing;
use crate::numbers::{go_max, go_min};
use crate::plan::{CallPlaces, Context, Node, Operator, Selector, Type, Window};
use crate::source::{HistogramPoint, Point, Source};
use crate::value::{Answer, Sample, Series, Value};
use crate::{aggregate, binary, syntax};
use std::sync::Arc;
use takt_model::Labels;
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
    let grid = Grid {
        start: at,
        step_ms: 1,
        steps: 1,
    };
    let span = QuerySpan {
        grid,
        end: at,
        step_ms: 0,
    };
    run(source, query, span, options, |evaluator, node| {
        let point = |value| Point { at, value };
        Ok(match node {
            // Elsewhere, functions and aggregations use up windows and texts.
            Node::Window(window) => {
                Value::Matrix(in_label_order(evaluator.window_points(window, &grid)?))
            }
            Node::Text(text) => Value::String {
                at,
                text: text.clone(),
            },
            node if node.kind() == Type::Scalar => {
                Value::Scalar(point(evaluator.scalar(node, &grid)?[0]))
            }
            node => {
                let columns = settle_names(evaluator.vector(node, &grid)?)?;
                let sample = |column: Column| {
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
                };
                Value::Vector(columns.into_iter().filter_map(sample).collect())
            }
        })
    })
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
    run(source, query, span, options, |evaluator, node| {
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
        let series = columns.into_iter().map(|column| {
            let points = grid.times().zip(column.values);
            let points = points.filter_map(|(at, value)| value.map(|value| Point { at, value }));
            let histograms = grid.times().zip(column.histograms);
            let histograms = histograms
                .filter_map(|(at, found)| found.map(|histogram| HistogramPoint { at, histogram }));
            Series {
                labels: column.labels,
                points: points.collect(),
                histograms: histograms.collect(),
            }
        });
        Ok(Value::Matrix(in_label_order(series.collect())))
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

fn run(
    source: &dyn Source,
    query: &str,
    span: QuerySpan,
    options: &Options,
    evaluate: impl FnOnce(&mut Evaluator<'_>, &Node) -> Result<Value, Error>,
) -> Result<Answer, Error> {
    let grid = span.grid;
    let budget = Budget::new(options.limits.clone());
    budget.hold(grid.steps)?;
    let context = Context {
        start: grid.start,
        end: span.end,
        step_ms: span.step_ms,
        experimental: options.experimental,
        deadline: options.limits.deadline,
    };
    let expression = syntax::parse(query)?;
    let kind = expression.value_type();
    if span.step_ms > 0 && !matches!(kind, Type::Scalar | Type::Vector) {
        return Err(Error::Invalid(format!(
            "invalid expression type \"{kind}\" for range query, must be Scalar or instant Vector"
        )));
    }
    let node = context.plan(&expression)?;
    let remarks = Remarks::default();
    let samples = StepSamples {
        grid,
        counts: vec![0; grid.steps],
    };
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
        samples_per_step: samples.counts,
    })
}

/// How many samples each step of a query has looked at.
#[derive(Debug)]
pub(crate) struct StepSamples {
    grid: Grid,
    counts: Vec<u64>,
}

impl StepSamples {
    /// Adds the samples looked at for each instant of a grid, the query's own or a subquery's.
    pub fn add(&mut self, grid: &Grid, counts: &[u64]) {
        for (at, count) in grid.times().zip(counts).filter(|(_, count)| **count > 0) {
            self.add_at(at, *count);
        }
    }

    /// Adds samples to the step at that instant, or else to the next one.
    fn add_at(&mut self, at: Timestamp, count: u64) {
        let Grid {
            start,
            step_ms,
            steps,
        } = self.grid;
        let after = (i128::from(at.0) - i128::from(start.0) + i128::from(step_ms) - 1)
            .div_euclid(i128::from(step_ms));
        let step = usize::try_from(after.max(0))
            .unwrap_or(usize::MAX)
            .min(steps.saturating_sub(1));
        if let Some(counted) = self.counts.get_mut(step) {
            *counted += count;
        }
    }
}

/// The instants of evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub start: Timestamp,
    pub step_ms: i64,
    pub steps: usize,
}

impl Grid {
    /// From `start` to `end`, both included; empty where the end comes first.
    pub fn new(start: Timestamp, end: Timestamp, step_ms: i64) -> Self {
        let span = i128::from(end.0) - i128::from(start.0);
        let steps = if span < 0 {
            0
        } else {
            usize::try_from(span / i128::from(step_ms) + 1).unwrap_or(usize::MAX)
        };
        Self {
            start,
            step_ms,
            steps,
        }
    }

    pub fn time(&self, step: usize) -> Timestamp {
        self.start
            .plus_ms((step as i64).saturating_mul(self.step_ms))
    }

    pub fn times(&self) -> impl Iterator<Item = Timestamp> + '_ {
        (0..self.steps).map(|step| self.time(step))
    }

    pub fn last(&self) -> Timestamp {
        self.time(self.steps.saturating_sub(1))
    }
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
        self.budget.hold(grid.steps)?;
        match node {
            Node::Number(value) => Ok(vec![*value; grid.steps]),
            Node::Negate(of) => Ok(self
                .scalar(of, grid)?
                .into_iter()
                .map(|value| -value)
                .collect()),
            Node::Binary { op, lhs, rhs, .. } => {
                let (lhs, rhs) = (self.scalar(lhs, grid)?, self.scalar(rhs, grid)?);
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
                    let pairs = lhs.into_iter().zip(rhs);
                    Ok(pairs.map(|(lhs, rhs)| pick(lhs, rhs)).collect())
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
        let (scalar, columns) = (self.scalar(scalar, grid)?, self.vector(vector, grid)?);
        let about = &mut self.remarks.about(places);
        let columns = binary::with_scalar(*op, columns, &scalar, place, *return_bool, about);
        if op.compares() && !return_bool {
            Ok(columns)
        } else {
            self.unnamed(columns)
        }
    }

    fn call(
        &mut self,
        function: &'static Function,
        args: &[Node],
        places: &CallPlaces,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        match function.body {
            Body::Native(body) => {
                let mut columns = self.vector(&args[0], grid)?;
                columns.retain(Column::has_histograms);
                for column in &mut columns {
                    let histograms = column.histograms.drain(..);
                    let values = histograms.map(|found| found.map(|found| body(&found)));
                    column.values = values.collect();
                }
                let columns = columns.into_iter().filter_map(Column::unless_empty);
                self.unnamed(columns.collect())
            }
            Body::Map(body) => self.each(&args[0], grid, |_, value| Some(body(value))),
            Body::MapWith(body) => {
                let scalars = self.scalars(&args[1..], grid)?;
                self.each(&args[0], grid, |step, value| body(value, &scalars[step]))
            }
            Body::Date(body) => match args.first() {
                None => {
                    let values = grid
                        .times()
                        .map(|at| Some(body(Date::from_unix(at.whole_seconds().0 as f64))));
                    Ok(Column::new(Labels::new(), values.collect())
                        .into_iter()
                        .collect())
                }
                Some(arg) => {
                    // Go makes an arbitrary date of a number that fits no integer; we make NaN.
                    let part = |value: f64| {
                        if value.abs() < i64::MAX as f64 {
                            body(Date::from_unix(value))
                        } else {
                            f64::NAN
                        }
                    };
                    self.each(arg, grid, |_, value| Some(part(value)))
                }
            },
            Body::Window(body) => {
                let (windows, scalars): (Vec<_>, Vec<_>) =
                    args.iter().partition(|arg| arg.kind() == Type::Matrix);
                let scalars = self.scalars(scalars, grid)?;
                let window = window_of(windows.first().copied())?;
                self.window_values(function, body, window, &scalars, places, grid)
            }
            Body::Unsupported => Err(Error::Unsupported(format!("function {}()", function.name))),
            Body::Whole(whole) => self.whole(whole, args, places, grid),
        }
    }

    fn whole(
        &mut self,
        whole: Whole,
        args: &[Node],
        places: &CallPlaces,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        let texts = || {
            args.iter().filter_map(|arg| {
                if let Node::Text(text) = arg {
                    Some(text.as_str())
                } else {
                    None
                }
            })
        };
        match whole {
            Whole::Absent => {
                let columns = self.vector(&args[0], grid)?;
                Ok(functions::absent(&columns, &args[0], grid.steps)
                    .into_iter()
                    .collect())
            }
            Whole::AbsentOverTime => {
                let window = window_of(args.first())?;
                if let Some(extension) = window.extension() {
                    functions::extended("absent_over_time", extension).map_err(Error::Execution)?;
                }
                let present = functions::present;
                let (columns, _) =
                    self.window_columns("present_over_time", present, window, &[], grid)?;
                Ok(functions::absent(&columns, &args[0], grid.steps)
                    .into_iter()
                    .collect())
            }
            Whole::HistogramQuantile => {
                let phi = self.scalar(&args[0], grid)?;
                let columns = self.vector(&args[1], grid)?;
                let tells_names = self.options.delayed_names;
                let times: Vec<Timestamp> = grid.times().collect();
                let about = &mut self.remarks.about(places);
                let columns = functions::quantile(&phi, columns, tells_names, &times, about);
                self.unnamed(columns)
            }
            Whole::HistogramFraction => {
                let lower = self.scalar(&args[0], grid)?;
                let upper = self.scalar(&args[1], grid)?;
                let columns = self.vector(&args[2], grid)?;
                let tells_names = self.options.delayed_names;
                let about = &mut self.remarks.about(places);
                let columns = functions::fraction(&lower, &upper, columns, tells_names, about);
                self.unnamed(columns)
            }
            Whole::Info => self.info(args, grid),
            Whole::LabelReplace => {
                functions::replace(self.vector(&args[0], grid)?, &texts().collect::<Vec<_>>())
            }
            Whole::LabelJoin => {
                functions::join(self.vector(&args[0], grid)?, &texts().collect::<Vec<_>>())
            }
            Whole::Sort { descending } => {
                self.warn_of_sort(&args[0], places, grid);
                let mut columns = self.vector(&args[0], grid)?;
                columns
                    .iter_mut()
                    .for_each(|column| column.histograms.clear());
                if grid.steps == 1 {
                    functions::sort_by_value(&mut columns, descending);
                }
                let columns = columns.into_iter().filter_map(Column::unless_empty);
                Ok(columns.collect())
            }
            Whole::SortByLabel { descending } => {
                self.warn_of_sort(&args[0], places, grid);
                let mut columns = self.vector(&args[0], grid)?;
                functions::sort_by_label(&mut columns, &texts().collect::<Vec<_>>(), descending);
                Ok(columns)
            }
            Whole::Timestamp => match &args[0] {
                Node::Selector(selector) => self.instant_times(selector, grid),
                arg => {
                    let mut columns = self.vector(arg, grid)?;
                    for column in &mut columns {
                        let present = |step| column.is_present(step);
                        let value = |step| present(step).then(|| grid.time(step).as_seconds());
                        column.values = (0..grid.steps).map(value).collect();
                        column.histograms.clear();
                    }
                    self.unnamed(columns)
                }
            },
            Whole::Vector => {
                let values = self.scalar(&args[0], grid)?.into_iter().map(Some).collect();
                Ok(vec![Column {
                    values,
                    ..Column::default()
                }])
            }
            Whole::HistogramQuantiles => {
                let columns = self.vector(&args[0], grid)?;
                let label = texts().next().unwrap_or_default().to_owned();
                let mut phis = Vec::new();
                for arg in &args[2..] {
                    phis.push(self.scalar(arg, grid)?);
                }
                let tells_names = self.options.delayed_names;
                let times: Vec<Timestamp> = grid.times().collect();
                let about = &mut self.remarks.about(places);
                let columns =
                    functions::quantiles(&label, &phis, columns, tells_names, &times, about);
                self.unnamed(columns)
            }
            Whole::Pi
            | Whole::Time
            | Whole::Scalar
            | Whole::MaxOf
            | Whole::MinOf
            | Whole::Start
            | Whole::End
            | Whole::Step
            | Whole::Range => Err(Error::Execution("expected an instant vector".to_owned())),
        }
    }

    fn info(&mut self, args: &[Node], grid: &Grid) -> Result<Vec<Column>, Error> {
        let base = self.vector(&args[0], grid)?;
        let given = match args.get(1) {
            Some(Node::Selector(selector)) => selector.matchers.as_slice(),
            _ => &[],
        };
        let conditions = functions::InfoConditions::of(given);
        // The info series are looked at when the series are.
        let mut selectors = Vec::new();
        args[0].selectors(&mut selectors);
        let selector = Selector {
            matchers: conditions.all(),
            shift: selectors
                .first()
                .map(|first| first.shift)
                .unwrap_or_default(),
            extension: None,
        };
        let infos = self.sample_times(&selector, grid)?;
        self.budget.hold(base.iter().map(Column::size).sum())?;
        functions::info(&base, &infos, &conditions, grid.steps)
    }

    fn warn_of_sort(&mut self, of: &Node, places: &CallPlaces, grid: &Grid) {
        if grid.steps > 1 && !of.is_step_invariant() {
            self.remarks.about(places).ineffective_sort();
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
                Arc::make_mut(histogram).scale(-1.0);
            }
        }
        self.unnamed(columns)
    }

    /// A function of every float of a node. Histograms are left out.
    fn each(
        &mut self,
        of: &Node,
        grid: &Grid,
        mut body: impl FnMut(usize, f64) -> Option<f64>,
    ) -> Result<Vec<Column>, Error> {
        let apply = |mut column: Column| {
            for (step, value) in column.values.iter_mut().enumerate() {
                *value = value.and_then(|value| body(step, value));
            }
            column.histograms.clear();
            column.unless_empty()
        };
        let columns = self
            .vector(of, grid)?
            .into_iter()
            .filter_map(apply)
            .collect();
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

    /// The scalar arguments, gathered by step.
    fn scalars<'n>(
        &mut self,
        args: impl IntoIterator<Item = &'n Node>,
        grid: &Grid,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let mut by_step = vec![Vec::new(); grid.steps];
        for arg in args {
            for (scalars, value) in by_step.iter_mut().zip(self.scalar(arg, grid)?) {
                scalars.push(value);
            }
        }
        Ok(by_step)
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

fn window_of(node: Option<&Node>) -> Result<&Window, Error> {
    match node {
        Some(Node::Window(window)) => Ok(window),
        _ => Err(Error::Execution("expected a range vector".to_owned())),
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
            ("nothing", "or", true),
            ("a", "and", true),
        ] {
            let query = format!("{left} {op} {wrong}");
            assert!(!evaluates(&query, false), "{query}");
            assert_eq!(!evaluates(&query, true), fails, "{query}");
        }
    }
}
