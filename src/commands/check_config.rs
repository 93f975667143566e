//! `takt check-config`: reads the configuration as the server does and prints the effective
//! settings.

use crate::cli::{CheckConfig, Place};
use crate::place;
use anyhow::Context;
use std::io::Write;
use takt_server::alerting;
use takt_server::{Failure, OrUsage};

/// Runs the command.
pub fn run(place: &Place, asked: &CheckConfig) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if asked.reference {
        return Ok(out.write_all(takt_server::config_reference().as_bytes())?);
    }
    let config = place::load(place).usage()?;
    config.server.token().context("server").usage()?;
    config.server.read_token().context("server").usage()?;
    // Files that the configuration names are checked too.
    alerting::load(&config).usage()?;
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
