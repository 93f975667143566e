//! Every function in one table: name, arguments, result, and what computes it.
//!
//! The table follows `promql/parser/functions.go`; the bodies follow `promql/functions.go`.

mod absent;
mod date;
mod extended;
mod histogram;
mod info;
mod label;
mod math;
mod native;
mod native_extended;
mod native_window;
mod order;
mod over_time;
mod rate;

use crate::plan::Type;

use std::f64::consts::PI;
use takt_model::native::NativeHistogram;

pub(crate) use absent::absent;
pub(crate) use date::Date;
pub(crate) use extended::{extended, extended_points, interpolated};
pub(crate) use histogram::{fraction, quantile, quantiles};
pub(crate) use info::{InfoConditions, info};
pub(crate) use label::{join, replace};
pub(crate) use native_window::{of_extended_window, of_window};
pub(crate) use order::{sort_by_label, sort_by_value};
pub(crate) use over_time::{Slice, present};

/// One function.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    /// Types of the arguments.
    pub args: &'static [Type],
    /// `Some` where the last one may be missing, or repeat: how many may stand in its place.
    pub more: Option<usize>,
    pub returns: Type,
    /// Refused unless experimental functions are allowed.
    pub experimental: bool,
    pub body: Body,
}

/// Implementation of a function, by the form of its arguments.
#[derive(Debug)]
pub(crate) enum Body {
    /// Value by value.
    Map(fn(f64) -> f64),
    /// Value by value with the scalars of that step; `None` removes the element.
    MapWith(fn(f64, &[f64]) -> Option<f64>),
    /// Part of a date, of each value or of the instant of evaluation.
    Date(fn(Date) -> f64),
    /// Histogram by histogram; floats are left out.
    Native(fn(&NativeHistogram) -> f64),
    /// Window by window.
    Window(fn(&Slice<'_>) -> Option<f64>),
    /// Anything that needs the whole vector, its labels or its instants.
    Whole(Whole),
    /// Known to Prometheus and refused here by name.
    Unsupported,
}

/// Functions that are more than a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    Absent,
    AbsentOverTime,
    HistogramFraction,
    HistogramQuantile,
    HistogramQuantiles,
    Info,
    LabelJoin,
    LabelReplace,
    MaxOf,
    MinOf,
    Pi,
    Scalar,
    Sort {
        descending: bool,
    },
    SortByLabel {
        descending: bool,
    },
    Time,
    Timestamp,
    Vector,
    /// Start, end, step and range of the query, which the plan replaces by numbers.
    Start,
    End,
    Step,
    Range,
}

/// The function of that name; names are in lower case.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const V: Type = Type::Vector;
const M: Type = Type::Matrix;
const S: Type = Type::Scalar;
const T: Type = Type::String;

const fn function(name: &'static str, args: &'static [Type], body: Body) -> Function {
    Function {
        name,
        args,
        more: None,
        returns: V,
        experimental: false,
        body,
    }
}

const fn map(name: &'static str, body: fn(f64) -> f64) -> Function {
    function(name, &[V], Body::Map(body))
}

const fn native(name: &'static str, body: fn(&NativeHistogram) -> f64) -> Function {
    function(name, &[V], Body::Native(body))
}

const fn window(name: &'static str, body: fn(&Slice<'_>) -> Option<f64>) -> Function {
    function(name, &[M], Body::Window(body))
}

const fn whole(name: &'static str, args: &'static [Type], body: Whole) -> Function {
    function(name, args, Body::Whole(body))
}

const fn scalar(name: &'static str, args: &'static [Type], body: Whole) -> Function {
    Function {
        returns: S,
        ..whole(name, args, body)
    }
}

const fn date(name: &'static str, body: fn(Date) -> f64) -> Function {
    at_most(1, function(name, &[V], Body::Date(body)))
}

const fn at_most(more: usize, function: Function) -> Function {
    Function {
        more: Some(more),
        ..function
    }
}

const fn experimental(function: Function) -> Function {
    Function {
        experimental: true,
        ..function
    }
}

