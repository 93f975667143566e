//! Selectors: from samples to columns.
//!
//! Every series is walked once, forwards, for all steps; series do not depend on each other. Windows and the look-back
//! are open on the left: a sample exactly one range or look-back ago is outside (Prometheus 3, `docs/migration.md`).

use crate::budget::Budget;
use crate::column::{Column, Element, drop_name};
use crate::cursor::{Bounds, Latest, Newest, span};
use crate::error::Error;
use crate::eval::{Evaluator, Grid};
use crate::functions::{Function, Slice, extended, extended_points, interpolated};
use crate::parts::in_parts;
use crate::plan::{CallPlaces, Selector, Window, Windowed};
use crate::select_native::{NativeRemarks, extended_histograms, subquery_histograms};
use crate::source::{HistogramPoint, Point, SAMPLE_TIME, Selection, SeriesData};
use crate::syntax::tree::Extension;
use crate::value::Series;
use takt_model::Labels;
use takt_model::Timestamp;

/// Functions that act like an offset: the result is still that metric.
const KEEPS_NAME: [&str; 2] = ["first_over_time", "last_over_time"];
/// Ends of names that counters have.
const COUNTER_SUFFIXES: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

/// Samples that are looked at between two looks at the clock; some milliseconds' work.
const UNCHECKED: usize = 1 << 20;

