//! The DuckDB instance: an in-memory catalog of views, with the two database files attached.

use super::attach::{attach_or_set_aside, set_aside_files};
use super::block_cache::BlockCache;
use super::checkpoint::{checkpoint, undo_interrupted};
use super::layout::{Layout, remove_if_there, write_for_others};
use super::metric_views::MetricViews;
use super::migrate::{HOT, RECORDS, Schema, migrate};
use super::sql::{ProcessConfig, QueryProcess};
use super::trusted_clock::{TrustedClock, newest_sample};
use super::unsealed::{self, Unsealed};
use super::work::follow_client;
use super::{Clock, Damaged, DataDir, StoreConfig, StoreError, block, salvage, snapshot};
use duckdb::{Config, Connection};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use takt_model::error_chain;

/// Resources of DuckDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Memory for DuckDB's buffers and operators, in MiB.
    pub memory_limit_mib: u64,
    /// Threads of one query.
    pub threads: u32,
    /// Memory for samples read from blocks, in MiB.
    pub block_cache_mib: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let cores =
            thread::available_parallelism().map_or(2, |n| u32::try_from(n.get()).unwrap_or(2));
        // With more threads, a commit busy-waits for DuckDB's own threads.
        Self {
            memory_limit_mib: 1024,
            threads: cores.div_ceil(2),
            block_cache_mib: 64,
        }
    }
}

/// The open database. Connections are cheap and share the instance; use each on one thread at a
/// time.
#[derive(Debug)]
pub struct Database {
    root: Mutex<Connection>,
    path: PathBuf,
    pub(super) layout: RwLock<Arc<Layout>>,
    damaged: Vec<Damaged>,
    /// Held while job records are written.
    writing: Mutex<()>,
    /// Number of changes of job records since the database was opened.
    record_changes: AtomicU64,
    /// Held while a checkpoint is written.
    checkpointing: Mutex<()>,
    pub(super) metric_views: Mutex<MetricViews>,
    block_cache: BlockCache,
    /// Number of changes of tokens and sessions since the database was opened.
    pub(crate) access_changes: AtomicU64,
    unsealed: Arc<Unsealed>,
    trusted_clock: TrustedClock,
    /// See [`Database::isolate_sql`].
    query_process: OnceLock<QueryProcess>,
}

impl Database {
    /// Opens the database files, sets damaged ones aside, and migrates the schemas.
    ///
    /// # Errors
    /// If a file cannot be opened but is not damaged, or was written by a newer version of takt.
    pub fn open(dir: &DataDir, settings: &Settings) -> Result<Self, StoreError> {
        Self::open_at(dir, settings, Clock::default())
    }

