//! Reads data into the store: `scrape` reads targets, `events` hears exporters, `schedulers` reads Slurm, `push` takes what
//! other programs send.
//!
//! This crate answers no questions and sends no messages.

pub mod events;
pub mod push;
pub mod schedulers;
pub mod scrape;
