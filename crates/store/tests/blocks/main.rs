//! Blocks contain exactly the samples that were written, for every reader and after every failure.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod anywhere;
mod bench_store;
mod clock;
mod crash;
mod damage;
mod faults;
mod lifetime;
mod listing;
mod outsider;
mod power;
mod recovery;
mod sealing;
mod views;
mod visible;
