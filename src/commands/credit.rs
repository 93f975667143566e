//! `takt credit`.

use super::{ask, print};
use crate::cli::{Credit as Asked, Place};
use jiff::Timestamp;
use std::io::Write;
use takt_accounting::Credit;
use takt_server::Failure;
use takt_server::answers::{CreditOrder, CreditsQuestion};
use takt_server::listing::{Column, Listing};

/// Runs the command.
pub fn run(place: &Place, asked: &Asked) -> Result<(), Failure> {
    let order = match asked {
        Asked::List(asked) => {
            let ledger = ask(place, &CreditsQuestion::default())?;
            return print(asked.format, &listing(&ledger), &ledger);
        }
        Asked::Job(asked) => CreditOrder {
            job_id: Some(asked.id.clone()),
            submit: asked.submit.map(Timestamp::as_second),
            gpu_hours: asked.gpu_hours,
            reason: asked.reason.clone(),
            granted_by: operator(),
            ..CreditOrder::default()
        },
        Asked::Revoke(asked) => CreditOrder {
            revokes: Some(asked.id),
            reason: asked.reason.clone(),
            granted_by: operator(),
            ..CreditOrder::default()
        },
    };
    let done = ask(place, &order)?;
    let hours = done.gpu_seconds / 3600.0;
    let user = &done.user;
    let mut out = std::io::stdout();
    match done.revokes {
        None => writeln!(
            out,
            "credit {}: {hours:.2} GPU-hours given back to {user}",
            done.id
        )?,
        Some(revoked) => writeln!(
            out,
            "credit {}: credit {revoked} of {hours:.2} GPU-hours for {user} revoked",
            done.id
        )?,
    }
    Ok(())
}

/// Returns the user who runs the command; under `sudo`, the user who called it.
fn operator() -> String {
    let sudo = std::env::var("SUDO_USER")
        .ok()
        .filter(|name| !name.is_empty());
    sudo.unwrap_or_else(crate::commands::report::user_name)
}

fn listing(ledger: &[Credit]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Number("id"),
        Text("user"),
        Text("account"),
        Text("job_id"),
        Number("gpu_hours"),
        Number("cpu_hours"),
        Text("granted_by"),
        Text("granted_at"),
        Text("reason"),
        Text("revokes"),
    ]);
    for credit in ledger {
        let sign = if credit.revokes.is_some() { -1.0 } else { 1.0 };
        listing.push(vec![
            credit.id.to_string(),
            credit.user.clone(),
            credit.account.clone(),
            credit.job_id.clone().unwrap_or_default(),
            format!("{:.2}", sign * credit.gpu_seconds / 3600.0),
            format!("{:.2}", sign * credit.cpu_seconds / 3600.0),
            credit.granted_by.clone(),
            Timestamp::from_second(credit.granted_at)
                .map_or_else(|_| String::new(), |at| at.to_string()),
            credit.reason.clone(),
            credit.revokes.map_or_else(String::new, |id| id.to_string()),
        ]);
    }
    listing
}
