//! Brings data in: `scrape` reads targets, `schedulers` asks Slurm. Both write into the store.
//!
//! This crate answers no question and sends no message.

pub mod schedulers;
pub mod scrape;
