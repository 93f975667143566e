//! Simulations with seeds: a small cluster with everything that can go wrong, in one thread, without
//! network, sleeping or the machine's clock. The decisions are those of the real code; a seed always
//! gives the same run.
//!
//! A failing seed is printed with its last steps and the command that repeats it. docs/reliability.md
//! lists the promises that are checked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::print_stderr,
    reason = "says which seeds were tried, and how to repeat one"
)]

mod alerting;
use takt_server::alerting as queries;
mod random;
mod records;
mod seeds;