    /// Like [`open`](Self::open), with other clocks than the system's.
    pub(crate) fn open_at(
        dir: &DataDir,
        settings: &Settings,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let open = |source| StoreError::Open {
            path: dir.path().to_owned(),
            source,
        };

        let root =
            Connection::open_in_memory_with_flags(config(settings, dir.path()).map_err(open)?)
                .map_err(open)?;

        // All checkpoints go through the module `checkpoint`.
        root.execute_batch("PRAGMA disable_checkpoint_on_shutdown")
            .map_err(open)?;

        let mut damaged = Vec::new();
        for schema in [&RECORDS, &HOT] {
            let file = schema.file(dir.path());
            salvage::finish(&file)?;
            undo_interrupted(&file)?;
            attach_or_set_aside(&root, schema, &file, &mut damaged)?;
            match migrate(&root, schema, &file).and_then(|()| salvage::check(&root, schema)) {
                Err(error) if salvage::is_unreadable(&error) => {
                    damaged.push(salvage::salvage(
                        &root,
                        schema,
                        &file,
                        &error_chain(&error),
                    )?);
                    attach_or_set_aside(&root, schema, &file, &mut damaged)?;
                    migrate(&root, schema, &file)?;
                }
                read => read?,
            }
        }

        block::register(&root)?;
        // Blocks never change, so their footers can be cached.
        root.execute_batch("SET parquet_metadata_cache = true")
            .map_err(open)?;

        let (layout, unsealed) = Layout::open(&root, dir.path(), &mut damaged)?;
        remove_if_there(&dir.path().join(snapshot::FOLDER)).map_err(|source| {
            StoreError::Directory {
                path: dir.path().to_owned(),
                source,
            }
        })?;

        let unsealed = Arc::new(unsealed);
        let trusted_clock = TrustedClock::open(dir.path(), clock, newest_sample(&layout));

        unsealed::register(&root, &unsealed)?;
        root.execute_batch(&layout.views())
            .map_err(StoreError::sql("create the views of samples"))?;
        for views in [include_str!("views.sql"), include_str!("postgres.sql")] {
            root.execute_batch(views)
                .map_err(StoreError::sql("create the views"))?;
        }
        write_for_others(dir.path(), &layout);

        // From here on, SQL statements of users cannot leave the data directory or change this
        // setting. The module `sql` decides which statements are allowed.
        root.execute_batch(&format!(
            "SET allowed_directories = [{}]; SET enable_external_access = false; SET lock_configuration = true;",
            quoted(&dir.path().to_string_lossy())
        ))
        .map_err(StoreError::sql("lock the database's configuration"))?;

        let layout = RwLock::new(Arc::new(layout));
        let path = dir.path().to_owned();
        let metric_views = Mutex::default();
        let cache_bytes = usize::try_from(settings.block_cache_mib << 20).unwrap_or(usize::MAX);
        let writing = Mutex::default();
        let checkpointing = Mutex::default();
        let block_cache = BlockCache::new(cache_bytes);

        Ok(Self {
            root: Mutex::new(root),
            path,
            layout,
            damaged,
            writing,
            record_changes: AtomicU64::new(0),
            checkpointing,
            metric_views,
            block_cache,
            access_changes: AtomicU64::new(0),
            unsealed,
            trusted_clock,
            query_process: OnceLock::new(),
        })
    }

    /// From now on, runs each statement of users in a process of its own. `command` makes the
    /// command that calls [`serve`](crate::sql::serve) with its standard input.
    ///
    /// # Errors
    /// If remains of an earlier process cannot be removed.
    pub fn isolate_sql(
        &self,
        command: fn() -> Command,
        config: &StoreConfig,
    ) -> Result<(), StoreError> {
        let config = ProcessConfig {
            command,
            threads: config.settings().threads,
            min_free_bytes: config.min_free_bytes,
        };
        let process =
            QueryProcess::new(&self.path, config).map_err(|source| StoreError::Directory {
                path: self.path.clone(),
                source,
            })?;
        self.query_process.get_or_init(|| process);
        Ok(())
    }

    /// The process that runs statements of users, if they do not run here.
    pub(super) fn query_process(&self) -> Option<&QueryProcess> {
        self.query_process.get()
    }

    /// Ends the running statements of users that run in a process of their own. Later ones fail.
    pub fn stop_sql(&self) {
        if let Some(process) = self.query_process() {
            process.close();
        }
    }

