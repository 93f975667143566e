//! Opening a data directory: claim it, open the store, find the name of the cluster.

use super::serving::Serving;
use super::{End, OnReady, PATIENCE, Parts, Ready, Source};
use crate::alerting::Absence;
use crate::config::Config;
use crate::failure::{Failure, OrUsage};
use crate::opening::OpeningPage;
use anyhow::Context;
use prometheus_client::registry::Registry;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_collector::schedulers;
use takt_identity::Access;
use takt_questions::remote_engine;
use takt_store::{DataDir, Holder, Records, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time;

/// One attempt to open the data directory and to serve it.
pub(super) struct Opening<'c> {
    pub source: &'c Source,
    /// When the configuration was read.
    pub read_at: SystemTime,
    pub dir: &'c Path,
    pub config: &'c Config,
    /// The API token.
    pub token: &'c str,
    pub access: &'c Access,
    pub parts: Parts,
}

impl Opening<'_> {
    /// Opens the data directory and serves it. Calls `ready` the first time that it can answer.
    pub async fn serve(
        &self,
        shutdown: &mut watch::Receiver<bool>,
        ready: &mut Option<OnReady<'_>>,
        absence: &mut Option<Absence>,
    ) -> Result<End, Failure> {
        let config = self.config;
        let address = &config.server.listen_address;

        let mut registry = Registry::default();
        (self.parts.process_metrics)(&mut registry);
        // Claimed before anything is written or listened on: another server may be running.
        let Some(dir) = claim(self.dir, shutdown).await? else {
            return Ok(End::Shutdown);
        };
        // Two listeners share one queue of connections, so no client is refused while the first one is dropped.
        let (listener, while_opening) = listen_twice(address).await.with_context(|| {
            format!("cannot listen on {address} (--listen-address, or listen_address in [server])")
        })?;
        let opening = OpeningPage::start(while_opening, "reads its data directory");

        let store_config = config.store.clone();
        let remote = remote_engine(&config.query).usage()?;
        let (store, registry) = takt_store::spawn_blocking(move || {
            Store::open(dir, &store_config, &mut registry).map(|store| (store, registry))
        })
        .await??;

        if let Some(engine) = remote {
            store.read_from(engine);
        }
        let store = Arc::new(store);

        let database = store.database();
        database.isolate_sql(self.parts.query_process, &config.store)?;
        let cluster = cluster(config, &store).await?;
        let bound = listener.local_addr()?;
        // An unspecified address is not one to connect to.
        let local_address = SocketAddr::new(
            if bound.ip().is_unspecified() {
                [127, 0, 0, 1].into()
            } else {
                bound.ip()
            },
            bound.port(),
        );
        opening.enter("starts alerts and scraping");

        let serving = Serving {
            config,
            source: Arc::clone(self.source),
            read_at: self.read_at,
            pages: self.parts.pages,
            cluster: &cluster,
            access: self.access.clone(),
            registry,
            listener,
            local_address,
            absence,
        };

        self.access.attach(&store, local_address);
        let announce = |store: &Arc<Store>| -> Result<(), Failure> {
            // From here on, the server answers itself.
            drop(opening);
            // The file with the address and token is how commands on this machine find the server.
            store.publish(&Holder {
                pid: process::id(),
                address: Some(local_address.to_string()),
                token: Some(self.token.to_owned()),
            })?;
            // Readiness is announced once, also if the store is opened again.
            if let Some(ready) = ready.take() {
                ready(&Ready {
                    address: local_address,
                    listen_address: bound,
                    cluster: &cluster,
                    store,
                    access: self.access,
                });
            }
            Ok(())
        };
        serving.until(store, announce, shutdown).await
    }
}

/// Returns two listeners at the same address: one for the time while the store opens.
async fn listen_twice(address: &str) -> io::Result<(TcpListener, TcpListener)> {
    let listener = TcpListener::bind(address).await?.into_std()?;
    let other = listener.try_clone()?;
    Ok((
        TcpListener::from_std(listener)?,
        TcpListener::from_std(other)?,
    ))
}

/// Claims `dir`. A command may hold it for a moment (at the start, or while the server reopens an
/// invalid database), another server for longer. Returns `None` if the shutdown signal came
/// meanwhile.
async fn claim(
    dir: &Path,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<Option<DataDir>, Failure> {
    let began = Instant::now();
    let mut logged = false;
    while !*shutdown.borrow() {
        match DataDir::claim(dir) {
            // Without an address, the holder is a command. A server that holds the directory stays, so it is not
            // waited for.
            Err(StoreError::Held {
                pid, address: None, ..
            }) if began.elapsed() < PATIENCE => {
                if !logged {
                    tracing::info!(
                        pid,
                        "a command uses the data directory; waiting for its end"
                    );
                }
                logged = true;
                // A signal ends the wait at once.
                let _ = time::timeout(Duration::from_millis(100), shutdown.changed()).await;
            }
            claimed => {
                let claimed = claimed?;
                if claimed.is_open_to_others() {
                    let path = claimed.path().display();
                    tracing::warn!("other users can read the data directory: chmod 700 {path}");
                }
                return Ok(Some(claimed));
            }
        }
    }
    Ok(None)
}

/// Returns the cluster's name: from the configuration, from the local Slurm, from the only cluster
/// with records, or `local`.
async fn cluster(config: &Config, store: &Store) -> Result<String, Failure> {
    if let Some(name) = &config.cluster {
        return Ok(name.clone());
    }
    // The local Slurm is asked before the records, since a new server has none.
    if config.jobs.poll
        && let Ok(cluster) = schedulers::detect(&config.jobs).await
    {
        return Ok(cluster);
    }
    let mut known = Records::of(store.database()).clusters()?;
    // With several clusters in the records, the name would be a guess.
    let only = if known.len() == 1 { known.pop() } else { None };
    Ok(only.map_or_else(
        || takt_questions::LOCAL_CLUSTER.to_owned(),
        |only| only.cluster,
    ))
}
