//! The open data directory: databases, series, head, writer and compactor.

use super::compactor::{CompactionSignal, Compactor, set_damaged_aside};
use super::exemplars::Exemplars;
use super::head::Head;
use super::intake::SharedState;
use super::listing::UnsealedSeries;
use super::metrics::StoreMetrics;
use super::queue::{Batch, Queue};
use super::segments::{self, OpenSegment, SampleWriter};
use super::strips::Strips;
use super::unsealed::{CommitPosition, Coverage};
use super::watermark::Watermark;
use super::{
    Clock, ClockWentBack, CompactionSummary, DataDir, Database, Group, Health, Holder,
    RemoteEngine, Sample, SeriesId, Snapshot, StoreConfig, StoreError,
};
use prometheus_client::registry::Registry;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use takt_model::{Labels, Matcher, Timestamp};
use tokio::sync::watch;

/// The store. Dropping it writes the queued samples.
#[derive(Debug)]
pub struct Store {
    pub(super) shared: Arc<SharedState>,
    database: Arc<Database>,
    directory: Mutex<DataDir>,
    health: watch::Receiver<Health>,
    clock: Clock,
    signal: Arc<CompactionSignal>,
    /// See [`Store::unsealed`].
    pub(super) unsealed: OnceLock<UnsealedSeries>,
    writer: Option<JoinHandle<()>>,
    compactor: Option<JoinHandle<()>>,
    pub(super) strips: Strips,
    /// The engine that samples are read from, if it is not this store.
    pub(super) remote: OnceLock<Arc<dyn RemoteEngine>>,
}

impl Store {
    /// Opens the databases, loads the series and starts the threads. Registers metrics in
    /// `registry`.
    ///
    /// # Errors
    /// The errors of [`Database::open`], and series that cannot be read.
    pub fn open(
        directory: DataDir,
        config: &StoreConfig,
        registry: &mut Registry,
    ) -> Result<Self, StoreError> {
        Self::open_at(directory, config, registry, Clock::default())
    }

    /// Like [`open`](Self::open), with another clock than the system's.
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

        let database = Arc::new(Database::open_at(
            &directory,
            &config.settings(),
            clock.clone(),
        )?);
        let db = database.connect()?;

        let layout = database.layout();
        let (series, state, repeated) = segments::load(&db, &layout, now)?;

        // A sample ahead of the clock must not move the watermark ahead of it.
        let watermark = state
            .newest
            .map_or(Timestamp(i64::MIN), |newest| newest.min(now));

        let metrics = StoreMetrics::register(registry);
        metrics.series.set(series.len() as i64);
        let set_aside = database.set_aside_files().len();
        metrics.damaged_files.set(set_aside as i64);

        let clock_state = database.clock_state();
        metrics.note_clock(&clock_state);

        if !clock_state.is_trusted {
            tracing::warn!(
                ahead_seconds = clock_state.ahead_seconds(),
                "the clock is not trusted until NTP-kept clocks of targets agree with it, or for a day; \
                 nothing is deleted by its time"
            );
        }

        let queue_limit = usize::try_from(config.queue_limit_mib << 20).unwrap_or(usize::MAX);
        let shared = Arc::new(SharedState {
            series: RwLock::new(series),
            head: Head::new(
                config.head_window(),
                state.newest.unwrap_or(now).plus(Duration::from_millis(1)),
            ),
            watermark: Arc::new(Watermark::new(watermark)),
            queue: Queue::new(queue_limit),
            unsealed: Arc::clone(database.unsealed()),
            exemplars: Exemplars::new(config.max_exemplars),
            metrics: metrics.clone(),
            retention: config.retention(),
        });

        let unsealed = Arc::clone(database.unsealed());
        let failed = |source| StoreError::Directory {
            path: directory.path().to_owned(),
            source,
        };
        unsealed.go_live(&shared, repeated).map_err(failed)?;

        let signal = Arc::new(CompactionSignal::default());
        let (health_sender, health) = watch::channel(Health::default());

        let writer = SampleWriter {
            log: unsealed.log_writer(),
            position: CommitPosition::open(unsealed.folder()).map_err(failed)?,
            covered: Coverage::default(),
            unfinished: None,
            segment: OpenSegment::of(unsealed.current()),
            db,
            database: Arc::clone(&database),
            directory: directory.path().to_owned(),
            file: SampleWriter::file(directory.path()).map_err(failed)?,
            config: config.clone(),
            shared: Arc::clone(&shared),
            health: health_sender,
            clock: clock.clone(),
            signal: Arc::clone(&signal),
            state,
            checked: None,
        };

