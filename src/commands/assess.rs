//! `takt assess`.

use super::ask;
use crate::cli::{Period, Place};
use crate::output::stdout;
use clap::Args;
use std::io::Write;
use takt_questions::AssessQuestion;
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct Assess {
    #[command(flatten)]
    pub period: Period,
    /// Compute again for jobs that already have an efficiency
    #[arg(long)]
    pub again: bool,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// Assesses runs and prints their number.
pub fn run(place: &Place, asked: &Assess) -> Result<(), Failure> {
    let question = AssessQuestion {
        month: asked.period.month.clone(),
        from: asked.period.from.clone(),
        to: asked.period.to.clone(),
        again: asked.again,
        cluster: asked.cluster.clone(),
    };

    let done = ask(place, &question)?;
    let runs = if done.runs == 1 {
        "1 run".to_owned()
    } else {
        format!("{} runs", done.runs)
    };

    Ok(writeln!(
        stdout(),
        "{runs} assessed, {} of them measured well enough",
        done.measured
    )?)
}
