//! `takt jobs`.

use super::{cut, instant, note_cut, print, source, warn_unread};
use crate::cli::{ListingFormat, Person, Place};
use crate::source::Source;
use clap::Args;
use jiff::tz::TimeZone;
use takt_questions::listing::{Column, Listing};
use takt_questions::{JobsQuestion, ListedRun};
use takt_server::Failure;
use takt_store::Database;

#[derive(Debug, Args)]
pub struct Jobs {
    #[command(flatten)]
    pub person: Person,
    /// Only jobs in these states: RUNNING,FAILED or R,F
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Only jobs of this account
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Only jobs of this partition
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Only jobs that held this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only jobs whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Only jobs that were queued or ran after this time: a date, 2026-11-22T08:00:00Z, yesterday, -12h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only jobs that were submitted before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Lists runs, the newest first.
pub fn list(place: &Place, asked: &Jobs) -> Result<(), Failure> {
    let question = JobsQuestion {
        user: asked.person.name(),
        state: asked.state.clone(),
        account: asked.account.clone(),
        partition: asked.partition.clone(),
        node: asked.node.clone(),
        name: asked.name.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        limit: asked.limit.saturating_add(1),
        ..JobsQuestion::default()
    };

    let source: Source<Database> = source(place)?;
    let mut runs = source.ask(&question)?;
    let is_cut = cut(&mut runs, asked.limit);

    if runs.is_empty() {
        tracing::warn!("no job matches");
    }
    print(asked.format, &listing(&runs, &source.zone()), &runs)?;
    note_cut(is_cut, asked.limit);
    if warn_unread(place) {
        tracing::warn!("Running jobs that have no record are shown from Slurm's queue.");
    }
    Ok(())
}

/// The columns of a list of runs, with times in the time zone.
pub fn listing(runs: &[ListedRun], zone: &TimeZone) -> Listing {
    use Column::{Number, Text, Time};
    let mut listing = Listing::new(&[
        Text("job_id"),
        Text("user"),
        Text("name"),
        Text("account"),
        Text("partition"),
        Text("state"),
        Time("submit"),
        Time("start"),
        Time("end"),
        Number("nodes"),
        Number("cpus"),
        Number("gpus"),
        Text("node_list"),
        Text("reason"),
        Text("forecast"),
    ])
    .omitting(&["account", "cpus", "submit", "nodes", "partition", "end"]);

    for ListedRun {
        run,
        waiting,
        start_forecast,
        ..
    } in runs
    {
        listing.push(vec![
            run.job_id.clone(),
            run.user.clone(),
            run.name.clone().unwrap_or_default(),
            run.account.clone(),
            run.partition.clone(),
            run.state.clone(),
            instant(Some(run.submit), zone),
            instant(run.start, zone),
            instant(run.end, zone),
            number(run.nodes),
            number(run.cpus),
            number(run.gpus),
            run.node_list.clone().unwrap_or_default(),
            waiting
                .as_ref()
                .map_or_else(String::new, |waiting| waiting.reason.clone()),
            start_forecast
                .as_ref()
                .map_or_else(String::new, |forecast| forecast.brief.clone()),
        ]);
    }

    listing
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
