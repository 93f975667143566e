//! The configuration and the data directory of a command.

use crate::cli::Place;
use anyhow::Context;
use std::path::PathBuf;
use takt_server::Config;

/// The configuration file that the command names, or the defaults without one.
pub fn load(place: &Place) -> anyhow::Result<Config> {
    let Some(path) = &place.config else {
        return Ok(Config::default());
    };
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Config::parse(&text, path)
}

/// The data directory: the command line, the environment (both in `place`), the configuration, `./takt-data`.
pub fn data_dir(config: &Config, place: &Place) -> PathBuf {
    let chosen = place.data_dir.as_ref().or(config.data_dir.as_ref());
    chosen.cloned().unwrap_or_else(|| "takt-data".into())
}
