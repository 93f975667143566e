//! Results of a query.

use crate::annotations::Annotations;
use crate::source::{HistogramPoint, Point};
use std::sync::Arc;
use takt_model::Labels;
use takt_model::Timestamp;
use takt_model::native::NativeHistogram;

/// A value with the remarks that arose on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The result.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// Most samples and points held at one time while evaluating.
    pub peak_samples: u64,
    /// Samples that each step has looked at; a sample counts in each step that looks at it.
    pub samples_per_step: Vec<u64>,
}

/// A result, one variant a `resultType` of Prometheus' HTTP API.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number without labels.
    Scalar(Point),
    /// A text, at the instant of evaluation.
    String {
        /// Time of the evaluation.
        at: Timestamp,
        /// The text.
        text: String,
    },
    /// One sample a series, all at the same instant. The order is the query's (`sort`, `topk`).
    Vector(Vec<Sample>),
    /// Several samples a series, in the order of labels.
    Matrix(Vec<Series>),
}

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels.
    pub labels: Labels,
    /// The instant of evaluation and the value. The value is NaN for a native histogram.
    pub point: Point,
    /// The native histogram, for a sample that is one.
    pub histogram: Option<Arc<NativeHistogram>>,
}

/// One element of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The labels.
    pub labels: Labels,
    /// Ascending in time. Never empty where there are no histograms.
    pub points: Vec<Point>,
    /// Native histograms, ascending in time.
    pub histograms: Vec<HistogramPoint>,
}

impl Value {
    /// The API's `resultType`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Scalar(_) => "scalar",
            Value::String { .. } => "string",
            Value::Vector(_) => "vector",
            Value::Matrix(_) => "matrix",
        }
    }
}
