//! `takt serve`: the server, by its configuration.

use super::refuse_server;
use crate::cli::Place;
use crate::place;
use anyhow::Context;
use clap::Args;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use std::sync::Arc;
use takt_server::Config;
use takt_server::serve as server;
use takt_server::{Failure, OrUsage};

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Address of the web pages and the API [default: server.listen_address]
    #[arg(long, value_name = "ADDRESS")]
    pub listen_address: Option<String>,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Serve) -> Result<(), Failure> {
    refuse_server(place, "serve")?;
    // Before the configuration is read, which names the files of secrets.
    hide_memory();
    // Read once for the directory, which a reload does not change.
    let dir = place::data_dir(&configuration(place, asked).usage()?, place);
    let place = place.clone();
    let asked = asked.clone();
    let source: server::Source = Arc::new(move || configuration(&place, &asked));

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;

    let served = runtime.block_on(async {
        let shutdown = server::signals().context("cannot listen for signals")?;
        server::run(source, &dir, shutdown, super::PARTS, |ready| {
            let server::Ready {
                listen_address,
                cluster,
                ..
            } = *ready;
            tracing::info!(address = %listen_address, cluster, data_dir = %dir.display(), "serving");
        })
        .await
    });

    // The store is closed. A thread that still reads must not delay the end of the process.
    runtime.shutdown_background();
    served
}

/// Keeps tokens and passwords of this process from core dumps, and from other processes of its user, such as
/// statements in SQL. root can still read the memory.
fn hide_memory() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // The limit also holds for programs that the server starts; a handler of core dumps may ignore it.
    let limited = setrlimit(Resource::Core, none);
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Some(error) = limited.err().or(hidden.err()) {
        tracing::warn!(%error, "core dumps are not disabled; they would contain secrets");
    }
}

fn configuration(place: &Place, asked: &Serve) -> anyhow::Result<Config> {
    let mut config = place::load_named(place)?;
    if let Some(address) = &asked.listen_address {
        config.server.listen_address.clone_from(address);
    }
    // Again, as the option has changed an address.
    config.validate()?;
    Ok(config)
}
