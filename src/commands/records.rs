//! `takt records`: the log of imports, and the deletion of job records.

use super::store::StoreListing;
use super::{ask, instant, print, source};
use crate::cli::Place;
use crate::output::stdout;
use crate::source::Source;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io::Write;
use takt_model::UnixTime;
use takt_questions::listing::{Column, Listing};
use takt_questions::{DeleteRecordsQuestion, ImportsQuestion, UndoImportQuestion};
use takt_server::{Failure, OrUsage};
use takt_store::{Database, DeleteRuns, ImportRecord};

#[derive(Debug, Subcommand)]
pub enum RecordsCommand {
    /// List the imports, the newest first
    Imports(StoreListing),
    /// Delete the runs that only this import has stored
    Undo(RecordsUndo),
    /// Delete the records of a job or of a cluster
    Delete(RecordsDelete),
}

#[derive(Debug, Args)]
pub struct RecordsUndo {
    /// Number of the import, from `takt records imports`
    pub id: i64,
}

#[derive(Debug, Args)]
pub struct RecordsDelete {
    /// Job id
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Submit time of the run (2026-10-02T08:00:00Z). Default: all runs of the job
    #[arg(long, value_name = "TIME", requires = "job")]
    pub submit: Option<Timestamp>,
    /// Cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Confirm the deletion
    #[arg(long)]
    pub yes: bool,
}

/// Runs the command.
pub fn run(place: &Place, command: &RecordsCommand) -> Result<(), Failure> {
    match command {
        RecordsCommand::Imports(asked) => {
            let source: Source<Database> = source(place)?;
            let imports = source.ask(&ImportsQuestion {})?;
            print(asked.format, &listing(&imports, &source.zone()), &imports)
        }
        RecordsCommand::Undo(asked) => {
            let deleted = ask(place, &UndoImportQuestion { id: asked.id })?;
            let mut out = stdout();
            Ok(writeln!(
                out,
                "import {} undone: {} deleted",
                asked.id,
                runs(deleted)
            )?)
        }
        RecordsCommand::Delete(asked) => delete(place, asked),
    }
}

fn delete(place: &Place, asked: &RecordsDelete) -> Result<(), Failure> {
    let which = DeleteRuns {
        cluster: asked.cluster.clone(),
        job_id: asked.job.clone(),
        submit: asked.submit.map(UnixTime::from),
    };

    // Without a condition the question would be about all records.
    if which.cluster.is_none() && which.job_id.is_none() {
        return Err(anyhow!(
            "name the records to delete: --job ID, --cluster NAME, or both"
        ))
        .usage();
    }

    if !asked.yes {
        return Err(anyhow!(
            "this deletes job records for good; confirm with --yes"
        ))
        .usage();
    }

    let deleted = ask(place, &DeleteRecordsQuestion(which))?;

    // A misspelt name must not look like a deletion.
    if deleted == 0 {
        return Err(anyhow!(
            "no run matches, so nothing was deleted; takt jobs lists the runs, and takt sql \"SELECT \
             DISTINCT cluster FROM jobs\" the clusters"
        )
        .into());
    }

    Ok(writeln!(stdout(), "{} deleted", runs(deleted))?)
}

fn runs(count: u64) -> String {
    if count == 1 {
        "1 run".to_owned()
    } else {
        format!("{count} runs")
    }
}

fn listing(imports: &[ImportRecord], zone: &TimeZone) -> Listing {
    use Column::{Id, Number, Text, Time};
    let mut listing = Listing::new(&[
        Id("id"),
        Time("imported_at"),
        Text("source"),
        Text("file"),
        Text("timezone"),
        Number("runs_new"),
        Number("runs_corrected"),
        Number("undo_deletes"),
        Time("undone_at"),
    ])
    .omitting(&["timezone", "source"]);
    for import in imports {
        listing.push(vec![
            import.id.to_string(),
            instant(Some(import.imported_at), zone),
            import.source.clone(),
            import.name.clone(),
            import.timezone.clone().unwrap_or_default(),
            import.runs_inserted.to_string(),
            import.runs_updated.to_string(),
            import.runs_left.to_string(),
            instant(import.undone_at, zone),
        ]);
    }
    listing
}
