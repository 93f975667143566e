//! Calls of functions.

use super::{Evaluator, Grid};
use crate::column::Column;
use crate::error::Error;
use crate::functions::{self, Body, Date, Function, Whole};
use crate::plan::{CallPlaces, Node, Selector, Type, Window};
use takt_model::{Labels, Timestamp};

impl Evaluator<'_> {
    pub(super) fn call(
        &mut self,
        function: &'static Function,
        args: &[Node],
        places: &CallPlaces,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        match function.body {
            Body::Native(body) => {
                let mut columns = self.vector(&args[0], grid)?;
                // Floats have no result, and no remark either, as in Prometheus.
                columns.retain(Column::has_histograms);
                for column in &mut columns {
                    column.values = column
                        .histograms
                        .drain(..)
                        .map(|found| found.map(|found| body(&found)))
                        .collect();
                }
                let columns = columns
                    .into_iter()
                    .filter_map(Column::unless_empty)
                    .collect();
                self.unnamed(columns)
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
                // The window is not always first: `quantile_over_time(0.5, v[5m])`.
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
                    Some(text)
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
                // Refused with Prometheus' message; `present_over_time` below would accept it.
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
                let with_names = self.options.delayed_names;
                let times: Vec<Timestamp> = grid.times().collect();
                let about = &mut self.remarks.about(places);
                let columns = functions::quantile(&phi, columns, with_names, &times, about);
                self.unnamed(columns)
            }
            Whole::HistogramFraction => {
                let lower = self.scalar(&args[0], grid)?;
                let upper = self.scalar(&args[1], grid)?;
                let columns = self.vector(&args[2], grid)?;
                let with_names = self.options.delayed_names;
                let about = &mut self.remarks.about(places);
                let columns = functions::fraction(&lower, &upper, columns, with_names, about);
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
                // The order of a range query is that of the labels, so sorting would be in vain.
                if grid.steps == 1 {
                    functions::sort_by_value(&mut columns, descending);
                }
                let columns = columns
                    .into_iter()
                    .filter_map(Column::unless_empty)
                    .collect();
                Ok(columns)
            }
            Whole::SortByLabel { descending } => {
                self.warn_of_sort(&args[0], places, grid);
                let mut columns = self.vector(&args[0], grid)?;
                functions::sort_by_label(&mut columns, &texts().collect::<Vec<_>>(), descending);
                Ok(columns)
            }
            // A plain selector gives the times of its samples, anything else the time of the
            // evaluation.
            Whole::Timestamp => match &args[0] {
                Node::Selector(selector) => self.instant_times(selector, grid),
                arg => {
                    let mut columns = self.vector(arg, grid)?;
                    for column in &mut columns {
                        let present = |step| column.is_present(step);
                        column.values = (0..grid.steps)
                            .map(|step| present(step).then(|| grid.time(step).as_seconds()))
                            .collect();
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
                let label = texts()
                    .next()
                    .map_or_else(String::new, |label| label.text.clone());
                let mut phis = Vec::new();
                for arg in &args[2..] {
                    phis.push(self.scalar(arg, grid)?);
                }
                let with_names = self.options.delayed_names;
                let times: Vec<Timestamp> = grid.times().collect();
                let about = &mut self.remarks.about(places);
                let columns =
                    functions::quantiles(&label, &phis, columns, with_names, &times, about);
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
        // The result has the size of its input, beside it.
        self.budget.hold(base.iter().map(Column::size).sum())?;
        functions::info(&base, &infos, &conditions, grid.steps)
    }

    fn warn_of_sort(&mut self, of: &Node, places: &CallPlaces, grid: &Grid) {
        if grid.steps > 1 && !of.is_step_invariant() {
            self.remarks.about(places).ineffective_sort();
        }
    }

    /// A function of every float of a node. Histograms are left out.
    fn each(
        &mut self,
        of: &Node,
        grid: &Grid,
        mut body: impl FnMut(usize, f64) -> Option<f64>,
    ) -> Result<Vec<Column>, Error> {
        let columns = self
            .vector(of, grid)?
            .into_iter()
            .filter_map(|mut column| {
                for (step, value) in column.values.iter_mut().enumerate() {
                    *value = value.and_then(|value| body(step, value));
                }
                // Functions of floats pass over histograms, as in Prometheus.
                column.histograms.clear();
                column.unless_empty()
            })
            .collect();
        self.unnamed(columns)
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

fn window_of(node: Option<&Node>) -> Result<&Window, Error> {
    match node {
        Some(Node::Window(window)) => Ok(window),
        _ => Err(Error::Execution("expected a range vector".to_owned())),
    }
}