type WindowFn = fn(&Slice<'_>) -> Option<f64>;

impl Evaluator<'_> {
    /// The newest sample at each step, no older than the look-back and not ended by staleness.
    pub fn instant_values(
        &mut self,
        selector: &Selector,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        // As in Prometheus, an instant selector ignores `anchored`.
        if selector.extension == Some(Extension::Smoothed) {
            self.smoothed_values(selector, grid)
        } else {
            self.instants(selector, grid, "", |newest| newest.element())
        }
    }

    /// The value at each step, interpolated between the samples around it (`smoothSeries`). After the newest sample its
    /// value continues for the look-back.
    fn smoothed_values(&mut self, selector: &Selector, grid: &Grid) -> Result<Vec<Column>, Error> {
        let lookback_ms = self.options.lookback_ms;
        let shift = selector.shift;
        let first = shift.apply(grid.start).minus_ms(lookback_ms);
        let last = shift.apply(grid.last()).plus_ms(lookback_ms);

        // The look-back is open on the left; the store's bounds are closed.
        let first = first.plus_ms(1);

        let series = self.select(selector, first, last, grid, lookback_ms, "")?;
        self.budget.hold(series.len().saturating_mul(grid.steps))?;

        let mut columns = Vec::with_capacity(series.len());
        for series in series {
            self.budget.check()?;
            let SeriesData { labels, points, .. } = series;
            if !series.histograms.is_empty() {
                // Refused by name rather than answered as if the series had floats only.
                return Err(extended_histograms(Extension::Smoothed));
            }

            let mut bounds = Bounds::default();
            let values = grid
                .times()
                .map(|now| {
                    let at = shift.apply(now);
                    let from = at.minus_ms(lookback_ms);
                    let around = bounds.move_to(&points, from, at.plus_ms(lookback_ms));
                    let next = around.partition_point(|point| point.at < at);
                    match (around[..next].last(), around.get(next)) {
                        (_, Some(exact)) if exact.at == at => Some(exact.value),
                        (Some(before), Some(after)) => Some(interpolated(before, after, at, false)),
                        (Some(before), None) => Some(before.value),
                        (None, _) => None,
                    }
                })
                .collect();

            columns.extend(Column::new(labels, values));
        }

        Ok(columns)
    }

    /// As [`instant_values`](Self::instant_values), with the samples' own instants in seconds (`timestamp`).
    pub fn instant_times(
        &mut self,
        selector: &Selector,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        let columns = self.sample_times(selector, grid)?;
        self.unnamed(columns)
    }

    /// As [`instant_times`](Self::instant_times), names kept.
    pub fn sample_times(&mut self, selector: &Selector, grid: &Grid) -> Result<Vec<Column>, Error> {
        let seconds = |newest: Newest<'_>| Element::Float(newest.at().as_seconds());
        self.instants(selector, grid, SAMPLE_TIME, seconds)
    }

    fn instants(
        &mut self,
        selector: &Selector,
        grid: &Grid,
        function: &str,
        pick: fn(Newest<'_>) -> Element,
    ) -> Result<Vec<Column>, Error> {
        let lookback_ms = self.options.lookback_ms;
        let first = selector
            .shift
            .apply(grid.start)
            .minus_ms(lookback_ms)
            .plus_ms(1);
        let last = selector.shift.apply(grid.last());

        let series = self.select(selector, first, last, grid, 0, function)?;
        self.budget.hold(series.len().saturating_mul(grid.steps))?;

        // A step costs about as much as a sample, even where it looks at none.
        let work = series
            .iter()
            .map(|series| series.points.len() + series.histograms.len() + grid.steps)
            .sum();

        let parts = in_parts(series, work, |part: Vec<SeriesData>| {
            let mut columns = Vec::with_capacity(part.len());
            let mut looked_at = vec![0; grid.steps];
            for series in part {
                self.budget.check()?;
                let mut latest = Latest::new(&series, lookback_ms);
                let Some((oldest, newest)) = [span(&series.points), span(&series.histograms)]
                    .into_iter()
                    .flatten()
                    .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                else {
                    continue;
                };

                // Only the steps that can see a sample are walked.
                let until = newest.plus_ms(lookback_ms);
                let steps = grid.steps_at(selector.shift, oldest, until);
                let first = steps.start;
                let counts = &mut looked_at[steps.clone()];

                let values = steps.zip(counts).map(|(step, count)| {
                    let newest = latest.at(selector.shift.apply(grid.time(step)));
                    *count += u64::from(newest.is_some());
                    newest.map(pick)
                });

                let column = Column {
                    values: Vec::with_capacity(grid.steps),
                    ..Column::default()
                };
                let column = column.with_elements_from(first, values);
                let column = column.with_steps(grid.steps).unless_empty();

                columns.extend(column.map(|column| Column {
                    labels: series.labels,
                    ..column
                }));
            }

            Ok::<_, Error>((columns, looked_at))
        })?;

        Ok(self.joined(parts, grid))
    }

    /// A function of a window at each step.
    pub fn window_values(
        &mut self,
        function: &'static Function,
        body: WindowFn,
        window: &Window,
        scalars: &[Vec<f64>],
        places: &CallPlaces,
        grid: &Grid,
    ) -> Result<Vec<Column>, Error> {
        let body = match window.extension() {
            Some(extension) => extended(function.name, extension).map_err(Error::Execution)?,
            None => body,
        };
        let (columns, native) = self.window_columns(function.name, body, window, scalars, grid)?;

        let mut about = self.remarks.about(places);
        for (remark, metric) in native {
            about.native(remark, &metric);
        }

        // Remarks need the results: a series without one must not be remarked on.
        match function.name {
            "rate" | "increase" => {
                for column in &columns {
                    let name = column.labels.metric();
                    if !name.is_empty()
                        && column.values.iter().any(Option::is_some)
                        && !COUNTER_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
                    {
                        about.possible_non_counter(name);
                    }
                }
            }
            "quantile_over_time" => {
                for (step, scalars) in scalars
                    .iter()
                    .enumerate()
                    .filter(|(_, phi)| !(0.0..=1.0).contains(&phi[0]))
                {
                    if columns.iter().any(|column| column.values[step].is_some()) {
                        about.invalid_quantile(0, scalars[0]);
                    }
                }
            }
            "double_exponential_smoothing" => {
                let used = |step: usize| columns.iter().any(|column| column.values[step].is_some());
                // Prometheus checks the factors only where it has a series, so an empty result is
                // no error.
                for scalars in scalars
                    .iter()
                    .enumerate()
                    .filter(|(step, _)| used(*step))
                    .map(|(_, scalars)| scalars)
                {
                    factor("smoothing", "sf", scalars[0])?;
                    factor("trend", "tf", scalars[1])?;
                }
            }
            _ => {}
        }

        if KEEPS_NAME.contains(&function.name) {
            Ok(columns)
        } else {
            self.unnamed(columns)
        }
    }

    /// As [`window_values`](Self::window_values), names kept. Returns the remarks about native histograms, with the
    /// names of their metrics.
    pub fn window_columns(
        &mut self,
        name: &str,
        body: WindowFn,
        window: &Window,
        scalars: &[Vec<f64>],
        grid: &Grid,
    ) -> Result<(Vec<Column>, NativeRemarks), Error> {
        let series = self.windowed(window, grid, name)?;
        self.budget.hold(series.len().saturating_mul(grid.steps))?;

        let work = window_work(&series, window, grid);

        // Shared by all threads: nothing in it changes, and each series brings its own bounds.
        let walk = Walk {
            function: name,
            body,
            window,
            reach: self.reach(window),
            scalars,
            grid,
            budget: self.budget,
        };

        let (parts, remarks): (Vec<_>, Vec<_>) = in_parts(series, work, |part| {
            let mut looked_at = vec![0; grid.steps];
            let mut remarks = NativeRemarks::new();
            let columns = part
                .into_iter()
                .map(|series| walk.run(series, &mut looked_at, &mut remarks))
                .filter_map(Result::transpose)
                .collect::<Result<Vec<_>, Error>>()?;
            Ok::<_, Error>(((columns, looked_at), remarks))
        })?
        .into_iter()
        .unzip();

        let remarks = remarks.into_iter().flatten().collect();
        Ok((self.joined(parts, grid), remarks))
    }

    /// Puts together what several threads did.
    fn joined(&mut self, parts: Vec<(Vec<Column>, Vec<u64>)>, grid: &Grid) -> Vec<Column> {
        let mut all = Vec::with_capacity(parts.iter().map(|(columns, _)| columns.len()).sum());
        for (columns, looked_at) in parts {
            all.extend(columns);
            self.samples.add(grid, &looked_at);
        }
        all
    }

    /// The samples themselves, for a query that is nothing but a window.
    pub fn window_points(&mut self, window: &Window, grid: &Grid) -> Result<Vec<Series>, Error> {
        let end = window.shift().apply(grid.start);
        let start = end.minus_ms(window.range_ms);
        let mut series = self
            .windowed(window, grid, "")?
            .into_iter()
            .map(
                |Windowful {
                     mut labels,
                     points,
                     histograms,
                     nameless,
                 }| {
                    if nameless {
                        drop_name(&mut labels);
                    }

                    let points = match window.extension() {
                        Some(extension) if !histograms.is_empty() => {
                            return Err(extended_histograms(extension));
                        }
                        Some(extension) => extended_points(&points, start, end, extension),
                        None => Bounds::default().move_to(&points, start, end).to_vec(),
                    };

                    let histograms = Bounds::default().move_to(&histograms, start, end);
                    let histograms = histograms.to_vec();
                    Ok(Series {
                        labels,
                        points,
                        histograms,
                    })
                },
            )
            .collect::<Result<Vec<Series>, Error>>()?;

        // A series without a sample in the window is not in the answer.
        let length = |series: &Series| series.points.len() + series.histograms.len();
        series.retain(|series| length(series) > 0);

        let samples = series.iter().map(|series| length(series) as u64).sum();
        self.samples.add(grid, &[samples]);

        Ok(series)
    }

    /// All samples that the windows of all steps may need.
    fn windowed(
        &mut self,
        window: &Window,
        grid: &Grid,
        function: &str,
    ) -> Result<Vec<Windowful>, Error> {
        let shift = window.shift();
        let reach = self.reach(window);
        let after = shift
            .apply(grid.start)
            .minus_ms(window.range_ms)
            .minus_ms(reach.before_ms);
        let last = shift.apply(grid.last()).plus_ms(reach.after_ms);

        match &window.of {
            Windowed::Series(selector) => {
                let first = after.plus_ms(1);
                let series = self.select(selector, first, last, grid, window.range_ms, function)?;
                Ok(series
                    .into_iter()
                    .map(|series| Windowful {
                        labels: series.labels,
                        points: series.points,
                        histograms: series.histograms,
                        nameless: false,
                    })
                    .collect())
            }
            Windowed::Subquery { of, step_ms, .. } => {
                // A step below a millisecond is the default, as in Prometheus.
                let step_ms = step_ms.filter(|step| *step > 0);
                let step_ms = step_ms.unwrap_or(self.options.subquery_step_ms);
                // The steps of a subquery lie on multiples of its step, the first one inside the window.
                let number = after.0.div_euclid(step_ms).saturating_add(1);
                let first = Timestamp(number.saturating_mul(step_ms));
                let inner = Grid::new(first, last, step_ms);
                // Before anything is evaluated: `[100y:1ms]` has more steps than memory.
                self.budget.hold(inner.steps)?;

                let series = self
                    .vector(of, &inner)?
                    .into_iter()
                    .map(
                        |Column {
                             labels,
                             values,
                             histograms,
                             nameless,
                         }| {
                            let points = inner
                                .times()
                                .zip(values)
                                .filter_map(|(at, value)| value.map(|value| Point { at, value }))
                                .collect();
                            Windowful {
                                labels,
                                points,
                                histograms: subquery_histograms(&inner, histograms),
                                nameless,
                            }
                        },
                    )
                    .collect();

                Ok(series)
            }
        }
    }

    /// How far an extended window reaches beyond its range.
    fn reach(&self, window: &Window) -> Reach {
        let lookback_ms = self.options.lookback_ms;
        let extension = window.extension();
        let before_ms = if extension.is_some() { lookback_ms } else { 0 };
        let is_smoothed = extension == Some(Extension::Smoothed);
        let after_ms = if is_smoothed { lookback_ms } else { 0 };
        Reach {
            before_ms,
            after_ms,
        }
    }

    /// Asks the store.
    fn select(
        &mut self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        grid: &Grid,
        range_ms: i64,
        function: &str,
    ) -> Result<Vec<SeriesData>, Error> {
        // A source may answer one evaluation with the newest sample alone.
        let step_ms = if grid.steps > 1 { grid.step_ms } else { 0 };
        let selection = Selection {
            matchers: &selector.matchers,
            from,
            to,
            step_ms,
            range_ms,
            lookback_ms: self.options.lookback_ms,
            function,
        };

        let series = self.source.select(&selection, self.budget)?;
        // After the deadline the matchers accept nothing, so the selection is of no use then.
        self.budget.check()?;
        self.budget.series(series.len())?;

        Ok(series)
    }
}

/// A series whose windows are looked at: staleness does not count there.
pub(crate) struct Windowful {
    pub labels: Labels,
    pub points: Vec<Point>,
    pub histograms: Vec<HistogramPoint>,
    pub nameless: bool,
}

/// About how many samples all windows look at.
fn window_work(series: &[Windowful], window: &Window, grid: &Grid) -> usize {
    /// How much more a histogram costs than a float.
    const WEIGHT: usize = 32;
    let points = |series: &Windowful| series.points.len() + WEIGHT * series.histograms.len();
    let points: usize = series.iter().map(points).sum();

    // Each sample is in about so many windows, and each of them looks at it again.
    let overlap = window.range_ms / grid.step_ms.max(1) + 1;

    points.saturating_mul(
        usize::try_from(overlap)
            .unwrap_or(usize::MAX)
            .min(grid.steps),
    )
}

/// Milliseconds of samples before and after the range of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub before_ms: i64,
    pub after_ms: i64,
}

