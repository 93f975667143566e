//! `takt whoami`: who the server takes this user for.

use super::{ask, print};
use crate::cli::{ListingFormat, Place};
use clap::Args;
use takt_questions::WhoamiQuestion;
use takt_questions::listing::{Column, Listing};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct Whoami {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Whoami) -> Result<(), Failure> {
    use Column::Text;
    let known = ask(place, &WhoamiQuestion {})?;
    let mut listing = Listing::new(&[
        Text("user"),
        Text("role"),
        Text("accounts"),
        Text("way"),
        Text("privacy"),
    ]);
    listing.push(vec![
        known.user.clone().unwrap_or_default(),
        known.role.clone(),
        known.accounts.join(" "),
        known.way.clone(),
        known.privacy.clone(),
    ]);
    print(asked.format, &listing, &known)
}
