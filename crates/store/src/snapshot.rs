//! A consistent copy of records and samples, made while the store is in use.
//!
//! All samples are sealed first. The two databases are copied in one transaction each, which begin
//! at the same moment. Blocks never change, so the copy has hard links to their files. The copy lies
//! in the data directory; the caller moves it elsewhere.

use super::database::quoted;
use super::layout::remove_if_there;
use super::migrate::{HOT, RECORDS, Schema, migrate};
use super::salvage::copy;
use super::{DataDir, Database, Settings, StoreError};
use duckdb::Connection;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use takt_model::UnixTime;

/// Folder of the copy in the data directory. What a killed backup leaves is removed when the
/// directory is opened.
pub(crate) const FOLDER: &str = "snapshot";

/// Contents of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The copy, a data directory.
    pub path: PathBuf,
    /// Version of Takt that made it.
    pub version: String,
    /// Time of the copy.
    pub taken_at: UnixTime,
    /// Number of job runs.
    pub runs: u64,
    /// Number of series.
    pub series: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// A database and its copy.
struct Pair {
    schema: &'static Schema,
    copy: Schema,
    /// Table whose rows are counted.
    counted: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        schema: &RECORDS,
        copy: Schema {
            catalog: "snapshot_records",
            migrations: RECORDS.migrations,
        },
        counted: "jobs",
    },
    Pair {
        schema: &HOT,
        copy: Schema {
            catalog: "snapshot_hot",
            migrations: HOT.migrations,
        },
        counted: "series",
    },
];

/// Held while a copy is taken or removed: the server may still take one for a backup that was killed when the next
/// backup asks for its own.
static TAKING: Mutex<()> = Mutex::new(());

impl Database {
    /// Copies records, series and blocks into a folder of the data directory, at `now`.
    /// Replaces an earlier copy.
    ///
    /// # Errors
    /// If a table cannot be read, or the copy cannot be written. The folder is removed then.
    pub(crate) fn snapshot(&self, now: UnixTime) -> Result<Snapshot, StoreError> {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.path().join(FOLDER);
        let taken = self.write_snapshot(&folder, now);
        if taken.is_err() {
            self.forget_copies();
            // Half a copy must not be taken for one.
            let _ = remove_if_there(&folder);
        }
        taken
    }

    /// Removes the copy, if it exists.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn drop_snapshot(&self) -> Result<(), StoreError> {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.path().join(FOLDER);
        remove_if_there(&folder).map_err(failed(&folder))
    }

    fn write_snapshot(&self, folder: &Path, now: UnixTime) -> Result<Snapshot, StoreError> {
        self.forget_copies();
        remove_if_there(folder).map_err(failed(folder))?;
        fs::create_dir(folder).map_err(failed(folder))?;

        let mut copies = Vec::new();
        for pair in &PAIRS {
            let file = folder.join(format!("{}.duckdb", pair.schema.catalog));
            let db = self.connect()?;

            let attach = format!(
                "ATTACH {} AS {}",
                quoted(&file.to_string_lossy()),
                pair.copy.catalog
            );

            db.execute_batch(&attach)
                .map_err(StoreError::sql("attach a copy"))?;
            migrate(&db, &pair.copy, &file)?;
            copies.push((pair, db));
        }
        {
            // An import writes in several transactions.
            let _writing = self.writing().aside();
            for (pair, db) in &copies {
                begin(db, pair.schema)?;
            }
        }

        // After the copied tables: a segment that is sealed meanwhile is in both.
        let layout = self.layout();
        let mut counts = Vec::new();
        for (pair, db) in &copies {
            let lost = copy(db, pair.schema, &pair.copy)?;
            if !lost.is_empty() {
                return Err(StoreError::Unsealed {
                    what: lost.join(", "),
                    reason: "the rows cannot be copied",
                });
            }

            let name = pair.copy.catalog;
            counts.push(count(db, &format!("{name}.{}", pair.counted))?);
            let end = format!("COMMIT; USE memory; CHECKPOINT {name}; DETACH {name};");
            db.execute_batch(&end)
                .map_err(StoreError::sql("complete a copy"))?;
        }

        for block in &layout.blocks {
            let relative = block.path.strip_prefix(self.path()).unwrap_or(&block.path);
            link_folder(&block.path, &folder.join(relative)).map_err(failed(folder))?;
        }

        Ok(Snapshot {
            path: folder.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at: now,
            runs: counts[0],
            series: counts[1],
            blocks: layout.blocks.len() as u64,
        })
    }

    /// Detaches what an interrupted copy left attached.
    fn forget_copies(&self) {
        let Ok(db) = self.connect() else {
            return;
        };
        for pair in &PAIRS {
            let _ = db.execute_batch(&format!("DETACH DATABASE IF EXISTS {}", pair.copy.catalog));
        }
    }
}

