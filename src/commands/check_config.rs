//! `takt check-config`: reads the configuration as the server does and prints the effective
//! settings.

use crate::output::stdout;
use crate::cli::{CheckConfig, Place};
use crate::place;
use anyhow::Context;
use std::io::Write;
use takt_server::alerting;
use takt_server::{Failure, OrUsage};

/// Runs the command.
pub fn run(place: &Place, asked: &CheckConfig) -> Result<(), Failure> {
    let mut out = stdout();
    if asked.reference {
        return Ok(out.write_all(takt_server::config_reference().as_bytes())?);
    }
    let mut config = place::load(place).usage()?;
    config.server.token().context("server").usage()?;
    config.server.read_token().context("server").usage()?;
    // Files that the configuration names are checked too.
    alerting::load(&config).usage()?;
    for url in [
        &mut config.alerts.webhook_url,
        &mut config.alerts.heartbeat_url,
    ] {
        *url = url.as_deref().map(without_secret);
    }
    let text = toml::to_string(&config)?;
    match place::config_file(place) {
        Some(path) => writeln!(out, "# {} is good. In force:\n", path.display())?,
        None => writeln!(
            out,
            "# No configuration file was named (--config); these are the defaults:\n"
        )?,
    }
    Ok(out.write_all(text.as_bytes())?)
}

/// The scheme, host and port of a URL. The rest of a webhook's URL is a secret.
fn without_secret(url: &str) -> String {
    const HIDDEN: &str = "<hidden>";
    match reqwest::Url::parse(url) {
        Ok(parsed) if parsed.has_host() => {
            format!("{}/{HIDDEN}", parsed.origin().ascii_serialization())
        }
        _ => HIDDEN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_of_a_url_is_shown() {
        for (url, shown) in [
            (
                "https://hooks.example/T0/s3cret",
                "https://hooks.example/<hidden>",
            ),
            (
                "http://u:s3cret@127.0.0.1:81/x?key=s3cret#s3cret",
                "http://127.0.0.1:81/<hidden>",
            ),
            ("s3cret", "<hidden>"),
            ("mailto:s3cret", "<hidden>"),
        ] {
            assert_eq!(without_secret(url), shown);
        }
    }
}