    /// Waits until no one else writes job records. Hold the result while writing. All records that
    /// answers about a period read are written with it.
    pub(crate) fn writing(&self) -> Writing<'_> {
        Writing {
            _lock: self.writing.lock().unwrap_or_else(PoisonError::into_inner),
            changes: Some(&self.record_changes),
        }
    }

    /// Number of changes of job records since the database was opened. An answer about a period that
    /// was read after this number is current as long as the number is the same.
    #[must_use]
    pub fn record_changes(&self) -> u64 {
        self.record_changes.load(Ordering::Acquire)
    }

    /// Writes the log of one database back into its file.
    ///
    /// # Errors
    /// The errors of [`checkpoint`].
    pub(crate) fn checkpoint(&self, schema: &Schema) -> Result<(), StoreError> {
        let _checkpointing = self
            .checkpointing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let file = schema.file(&self.path);
        checkpoint(&self.connect()?, schema.catalog, &file)
    }

    /// Writes each log of more than `limit` bytes back into its file. If that fails, the log keeps
    /// its rows, and a later call tries again.
    pub(crate) fn checkpoint_logs(&self, limit: u64) {
        for schema in [&RECORDS, &HOT] {
            let log = with_suffix(&schema.file(&self.path), ".wal");
            if fs::metadata(&log).is_ok_and(|log| log.len() > limit)
                && let Err(error) = self.checkpoint(schema)
            {
                let log = log.display();
                tracing::debug!(%log, error = %error_chain(&error), "cannot write a checkpoint");
            }
        }
    }

    /// Opens a connection. Unqualified names refer to the views.
    ///
    /// # Errors
    /// If DuckDB refuses, for instance after a fatal error.
    pub fn connect(&self) -> Result<Connection, StoreError> {
        self.root()
            .try_clone()
            .map_err(StoreError::sql("open a connection"))
    }

    /// Opens a connection for reading: its statement is interrupted when the client of the thread's work leaves.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and if the client has left.
    pub(crate) fn reader(&self) -> Result<Connection, StoreError> {
        let db = self.connect()?;
        follow_client(&db)?;
        Ok(db)
    }

    /// The first connection, for short statements.
    pub(super) fn root(&self) -> MutexGuard<'_, Connection> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of the data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cache of samples read from blocks.
    pub(super) fn block_cache(&self) -> &BlockCache {
        &self.block_cache
    }

    /// The samples that are not sealed yet.
    pub(super) fn unsealed(&self) -> &Arc<Unsealed> {
        &self.unsealed
    }

    /// The trusted time.
    pub(super) fn trusted_clock(&self) -> &TrustedClock {
        &self.trusted_clock
    }

    /// Files and folders that were set aside as damaged, now or earlier, and are still there.
    pub fn set_aside_files(&self) -> Vec<PathBuf> {
        set_aside_files(&self.path)
    }

    /// Files set aside while opening.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }
}

impl Drop for Database {
    /// Writes the logs back, so that the next start need not replay them.
    fn drop(&mut self) {
        self.checkpoint_logs(0);
    }
}

fn config(settings: &Settings, dir: &Path) -> Result<Config, duckdb::Error> {
    Config::default()
        .enable_autoload_extension(false)?
        .max_memory(&format!("{}MiB", settings.memory_limit_mib))?
        .threads(i64::from(settings.threads))?
        .with("wal_autocheckpoint", "1TiB")?
        // The library brings an allocator of its own (jemalloc), which otherwise keeps what DuckDB
        // has freed: 60 MB after 300,000 series were stored.
        .with("allocator_background_threads", "true")?
        .with("temp_directory", dir.join("tmp").to_string_lossy())?
        .with("max_temp_directory_size", "4GiB")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Microseconds since 1970, for `make_timestamp`. DuckDB's `now()` returns a TIMESTAMPTZ, which
/// needs an extension that source builds lack.
pub(crate) fn microseconds_now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros())
}

/// Returns a string as a SQL literal.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The right to write job records. When it is dropped, the records have changed.
#[derive(Debug)]
pub(crate) struct Writing<'d> {
    _lock: MutexGuard<'d, ()>,
    changes: Option<&'d AtomicU64>,
}

