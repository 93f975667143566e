//! PromQL over decoded series: the semantics of Prometheus 3 without Prometheus.
//!
//! ```text
//! text ─► syntax (what the parser crate gets wrong, limits) ─► plan (typed, resolved) ─► eval ─► Answer
//!                                                                                         │
//!                                                                          Source::select ┘
//! ```
//! A plan is evaluated over a grid of steps, node by node: every node yields columns, one value or gap a
//! step, so a range query selects each series once and walks its samples forwards. An instant query is a grid of one step.
//!
//! What Prometheus calls experimental is refused by name unless [`Options::experimental`] is set; native histograms are
//! refused always. Sources of the semantics are named at each function (`promql/engine.go` and so on, Prometheus 3.8).

mod aggregate;
mod annotations;
mod binary;
mod budget;
mod column;
mod error;
mod eval;
mod functions;
mod group;
mod matching;
mod measured;
mod numbers;
mod outline;
mod parts;
mod plan;
mod rank;
mod select;
mod source;
mod syntax;
mod value;

pub mod script;

pub use annotations::Annotations;
pub use budget::{Budget, Limits};
pub use error::{Error, ErrorKind};
pub use eval::{Options, instant, range};
pub use measured::measured;
pub use numbers::{exponential, format_g};
pub use outline::Place;
pub use source::{Memory, Point, Selection, SeriesData, Source, SourceError};
pub use syntax::{parse, selector};
pub use value::{Answer, Sample, Series, Value};