/// All functions of Prometheus 3.14, in the order of their names.
pub(crate) const FUNCTIONS: &[Function] = &[
    map("abs", f64::abs),
    whole("absent", &[V], Whole::Absent),
    whole("absent_over_time", &[M], Whole::AbsentOverTime),
    map("acos", f64::acos),
    map("acosh", f64::acosh),
    map("asin", f64::asin),
    map("asinh", f64::asinh),
    map("atan", f64::atan),
    map("atanh", f64::atanh),
    window("avg_over_time", over_time::avg),
    map("ceil", f64::ceil),
    window("changes", over_time::changes),
    function("clamp", &[V, S, S], Body::MapWith(math::clamp)),
    function("clamp_max", &[V, S], Body::MapWith(math::clamp_max)),
    function("clamp_min", &[V, S], Body::MapWith(math::clamp_min)),
    map("cos", f64::cos),
    map("cosh", f64::cosh),
    window("count_over_time", over_time::count),
    date("day_of_month", |date| date.day as f64),
    date("day_of_week", |date| date.weekday as f64),
    date("day_of_year", |date| date.day_of_year as f64),
    date("days_in_month", |date| date.days_in_month as f64),
    map("deg", |value| value * 180.0 / PI),
    window("delta", rate::delta),
    window("deriv", rate::deriv),
    experimental(function(
        "double_exponential_smoothing",
        &[M, S, S],
        Body::Window(over_time::smooth),
    )),
    experimental(scalar("end", &[], Whole::End)),
    map("exp", f64::exp),
    window("first_over_time", over_time::first),
    map("floor", f64::floor),
    native("histogram_avg", |histogram| histogram.sum / histogram.count),
    native("histogram_count", |histogram| histogram.count),
    whole("histogram_fraction", &[S, S, V], Whole::HistogramFraction),
    whole("histogram_quantile", &[S, V], Whole::HistogramQuantile),
    experimental(at_most(
        9,
        whole(
            "histogram_quantiles",
            &[V, T, S, S],
            Whole::HistogramQuantiles,
        ),
    )),
    native("histogram_stddev", |histogram| {
        native::variance(histogram).sqrt()
    }),
    native("histogram_stdvar", native::variance),
    native("histogram_sum", |histogram| histogram.sum),
    date("hour", |date| date.hour as f64),
    window("idelta", rate::idelta),
    window("increase", rate::increase),
    experimental(at_most(1, whole("info", &[V, V], Whole::Info))),
    window("irate", rate::irate),
    at_most(
        usize::MAX,
        whole("label_join", &[V, T, T, T], Whole::LabelJoin),
    ),
    whole("label_replace", &[V, T, T, T, T], Whole::LabelReplace),
    window("last_over_time", over_time::last),
    map("ln", f64::ln),
    map("log10", f64::log10),
    map("log2", f64::log2),
    experimental(window("mad_over_time", over_time::mad)),
    experimental(scalar("max_of", &[S, S], Whole::MaxOf)),
    window("max_over_time", over_time::max),
    experimental(scalar("min_of", &[S, S], Whole::MinOf)),
    window("min_over_time", over_time::min),
    date("minute", |date| date.minute as f64),
    date("month", |date| date.month as f64),
    scalar("pi", &[], Whole::Pi),
    function(
        "predict_linear",
        &[M, S],
        Body::Window(rate::predict_linear),
    ),
    window("present_over_time", present),
    function(
        "quantile_over_time",
        &[S, M],
        Body::Window(over_time::quantile),
    ),
    map("rad", |value| value * PI / 180.0),
    experimental(scalar("range", &[], Whole::Range)),
    window("rate", rate::rate),
    window("resets", over_time::resets),
    at_most(1, function("round", &[V, S], Body::MapWith(math::round))),
    scalar("scalar", &[V], Whole::Scalar),
    map("sgn", math::sgn),
    map("sin", f64::sin),
    map("sinh", f64::sinh),
    whole("sort", &[V], Whole::Sort { descending: false }),
    experimental(at_most(
        usize::MAX,
        whole(
            "sort_by_label",
            &[V, T],
            Whole::SortByLabel { descending: false },
        ),
    )),
    experimental(at_most(
        usize::MAX,
        whole(
            "sort_by_label_desc",
            &[V, T],
            Whole::SortByLabel { descending: true },
        ),
    )),
    whole("sort_desc", &[V], Whole::Sort { descending: true }),
    map("sqrt", f64::sqrt),
    experimental(scalar("start", &[], Whole::Start)),
    experimental(function("start_timestamp", &[V], Body::Unsupported)),
    window("stddev_over_time", |slice| {
        over_time::stdvar(slice).map(f64::sqrt)
    }),
    window("stdvar_over_time", over_time::stdvar),
    experimental(scalar("step", &[], Whole::Step)),
    window("sum_over_time", over_time::sum),
    map("tan", f64::tan),
    map("tanh", f64::tanh),
    scalar("time", &[], Whole::Time),
    whole("timestamp", &[V], Whole::Timestamp),
    experimental(window("ts_of_first_over_time", over_time::instant_of_first)),
    experimental(window("ts_of_last_over_time", over_time::instant_of_last)),
    experimental(window("ts_of_max_over_time", over_time::instant_of_max)),
    experimental(window("ts_of_min_over_time", over_time::instant_of_min)),
    whole("vector", &[S], Whole::Vector),
    date("year", |date| date.year as f64),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_function_has_a_script() {
        let scripts = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/promql/scripts");
        let all: String = scripts
            .read_dir()
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        let untested = FUNCTIONS
            .iter()
            .map(|function| function.name)
            .filter(|name| !all.contains(&format!(" {name}(")));
        assert_eq!(untested.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
