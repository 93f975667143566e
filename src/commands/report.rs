//! `takt report`.

use super::report_send::ReportSend;
use super::{ask, pdf, report_send, warn_unread, warn_unrecorded};
use crate::cli::{Period, Person, Place};
use crate::output::{self, stdout};
use crate::person::operator;
use clap::{Args, Subcommand, ValueEnum};
use std::io::{self, BufWriter, Write};
use takt_questions::{SheetQuestion, UsageQuestion};
use takt_reports::View;
use takt_server::{Failure, OrUsage};

#[derive(Debug, Subcommand)]
pub enum Report {
    /// CPU-, GPU-, node- and memory-hours, jobs and waiting times
    Usage(ReportUsage),
    /// Efficiency of each job
    Efficiency(ReportSheet),
    /// Allocated but unused hours by cause, with advice
    Waste(ReportSheet),
    /// Monthly report of the cluster
    Cluster(ReportSheet),
    /// Monthly report of an account
    Account(ReportSheet),
    /// Monthly report of a user
    User(ReportSheet),
    /// Send monthly reports that were not sent yet (a running server does this by itself)
    Send(ReportSend),
}

#[derive(Debug, Args)]
pub struct ReportSheet {
    #[command(flatten)]
    pub period: Period,
    /// `report user` without them reports on the user who runs the command.
    #[command(flatten)]
    pub person: Person,
    /// Only this account
    #[arg(long, value_name = "NAME", conflicts_with = "person")]
    pub account: Option<String>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Time zone of the period's days, such as Europe/Oslo [default: the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Maximum number of jobs to list
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct ReportUsage {
    /// Month, such as 2026-10 [default: this month]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start of the period: a date, a time, an instant (RFC 3339), today, yesterday, -12h, -7d
    #[arg(long, value_name = "TIME", requires = "to", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End of the period (exclusive), in the same forms, or now
    #[arg(
        long,
        value_name = "TIME",
        requires = "from",
        allow_hyphen_values = true
    )]
    pub to: Option<String>,
    /// Group by user, account, account_tree (including sub-accounts), partition, qos, node,
    /// gpu_model, state, and one of hour, day, month, year; separate several with commas
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        default_value = "user"
    )]
    pub by: Vec<String>,
    #[command(flatten)]
    pub person: Person,
    /// Only this account and its sub-accounts
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Time zone of the period's days, such as Europe/Oslo [default: the cluster's]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ReportFormat {
    #[default]
    Table,
    Html,
    Csv,
    Json,
    Md,
    /// The HTML page, printed by an installed Chromium
    Pdf,
}

impl From<ReportFormat> for takt_reports::ReportFormat {
    fn from(format: ReportFormat) -> Self {
        match format {
            ReportFormat::Table => Self::Table,
            ReportFormat::Html | ReportFormat::Pdf => Self::Html,
            ReportFormat::Csv => Self::Csv,
            ReportFormat::Json => Self::Json,
            ReportFormat::Md => Self::Md,
        }
    }
}

/// Runs the command.
pub fn run(place: &Place, asked: &Report) -> Result<(), Failure> {
    match asked {
        Report::Usage(asked) => usage(place, asked),
        Report::Efficiency(asked) => sheet(place, asked, View::Efficiency),
        Report::Waste(asked) => sheet(place, asked, View::Waste),
        Report::Cluster(asked) => sheet(place, asked, View::Cluster),
        Report::Account(asked) => sheet(place, asked, View::Account),
        Report::User(asked) => sheet(place, asked, View::User),
        Report::Send(asked) => report_send::run(place, asked),
    }
}

fn usage(place: &Place, asked: &ReportUsage) -> Result<(), Failure> {
    let question = UsageQuestion {
        month: asked.month.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        by: asked.by.join(","),
        user: asked.person.name(),
        account: asked.account.clone(),
        cluster: asked.cluster.clone(),
        timezone: asked.timezone.clone(),
    };
    let report = ask(place, &question)?;
    warn_unrecorded(place, &report.from, &report.to);
    write(asked.format, |out| {
        let width = output::width();
        takt_reports::write_usage(&report, &asked.by, asked.format.into(), width, out)
    })
}

fn sheet(place: &Place, asked: &ReportSheet, view: View) -> Result<(), Failure> {
    let mut user = asked.person.name();
    let account = asked.account.clone();
    match view {
        // The most frequent question is that about one's own jobs.
        View::User => user = user.or_else(|| Some(operator())),
        View::Account if account.is_none() => {
            return Err(anyhow::anyhow!(
                "name the account with --account NAME; `takt report cluster` lists all accounts"
            ))
            .usage();
        }
        // A report of the cluster is about everybody. What was asked for must not be answered with other figures.
        View::Cluster if user.is_some() || account.is_some() => {
            return Err(anyhow::anyhow!(
                "a report of the cluster is about everybody; for some of it: takt report user --user NAME, takt report \
                 account --account NAME, takt report usage"
            ))
            .usage();
        }
        _ => {}
    }

    let question = SheetQuestion {
        month: asked.period.month.clone(),
        from: asked.period.from.clone(),
        to: asked.period.to.clone(),
        user,
        account,
        runs: asked.runs.unwrap_or(view.most_runs(asked.format.into())),
        cluster: asked.cluster.clone(),
        timezone: asked.timezone.clone(),
        ..SheetQuestion::default()
    };

    let sheets = ask(place, &question)?;
    warn_unread(place);
    write(asked.format, |out| {
        let width = output::width();
        sheets.iter().try_for_each(|sheet| {
            takt_reports::write_sheet(sheet, view, asked.format.into(), width, out)
        })
    })?;

    // The other reports list a few runs as examples.
    if matches!(view, View::Efficiency) {
        for sheet in &sheets {
            let listed = sheet.runs.len();
            let all = sheet.figures.runs_assessed;
            if (listed as u64) < all {
                tracing::warn!("{listed} of {all} runs are listed; use --runs N");
            }
        }
    }
    Ok(())
}

/// Writes a report to standard output. A PDF is printed from the HTML page.
fn write(
    format: ReportFormat,
    report: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if format == ReportFormat::Pdf {
        let mut page = Vec::new();
        report(&mut page)?;
        return pdf::print(&page);
    }

    let mut out = BufWriter::new(stdout());
    report(&mut out)?;
    Ok(out.flush()?)
}
