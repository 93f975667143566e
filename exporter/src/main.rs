//! `takt-exporter`: the exporter as a program of its own.

#![warn(clippy::undocumented_unsafe_blocks)]

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use takt_exporter::{LogOptions, Options};

/// The node's exporter: kernel, GPUs, links, NFS.
#[derive(Debug, Parser)]
#[command(name = "takt-exporter", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    log: LogOptions,
}

fn main() -> ExitCode {
    keep_memory_small();
    let cli = Cli::parse();
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
