//! Diagnoses: which GPU a distributed job waits for, and what is wrong with a card.
//!
//! This crate does no I/O, sees no SQL and reads no clock: the same readings always give the same answer.

pub mod card;
mod straggler;

pub use straggler::{
    Cause, Certainty, Evidence, GpuReadings, LEAST_GPUS, Metric, Pace, Readings, SlowGpu,
    WINDOW_SECONDS, pace,
};
