//! Starts, reloads and stops all scrape jobs.

use super::config::ScrapeConfig;
use super::files::TargetFiles;
use super::http::HttpError;
use super::job::Job;
use super::metrics::ScrapeMetrics;
use super::pool::{Pool, TargetAccess};
use super::relabel::RelabelStep;
use super::scraper::{ScraperContext, ScraperEnd};
use super::status::{DiscoveryProblem, MetadataTable, MetricMetadata, TargetStatus};
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

/// The reason for a failed start or reload.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error("scrape")]
    Config(#[from] ConfigError),
    /// The HTTP client of a job cannot be created, for example because a certificate is missing.
    #[error("scrape: job {job:?}")]
    Client {
        /// Name of the job.
        job: String,
        /// The cause.
        source: HttpError,
    },
    /// The thread cannot be started.
    #[error("cannot start scraping")]
    Thread(#[from] io::Error),
}

/// The running scrapes.
///
/// They share one thread of their own: waking up is most of a scrape's cost, and waking another
/// thread costs even more. One thread handles some hundred thousand samples per second.
#[derive(Debug)]
pub struct ScrapeManager {
    shared: Arc<ScraperContext>,
    runtime: Handle,
    /// Stops the thread when dropped.
    _stop: oneshot::Sender<()>,
    /// Jobs in the order of the configuration.
    pools: Mutex<Vec<Pool>>,
}

/// A job that is ready to start: every step that can fail is done.
#[derive(Debug, Clone)]
pub(super) struct ReadyJob {
    pub job: Arc<Job>,
    pub client: Client,
    /// The targets of `[[scrape.targets]]`.
    pub listed: Vec<Target>,
}

impl ScrapeManager {
    /// Starts a task for every job and every target, whose connections take `files`. Registers the
    /// metrics in `registry`.
    ///
    /// # Errors
    /// If the configuration is invalid, or the thread or an HTTP client cannot be created.
    pub fn start(
        store: Arc<Store>,
        config: ScrapeConfig,
        cluster: &str,
        files: TargetFiles,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        // Mistakes of the configuration come first, before a thread or a task exists.
        let ready = ready(&config, cluster)?;

        let metrics = ScrapeMetrics::register(registry);
        let shared = Arc::new(ScraperContext {
            store,
            cluster: cluster.to_owned(),
            files,
            metrics,
            metadata: MetadataTable::default(),
        });

        let (runtime, stop) = thread()?;

        // The tasks belong to the scraper's thread, whatever runtime the caller has.
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

    /// Switches to another configuration. Targets in both configurations continue undisturbed. A
    /// target with changed settings keeps its series. The series of a removed target end.
    ///
    /// # Errors
    /// As [`Self::start`]; the previous configuration then stays in use.
    pub fn reload(&self, config: &ScrapeConfig) -> Result<(), StartError> {
        // A mistake must leave the running jobs as they are, so it is found before the first change.
        let ready = ready(config, &self.shared.cluster)?;

        let _guard = self.runtime.enter();
        let mut pools = self.pools();
        let mut before = std::mem::take(&mut *pools);

        // The name identifies a job across configurations; its position may change.
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

        // The markers of removed targets are written in the background, since a reload need not wait for them.
        for pool in before {
            drop(tokio::spawn(pool.end(ScraperEnd::Gone)));
        }
        Ok(())
    }

    /// Returns the open files for connections to targets.
    pub fn files(&self) -> TargetFiles {
        self.shared.files.clone()
    }

    /// Returns the state of every target, in the order of the configuration.
    pub fn targets(&self) -> Vec<TargetStatus> {
        self.pools().iter().flat_map(Pool::targets).collect()
    }

    /// Returns the targets, each with the access to its server.
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

    /// Returns the discovered targets that are not scraped, because relabelling dropped them or
    /// made them invalid.
    pub fn dropped(&self) -> Vec<Labels> {
        self.pools().iter().flat_map(Pool::dropped).collect()
    }

    /// Returns the number of dropped targets of each job.
    pub fn dropped_counts(&self) -> BTreeMap<String, usize> {
        let pools = self.pools();
        pools
            .iter()
            .map(|pool| (pool.name().to_owned(), pool.dropped().len()))
            .collect()
    }

    /// Returns why lists of targets cannot be read, and listed targets not be scraped.
    pub fn discovery_problems(&self) -> Vec<DiscoveryProblem> {
        let pools = self.pools();
        pools.iter().flat_map(Pool::discovery_problems).collect()
    }

    /// Applies the relabelling of a job's targets to labels; `None` if the job does not exist.
    pub fn relabel_steps(&self, job: &str, labels: &Labels) -> Option<Vec<RelabelStep>> {
        let pools = self.pools();
        let pool = pools.iter().find(|pool| pool.name() == job)?;
        Some(pool.relabel_steps(labels.clone()))
    }

    /// Returns the type, help and unit of each scraped metric.
    pub fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
        self.shared.metadata.all()
    }

    /// Stops all scrapes and commits their samples. Series do not end: the next start continues
    /// them.
    pub async fn shutdown(&self) {
        let pools = std::mem::take(&mut *self.pools());
        futures_util::future::join_all(
            pools.into_iter().map(|pool| pool.end(ScraperEnd::Replaced)),
        )
        .await;

        let store = Arc::clone(&self.shared.store);
        let flushed = takt_store::spawn_blocking(move || store.flush()).await;
        if let Err(error) = flushed {
            tracing::error!(%error, "cannot commit the last samples");
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread with a runtime. It ends when the sender is dropped.
fn thread() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();

    // The sender never sends a value; dropping it ends the wait.
    let run = move || drop(runtime.block_on(stopped));

    std::thread::Builder::new()
        .name("takt-scrape".to_owned())
        .spawn(run)?;

    Ok((handle, stop))
}

fn ready(config: &ScrapeConfig, cluster: &str) -> Result<Vec<ReadyJob>, StartError> {
    config.validate()?;
    let (job, listed) = config.listed(cluster)?;

    let jobs = config.jobs()?.into_iter().map(|job| (job, Vec::new()));
    std::iter::once((job, listed))
        .chain(jobs)
        .map(|(job, listed)| {
            let client = job.http.client().map_err(|source| StartError::Client {
                job: job.config.job_name.clone(),
                source,
            })?;
            Ok(ReadyJob {
                job: Arc::new(job),
                client,
                listed,
            })
        })
        .collect()
}
