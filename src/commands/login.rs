//! `takt login`: prints a link that signs a browser in. On another machine it signs the user's commands in, too.

use super::server_by_socket;
use crate::cli::Place;
use crate::client::Server;
use crate::output::stdout;
use crate::place;
use crate::source::Whereabouts;
use anyhow::{Context, bail};
use rustix::system;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_server::Failure;
use takt_server::http::access::{CommandToken, LINK_PATH, MUNGE_PATH, MungeChallenge, SignInLink};

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    let link = match &place.server {
        Some(_) => by_munge(place)?,
        None => server_by_socket(place)?.post(LINK_PATH)?,
    };
    if let (Some(url), Some(token)) = (&place.server, &link.token) {
        let file = keep(url, token)?;
        let until = jiff::Timestamp::try_from(token.until).unwrap_or_default();
        writeln!(
            io::stderr(),
            "Commands that ask {url} are signed in as {} until {}, with the token in {}.",
            link.user,
            until.strftime("%Y-%m-%d"),
            file.display()
        )?;
    }
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
    let machine = system::uname().nodename().to_string_lossy().into_owned();
    let form = [("credential", &*credential), ("machine", &machine)];
    let link: SignInLink = server.post_form(MUNGE_PATH, &form)?;
    let is_own = link
        .url
        .starts_with(&format!("{}/login#", url.trim_end_matches('/')));
    if !is_own {
        let error = format!("{url} answers with a link to another server: {}", link.url);
        return Err(anyhow::anyhow!(error).into());
    }
    Ok(link)
}

/// Writes the token of the user's commands to its file, which nobody else can read.
fn keep(url: &str, token: &CommandToken) -> Result<PathBuf, Failure> {
    let file = place::login_token_file(url)
        .context("the environment has no HOME, so the commands are not signed in")?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let write = || {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        // Written beside and renamed: commands that run now read a whole token.
        let new = file.with_extension("new");
        let _ = fs::remove_file(&new);
        let mut opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        writeln!(opened, "{}", token.token)?;
        fs::rename(&new, &file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
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
