//! `takt assess`.

use super::ask;
use crate::cli::{Assess, Place};
use crate::output::stdout;
use std::io::Write;
use takt_server::Failure;
use takt_server::answers::AssessQuestion;

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
