//! `takt fairshare`: the lines of `sshare -l -a`, explanations, and the history.

use super::{instant, print, warn_unread};
use crate::cli::{ListingFormat, Person, Place};
use crate::output::stdout;
use crate::place;
use crate::source::{Missing, Source};
use clap::Args;
use jiff::tz::TimeZone;
use std::io::Write;
use takt_accounting::fairshare::ShareRow;
use takt_jobs::Shares;
use takt_questions::listing::{Column, Listing};
use takt_questions::{FairshareAnswer, FairshareQuestion};
use takt_server::Failure;
use takt_store::{Database, FairsharePoint};

#[derive(Debug, Args)]
pub struct Fairshare {
    #[command(flatten)]
    pub person: Person,
    /// Only this account and its sub-accounts
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Explain the user's position and when it changes
    #[arg(long, requires = "person")]
    pub explain: bool,
    /// Show the effect of a job with these resources: cpu=8,gres/gpu=1,mem=64G
    #[arg(long, value_name = "TRES", requires = "person")]
    pub plan: Option<String>,
    /// Run time of the planned job in hours
    #[arg(long, value_name = "HOURS", requires = "plan", default_value_t = 1.0)]
    pub hours: f64,
    /// Partition of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub partition: Option<String>,
    /// Quality of service of the planned job
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub qos: Option<String>,
    /// Show the history of the last days instead
    #[arg(long, value_name = "DAYS", conflicts_with_all = ["explain", "plan"])]
    pub history: Option<u32>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Fairshare) -> Result<(), Failure> {
    let (config, at) = place::find(place)?;
    let question = FairshareQuestion {
        // The configured cluster is meant if the records have several.
        cluster: asked.cluster.clone().or_else(|| config.cluster.clone()),
        user: asked.person.name(),
        account: asked.account.clone(),
        explain: asked.explain,
        plan: asked.plan.clone(),
        plan_hours: asked.plan.as_ref().map(|_| asked.hours),
        plan_partition: asked.partition.clone(),
        plan_qos: asked.qos.clone(),
        history_days: asked.history,
    };

    let source: Source<Database> = Source::open(at, &config, Missing::Refuse)?;
    let answer = source.ask(&question)?;
    warn_unread(place);
    warn_of_gaps(&answer);

    match asked.format {
        ListingFormat::Table if !answer.explanations.is_empty() => {
            let mut out = stdout();
            Ok(answer
                .explanations
                .iter()
                .try_for_each(|text| write!(out, "{text}"))?)
        }
        format if asked.history.is_some() => {
            let listing = history(&answer.history, &source.zone());
            print(format, &listing, &answer.history)
        }
        format => print(format, &listing(&answer.rows), &answer),
    }
}

/// Warns of runs that are charged to no account: without them fair share is higher than Slurm's.
fn warn_of_gaps(answer: &FairshareAnswer) {
    if answer.runs_of_unknown_accounts > 0 {
        tracing::warn!(
            runs = answer.runs_of_unknown_accounts,
            shares_from = answer.shares_from,
            "runs of accounts that have no shares are charged to nobody"
        );
    }
    if answer.runs_of_unknown_amounts > 0 {
        tracing::warn!(
            runs = answer.runs_of_unknown_amounts,
            "runs are charged to nobody: what they held is unknown"
        );
    }
}

/// The columns of `sshare -l -a`, with its indentation.
fn listing(rows: &[ShareRow]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("account"),
        Text("user"),
        Text("partition"),
        Number("raw_shares"),
        Number("norm_shares"),
        Number("raw_usage"),
        Number("norm_usage"),
        Number("effective_usage"),
        Number("fair_share"),
        Number("level_fs"),
    ])
    .omitting(&["partition", "norm_usage", "raw_usage", "raw_shares"]);

    for row in rows {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        listing.push(vec![
            format!("{:indent$}{}", "", row.account, indent = row.depth),
            text(&row.user),
            text(&row.partition),
            match row.raw_shares {
                None => String::new(),
                Some(Shares::Raw(shares)) => shares.to_string(),
                Some(Shares::Parent) => "parent".to_owned(),
            },
            format!("{:.6}", row.norm_shares),
            // `sshare` cuts the fraction off, so a rounded value would differ by one.
            format!("{:.0}", row.raw_usage.floor()),
            format!("{:.6}", row.norm_usage),
            format!("{:.6}", row.effective_usage),
            decimals(row.fair_share),
            decimals(row.level_fs),
        ]);
    }

    listing
}

fn history(points: &[FairsharePoint], zone: &TimeZone) -> Listing {
    use Column::{Number, Text, Time};
    let mut listing = Listing::new(&[
        Time("at"),
        Text("account"),
        Text("user"),
        Number("raw_usage"),
        Number("effective_usage"),
        Number("fair_share"),
        Number("level_fs"),
    ]);

    for point in points {
        listing.push(vec![
            instant(Some(point.at), zone),
            point.account.clone(),
            point.user.clone().unwrap_or_default(),
            format!("{:.0}", point.raw_usage.floor()),
            format!("{:.6}", point.effective_usage),
            decimals(point.fair_share),
            decimals(point.level_fs),
        ]);
    }
    listing
}

/// Formats a factor as `sshare` does: empty without a factor, `inf` without usage.
fn decimals(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.6}"))
}
