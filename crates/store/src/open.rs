//! A data directory, open for work: its databases, its series, its newest samples and its writer.

use super::head::Head;
use super::hot::{self, Writer};
use super::intake::Shared;
use super::keeper::{Bell, Keeper, set_damaged_aside};
use super::listing::Unsealed;
use super::metrics::StoreMetrics;
use super::queue::Queue;
use super::tally::Tally;
use super::watermark::Watermark;
use super::{Clock, DataDir, Database, Group, Health, Holder, Kept, StoreConfig, StoreError};
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use takt_model::Matcher;
use takt_model::Timestamp;
use tokio::sync::watch;

/// The store. Dropping it writes what still waits.
#[derive(Debug)]
pub struct Store {
    pub(super) shared: Arc<Shared>,
    database: Arc<Database>,
    directory: Mutex<DataDir>,
    health: watch::Receiver<Health>,
    clock: Clock,
    bell: Arc<Bell>,
    /// See [`Store::unsealed`].
    pub(super) unsealed: OnceLock<Unsealed>,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the databases, reads the series and starts the writer. Metrics go into `registry`.
    ///
    /// # Errors
    /// What [`Database::open`] refuses, and series that cannot be read.
    pub fn open(
        directory: DataDir,
        config: &StoreConfig,
        registry: &mut Registry,
    ) -> Result<Self, StoreError> {
        Self::open_at(directory, config, registry, Clock::default())
    }

