//! A data directory, open for work: its databases, its series, its newest samples and its writer.

use super::head::Head;
use super::hot::{self, Writer};
use super::intake::Shared;
use super::metrics::StoreMetrics;
use super::queue::Queue;
use super::watermark::Watermark;
use super::{DataDir, Database, Group, Health, Holder, StoreConfig, StoreError};
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::SystemTime;
use takt_model::Timestamp;
use tokio::sync::watch;

/// The store. Dropping it writes what still waits.
#[derive(Debug)]
pub struct Store {
    pub(super) shared: Arc<Shared>,
    database: Arc<Database>,
    directory: Mutex<DataDir>,
    health: watch::Receiver<Health>,
    writer: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the databases, reads the series and starts the writer. Metrics go into `registry`.
    ///
    /// # Errors
    /// What [`Database::open`] refuses, and series that cannot be read.
    pub fn open(directory: DataDir, config: &StoreConfig, registry: &mut Registry) -> Result<Self, StoreError> {
        let now = Timestamp::from(SystemTime::now());
        let database = Arc::new(Database::open(&directory, &config.settings())?);
        let db = database.connect()?;
        let (series, state) = hot::load(&db, now)?;
        let watermark = state.newest.map_or(Timestamp(i64::MIN), |newest| newest.min(now));
        let metrics = StoreMetrics::register(registry);
        metrics.series.set(series.len() as i64);
        let queue_limit = usize::try_from(config.queue_limit_mib << 20).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            series: RwLock::new(series),
            head: Head::new(config.head_window()),
            watermark: Arc::new(Watermark::new(watermark)),
            queue: Queue::new(queue_limit),
            metrics,
            retention: config.retention(),
        });
        let (health_sender, health) = watch::channel(Health::default());
        let writer = Writer {
            db,
            directory: directory.path().to_owned(),
            config: config.clone(),
            shared: Arc::clone(&shared),
            health: health_sender,
            state,
        };
        let thread = std::thread::Builder::new()
            .name("takt-samples".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| StoreError::Directory { path: directory.path().to_owned(), source })?;
        Ok(Self { shared, database, directory: Mutex::new(directory), health, writer: Some(thread) })
    }

    /// The database, for records and SQL.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The data directory.
    pub fn path(&self) -> PathBuf {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).path().to_owned()
    }

    /// A new group of series that are written together.
    pub fn group(&self) -> Group {
        Group::open(Arc::clone(&self.shared), Timestamp::from(SystemTime::now()))
    }

    /// Every scrape up to this instant is durable, or was counted as failed or dropped.
    pub fn watermark(&self) -> Timestamp {
        self.shared.watermark.get()
    }

    /// Whether samples reach the disk; can be awaited for a change.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Commits what waits and returns when that was tried. Blocks.
    pub fn flush(&self) {
        self.shared.queue.flush();
    }

    /// Writes into the lock file where this process answers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn publish(&self, holder: &Holder) -> Result<(), StoreError> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).publish(holder)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.writer.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer of samples had panicked");
        }
    }
}
