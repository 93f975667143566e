//! Takt's commands: configuration, wiring and printing. All other code is in the libraries.

mod cli;
mod client;
mod commands;
#[cfg(test)]
mod documentation;
mod output;
mod person;
mod place;
mod process_metrics;
mod source;

use clap::Parser;
use rustls::crypto::ring;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use takt_model::shown::printable_lines;
use takt_server::Failure;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // First, while no other thread runs.
    limit_heaps();
    let cli = cli::Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(cli.command.as_ref().map_or("info", cli::Command::log_level))
    });
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    if cli
        .command
        .as_ref()
        .is_some_and(cli::Command::keeps_running)
    {
        log.init();
    } else {
        // A note for the person at the terminal, not a line of a server's log.
        log.without_time().with_target(false).init();
    }
    // The only TLS provider; deny.toml rejects others.
    ring::default_provider()
        .install_default()
        .expect("no TLS provider is installed before main");

    match commands::run(cli) {
        Ok(code) => code,
        // `takt jobs | head` is no failure.
        Err(_) if output::is_closed() => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::debug!(error = ?failure, "failed");
            report(&failure)
        }
    }
}

/// Prints the whole chain of causes on one line of stderr. Exit code 2: usage or configuration; 1:
/// anything else.
#[expect(
    clippy::print_stderr,
    reason = "the one place where errors are printed"
)]
fn report(failure: &Failure) -> ExitCode {
    let (code, error) = match failure {
        Failure::Usage(error) => (2, error),
        Failure::Failed(error) => (1, error),
    };
    let error = printable_lines(&format!("{error:#}"));
    eprintln!("takt: {error}");
    ExitCode::from(code)
}

/// Lets glibc give threads two heaps, not eight for each processor: what one thread has freed stays in
/// its heap, and the memory of queries and answers would be held several times.
fn limit_heaps() {
    // SAFETY: mallopt accepts any numbers, and no other thread runs yet.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