/// A window that moves forwards over series.
pub(crate) struct Walk<'a> {
    pub function: &'a str,
    pub body: WindowFn,
    pub window: &'a Window,
    pub reach: Reach,
    pub scalars: &'a [Vec<f64>],
    pub grid: &'a Grid,
    pub budget: &'a Budget,
}

impl Walk<'_> {
    /// Result of the function at each step; `None` without a result.
    fn run(
        &self,
        series: Windowful,
        looked_at: &mut [u64],
        remarks: &mut NativeRemarks,
    ) -> Result<Option<Column>, Error> {
        if !series.histograms.is_empty() {
            return self.run_native(series, looked_at, remarks);
        }
        let Self {
            function: _,
            body,
            window,
            reach,
            scalars,
            grid,
            budget,
        } = *self;

        let shift = window.shift();
        budget.check()?;
        let mut bounds = Bounds::default();
        let mut values = Vec::with_capacity(grid.steps);
        let mut unchecked = 0;
        let Some((oldest, newest)) = span(&series.points) else {
            return Ok(None);
        };

        // Only the steps whose window can hold a sample are walked; a short-lived series has few.
        let until = newest.plus_ms(window.range_ms).plus_ms(reach.before_ms);
        let steps = grid.steps_at(shift, oldest.minus_ms(reach.after_ms), until);
        values.resize(steps.start, None);

        for (step, count) in steps.clone().zip(&mut looked_at[steps]) {
            let now = grid.time(step);
            let end = shift.apply(now);
            let start = end.minus_ms(window.range_ms);
            let from = start.minus_ms(reach.before_ms);
            let to = end.plus_ms(reach.after_ms);

            let points = bounds.move_to(&series.points, from, to);
            *count += points.len() as u64;
            // One series can be most of the work: wide windows at many steps.
            unchecked += points.len();
            if unchecked > UNCHECKED {
                budget.check()?;
                unchecked = 0;
            }

            let scalars = scalars.get(step).map_or(&[][..], Vec::as_slice);
            let slice = Slice {
                points,
                start,
                end,
                now,
                scalars,
            };

            values.push(if points.is_empty() {
                None
            } else {
                body(&slice)
            });
        }

        values.resize(grid.steps, None);
        Ok(Column {
            labels: series.labels,
            values,
            histograms: Vec::new(),
            nameless: series.nameless,
        }
        .unless_empty())
    }
}

fn factor(name: &str, short: &str, value: f64) -> Result<(), Error> {
    if value <= 0.0 || value >= 1.0 {
        return Err(Error::Execution(format!(
            "invalid {name} factor. Expected: 0 < {short} < 1, got: {value:.6}"
        )));
    }
    Ok(())
}
