//! The server: the store, the tasks that fill it, and the routes that answer from it.

mod opening;
mod periodic;
mod serving;

use crate::alerting::Absence;
pub use crate::config::Source;
use crate::failure::{Failure, OrUsage};
use anyhow::Context;
use opening::Opening;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use takt_api::PageState;
use takt_identity::{Access, GuardedRouter};
use takt_store::Store;
use tokio::sync::watch;
use tokio::time;

/// Pause before the server reopens an invalid database: its cause (a full disk) may last.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Maximum wait for a command that uses the data directory. Reports and imports end by themselves.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason for the end of serving.
enum End {
    /// The shutdown signal.
    Shutdown,
    /// DuckDB invalidated the database: the server reopens everything.
    Invalidated,
    /// The clock was set back: after reopening, the store continues at the clock's time.
    ClockWentBack,
}

/// A server that is about to answer its first request.
#[derive(Debug)]
pub struct Ready<'s> {
    /// Address of the pages and the API on this machine.
    pub address: SocketAddr,
    /// Address that the server listens on, for instance `0.0.0.0:9856`.
    pub listen_address: SocketAddr,
    /// Name of the cluster.
    pub cluster: &'s str,
    /// The store. The server ends only after all other references to it are dropped.
    pub store: &'s Arc<Store>,
    /// Sign-in of users.
    pub access: &'s Access,
}

/// Serves `dir` until `shutdown` becomes true. Calls `ready` once, when the server can answer the
/// first request.
pub fn run<'r>(
    source: Source,
    dir: &'r Path,
    shutdown: watch::Receiver<bool>,
    parts: Parts,
    ready: impl FnOnce(&Ready<'_>) + 'r,
) -> Served<'r> {
    served(source, dir, shutdown, parts, Box::new(ready))
}

/// A server, until it ends.
pub type Served<'r> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'r>>;

type OnReady<'r> = Box<dyn FnOnce(&Ready<'_>) + 'r>;

/// Not generic: the server is compiled once, with this crate, and not for each command that starts one.
fn served<'r>(
    source: Source,
    dir: &'r Path,
    shutdown: watch::Receiver<bool>,
    parts: Parts,
    ready: OnReady<'r>,
) -> Served<'r> {
    Box::pin(serve(source, dir, shutdown, parts, ready))
}

async fn serve(
    source: Source,
    dir: &Path,
    mut shutdown: watch::Receiver<bool>,
    parts: Parts,
    ready: OnReady<'_>,
) -> Result<(), Failure> {
    // Before reading: a file that is written meanwhile is newer than the configuration.
    let mut read_at = SystemTime::now();
    let mut config = source().usage()?;
    config.warn_of_files(dir);
    let (token, read_token) = config.server_tokens().usage()?;
    // Read again for each opening. Here, nothing was created yet.
    config.sender_tokens().usage()?;

    let access = Access::new(&config.auth, &token, read_token.as_deref())
        .context("auth")
        .usage()?;
    // Called for the first opening only: later ones are not a start.
    let mut ready = Some(ready);
    let mut absence: Option<Absence> = None;
    loop {
        let opening = Opening {
            source: &source,
            dir,
            config: &config,
            read_at,
            token: &token,
            access: &access,
            parts,
        };
        match opening.serve(&mut shutdown, &mut ready, &mut absence).await {
            Ok(End::Shutdown) => return Ok(()),
            Ok(End::Invalidated) => {
                tracing::error!("the database became invalid; reopening it");
                time::sleep(REOPEN_PAUSE).await;
            }
            Ok(End::ClockWentBack) => {
                tracing::warn!(
                    "the clock was set back; reopening the store to continue from its time"
                )
            }

            // A disk may come back. Any other failure would only repeat.
            Err(Failure::Failed(error)) if is_of_disk(&error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "cannot open the data directory; trying again");
                // The first error is the cause, and later ones are its repetitions.
                absence.get_or_insert_with(|| Absence::begin(&config, error));
                time::sleep(REOPEN_PAUSE).await;
            }
            Err(failure) => return Err(failure),
        }
        // The configuration may have been reloaded meanwhile.
        let now = SystemTime::now();
        if let Ok(reloaded) = source() {
            read_at = now;
            // Only the sections that a reload applies. The others keep their values from the start.
            (config.scrape, config.alerts, config.email) =
                (reloaded.scrape, reloaded.alerts, reloaded.email);
        }
    }
}

/// Whether a disk failed or is full: the same attempt may succeed later.
fn is_of_disk(error: &anyhow::Error) -> bool {
    const CAUSES: [&str; 5] = [
        "No space left",
        "Disk quota exceeded",
        "Input/output error",
        "Read-only file system",
        "File too large",
    ];
    // Errors of DuckDB have the system's words, and no code.
    let text = format!("{error:#}");
    CAUSES.iter().any(|cause| text.contains(cause))
}

/// Parts of a server from other crates: the server renders no pages and does not read `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Makes the routes of the pages.
    pub pages: fn(PageState) -> GuardedRouter,
    /// Registers metrics of the process.
    pub process_metrics: fn(&mut Registry),
    /// Makes the command of the query process ([`takt_store::sql::serve`]).
    pub query_process: fn() -> Command,
}

/// Returns a receiver that becomes true at Ctrl-C or SIGTERM.
pub fn signals() -> anyhow::Result<watch::Receiver<bool>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        // SIGTERM is systemd's, SIGINT that of a terminal.
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        send.send_replace(true);
    });
    Ok(receive)
}
