//! Wire formats of pushed samples: Prometheus remote write and OTLP metrics.

pub mod otlp;
mod pushed;
pub mod remote_write;
mod wire;

pub use pushed::{LabelError, OneSeries, PushedSample, PushedSeries, labels_of};
pub use wire::WireError;
