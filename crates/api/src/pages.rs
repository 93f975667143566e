//! The state that pages share with the API.

use jiff::tz::TimeZone;
use std::pin::Pin;
use std::sync::Arc;
use takt_collector::schedulers::PollStatus;
use takt_collector::scrape::ScrapeManager;
use takt_questions::AnswerConfig;
use takt_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The sources of the pages. A page reaches them with the viewer who reads it.
#[derive(Clone)]
pub struct PageState {
    /// Samples and records.
    pub store: Arc<Store>,
    /// Targets and their health.
    pub scrape: Arc<ScrapeManager>,
    /// State of the scheduler poller; `None` without a scheduler.
    pub polls: Option<watch::Receiver<PollStatus>>,
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Time zone of the cluster.
    pub zone: TimeZone,
    /// Configuration of the answers.
    pub config: Arc<AnswerConfig>,
    /// Reads the configuration again.
    pub reload: Arc<dyn Reloading>,
    /// Cancelled when the server stops: live pages end their streams.
    pub stop: CancellationToken,
}

/// A reload, until it ends. Its text says what was done.
pub type ReloadResult<'r> = Pin<Box<dyn Future<Output = anyhow::Result<String>> + Send + 'r>>;

/// Reads the configuration of a running server again.
pub trait Reloading: Send + Sync {
    /// Sections and keys that changed in the file and are not in force until a restart, as the last
    /// reload found them.
    fn waiting(&self) -> Vec<String>;

    /// Reads the configuration, and puts what changed into force.
    fn now(&self) -> ReloadResult<'_>;
}