    /// The same by another clock than the system's.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_at(
        directory: DataDir,
        config: &StoreConfig,
        registry: &mut Registry,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let now = clock.now();
        let database = Arc::new(Database::open(&directory, &config.settings())?);
        let db = database.connect()?;
        let layout = database.layout();
        let (series, state) = hot::load(&db, &layout, now)?;
        let watermark = state
            .newest
            .map_or(Timestamp(i64::MIN), |newest| newest.min(now));
        let metrics = StoreMetrics::register(registry);
        metrics.series.set(series.len() as i64);
        metrics.damaged_files.set(database.damaged().len() as i64);
        let queue_limit = usize::try_from(config.queue_limit_mib << 20).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            series: RwLock::new(series),
            head: Head::new(
                config.head_window(),
                state.newest.unwrap_or(now).plus(Duration::from_millis(1)),
            ),
            watermark: Arc::new(Watermark::new(watermark)),
            queue: Queue::new(queue_limit),
            metrics: metrics.clone(),
            retention: config.retention(),
        });
        let bell = Arc::new(Bell::default());
        let (health_sender, health) = watch::channel(Health::default());
        let writer = Writer {
            tally: Tally::open(directory.path()),
            segment: hot::open_segment(&db, layout.current())?,
            db,
            database: Arc::clone(&database),
            directory: directory.path().to_owned(),
            file: Writer::file(directory.path()).map_err(|source| StoreError::Directory {
                path: directory.path().to_owned(),
                source,
            })?,
            config: config.clone(),
            shared: Arc::clone(&shared),
            health: health_sender,
            clock: clock.clone(),
            bell: Arc::clone(&bell),
            state,
        };
        let keeper = Keeper {
            database: Arc::clone(&database),
            config: config.clone(),
            clock: clock.clone(),
            metrics,
            bell: Arc::clone(&bell),
            replaced: Vec::new(),
        };
        let failed = |source| StoreError::Directory {
            path: directory.path().to_owned(),
            source,
        };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .map_err(failed)
        };
        let writer = Some(spawn("takt-samples", Box::new(move || writer.run()))?);
        let keeper = Some(spawn("takt-keeper", Box::new(move || keeper.run()))?);
        if !layout.frozen().is_empty() {
            bell.ring();
        }
        let (directory, unsealed) = (Mutex::new(directory), OnceLock::new());
        Ok(Self {
            shared,
            database,
            directory,
            health,
            clock,
            bell,
            unsealed,
            writer,
            keeper,
        })
    }

    /// The database, for records and SQL.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The data directory.
    pub fn path(&self) -> PathBuf {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .path()
            .to_owned()
    }

    /// A new group of series that are written together.
    pub fn group(&self) -> Group {
        Group::open(Arc::clone(&self.shared), self.clock.now())
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

    /// Seals every sample that was given so far, merges and removes what is due, and returns when that is done. Blocks.
    ///
    /// # Errors
    /// The first thing that failed; it is tried again later.
    pub fn seal(&self) -> Result<Kept, StoreError> {
        self.bell.wish();
        self.flush();
        self.bell.round()
    }

    /// Does what is due: seals segments that are complete, merges days, removes what is too old. The store does so by
    /// itself once a minute; this is for those whose clock runs faster. Blocks.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn keep(&self) -> Result<Kept, StoreError> {
        self.flush();
        self.bell.round()
    }

    /// Deletes every sample on disk of the series that the matchers accept. The labels stay known, and the head keeps
    /// the last minutes of a series that is still scraped. Blocks.
    ///
    /// # Errors
    /// The first thing that failed; what was deleted before stays deleted, so it can be asked again.
    pub fn delete(&self, matchers: &[Matcher]) -> Result<Kept, StoreError> {
        let series = {
            let table = self
                .shared
                .series
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            table.matching(matchers)
        };
        // What is in a segment that is complete can go; what comes from now on was not meant.
        self.bell.wish();
        self.flush();
        match series.is_empty() {
            true => Ok(Kept::default()),
            false => self.bell.delete(series),
        }
    }

    /// Sets blocks aside that have samples of that time and are damaged. Whether there were any.
    pub(super) fn set_damaged_aside(&self, from: Timestamp, to: Timestamp) -> bool {
        let layout = self.database.layout();
        let suspects: Vec<_> = layout
            .blocks
            .iter()
            .filter(|block| block.overlaps(from, to))
            .cloned()
            .collect();
        set_damaged_aside(&self.database, &self.shared.metrics, &suspects)
    }

    /// Writes into the lock file where this process answers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn publish(&self, holder: &Holder) -> Result<(), StoreError> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .publish(holder)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.bell.close();
        for thread in [self.writer.take(), self.keeper.take()]
            .into_iter()
            .flatten()
        {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread of the store had panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;
    use std::path::Path;
    use std::time::SystemTime;
    use takt_model::Matcher;
    use takt_model::{Labels, METRIC_NAME};

    fn config() -> StoreConfig {
        StoreConfig {
            commit_interval_ms: 20,
            min_free_bytes: 0,
            ..StoreConfig::default()
        }
    }

    fn open(root: &Path, config: &StoreConfig) -> Store {
        Store::open(
            DataDir::claim(root).unwrap(),
            config,
            &mut Registry::default(),
        )
        .unwrap()
    }

    fn now() -> Timestamp {
        SystemTime::now().into()
    }

    fn column(group: &Group, metric: &str) -> Column {
        group
            .column(&[(METRIC_NAME, metric)].into_iter().collect::<Labels>())
            .unwrap()
    }

    fn samples(store: &Store, metric: &str) -> Vec<(Timestamp, f64)> {
        let all = store
            .range(
                &[Matcher::metric(metric)],
                Timestamp(0),
                Timestamp(i64::MAX),
            )
            .unwrap();
        all.iter()
            .flat_map(|series| &series.samples)
            .map(|sample| (sample.at, sample.value))
            .collect()
    }

    fn rows(store: &Store) -> i64 {
        let db = store.database().connect().unwrap();
        db.query_row("SELECT count(*) FROM samples", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn a_row_is_seen_at_once_and_durable_after_a_flush() {
        let root = tempfile::tempdir().unwrap();
        let store = open(
            root.path(),
            &StoreConfig {
                commit_interval_ms: 60_000,
                ..config()
            },
        );
        let group = store.group();
        let ticket = group.ticket(now()).unwrap();
        let (at, up) = (ticket.at(), column(&group, "up"));
        group.commit(ticket, &[1.0], &[]).unwrap();
        assert_eq!((samples(&store, "up"), rows(&store)), (vec![(at, 1.0)], 0));
        assert!(store.watermark() < at);
        store.flush();
        assert_eq!(
            (rows(&store), store.watermark(), up),
            (1, at, column(&group, "up"))
        );
        // What the head no longer has comes from the database.
        drop(group);
        assert_eq!(samples(&store, "up"), [(at, 1.0)]);
        drop(store);
        assert_eq!(samples(&open(root.path(), &config()), "up"), [(at, 1.0)]);
    }

    #[test]
    fn an_instant_query_looks_back_over_a_window_open_on_the_left() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), &config());
        let group = store.group();
        let ticket = group.ticket(now()).unwrap();
        let at = ticket.at();
        column(&group, "up");
        group.commit(ticket, &[1.0], &[]).unwrap();
        let minute = Duration::from_secs(60);
        let found = |at| {
            store
                .instant(&[Matcher::metric("up")], at, minute)
                .unwrap()
                .len()
        };
        assert_eq!(found(at), 1);
        assert_eq!(found(at.plus(minute).minus(Duration::from_millis(1))), 1);
        assert_eq!(found(at.plus(minute)), 0);
        assert_eq!(found(at.minus(Duration::from_millis(1))), 0);
    }

    #[test]
    fn samples_wait_while_the_disk_has_less_room_than_the_floor() {
        let root = tempfile::tempdir().unwrap();
        let store = open(
            root.path(),
            &StoreConfig {
                min_free_bytes: u64::MAX,
                ..config()
            },
        );
        let group = store.group();
        let ticket = group.ticket(now()).unwrap();
        let at = ticket.at();
        column(&group, "up");
        group.commit(ticket, &[1.0], &[]).unwrap();
        store.flush();
        let Health::Waiting(reason) = store.health().borrow().clone() else {
            panic!("{:?}", store.health())
        };
        assert!(
            reason.contains("less than min_free_bytes = 18446744073709551615"),
            "{reason}"
        );
        assert!(store.watermark() < at);
        assert_eq!((samples(&store, "up"), rows(&store)), (vec![(at, 1.0)], 0));
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_written_to() {
        let root = tempfile::tempdir().unwrap();
        let (data, elsewhere) = (root.path().join("data"), root.path().join("elsewhere"));
        let store = open(&data, &config());
        let group = store.group();
        column(&group, "up");
        let mut at = now();
        let mut write = || {
            at = at.plus(Duration::from_secs(1));
            group
                .commit(group.ticket(at).unwrap(), &[1.0], &[])
                .unwrap();
            store.flush();
            store.health().borrow().clone()
        };
        assert_eq!(write(), Health::Writing);
        std::fs::rename(&data, &elsewhere).unwrap();
        assert!(matches!(write(), Health::Waiting(_)));
        std::fs::rename(&elsewhere, &data).unwrap();
        assert_eq!(write(), Health::Writing);
        std::fs::rename(&data, &elsewhere).unwrap();
        drop(open(&data, &config()));
        let Health::Invalidated(reason) = write() else {
            panic!("{:?}", store.health())
        };
        assert!(
            reason.contains("is not the directory that was opened"),
            "{reason}"
        );
    }

    #[test]
    fn a_store_that_is_ahead_of_the_clock_takes_no_instant_twice() {
        let root = tempfile::tempdir().unwrap();
        let ahead = now().plus(Duration::from_secs(3600));
        let write = |at: Timestamp, metrics: &[&str]| {
            let store = open(root.path(), &config());
            assert!(store.watermark() <= now());
            let group = store.group();
            let ticket = group.ticket(at).unwrap();
            for metric in metrics {
                column(&group, metric);
            }
            group
                .commit(ticket, &vec![1.0; metrics.len()], &[])
                .unwrap();
            store.flush();
            rows(&store)
        };
        assert_eq!(write(ahead, &["a"]), 1);
        assert_eq!(
            write(ahead, &["a", "b"]),
            2,
            "a has that instant, b has not"
        );
        assert_eq!(write(ahead.plus(Duration::from_millis(1)), &["a"]), 3);
    }

    #[test]
    fn a_row_from_before_the_last_one_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), &config());
        let group = store.group();
        column(&group, "a");
        let (early, late) = (
            group.ticket(now()).unwrap(),
            group.ticket(now().plus(Duration::from_secs(1))).unwrap(),
        );
        group.commit(late, &[2.0], &[]).unwrap();
        group.commit(early, &[1.0], &[]).unwrap_err();
        store.flush();
        assert_eq!(rows(&store), 1);
        // It holds nothing back either.
        assert!(store.watermark() > now());
    }
}
