//! Blocks: what is sealed is what was given, whoever reads it and whatever happens on the way.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod anywhere;
mod bench_store;
mod crash;
mod lifetime;
mod listing;
mod outsider;
mod recovery;
mod sealing;
mod views;
