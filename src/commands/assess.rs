//! `takt assess`.

use crate::cli::{Assess, Place};
use crate::place;
use crate::source::{self, Whereabouts};
use std::io::Write;
use takt_server::api::AssessQuestion;
use takt_server::{Failure, OrUsage};

/// Has runs assessed and says how many were.
pub fn run(place: &Place, asked: &Assess) -> Result<(), Failure> {
    let config = place::load(place).usage()?;
    let question = AssessQuestion {
        month: asked.period.month.clone(),
        from: asked.period.from.clone(),
        to: asked.period.to.clone(),
        again: asked.again,
        cluster: asked.cluster.clone(),
    };
    let done = source::assess(
        &Whereabouts::of(place, &config)?,
        &config.store,
        &config.accounting(),
        &question,
    )?;
    let runs = if done.runs == 1 {
        "1 run".to_owned()
    } else {
        format!("{} runs", done.runs)
    };
    Ok(writeln!(
        std::io::stdout(),
        "{runs} assessed, {} of them measured well enough",
        done.measured
    )?)
}
