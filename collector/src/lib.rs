//! Reads data into the store: `scrape` reads targets, `schedulers` reads Slurm.
//!
//! This crate answers no questions and sends no messages.

pub mod schedulers;
pub mod scrape;
