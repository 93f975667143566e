//! `takt serve`: the server, by its configuration.

use crate::cli::{Place, Serve};
use crate::config::Config;
use crate::failure::{Failure, OrUsage};
use crate::server;
use anyhow::Context;

/// Runs the command.
pub fn run(place: &Place, asked: &Serve) -> Result<(), Failure> {
    let mut config = Config::load(place).usage()?;
    if let Some(address) = &asked.listen_address {
        config.server.listen_address.clone_from(address);
    }
    config.validate().usage()?;
    let dir = config.data_dir(place);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let shutdown = server::signals().context("cannot listen for signals")?;
        server::run(&config, &dir, shutdown, |address, cluster| {
            tracing::info!(%address, cluster, data_dir = %dir.display(), "serving");
        })
        .await
    })
}
