//! `takt report send`.

use super::source;
use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use crate::source::Source;
use anyhow::Context;
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use takt_mail::{EmailConfig, Mailer};
use takt_questions::{NoteSentReport, SentQuestion};
use takt_reports::due;
use takt_server::dispatch;
use takt_server::{Failure, OrUsage};
use takt_store::Database;

#[derive(Debug, Args)]
pub struct ReportSend {
    /// Month, such as 2026-10 [default: last month]
    #[arg(long, value_name = "YYYY-MM")]
    pub month: Option<String>,
    /// Send the reports of a month that has not ended; those who read them get corrections later
    #[arg(long)]
    pub unfinished: bool,
    /// Do not send: print the mails, or write them into the directory of --out
    #[arg(long)]
    pub dry_run: bool,
    /// Directory for the mails, as .eml and .html files
    #[arg(long, value_name = "DIR", requires = "dry_run")]
    pub out: Option<PathBuf>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// Sends the reports of a month that are due, or with `--dry-run` only shows them.
pub fn run(place: &Place, asked: &ReportSend) -> Result<(), Failure> {
    let config = place::load(place).usage()?;
    let email = if config.email.is_set() {
        config.email.clone()
    } else if asked.dry_run {
        // A dry run shows the mails before a mail server exists; the address is never used.
        EmailConfig {
            server: "localhost".into(),
            from: "takt@localhost".into(),
            ..EmailConfig::default()
        }
    } else {
        return Err(anyhow::anyhow!(
            "no mail server is configured ([email] server); only --dry-run works without"
        ))
        .usage();
    };

    let mailer = Mailer::new(&email).context("email").usage()?;
    let source: Source<Database> = source(place)?;
    let last = last_month(&source.zone())?;
    let month = asked.month.clone().unwrap_or_else(|| last.clone());
    let sheets = source.ask(&dispatch::everybody(&month, asked.cluster.clone()))?;

    // After the sheets were asked for, so that a malformed month is named as such. The text of a
    // month sorts by time.
    if month > last && !asked.unfinished && !asked.dry_run {
        return Err(anyhow::anyhow!(
            "{month} has not ended: --dry-run shows its mails, --unfinished sends them to everybody"
        ))
        .usage();
    }

    let sent = source.ask(&SentQuestion {
        month: month.clone(),
        cluster: asked.cluster.clone(),
    })?;
    // The same rules as in the server, so that a report is never sent twice.
    let letters = due(&sheets, &sent, &config.reports, Timestamp::now().into());

    if let Some(directory) = &asked.out {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }

    let mut out = stdout();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for letter in &letters {
        let mail = dispatch::mail(letter, &mailer, &email)?;
        match (&asked.out, asked.dry_run) {
            (Some(directory), true) => {
                let to: String = letter
                    .to
                    .chars()
                    // An address may contain a slash.
                    .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                    .collect();
                let stem = format!("{}-to-{to}", letter.file_stem());
                let write = |ending: &str, bytes: &[u8]| {
                    let path = directory.join(format!("{stem}.{ending}"));
                    fs::write(&path, bytes)
                        .with_context(|| format!("cannot write {}", path.display()))
                };
                write("eml", &mailer.eml(&mail)?)?;
                write("html", mail.html.as_deref().unwrap_or_default().as_bytes())?;
                writeln!(out, "{stem}.eml: {}", mail.subject)?;
            }
            (None, true) => out.write_all(&mailer.eml(&mail)?)?,
            (_, false) => {
                runtime.block_on(mailer.send(&mail))?;
                let sent = letter.sent(Timestamp::now().into());
                // After each mail: if the next one fails, a second attempt sends only the rest.
                source.ask(&NoteSentReport(sent))?;
                writeln!(out, "sent to {}: {}", letter.to, mail.subject)?;
            }
        }
    }

    if letters.is_empty() {
        writeln!(
            io::stderr(),
            "no report of {month} is due: all were sent, or no recipient has an address"
        )?;
    }
    Ok(())
}

/// Returns the month before the current one, by the cluster's clock.
fn last_month(zone: &TimeZone) -> Result<String, Failure> {
    let today = Timestamp::now().to_zoned(zone.clone()).date();
    Ok(today
        .first_of_month()
        .checked_sub(1.day())?
        .strftime("%Y-%m")
        .to_string())
}
