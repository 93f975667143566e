//! Takt's commands: configuration, wiring and printing. What a library could hold is in a library.

mod alerting;
mod cli;
mod commands;
mod config;
mod dispatch;
#[cfg(test)]
mod documentation;
mod failure;
mod output;
mod own_series;
mod page;
mod processes;
mod reference;
mod report;
mod server;
mod source;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // The one TLS provider; nothing in the build may bring another (deny.toml).
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nobody installed a provider before main");
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::debug!(error = ?failure, "failed");
            failure.report()
        }
    }
}