impl Writing<'_> {
    /// For tables that no answer about a period reads, and for readers that no one may disturb.
    pub fn aside(mut self) -> Self {
        self.changes = None;
        self
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(changes) = self.changes {
            changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn open(root: &Path) -> Result<Database, StoreError> {
        Database::open(&DataDir::claim(root)?, &Settings::default())
    }

    #[test]
    fn reopening_keeps_written_rows() {
        let root = tempdir().unwrap();
        for expected in [0_i64, 1] {
            let db = open(root.path()).unwrap().connect().unwrap();
            let count: i64 = db
                .query_row("SELECT count(*) FROM hot.series", [], |row| row.get(0))
                .unwrap();
            assert_eq!(count, expected);
            db.execute_batch("INSERT INTO hot.series (id, metric, labels) VALUES (1, 'up', '{}')")
                .unwrap();
        }
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_other_stays() {
        let root = tempdir().unwrap();
        drop(open(root.path()).unwrap());
        fs::write(root.path().join("hot.duckdb"), vec![7; 20_000]).unwrap();
        let database = open(root.path()).unwrap();
        let [damaged] = database.damaged() else {
            panic!("{:?}", database.damaged())
        };
        assert!(
            damaged.moved_to.exists()
                && damaged
                    .moved_to
                    .to_string_lossy()
                    .contains("hot.duckdb.damaged-")
        );
    }

    /// DuckDB attaches a file with a damaged block without an error, and fails when it reads the
    /// block.
    #[test]
    fn a_damaged_block_loses_only_its_rows() {
        const ROWS: i64 = 300_000;
        const HEADERS: usize = 3 * 4096;
        const BLOCK: usize = 256 << 10;
        let root = tempdir().unwrap();
        let db = open(root.path()).unwrap().connect().unwrap();
        db.execute_batch(&format!(
            "INSERT INTO hot.series (id, metric, labels) VALUES (0, 'up', '{{}}');
             INSERT INTO hot.samples SELECT 0, epoch_ms(1000 * i)::TIMESTAMP_MS, random() FROM range({ROWS}) AS t(i);
             INSERT INTO records.alert_state SELECT 'event', i::VARCHAR, sha256(i::VARCHAR) FROM range(20000) AS t(i);
             CHECKPOINT hot; CHECKPOINT records;"
        ))
        .unwrap();
        drop(db);
        let count = |database: &Database, table: &str| -> i64 {
            let sql = format!("SELECT count(*) FROM (SELECT hash(COLUMNS(*)) FROM {table})");
            database
                .connect()
                .unwrap()
                .query_row(&sql, [], |row| row.get(0))
                .unwrap()
        };
        for (name, table, rows, least) in [
            ("hot.duckdb", "hot.samples", ROWS, ROWS - 2 * 122_880),
            ("records.duckdb", "records.alert_state", 20_000, 0),
        ] {
            let file = root.path().join(name);
            let whole = fs::read(&file).unwrap();
            let mut with_losses = 0;
            for block in 0..(whole.len() - HEADERS) / BLOCK {
                let mut bytes = whole.clone();
                bytes[HEADERS + block * BLOCK + 1000] ^= 0x10;
                fs::write(&file, bytes).unwrap();
                let database = open(root.path()).unwrap();
                let found = count(&database, table);
                let damaged = database.damaged();
                assert!(
                    found == rows || !damaged.is_empty(),
                    "{name}, block {block}: {found} rows, and no damage reported"
                );
                // Without the catalog, nothing can be read.
                assert!(
                    found >= least || found == 0,
                    "{name}, block {block}: {found} rows, {damaged:?}"
                );
                with_losses += usize::from(found > 0 && !damaged.is_empty());
                drop(database);
                assert!(
                    open(root.path()).unwrap().damaged().is_empty(),
                    "a damaged file is set aside once"
                );
                let logs = with_suffix(&file, ".wal");
                let _ = fs::remove_file(logs);
            }
            assert!(with_losses > 0, "no single block of {name} can be lost");
        }
    }

    #[test]
    fn a_newer_schema_is_rejected() {
        let root = tempdir().unwrap();
        let db = open(root.path()).unwrap().connect().unwrap();
        db.execute_batch("INSERT INTO records.schema_version VALUES (99, TIMESTAMP '2026-01-01')")
            .unwrap();
        drop(db);
        let file = RECORDS.file(root.path());
        let before = fs::read(&file).unwrap();
        let error = open(root.path()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }));
        assert!(error.to_string().contains("restore the backup"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), before);
    }

    #[test]
    fn sql_cannot_leave_the_data_directory() {
        let root = tempdir().unwrap();
        let database = open(root.path()).unwrap();
        let db = database.connect().unwrap();
        for attempt in [
            "SELECT * FROM read_csv('/etc/passwd')",
            "COPY (SELECT 1) TO '/tmp/takt-escape.csv'",
            "SET enable_external_access = true",
            "INSTALL httpfs",
        ] {
            assert!(db.execute_batch(attempt).is_err(), "{attempt}");
        }
    }
}
