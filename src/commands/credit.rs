//! `takt credit`.

use super::{ask, instant, print, source};
use crate::cli::{ListingFormat, Person, Place};
use crate::output::stdout;
use crate::person::operator;
use crate::source::Source;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io::Write;
use takt_accounting::Credit;
use takt_model::UnixTime;
use takt_questions::listing::{Column, Listing};
use takt_questions::{CreditOrder, CreditsQuestion};
use takt_server::Failure;
use takt_store::Database;

#[derive(Debug, Subcommand)]
pub enum CreditCommand {
    /// Credit the hours that a job lost
    Job(CreditJob),
    /// Revoke a credit
    Revoke(CreditRevoke),
    /// List all credits with author, date and reason
    List(CreditList),
}

#[derive(Debug, Args)]
pub struct CreditJob {
    /// Job id; of a requeued job, the run that a fault ended is credited
    pub id: String,
    /// Submit time of the run (2026-10-02T08:00:00Z), if the job has several lost runs
    #[arg(long, value_name = "TIME")]
    pub submit: Option<Timestamp>,
    /// Reason for the credit
    #[arg(long)]
    pub reason: String,
    /// GPU-hours to credit [default: all GPU-hours of the run]
    #[arg(long, value_name = "HOURS")]
    pub gpu_hours: Option<f64>,
}

#[derive(Debug, Args)]
pub struct CreditRevoke {
    /// Number of the credit
    pub id: i64,
    /// Reason for the revocation
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct CreditList {
    #[command(flatten)]
    pub person: Person,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &CreditCommand) -> Result<(), Failure> {
    let order = match asked {
        CreditCommand::List(asked) => {
            let source: Source<Database> = source(place)?;
            // Filtered here: the ledger is short, and totals over all users are not shown.
            let mut ledger = source.ask(&CreditsQuestion::default())?;
            let user = asked.person.name();
            ledger.retain(|credit| user.as_ref().is_none_or(|name| *name == credit.user));
            return print(asked.format, &listing(&ledger, &source.zone()), &ledger);
        }
        CreditCommand::Job(asked) => CreditOrder {
            job_id: Some(asked.id.clone()),
            submit: asked.submit.map(UnixTime::from),
            gpu_hours: asked.gpu_hours,
            reason: asked.reason.clone(),
            granted_by: operator(),
            ..CreditOrder::default()
        },
        CreditCommand::Revoke(asked) => CreditOrder {
            revokes: Some(asked.id),
            reason: asked.reason.clone(),
            granted_by: operator(),
            ..CreditOrder::default()
        },
    };

    let done = ask(place, &order)?;
    let hours = hours(&done);
    let user = &done.user;
    let mut out = stdout();

    match done.revokes {
        None => writeln!(out, "credit {}: {hours} given back to {user}", done.id)?,
        Some(revoked) => writeln!(
            out,
            "credit {}: credit {revoked} of {hours} for {user} revoked",
            done.id
        )?,
    }
    Ok(())
}

/// The hours of a credit: those of GPUs, or those of CPUs if the run held no GPU.
fn hours(credit: &Credit) -> String {
    if credit.gpu_seconds > 0.0 {
        format!("{:.2} GPU-hours", credit.gpu_seconds / 3600.0)
    } else {
        format!("{:.2} CPU-hours", credit.cpu_seconds / 3600.0)
    }
}

fn listing(ledger: &[Credit], zone: &TimeZone) -> Listing {
    use Column::{Id, Number, Text, Time};
    let mut listing = Listing::new(&[
        Id("id"),
        Text("user"),
        Text("account"),
        Text("job_id"),
        Number("gpu_hours"),
        Number("cpu_hours"),
        Text("granted_by"),
        Time("granted_at"),
        Text("reason"),
        Text("revokes"),
    ])
    .omitting(&["cpu_hours", "account", "granted_by"]);

    for credit in ledger {
        // A revocation takes back, so a sum over the column is the balance.
        let sign = if credit.revokes.is_some() { -1.0 } else { 1.0 };
        listing.push(vec![
            credit.id.to_string(),
            credit.user.clone(),
            credit.account.clone(),
            credit.job_id.clone().unwrap_or_default(),
            format!("{:.2}", sign * credit.gpu_seconds / 3600.0),
            format!("{:.2}", sign * credit.cpu_seconds / 3600.0),
            credit.granted_by.clone(),
            instant(Some(credit.granted_at), zone),
            credit.reason.clone(),
            credit.revokes.map_or_else(String::new, |id| id.to_string()),
        ]);
    }

    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_names_the_hours_that_it_gives() {
        let credit = |gpu_seconds, cpu_seconds| Credit {
            gpu_seconds,
            cpu_seconds,
            ..Credit::default()
        };
        assert_eq!(hours(&credit(7200.0, 28_800.0)), "2.00 GPU-hours");
        assert_eq!(hours(&credit(0.0, 28_800.0)), "8.00 CPU-hours");
    }
}
