//! `takt-exporter`: the exporter as a program of its own.

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use takt_exporter::Options;
use tracing::level_filters::LevelFilter;

/// The node's exporter: kernel, GPUs, links, NFS.
#[derive(Debug, Parser)]
#[command(name = "takt-exporter", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// What is logged to standard error: off, error, warn, info, debug or trace.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
    /// How it is logged: only logfmt, which node_exporter also calls so.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt", value_parser = ["logfmt"], hide = true)]
    _log_format: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_max_level(cli.log_level).with_writer(std::io::stderr).with_ansi(false).init();
    // One thread answers; the collectors that may block have their own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(takt_exporter::run(cli.options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    tracing::error!(error = text, "cannot go on");
    ExitCode::FAILURE
}
