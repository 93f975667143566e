//! Fair share against a real Slurm's, and the laws that hold without one.

#![expect(
    clippy::unwrap_used,
    reason = "the tests' own texts and fixtures can be read"
)]

mod laws;
mod slurm_lab;
