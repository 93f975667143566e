//! Formats of Slurm: the output of `sacct`, `sacctmgr`, `scontrol`, `sreport`, jobcomp and slurmrestd, turned into the values
//! of takt-jobs.
//!
//! Parsers take text and return values. This crate runs no commands, opens no sockets and knows no
//! tables.

pub mod access_text;
pub mod jobcomp;
mod lines;
pub mod node;
pub mod openapi;
pub mod releases;
pub mod reservation;
pub mod sacct;
pub mod share_text;
pub mod sreport;
mod times;
pub mod tres;

pub use lines::{LinesError, decompressed};
