//! Diagnoses from samples: which GPU a distributed job waits for.
//!
//! This crate does no I/O, sees no SQL and reads no clock: the same readings always give the same answer.

mod straggler;

pub use straggler::{
    Cause, Certainty, Evidence, GpuReadings, LEAST_GPUS, Metric, Pace, Readings, SlowGpu,
    WINDOW_SECONDS, pace,
};
