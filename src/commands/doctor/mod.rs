//! `takt doctor`.

mod bundle;

use super::{ask, print};
use crate::cli::{ListingFormat, Place};
use crate::output::stdout;
use crate::{place, source};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use takt_questions::listing::{Column, Listing};
use takt_questions::{Diagnosis, DoctorQuestion, Finding, Severity};
use takt_server::doctor::with_mistakes_in_config;
use takt_server::{Config, Failure};

#[derive(Debug, Clone, Args)]
pub struct Doctor {
    /// Only checks whose id begins with this: gpu, or gpu.answers
    #[arg(long, value_name = "ID")]
    pub only: Option<String>,
    /// Skip checks whose id begins with this
    #[arg(long, value_name = "ID")]
    pub skip: Option<String>,
    /// List what an upgrade to this release of Slurm changes here: 26.05
    #[arg(long, value_name = "RELEASE", conflicts_with_all = ["only", "skip"])]
    pub slurm: Option<String>,
    /// List the checks that are in order, too
    #[arg(long, short)]
    pub verbose: bool,
    /// Also write findings, configuration without secrets, and logs into this new .tar.gz
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Prints the findings. Exit code 2 with a failure, 1 with a warning, else 0.
pub fn run(place: &Place, asked: &Doctor) -> Result<ExitCode, Failure> {
    let question = DoctorQuestion {
        only: asked.only.clone(),
        skip: asked.skip.clone(),
        slurm: asked.slurm.clone(),
    };

    // A broken configuration is the very case in which help is needed.
    let diagnosis = match place::mistake(place) {
        None => ask(place, &question)?,
        Some((mistakes, file)) => {
            let config = place::despite_mistakes(&file);
            let answer = ask_despite_mistakes(place, &config, &question);
            let server = place::running_despite_mistakes(place, &config, answer.is_some());
            let diagnosis = answer.unwrap_or_default();
            with_mistakes_in_config(diagnosis, &format!("{mistakes:#}"), &file, &server)
        }
    };

    if let Some(file) = &asked.bundle {
        bundle::write(place, &diagnosis, file)?;
    }

    match asked.format {
        ListingFormat::Table if asked.slurm.is_some() && diagnosis.findings.is_empty() => {
            writeln!(stdout(), "The upgrade changes nothing that this site uses.")?;
        }
        ListingFormat::Table => write_text(&diagnosis, asked.verbose)?,
        format => print(format, &listing(&diagnosis), &diagnosis)?,
    }

    // Findings are sorted by severity, so the first decides.
    Ok(match diagnosis.findings.first() {
        None => ExitCode::SUCCESS,
        Some(Finding {
            severity: Severity::Warning,
            ..
        }) => ExitCode::from(1),
        Some(_) => ExitCode::from(2),
    })
}

/// Asks a running server although the configuration file is unusable; `None` if none answers.
fn ask_despite_mistakes(
    place: &Place,
    config: &Config,
    question: &DoctorQuestion,
) -> Option<Diagnosis> {
    let asked = place::whereabouts(place, config)
        .and_then(source::server)
        .and_then(|server| server.ask(question));
    match asked {
        Ok(diagnosis) => Some(diagnosis),
        Err(Failure::Usage(error) | Failure::Failed(error)) => {
            tracing::warn!("only the configuration was checked: {error:#}");
            None
        }
    }
}

fn write_text(diagnosis: &Diagnosis, verbose: bool) -> io::Result<()> {
    let mut out = stdout();
    for finding in &diagnosis.findings {
        let mark = match finding.severity {
            Severity::Failure => "✗",
            Severity::Warning => "!",
        };
        let node = if finding.node.is_empty() {
            String::new()
        } else {
            format!("{}: ", finding.node)
        };
        writeln!(out, " {mark} {:<18} {node}{}", finding.id, finding.evidence)?;
        writeln!(out, "   {:<18} {}", "", finding.cost)?;
        for line in &finding.fix {
            writeln!(out, "   {:<18}   {line}", "")?;
        }
    }

    if !diagnosis.accepted.is_empty() {
        let names = diagnosis.accepted.join(", ");
        writeln!(out, "   accepted: {names}")?;
    }

    // A check without data is not in order; silence would say so.
    if !diagnosis.unknown.is_empty() {
        let count = diagnosis.unknown.len();
        writeln!(
            out,
            " ? {count} checks are not known yet, the server has just started: {}",
            diagnosis.unknown.join(", ")
        )?;
    }
    let count = diagnosis.in_order.len();
    if count == 0 {
        return Ok(());
    }
    if diagnosis.findings.is_empty() {
        match count {
            1 if diagnosis.unknown.is_empty() => writeln!(out, "The check is in order.")?,
            _ if !diagnosis.unknown.is_empty() => writeln!(out, " {count} checks are in order.")?,
            _ => writeln!(out, "All {count} checks are in order.")?,
        }
    } else if verbose {
        writeln!(
            out,
            " {count} more are in order: {}",
            diagnosis.in_order.join(", ")
        )?;
    } else {
        writeln!(out, " {count} more are in order (takt doctor -v)")?;
    }
    Ok(())
}

fn listing(diagnosis: &Diagnosis) -> Listing {
    let columns = ["id", "severity", "node", "evidence", "cost", "fix"].map(Column::Text);
    let mut listing = Listing::new(&columns);

    for finding in &diagnosis.findings {
        let severity = match finding.severity {
            Severity::Failure => "failure",
            Severity::Warning => "warning",
        };
        listing.push(vec![
            finding.id.clone(),
            severity.to_owned(),
            finding.node.clone(),
            finding.evidence.clone(),
            finding.cost.clone(),
            finding.fix.join("; "),
        ]);
    }

    listing
}
