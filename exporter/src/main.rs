//! `takt-exporter`: the exporter as a program of its own.

#![warn(clippy::undocumented_unsafe_blocks)]

use clap::{Parser, Subcommand};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use takt_exporter::{LogOptions, Options};
use takt_fitness::NodeOk;

/// The node's exporter: kernel, GPUs, links, NFS.
#[derive(Debug, Parser)]
#[command(
    name = "takt-exporter",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    log: LogOptions,
}

/// What is done instead of serving.
#[derive(Debug, Subcommand)]
enum Command {
    /// Questions about this node, answered by its running exporter
    #[command(subcommand)]
    Node(Node),
}

#[derive(Debug, Subcommand)]
enum Node {
    /// Is this node fit for a job? For Slurm's prolog, epilog and HealthCheckProgram
    #[command(after_help = takt_fitness::EXIT_CODES)]
    Ok(NodeOk),
}

fn main() -> ExitCode {
    keep_memory_small();
    let cli = Cli::parse();
    if let Some(Command::Node(Node::Ok(asked))) = cli.command {
        return print(&asked);
    }
    cli.log.init();

    // One thread answers; the collectors that may block have their own.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };

    match runtime.block_on(takt_exporter::run(cli.options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Prints whether the node is fit. What cannot be printed changes nothing: Slurm reads the exit code.
fn print(asked: &NodeOk) -> ExitCode {
    let answer = asked.answer();
    let _ = io::stdout().write_all(answer.stdout.as_bytes());
    if !answer.stderr.is_empty() {
        let _ = writeln!(io::stderr(), "{}", answer.stderr);
    }
    ExitCode::from(answer.exit_code)
}

/// Keeps glibc's heaps small. Some forty threads each allocate a little at nearly the same moment;
/// glibc would give most of them a heap of their own: half a megabyte of a dozen. The memory of a
/// page is kept between scrapes: to return it and to get it again takes a page fault for each 4 kB.
fn keep_memory_small() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (option, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 128 << 10),
        (libc::M_TRIM_THRESHOLD, 256 << 10),
        (libc::M_TOP_PAD, 16 << 10),
    ] {
        // SAFETY: mallopt accepts any numbers, and no other thread runs yet.
        unsafe { libc::mallopt(option, value) };
    }
}

fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    let text = causes.join(": ");
    tracing::error!(error = text, "cannot go on");
    ExitCode::FAILURE
}
