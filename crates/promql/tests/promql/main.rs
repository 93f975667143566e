//! The PromQL evaluator: our scripts, random queries, and Debian's Prometheus on the same samples.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]
#![allow(
    clippy::print_stderr,
    reason = "says what was skipped and how much was compared"
)]

mod common;
mod current;
mod fuzz;
mod prometheus;
mod scripts;
