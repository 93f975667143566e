//! `takt serve`: the server, by its configuration.

use super::refuse_server;
use crate::cli::{Place, Serve};
use crate::config::Config;
use crate::failure::{Failure, OrUsage};
use crate::server;
use anyhow::Context;
use std::sync::Arc;

/// Runs the command.
pub fn run(place: &Place, asked: &Serve) -> Result<(), Failure> {
    refuse_server(place, "serve")?;
    let dir = configuration(place, asked).usage()?.data_dir(place);
    let (place, asked) = (place.clone(), asked.clone());
    let source: server::Source = Arc::new(move || configuration(&place, &asked));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let shutdown = server::signals().context("cannot listen for signals")?;
        server::run(source, &dir, shutdown, |address, cluster| {
            tracing::info!(%address, cluster, data_dir = %dir.display(), "serving");
        })
        .await
    })
}

fn configuration(place: &Place, asked: &Serve) -> anyhow::Result<Config> {
    let mut config = Config::load(place)?;
    if let Some(address) = &asked.listen_address {
        config.server.listen_address.clone_from(address);
    }
    config.validate()?;
    Ok(config)
}
