//! `takt reload`: lets the running server read its configuration again.

use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use crate::source;
use std::io::Write;
use takt_server::Failure;

/// Runs the command. Fails if the server keeps its previous configuration.
pub fn run(place: &Place) -> Result<(), Failure> {
    let (_, at) = place::find(place)?;
    let done = source::server(at)?.reload()?;
    Ok(write!(stdout(), "{done}")?)
}
