//! `takt login`: prints a link that signs a browser in. On another machine it signs the user's commands in, too.

use super::server_by_socket;
use crate::cli::Place;
use crate::client::Server;
use crate::output::{self, stdout};
use crate::place;
use crate::source::Whereabouts;
use anyhow::{Context, bail};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use rustix::system;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_identity::{CommandToken, LINK_PATH, MUNGE_PATH, MungeChallenge, SignInLink};
use takt_server::Failure;

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    let link = match &place.server {
        Some(_) => by_munge(place)?,
        None => server_by_socket(place)?.post(LINK_PATH)?,
    };
    // To the standard error, so that a script gets only the link.
    if let (Some(url), Some(token)) = (&place.server, &link.token) {
        let until = jiff::Timestamp::try_from(token.until).unwrap_or_default();
        let said = match keep(url, token) {
            Ok(file) => format!(
                "Commands that ask {url} are signed in as {} until {}, with the token in {}.",
                link.user,
                until.strftime("%Y-%m-%d"),
                file.display()
            ),
            // The link signs a browser in all the same.
            Err(error) => format!("Commands that ask {url} are not signed in: {error:#}."),
        };
        writeln!(io::stderr(), "{said}")?;
    }
    let mut err = io::stderr();
    writeln!(
        err,
        "Open this link within {} minutes to sign in as {}. It works once; give it to nobody.",
        link.seconds / 60,
        link.user
    )?;
    writeln!(stdout(), "{}", link.url)?;

    // A telephone has no clipboard in common with this terminal.
    if err.is_terminal()
        && let Some((address, _)) = link.url.split_once('#')
        && is_for_others(address)
    {
        if let Some(code) = qr_code(&link.url).filter(|code| fits(code)) {
            write!(err, "\n{code}")?;
        }
        writeln!(
            err,
            "Elsewhere: open {address} and type what follows the #."
        )?;
    }
    Ok(())
}

/// Whether another machine can open the address.
fn is_for_others(address: &str) -> bool {
    let url = reqwest::Url::parse(address).ok();
    let host = url.as_ref().and_then(reqwest::Url::host_str);
    host.is_some_and(|host| {
        let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        host != "localhost" && !ip.is_some_and(|ip| ip.is_loopback())
    })
}

/// The text as a QR code of half blocks, white on black whatever the colours of the terminal are.
fn qr_code(text: &str) -> Option<String> {
    // The lowest level of correction: a screen has no dirt, and a smaller code fits more terminals.
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let drawn = code.render::<Dense1x2>().build();
    let lines = drawn.lines();
    Some(
        lines
            .map(|line| format!("\x1b[38;5;231;48;5;16m{line}\x1b[0m\n"))
            .collect(),
    )
}

/// Whether the terminal shows each line of the code unbroken.
fn fits(code: &str) -> bool {
    let modules = |line: &str| line.chars().filter(|c| " ▀▄█".contains(*c)).count();
    let widest = code.lines().map(modules).max().unwrap_or(0);
    output::width().is_some_and(|width| widest <= width)
}

/// Asks a server on another machine, to which munge proves the user.
fn by_munge(place: &Place) -> Result<SignInLink, Failure> {
    let (_, at) = place::find(place)?;
    let Whereabouts::Server { url, .. } = at else {
        return Err(anyhow::anyhow!("no server is named").into());
    };
    // Without a token: an expired one must not keep its user from getting another.
    let server = Server::new(url.clone(), None)?;
    let challenge: MungeChallenge = server.get(MUNGE_PATH)?;
    let credential = credential(&challenge, &url)?;
    let machine = system::uname().nodename().to_string_lossy().into_owned();
    let form = [("credential", &*credential), ("machine", &machine)];
    let link: SignInLink = server.post_form(MUNGE_PATH, &form)?;
    // A link to another server would hand this user's sign-in to it.
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
fn keep(url: &str, token: &CommandToken) -> anyhow::Result<PathBuf> {
    let file = place::login_token_file(url).context("the environment has no HOME")?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let write = || {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        // Written beside and renamed: commands that run now read a whole token.
        let new = file.with_extension("new");
        // An attempt that was interrupted may have left it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_becomes_a_code_that_a_terminal_can_show() {
        let url = format!("https://takt.lab.example/login#{}", "x".repeat(43));
        let code = qr_code(&url).expect("the link is short enough");
        let lines: Vec<&str> = code.lines().collect();
        // Version 4 has 33 modules, and a margin of 4 on each side; a line shows two rows.
        assert_eq!(lines.len(), (33_usize + 8).div_ceil(2));
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("\x1b[38;5;231;48;5;16m"))
        );
    }

    #[test]
    fn a_link_to_this_machine_is_for_nobody_else() {
        for (address, expected) in [
            ("https://takt.lab.example/login", true),
            ("http://192.0.2.7:9856/login", true),
            ("http://127.0.0.1:9856/login", false),
            ("http://[::1]:9856/login", false),
            ("http://localhost:9856/login", false),
        ] {
            assert_eq!(is_for_others(address), expected, "{address}");
        }
    }
}
