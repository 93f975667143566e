//! `takt login`: prints a link that signs a browser in.

use super::server_by_socket;
use crate::cli::Place;
use crate::client::Server;
use crate::output::stdout;
use crate::place;
use crate::source::Whereabouts;
use anyhow::{Context, bail};
use std::io::{self, Write};
use std::process::Command;
use takt_identity::{LINK_PATH, MUNGE_PATH, MungeChallenge, SignInLink};
use takt_server::Failure;

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    let link = match &place.server {
        Some(_) => by_munge(place)?,
        None => server_by_socket(place)?.post(LINK_PATH)?,
    };
    let mut err = io::stderr();
    writeln!(
        err,
        "Open this link within {} minutes to sign in as {}. It works once; give it to nobody.",
        link.seconds / 60,
        link.user
    )?;
    Ok(writeln!(stdout(), "{}", link.url)?)
}

/// Asks a server on another machine, to which munge proves the user.
fn by_munge(place: &Place) -> Result<SignInLink, Failure> {
    let (_, at) = place::find(place)?;
    let Whereabouts::Server { url, .. } = at else {
        return Err(anyhow::anyhow!("no server is named").into());
    };
    let server = Server::new(url.clone(), None)?;
    let challenge: MungeChallenge = server.get(MUNGE_PATH)?;
    let credential = credential(&challenge, &url)?;
    let link: SignInLink = server.post_form(MUNGE_PATH, &[("credential", &credential)])?;
    let is_own = link
        .url
        .starts_with(&format!("{}/login#", url.trim_end_matches('/')));
    if !is_own {
        let error = format!("{url} answers with a link to another server: {}", link.url);
        return Err(anyhow::anyhow!(error).into());
    }
    Ok(link)
}

/// Makes a credential that only the server's user can decode.
fn credential(challenge: &MungeChallenge, url: &str) -> anyhow::Result<String> {
    let made = Command::new("munge")
        .arg(format!("--restrict-uid={}", challenge.uid))
        .arg("--ttl=60")
        .arg(format!("--string={}", challenge.payload(url)))
        .output()
        .context("cannot run munge; on the server's machine, leave --server out")?;
    if !made.status.success() {
        bail!("munge: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(String::from_utf8(made.stdout)?.trim().to_owned())
}
