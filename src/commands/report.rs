//! `takt report`.

use super::{ask, report_send};
use crate::cli::{Place, Report, ReportSheet, ReportUsage};
use std::io::{BufWriter, Write};
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
        user: asked.user.clone(),
        cluster: asked.cluster.clone(),
        timezone: None,
    };
    let report = ask(place, &question)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    reports::write_usage(&report, &asked.by, asked.format.into(), &mut out)?;
    Ok(out.flush()?)
}

fn sheet(place: &Place, asked: &ReportSheet, view: View) -> Result<(), Failure> {
    let mut user = asked.user.clone();
    let mut account = asked.account.clone();
    match view {
        View::User => user = user.or_else(|| Some(user_name())),
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
        ..SheetQuestion::default()
    };
    let sheets = ask(place, &question)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for sheet in &sheets {
        reports::write_sheet(sheet, view, asked.format.into(), &mut out)?;
    }
    Ok(out.flush()?)
}

/// Returns the name of the user who runs the command.
pub fn user_name() -> String {
    let id = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_id = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    };
    let known = passwd.lines().find_map(of_id);
    // Users of a directory service are not in /etc/passwd.
    known
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_else(|| id.to_string())
}
