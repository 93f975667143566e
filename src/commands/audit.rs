//! `takt audit`: sign-ins and changes.

use super::{ask, print};
use crate::cli::{Audit, Place};
use jiff::Timestamp;
use takt_server::Failure;
use takt_server::answers::AuditQuestion;
use takt_server::listing::{Column, Listing};

/// Runs the command.
pub fn run(place: &Place, asked: &Audit) -> Result<(), Failure> {
    use Column::Text;
    let question = AuditQuestion {
        user: asked.user.clone(),
        limit: asked.limit,
    };
    let entries = ask(place, &question)?;
    let mut listing = Listing::new(&[
        Text("at"),
        Text("user"),
        Text("role"),
        Text("way"),
        Text("address"),
        Text("action"),
        Text("object"),
        Text("outcome"),
    ]);
    for entry in &entries {
        let at = Timestamp::from_second(entry.at);
        listing.push(vec![
            at.map_or_else(|_| String::new(), |at| at.to_string()),
            entry.user.clone().unwrap_or_default(),
            entry.role.clone(),
            entry.way.clone(),
            entry.address.clone(),
            entry.action.clone(),
            entry.object.clone(),
            entry.outcome.clone(),
        ]);
    }
    print(asked.format, &listing, &entries)
}
