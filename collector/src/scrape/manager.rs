//! All jobs together: starting, reloading, stopping.

use super::config::ScrapeConfig;
use super::http::HttpError;
use super::job::Job;
use super::metrics::ScrapeMetrics;
use super::pool::{Pool, TargetAccess};
use super::scraper::{End, Shared};
use super::status::{MetadataTable, MetricMetadata, TargetStatus};
use super::target::Target;
use prometheus_client::registry::Registry;
use reqwest::Client;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use takt_model::ConfigError;
use takt_model::Labels;
use takt_store::Store;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Why scraping cannot start, or cannot be told anew.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error("scrape")]
    Config(#[from] ConfigError),
    /// There is no HTTP client, for want of certificates for instance.
    #[error("scrape: job {job:?}")]
    Client {
        /// Which job.
        job: String,
        /// Why.
        source: HttpError,
    },
    /// There is no thread for it.
    #[error("cannot start scraping")]
    Thread(#[from] io::Error),
}

/// The running scrapes.
///
/// They have a thread of their own: what one scrape costs is mostly waking up for it, and more so where the next piece of work
/// is on another thread. A thread takes some hundred thousand samples a second.
#[derive(Debug)]
pub struct ScrapeManager {
    shared: Arc<Shared>,
    runtime: Handle,
    /// Ends the thread when it is dropped.
    _stop: oneshot::Sender<()>,
    /// In the order of the configuration.
    pools: Mutex<Vec<Pool>>,
}

/// A job that could be started: everything that may fail has been done.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub job: Arc<Job>,
    pub client: Client,
    /// Those of `[[scrape.targets]]`.
    pub listed: Vec<Target>,
}

impl ScrapeManager {
    /// Starts a task for every job and target. Metrics go into `registry`.
    ///
    /// # Errors
    /// When the configuration is wrong, or there can be no thread or HTTP client.
    pub fn start(
        store: Arc<Store>,
        config: ScrapeConfig,
        cluster: &str,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        let ready = ready(&config, cluster)?;
        let metrics = ScrapeMetrics::register(registry);
        let shared = Arc::new(Shared {
            store,
            cluster: cluster.to_owned(),
            metrics,
            metadata: MetadataTable::default(),
        });
        let (runtime, stop) = thread()?;
        let pools = {
            let _guard = runtime.enter();
            ready
                .into_iter()
                .map(|ready| Pool::start(Arc::clone(&shared), ready))
                .collect()
        };
        Ok(Self {
            shared,
            runtime,
            _stop: stop,
            pools: Mutex::new(pools),
        })
    }

    /// Goes on with another configuration. What is in both is not disturbed; a target that is scraped otherwise keeps
    /// its series; one that is gone has them end.
    ///
    /// # Errors
    /// As [`Self::start`]; then nothing has changed.
    pub fn reload(&self, config: &ScrapeConfig) -> Result<(), StartError> {
        let ready = ready(config, &self.shared.cluster)?;
        let _guard = self.runtime.enter();
        let mut pools = self.pools();
        let mut before = std::mem::take(&mut *pools);
        for ready in ready {
            match before
                .iter()
                .position(|pool| pool.name() == ready.job.config.job_name)
            {
                Some(at) => {
                    let mut pool = before.swap_remove(at);
                    pool.update(ready);
                    pools.push(pool);
                }
                None => pools.push(Pool::start(Arc::clone(&self.shared), ready)),
            }
        }
        for pool in before {
            drop(tokio::spawn(pool.end(End::Gone)));
        }
        Ok(())
    }

    /// Every target as it is now, in the order of the configuration.
    pub fn targets(&self) -> Vec<TargetStatus> {
        self.pools().iter().flat_map(Pool::targets).collect()
    }

    /// The targets, each with how it is asked.
    pub fn accessible(&self) -> Vec<(TargetStatus, TargetAccess)> {
        let pools = self.pools();
        pools
            .iter()
            .flat_map(|pool| {
                pool.targets()
                    .into_iter()
                    .map(|target| (target, pool.access()))
            })
            .collect()
    }

    /// What was found but is not scraped, because relabelling dropped it or left nothing that can be.
    pub fn dropped(&self) -> Vec<Labels> {
        self.pools().iter().flat_map(Pool::dropped).collect()
    }

    /// What the targets say about their metrics.
    pub fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
        self.shared.metadata.all()
    }

    /// Stops all scrapes and commits what they brought. Series do not end: the next start continues them.
    pub async fn shutdown(&self) {
        let pools = std::mem::take(&mut *self.pools());
        futures_util::future::join_all(pools.into_iter().map(|pool| pool.end(End::Replaced))).await;
        let store = Arc::clone(&self.shared.store);
        let flushed = tokio::task::spawn_blocking(move || store.flush()).await;
        if let Err(error) = flushed {
            tracing::error!(%error, "cannot commit the last samples");
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread with a runtime, until the sender is dropped.
fn thread() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    // Nothing is ever sent: what is waited for is the end of the sender.
    let run = move || drop(runtime.block_on(stopped));
    std::thread::Builder::new()
        .name("takt-scrape".to_owned())
        .spawn(run)?;
    Ok((handle, stop))
}

fn ready(config: &ScrapeConfig, cluster: &str) -> Result<Vec<Ready>, StartError> {
    config.validate()?;
    let (job, listed) = config.listed(cluster)?;
    let jobs = config.jobs()?.into_iter().map(|job| (job, Vec::new()));
    std::iter::once((job, listed))
        .chain(jobs)
        .map(|(job, listed)| {
            let client = job.http.client();
            let client = client.map_err(|source| StartError::Client {
                job: job.config.job_name.clone(),
                source,
            })?;
            Ok(Ready {
                job: Arc::new(job),
                client,
                listed,
            })
        })
        .collect()
}