/// Begins a transaction that sees the database as it is now: DuckDB begins it with the first read.
fn begin(db: &Connection, schema: &Schema) -> Result<(), StoreError> {
    let read = format!("SELECT count(*) FROM {}.schema_version", schema.catalog);
    db.execute_batch("BEGIN")
        .and_then(|()| db.query_row(&read, [], |row| row.get::<_, i64>(0)))
        .map(drop)
        .map_err(StoreError::sql("begin to copy"))
}

impl Snapshot {
    /// Returns whether both copies have the same contents.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (self.runs, self.series, self.blocks) == (other.runs, other.series, other.blocks)
    }

    /// Opens a copy, reads all of its blocks and counts its contents.
    ///
    /// # Errors
    /// If the copy cannot be opened, or something in it is damaged.
    pub fn of(path: &Path, taken_at: UnixTime) -> Result<Self, StoreError> {
        let directory = DataDir::claim(path)?;
        let database = Database::open(&directory, &Settings::default())?;
        let mut damaged: Vec<String> = database
            .damaged()
            .iter()
            .map(|damaged| damaged.reason.clone())
            .collect();

        damaged.extend(database.verify_blocks()?);
        if let Some(reason) = damaged.into_iter().next() {
            return Err(StoreError::DamagedBlock {
                path: path.to_owned(),
                reason,
            });
        }

        let db = database.connect()?;
        Ok(Self {
            path: path.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at,
            runs: count(&db, "records.jobs")?,
            series: count(&db, "hot.series")?,
            blocks: database.layout().blocks.len() as u64,
        })
    }
}

fn count(db: &Connection, table: &str) -> Result<u64, StoreError> {
    let sql = format!("SELECT count(*) FROM {table}");
    db.query_row(&sql, [], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
        .map_err(StoreError::sql("count the contents of a copy"))
}

fn link_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        // File systems without hard links get a copy.
        if fs::hard_link(entry.path(), &target).is_err() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Directory {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sample, Store, StoreConfig};
    use prometheus_client::registry::Registry;
    use std::ops::Range;
    use std::time::{Duration, SystemTime};
    use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp};
    use tempfile::tempdir;

    fn open(path: &Path) -> Store {
        let config = StoreConfig {
            commit_interval_ms: 20,
            min_free_bytes: 0,
            ..StoreConfig::default()
        };
        Store::open(
            DataDir::claim(path).unwrap(),
            &config,
            &mut Registry::default(),
        )
        .unwrap()
    }

    fn samples(store: &Store) -> usize {
        store
            .range(&[Matcher::metric("up")], Timestamp(0), Timestamp(i64::MAX))
            .unwrap()
            .iter()
            .map(|series| series.samples.len())
            .sum()
    }

    #[test]
    fn a_copy_of_a_store_in_use_has_sealed_and_unsealed_samples_and_is_a_store() {
        let root = tempdir().unwrap();
        let store = open(&root.path().join("data"));
        let labels: Labels = [(METRIC_NAME, "up")].into_iter().collect();
        let series = store.series_number(&labels);
        let opened = Timestamp::from(SystemTime::now());
        let write = |range: Range<u64>| {
            let past = range
                .map(|second| {
                    let at = opened.minus(Duration::from_secs(7200 - second));
                    (
                        series,
                        Sample {
                            at,
                            value: second as f64,
                        },
                    )
                })
                .collect();
            store.write_past(past).unwrap();
        };
        write(0..100);
        store.seal().unwrap();
        write(100..150);
        let first = store.snapshot().unwrap();
        assert_eq!(first.series, 1);
        assert_eq!(first.runs, 0);
        // Until two in the morning the samples are of a day that has ended, and merged.
        assert!(first.blocks >= 2, "{first:?}");
        let second = store.snapshot().unwrap();
        assert_eq!(second.path, first.path, "it replaces the first one");
        write(150..170);
        store.seal().unwrap();

        let moved = root.path().join("backup");
        fs::rename(&second.path, &moved).unwrap();
        let verified = Snapshot::of(&moved, second.taken_at).unwrap();
        assert!(verified.is_same_as(&second), "{verified:?} {second:?}");
        assert_eq!(samples(&open(&moved)), 150);
        assert_eq!(samples(&store), 170, "the store goes on");
        store.snapshot().unwrap();
        store.database().drop_snapshot().unwrap();
        assert!(!root.path().join("data").join(FOLDER).exists());
    }

    #[test]
    fn a_copy_with_a_damaged_block_is_no_copy() {
        let root = tempdir().unwrap();
        let store = open(&root.path().join("data"));
        let labels: Labels = [(METRIC_NAME, "up")].into_iter().collect();
        let series = store.series_number(&labels);
        let at = Timestamp::from(SystemTime::now()).minus(Duration::from_secs(60));
        store
            .write_past(vec![(series, Sample { at, value: 1.0 })])
            .unwrap();
        store.seal().unwrap();
        let copy = store.snapshot().unwrap();
        let moved = root.path().join("backup");
        fs::rename(&copy.path, &moved).unwrap();
        let file = fs::read_dir(moved.join("blocks/raw"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
            .join("samples.parquet");
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
        Snapshot::of(&moved, UnixTime(7)).unwrap_err();
    }
}
