//! `takt up`: monitors this machine without any configuration.

use super::{one_thread, refuse_server};
use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use anyhow::Context;
use clap::Args;
use rustix::system;
use std::fs::DirBuilder;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use takt_collector::scrape::TargetConfig;
use takt_exporter::Exporter;
use takt_server::Config;
use takt_server::serve as server;
use takt_server::{Failure, OrUsage};
use takt_store::{DataDir, Holder, StoreError};
use tokio::sync::watch;

#[derive(Debug, Clone, Args)]
#[command(mut_arg("listen_address", |arg| arg.default_value("127.0.0.1:9855").help("Address of the exporter, HOST:PORT")))]
pub struct Up {
    /// Address of the web pages and the API
    #[arg(
        long = "listen-address",
        id = "server_address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9856"
    )]
    pub server_address: String,
    /// Seconds between two scrapes
    #[arg(long, value_name = "SECONDS")]
    pub interval_seconds: Option<f64>,
    #[command(flatten)]
    pub exporter: takt_exporter::Options,
}

/// Seconds between two scrapes by default. Short, since there is one target.
const INTERVAL_SECONDS: f64 = 5.0;

/// State directory of the exporter, below the data directory.
const EXPORTER_STATE: &str = "exporter";

/// Runs the command.
pub fn run(place: &Place, asked: &Up) -> Result<(), Failure> {
    let address = asked
        .exporter
        .web
        .listen_address
        .first()
        .context("--web.listen-address: expected HOST:PORT")
        .usage()?;
    refuse_server(place, "up")?;
    let dir = place::data_dir(&place::load_named(place).usage()?, place);

    // Before a port is opened: the other server's exporter would have it, and that error would
    // mislead.
    if let Some(Holder { pid, address, .. }) = DataDir::holder(&dir) {
        let path = dir.clone();
        return Err(StoreError::Held { path, pid, address }.into());
    }

    // Bound here, as port 0 becomes a number that the configuration of the server needs.
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot listen on {address} for the exporter (--web.listen-address)")
    })?;
    let exporter_address = listener.local_addr()?;
    let source: server::Source = {
        let place = place.clone();
        let asked = asked.clone();
        Arc::new(move || configuration(&place, &asked, &exporter_address.to_string()))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let shutdown = server::signals().context("cannot listen for signals")?;
        // The exporter writes into it before the store opens it.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let mut options = asked.exporter.clone();
        options
            .state_directory
            .get_or_insert_with(|| dir.join(EXPORTER_STATE));
        let exporter = spawn_exporter(&options, listener, shutdown.clone())?;
        let served = server::run(source, &dir, shutdown, super::PARTS, |ready| {
            welcome(ready.address, exporter_address, ready.cluster, &dir);
        })
        .await;
        // Without waiting for its thread, which ends with the same signal.
        drop(exporter);
        served
    });
    // The store is closed. A thread that still reads must not delay the end of the process.
    runtime.shutdown_background();
    served
}

/// Returns the configuration of the file with this machine's exporter as an additional target.
fn configuration(place: &Place, asked: &Up, exporter_address: &str) -> anyhow::Result<Config> {
    let mut config = place::load_named(place)?;
    config
        .server
        .listen_address
        .clone_from(&asked.server_address);

    // A configured interval is kept, unless the option overrides it.
    if place.config.is_none() || asked.interval_seconds.is_some() {
        config.scrape.interval_seconds = asked.interval_seconds.unwrap_or(INTERVAL_SECONDS);
        let interval = config.scrape.interval_seconds;
        let timeout = &mut config.scrape.timeout_seconds;
        // A timeout longer than the interval is refused.
        *timeout = timeout.map(|seconds| seconds.min(interval));
    }

    // As Slurm's nodes are called.
    let node = system::uname()
        .nodename()
        .to_string_lossy()
        .split('.')
        .next()
        .unwrap_or("localhost")
        .to_owned();
    let address = exporter_address.to_owned();
    config.scrape.targets.push(TargetConfig {
        address,
        node,
        ..TargetConfig::default()
    });
    config.validate()?;
    Ok(config)
}

/// Starts the exporter on a thread and runtime of its own, so that the server's work does not delay
/// it.
fn spawn_exporter(
    options: &takt_exporter::Options,
    listener: TcpListener,
    mut shutdown: watch::Receiver<bool>,
) -> Result<thread::JoinHandle<()>, Failure> {
    let exporter = Exporter::new(options)?;
    listener.set_nonblocking(true)?;
    let runtime = one_thread()?;
    let thread = thread::Builder::new()
        .name("takt-exporter".to_owned())
        .spawn(move || {
            let stopped = async move { drop(shutdown.wait_for(|asked| *asked).await) };
            let serve = async {
                exporter
                    .serve(tokio::net::TcpListener::from_std(listener)?, stopped)
                    .await
                    .map_err(anyhow::Error::from)
            };
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(error = format!("{error:#}"), "the exporter stopped");
            }
        })?;
    Ok(thread)
}

/// Prints the addresses. A reader that has closed standard output does not stop the server.
fn welcome(address: SocketAddr, exporter: SocketAddr, cluster: &str, dir: &Path) {
    let _ = writeln!(
        stdout(),
        "\nTakt is monitoring this machine (cluster {cluster}).\n\n\
         \x20 Web page  http://{address}/\n\
         \x20 Metrics   http://{exporter}/metrics\n\
         \x20 Data      {}\n\n\
         To query it, run in this directory: takt gpus, takt jobs, takt sql 'SELECT ...'\n\
         Press Ctrl-C to stop; stored data are kept.\n",
        dir.display()
    );
}
