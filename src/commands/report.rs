//! `takt report`.

use super::{ask, pdf, report_send};
use crate::cli::{Place, Report, ReportFormat, ReportSheet, ReportUsage};
use crate::output::{self, stdout};
use crate::person::operator;
use std::io::{self, BufWriter, Write};
use takt_server::answers::{SheetQuestion, UsageQuestion};
use takt_server::reports::{self, View};
use takt_server::{Failure, OrUsage};

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
        cluster: asked.cluster.clone(),
        timezone: asked.timezone.clone(),
    };
    let report = ask(place, &question)?;
    write(asked.format, |out| {
        let width = output::width();
        reports::write_usage(&report, &asked.by, asked.format.into(), width, out)
    })
}

fn sheet(place: &Place, asked: &ReportSheet, view: View) -> Result<(), Failure> {
    let mut user = asked.person.name();
    let mut account = asked.account.clone();
    match view {
        View::User => user = user.or_else(|| Some(operator())),
        View::Account if account.is_none() => {
            return Err(anyhow::anyhow!(
                "name the account with --account NAME; `takt report cluster` lists all accounts"
            ))
            .usage();
        }
        View::Cluster => (user, account) = (None, None),
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
    write(asked.format, |out| {
        let width = output::width();
        let mut all = sheets.iter();
        all.try_for_each(|sheet| reports::write_sheet(sheet, view, asked.format.into(), width, out))
    })
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
