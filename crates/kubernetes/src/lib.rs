//! Formats of Kubernetes and Kueue: JSON of pods and of the objects around them, turned into the values of takt-jobs.
//!
//! A pod that reserves CPUs, memory or GPUs is a run. This crate asks no API server and reads no clock: text and the
//! current instant come in, runs go out. Everything in an object may have been written by a user.

mod amounts;
mod context;
mod names;
mod objects;
mod outcome;
mod pod;
mod quantity;
mod reader;
mod scan;
mod times;

pub use amounts::{PodAmounts, is_whole_gpu};
pub use names::{NameSource, NameSourceError, NameSources};
pub use pod::PodOptions;
pub use quantity::{Quantity, QuantityError};
pub use reader::{ObjectReader, ObjectReaderError};
