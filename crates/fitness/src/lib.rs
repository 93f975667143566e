//! Is this node fit for a job? `takt node ok`, for Slurm's prolog, epilog and `HealthCheckProgram`.
//!
//! The exporter of the node is asked once for its page. [`judge`] compares the page with the checks of a file and
//! is pure; [`NodeOk::answer`] is the only part that reads files and opens a connection. Nothing here changes
//! the node: it neither drains it nor starts a program.

mod accepted;
mod ask;
mod checks;
mod command;
mod facts;
mod job_gpus;
mod judge;
mod words;

pub use ask::USER_AGENT;
pub use checks::{Action, Checks, ChecksError};
pub use command::{Answer, EXIT_CODES, IfUnknown, NodeOk, OutputFormat};
pub use facts::Facts;
pub use job_gpus::{GpuOrder, JobGpus};
pub use judge::{CHECKS, Finding, judge};
