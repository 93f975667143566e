//! `takt promqltest`: Prometheus' test scripts, run on our evaluator.

use clap::Args;

use crate::output::stdout;
use anyhow::{Context, anyhow};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use takt_promql::script::{self, Report};
use takt_server::{Failure, OrUsage};

#[derive(Debug, Args)]
pub struct Promqltest {
    /// Test scripts
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Runs the command. Runs and prints all cases, then fails if one failed.
pub fn run(files: &[PathBuf]) -> Result<(), Failure> {
    let mut report = Report::default();
    for file in files {
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))
            .usage()?;
        report.merge(script::run(&file.display().to_string(), &text));
    }
    writeln!(stdout(), "{report}")?;
    match report.failed.len() {
        0 => Ok(()),
        failed => Err(Failure::Failed(anyhow!(
            "{failed} of {} cases failed",
            report.passed + failed
        ))),
    }
}
