//! `takt audit`: sign-ins and changes.

use super::{cut, instant, note_cut, print, source};
use crate::cli::{ListingFormat, Place};
use crate::source::Source;
use clap::Args;
use takt_questions::AuditQuestion;
use takt_questions::listing::{Column, Listing};
use takt_server::Failure;
use takt_store::Database;

#[derive(Debug, Args)]
pub struct Audit {
    /// Only this Unix user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Audit) -> Result<(), Failure> {
    use Column::{Text, Time};
    let question = AuditQuestion {
        user: asked.user.clone(),
        // One more than is shown, to know whether there are others.
        limit: asked.limit.saturating_add(1),
    };
    let source: Source<Database> = source(place)?;

    let mut entries = source.ask(&question)?;
    let is_cut = cut(&mut entries, asked.limit);
    let zone = source.zone();

    let mut listing = Listing::new(&[
        Time("at"),
        Text("user"),
        Text("role"),
        Text("way"),
        Text("address"),
        Text("action"),
        Text("object"),
        Text("outcome"),
    ])
    .omitting(&["way", "role", "address"]);

    for entry in &entries {
        listing.push(vec![
            instant(Some(entry.at), &zone),
            entry.user.clone().unwrap_or_default(),
            entry.role.clone(),
            entry.way.clone(),
            entry.address.clone(),
            entry.action.clone(),
            entry.object.clone(),
            entry.outcome.clone(),
        ]);
    }

    print(asked.format, &listing, &entries)?;
    note_cut(is_cut, asked.limit);
    Ok(())
}
