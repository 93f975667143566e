//! PromQL over decoded series: the semantics of Prometheus 3 without Prometheus.
//!
//! ```text
//! text ─► syntax (tree with places, types checked) ─► plan (resolved) ─► eval ─► Answer
//!                                                                         │
//!                                                          Source::select ┘
//! ```
//! A plan is evaluated over a grid of steps, node by node. Every node yields columns with one value or gap per step, so a range
//! query selects each series once and walks its samples forwards. An instant query is a grid of one step.
//!
//! Features that Prometheus calls experimental are refused by name unless [`Options::experimental`] is set. Each function names the source of its semantics (`promql/engine.go` and so on, Prometheus 3.14).

mod aggregate;
mod annotations;
mod binary;
mod budget;
mod column;
mod cursor;
mod error;
mod eval;
mod functions;
mod group;
mod matching;
mod measured;
mod native;
mod numbers;
mod parts;
mod plan;
mod rank;
mod select;
mod select_native;
mod source;
mod syntax;
mod value;

pub mod language;
pub mod script;

pub use annotations::Annotations;
pub use budget::{Budget, Limits, QueryMemory};
pub use error::{Error, ErrorKind};
pub use eval::{Options, instant, instant_parsed, range};
pub use measured::measured;
pub use numbers::{exponential, format_g};
pub use source::{
    HistogramPoint, Memory, Point, SAMPLE_TIME, Selection, SeriesData, Source, SourceError,
};
pub use syntax::{Expression, Place, parse, selector};
pub use takt_model::quoted;
pub use value::{Answer, Sample, Series, Value};
