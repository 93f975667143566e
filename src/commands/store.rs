//! `takt store`: the samples on disk.

use super::{ask, in_zone, print, print_findings, source};
use crate::cli::{ListingFormat, Place};
use crate::source::Source;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use takt_model::Timestamp;
use takt_questions::listing::{Column, Listing};
use takt_questions::{DeleteQuestion, SealQuestion, StatQuestion, VerifyQuestion};
use takt_server::{Failure, OrUsage};
use takt_store::{CompactionSummary, Database, Stat};

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// List blocks with their time range, series, rows and bytes
    Stat(StoreListing),
    /// Read every block completely; exit code 1 if one is damaged
    Verify(StoreListing),
    /// Seal all recent samples into blocks now
    Seal(StoreListing),
    /// Delete all samples of a node or of the series that match a selector
    Delete(StoreDelete),
}

#[derive(Debug, Args)]
pub struct StoreListing {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct StoreDelete {
    /// Node whose samples are deleted
    #[arg(long, value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<String>,
    /// A PromQL selector: 'power_watts{gpu="3"}'
    #[arg(long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Confirm the deletion
    #[arg(long)]
    pub yes: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Stat(asked) => {
            let source: Source<Database> = source(place)?;
            let stat = source.ask(&StatQuestion {})?;
            print(asked.format, &stat_listing(&stat, &source.zone()), &stat)
        }
        StoreCommand::Verify(asked) => {
            let damaged = ask(place, &VerifyQuestion {})?;
            let none = "no block is damaged";
            print_findings(asked.format, "damaged", &damaged, none, |count| {
                anyhow!("damaged blocks: {count}; a query that meets one sets it aside by itself")
            })
        }
        StoreCommand::Seal(asked) => print_summary(asked.format, &ask(place, &SealQuestion {})?),
        StoreCommand::Delete(asked) => delete(place, asked),
    }
}

fn delete(place: &Place, asked: &StoreDelete) -> Result<(), Failure> {
    let selector = match (&asked.node, &asked.selector) {
        // JSON's quotes are also PromQL's, so a name cannot end the matcher.
        (Some(node), _) => format!("{{node={}}}", serde_json::to_string(node)?),
        (None, Some(selector)) => selector.clone(),
        (None, None) => {
            return Err(anyhow!(
                "say what to delete: --node NAME, or --selector '{{node=\"g01\"}}'"
            ))
            .usage();
        }
    };

    if !asked.yes {
        let error = anyhow!(
            "this deletes every stored sample of {selector} for good; say --yes if that is meant"
        );
        return Err(error).usage();
    }

    let summary = ask(
        place,
        &DeleteQuestion {
            selector: selector.clone(),
        },
    )?;

    // A misspelt name must not look like a deletion.
    if summary == CompactionSummary::default() {
        return Err(anyhow!(
            "no stored sample matches {selector}, so nothing was deleted; takt sql \"SELECT node FROM \
             nodes\" lists the nodes"
        )
        .into());
    }

    print_summary(asked.format, &summary)
}

fn stat_listing(stat: &Stat, zone: &TimeZone) -> Listing {
    let mut listing = Listing::new(&[
        Column::Text("resolution"),
        Column::Text("block"),
        Column::Time("from"),
        Column::Time("to"),
        Column::Number("series"),
        Column::Number("rows"),
        Column::Number("bytes"),
        Column::Number("bytes a row"),
    ])
    .omitting(&["bytes a row", "series", "resolution"]);
    let instant = |at: Timestamp| {
        jiff::Timestamp::try_from(at).map_or_else(|_| at.0.to_string(), |at| in_zone(at, zone))
    };

    for block in &stat.blocks {
        listing.push(vec![
            block.resolution.clone(),
            block.name.clone(),
            instant(block.from),
            instant(block.to),
            block.series.to_string(),
            block.rows.to_string(),
            block.bytes.to_string(),
            format!("{:.2}", block.bytes as f64 / block.rows.max(1) as f64),
        ]);
    }

    // Samples in memory have no block yet, and are part of the whole.
    let rows = stat.hot_samples;
    let bytes = stat.hot_bytes;
    let cells = [
        "hot",
        "unsealed",
        "",
        "",
        &stat.series.to_string(),
        &rows.to_string(),
        &bytes.to_string(),
        "",
    ];
    listing.push(cells.map(str::to_owned).to_vec());
    listing
}

fn print_summary(format: ListingFormat, summary: &CompactionSummary) -> Result<(), Failure> {
    let mut listing = Listing::new(&[Column::Text("block"), Column::Text("what")]);
    for (names, what) in [(&summary.written, "written"), (&summary.removed, "removed")] {
        names
            .iter()
            .for_each(|name| listing.push(vec![name.clone(), what.to_owned()]));
    }
    print(format, &listing, summary)
}
