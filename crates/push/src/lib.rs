//! Wire formats of pushed samples: Prometheus remote write and OTLP metrics.

pub mod exposition;
mod label_key;
mod memory;
mod native;
pub mod otlp;
mod pushed;
pub mod remote_write;
mod symbols;
mod wire;

pub use label_key::LabelKey;
pub use memory::{MemoryDenied, MemoryGrant};
pub use pushed::{LabelError, OneSeries, PushedHistogram, PushedSample, PushedSeries};
pub use wire::WireError;
