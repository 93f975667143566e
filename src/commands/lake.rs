//! `takt lake`: copies of finished days and records that other engines read.

use super::store::StoreListing;
use super::{ask, instant, print, print_findings, source};
use crate::cli::Place;
use crate::source::Source;
use anyhow::anyhow;
use clap::Subcommand;
use jiff::tz::TimeZone;
use takt_lake::{LakeStatus, RoundSummary};
use takt_questions::listing::{Column, Listing};
use takt_questions::{LakeInitQuestion, LakeStatusQuestion, LakeVerifyQuestion};
use takt_server::Failure;
use takt_store::Database;

#[derive(Debug, Subcommand)]
pub enum LakeCommand {
    /// Create the data lake in the folder of `[lake]`, or take it over from another data directory,
    /// and write all finished days now
    Init(StoreListing),
    /// List the tables with their versions, files and rows, and the result of the last round
    Status(StoreListing),
    /// Read all files and compare them with the logs and the store; exit code 1 if they differ
    Verify(StoreListing),
}

/// Runs the command.
pub fn run(place: &Place, command: &LakeCommand) -> Result<(), Failure> {
    match command {
        LakeCommand::Init(asked) => {
            let done = ask(place, &LakeInitQuestion {})?;
            print(asked.format, &written(&done), &done)?;
            // After the listing: tables without an error were written.
            failed(done.error())
        }
        LakeCommand::Status(asked) => {
            let source: Source<Database> = source(place)?;
            let status = source.ask(&LakeStatusQuestion {})?;
            print(asked.format, &tables(&status, &source.zone()), &status)?;
            let last = instant(status.succeeded_at, &source.zone());
            if last.is_empty() {
                tracing::info!("the lake was never written completely; takt lake init begins it");
            } else {
                tracing::info!("the last complete round ended at {last}");
            }
            failed(status.error)
        }
        LakeCommand::Verify(asked) => {
            let findings = ask(place, &LakeVerifyQuestion {})?;
            let none = "the lake is complete: no finding";
            print_findings(asked.format, "finding", &findings, none, |count| {
                anyhow!("findings in the data lake: {count}")
            })
        }
    }
}

/// Fails with the error of a round, if it has one.
fn failed(error: String) -> Result<(), Failure> {
    if error.is_empty() {
        Ok(())
    } else {
        Err(anyhow!("the data lake is not complete: {error}").into())
    }
}

fn written(done: &RoundSummary) -> Listing {
    let mut listing = Listing::new(&[
        Column::Text("table"),
        Column::Number("files written"),
        Column::Number("rows written"),
        Column::Number("files removed"),
    ]);
    for table in &done.tables {
        listing.push(vec![
            table.table.clone(),
            table.files.to_string(),
            table.rows.to_string(),
            table.removed.to_string(),
        ]);
    }
    listing
}

fn tables(status: &LakeStatus, zone: &TimeZone) -> Listing {
    let mut listing = Listing::new(&[
        Column::Text("table"),
        Column::Number("version"),
        Column::Time("committed"),
        Column::Text("first"),
        Column::Text("last"),
        Column::Number("files"),
        Column::Number("rows"),
        Column::Number("bytes"),
    ])
    .omitting(&["version", "committed"]);

    for table in &status.tables {
        let version = table.version.map(|version| version.to_string());
        listing.push(vec![
            table.table.clone(),
            version.unwrap_or_default(),
            instant(table.committed_at, zone),
            table.first.clone(),
            table.last.clone(),
            table.files.to_string(),
            table.rows.to_string(),
            table.bytes.to_string(),
        ]);
    }

    listing
}
