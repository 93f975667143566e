//! `takt node`: questions about the node on which the command runs.

use crate::output::stdout;
use clap::Subcommand;
use std::io::Write;
use std::process::ExitCode;
use takt_fitness::NodeOk;
use takt_server::Failure;

#[derive(Debug, Subcommand)]
pub enum Node {
    /// Is this node fit for a job? For Slurm's prolog, epilog and HealthCheckProgram; asks the
    /// node's exporter, no server
    #[command(after_help = takt_fitness::EXIT_CODES)]
    Ok(NodeOk),
}

/// Runs the command. Returns its exit code.
#[expect(
    clippy::print_stderr,
    reason = "one line for the log of slurmd, not of this program"
)]
pub fn run(node: &Node) -> Result<ExitCode, Failure> {
    let Node::Ok(asked) = node;
    let answer = asked.answer();
    if !answer.stderr.is_empty() {
        eprintln!("{}", answer.stderr);
    }
    stdout().write_all(answer.stdout.as_bytes())?;
    Ok(ExitCode::from(answer.exit_code))
}
