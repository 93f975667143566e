//! Fair share against a real Slurm, and laws that hold for all inputs.

#![expect(
    clippy::unwrap_used,
    reason = "the tests' own texts and fixtures can be read"
)]

mod laws;
mod slurm_lab;