        let compactor = Compactor {
            database: Arc::clone(&database),
            config: config.clone(),
            clock: clock.clone(),
            metrics,
            signal: Arc::clone(&signal),
            replaced: Vec::new(),
        };

        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .map_err(failed)
        };

        let writer = Some(spawn("takt-samples", Box::new(move || writer.run()))?);
        let compactor = Some(spawn("takt-compactor", Box::new(move || compactor.run()))?);

        // The previous run may have completed segments without sealing them.
        if !layout.frozen().is_empty() {
            signal.segment_completed();
        }

        let strips = Strips::load(directory.path());
        let directory = Mutex::new(directory);
        let unsealed = OnceLock::new();

        Ok(Self {
            shared,
            database,
            directory,
            health,
            clock,
            signal,
            unsealed,
            writer,
            compactor,
            strips,
            remote: OnceLock::new(),
        })
    }

    /// The database, for records and SQL.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Path of the data directory.
    pub fn path(&self) -> PathBuf {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .path()
            .to_owned()
    }

    /// Time of the store's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Adds a group of series that are written together.
    pub fn group(&self) -> Group {
        Group::open(Arc::clone(&self.shared), self.clock.now())
    }

    /// Returns the number of the series with these labels.
    pub fn series_number(&self, labels: &Labels) -> SeriesId {
        self.shared.series_number(labels)
    }

    /// Writes samples from before this store was opened, and waits until they are durable. Later
    /// samples are ignored, because they arrive through groups. The caller writes each sample once:
    /// the store does not look for duplicates. Blocks.
    ///
    /// # Errors
    /// If the clock went back behind the watermark. Nothing is written then.
    pub fn write_past(&self, samples: Vec<(SeriesId, Sample)>) -> Result<(), ClockWentBack> {
        let began = self.shared.head.began();
        let past: Vec<_> = samples
            .into_iter()
            .filter(|(_, sample)| sample.at < began)
            .map(|(series, sample)| (series.0, sample))
            .collect();

        // The ticket holds the watermark back until the samples are durable.
        let ticket = self.shared.watermark.hold(self.clock.now())?;
        self.shared.queue.push(Batch {
            ticket,
            // The number of no group.
            group: 0,
            committed: Arc::default(),
            series: Vec::new(),
            values: Vec::new(),
            own_time: Vec::new(),
            past: Arc::new(past.into()),
        });

        self.flush();
        self.strips.past_was_written(self.clock.now());
        Ok(())
    }

    /// Every scrape up to this time is durable, or was counted as failed or dropped.
    pub fn watermark(&self) -> Timestamp {
        self.shared.watermark.get()
    }

    /// Whether samples reach the disk. Subscribers can wait for changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Commits queued samples and waits for the result. Blocks.
    pub fn flush(&self) {
        self.shared.queue.flush();
    }

    /// Seals all samples written so far, merges finished days, removes expired blocks, and waits
    /// for the result. Blocks.
    ///
    /// # Errors
    /// The first error. The compactor retries later.
    pub fn seal(&self) -> Result<CompactionSummary, StoreError> {
        self.signal.request_segment_end();
        self.flush();
        let summary = self.signal.run_round()?;

        // A round can succeed while the writer waits, as on a full disk. Then samples are missing in the blocks.
        let reason = match &*self.health.borrow() {
            Health::Writing => self.shared.unsealed.failure(),
            Health::Waiting(reason) | Health::Invalidated(reason) => reason.clone(),
        };
        if reason.is_empty() {
            Ok(summary)
        } else {
            let source = io::Error::other(reason);
            Err(StoreError::Log { source })
        }
    }

    /// Seals complete segments, merges finished days and removes expired blocks. The compactor does
    /// this once a minute; call this method if the clock runs faster. Blocks.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn keep(&self) -> Result<CompactionSummary, StoreError> {
        self.flush();
        self.signal.run_round()
    }

    /// Seals all samples and copies records, series and blocks into a folder of the data directory,
    /// as a data directory. Replaces an earlier copy. Blocks.
    ///
    /// # Errors
    /// If the samples cannot be sealed, a table cannot be read, or the copy cannot be written.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.seal()?;
        self.database.snapshot(self.clock.now().whole_seconds())
    }

    /// Deletes the samples of all matching series from disk. The series stay listed, and the head
    /// keeps the last minutes of series that are still scraped. Blocks.
    ///
    /// # Errors
    /// The first error. Samples deleted before it stay deleted; the call can be repeated.
    pub fn delete(&self, matchers: &[Matcher]) -> Result<CompactionSummary, StoreError> {
        // The lock ends with this block, because scrapes need the table while samples are deleted.
        let series = {
            let table = self
                .shared
                .series
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            table.matching_with_parts(matchers)
        };

        // Only complete segments can be changed, so end the current one.
        self.signal.request_segment_end();
        self.flush();
        if series.is_empty() {
            Ok(CompactionSummary::default())
        } else {
            self.signal.delete(series)
        }
    }

    /// Verifies the blocks that overlap a time range and sets damaged ones aside. Returns whether
    /// any was damaged.
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

    /// Writes the address of this process into the lock file.
    ///
    /// # Errors
    /// If the file cannot be written.
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
        self.signal.close();
        for thread in [self.writer.take(), self.compactor.take()]
            .into_iter()
            .flatten()
        {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread of the store panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;
    use std::fs;
    use std::path::Path;
    use std::time::SystemTime;
    use takt_model::METRIC_NAME;
    use tempfile::tempdir;

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
        store
            .range(
                &[Matcher::metric(metric)],
                Timestamp(0),
                Timestamp(i64::MAX),
            )
            .unwrap()
            .iter()
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
        let root = tempdir().unwrap();
        let store = open(
            root.path(),
            &StoreConfig {
                // Only the flush commits within the test.
                commit_interval_ms: 60_000,
                ..config()
            },
        );
        let group = store.group();
        let ticket = group.ticket(now()).unwrap();
        let at = ticket.at();
        let up = column(&group, "up");
        group.commit(ticket, &[1.0], &[]).unwrap();
        assert_eq!(samples(&store, "up"), vec![(at, 1.0)]);
        assert_eq!(rows(&store), 0);
        assert!(store.watermark() < at);
        store.flush();
        assert_eq!(rows(&store), 1);
        assert_eq!(store.watermark(), at);
        assert_eq!(up, column(&group, "up"));
        // The head no longer has the sample; the database has.
        drop(group);
        assert_eq!(samples(&store, "up"), [(at, 1.0)]);
        drop(store);
        assert_eq!(samples(&open(root.path(), &config()), "up"), [(at, 1.0)]);
    }

    #[test]
    fn an_instant_query_looks_back_over_a_window_open_on_the_left() {
        let root = tempdir().unwrap();
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
        let root = tempdir().unwrap();
        let store = open(
            root.path(),
            &StoreConfig {
                // No disk has that much room.
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
            reason.contains("less than 17179869183 GiB (store.min_free_bytes)"),
            "{reason}"
        );
        assert!(store.watermark() < at);
        assert_eq!(samples(&store, "up"), vec![(at, 1.0)]);
        assert_eq!(rows(&store), 0);
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_written_to() {
        let root = tempdir().unwrap();
        let data = root.path().join("data");
        let elsewhere = root.path().join("elsewhere");
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

        // The directory is away for a while, as with a mount that is lost. The writer waits for it.
        fs::rename(&data, &elsewhere).unwrap();
        assert!(matches!(write(), Health::Waiting(_)));
        fs::rename(&elsewhere, &data).unwrap();
        assert_eq!(write(), Health::Writing);

        // A new directory at the path is another one, so waiting would not help.
        fs::rename(&data, &elsewhere).unwrap();
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
        let root = tempdir().unwrap();
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
    fn the_past_of_a_series_that_is_being_written_can_be_added() {
        let root = tempdir().unwrap();
        let store = open(root.path(), &config());
        let group = store.group();
        column(&group, "up");
        let opened = now();
        let write = |seconds: u64| {
            let ticket = group.ticket(opened.plus(Duration::from_secs(seconds)));
            group.commit(ticket.unwrap(), &[1.0], &[]).unwrap();
        };
        write(1);
        store.flush();
        let labels: Labels = [(METRIC_NAME, "up")].into_iter().collect();
        let series = store.series_number(&labels);
        let past = |seconds: u64| {
            let at = opened.minus(Duration::from_secs(seconds));
            (series, Sample { at, value: 0.0 })
        };
        store.write_past(vec![past(60), past(30)]).unwrap();
        store.write_past(vec![past(7200), past(3600)]).unwrap();

        // A sample after the start comes through its group, so this one is ignored.
        let later = opened.plus(Duration::from_secs(5));
        let own = (
            series,
            Sample {
                at: later,
                value: 7.0,
            },
        );
        store.write_past(vec![own]).unwrap();
        write(2);
        let values = |store: &Store| -> Vec<f64> {
            samples(store, "up")
                .iter()
                .map(|(_, value)| *value)
                .collect()
        };
        let expected = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0];
        assert_eq!(values(&store), expected);

        // From here on the samples are in a block.
        store.seal().unwrap();
        assert_eq!(values(&store), expected);
        assert!(samples(&store, "up").is_sorted_by(|a, b| a.0 < b.0));
        drop((group, store));
        assert_eq!(values(&open(root.path(), &config())), expected);
    }

    #[test]
    fn a_row_from_before_the_last_one_is_refused() {
        let root = tempdir().unwrap();
        let store = open(root.path(), &config());
        let group = store.group();
        column(&group, "a");
        let early = group.ticket(now()).unwrap();
        let late = group.ticket(now().plus(Duration::from_secs(1))).unwrap();

        // The rows come in the reverse order of their times.
        group.commit(late, &[2.0], &[]).unwrap();
        group.commit(early, &[1.0], &[]).unwrap_err();
        store.flush();
        assert_eq!(rows(&store), 1);
        // The refused row does not hold the watermark back.
        assert!(store.watermark() > now());
    }
}
