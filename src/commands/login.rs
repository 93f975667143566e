//! `takt login`: prints a link that signs a browser in.

use super::server_by_socket;
use crate::cli::Place;
use crate::output::stdout;
use std::io::Write;
use takt_server::Failure;
use takt_server::http::access::{LINK_PATH, SignInLink};

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    let link: SignInLink = server_by_socket(place)?.post(LINK_PATH)?;
    let mut err = std::io::stderr();
    writeln!(
        err,
        "Open this link within {} minutes to sign in as {}. It works once; give it to nobody.",
        link.seconds / 60,
        link.user
    )?;
    Ok(writeln!(stdout(), "{}", link.url)?)
}
