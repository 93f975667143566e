//! One round: writes what the lake lacks, and removes what is past its retention.

use crate::claim::{self, LakeState, random_id};
use crate::files::{self, COPY, Files, UNFINISHED, names_in};
use crate::log::{Action, Add, CommitInfo, LOG, Version};
use crate::table::{ColumnType, TABLES, Table};
use crate::{LakeConfig, LakeError, checkpoint, records, samples};
use duckdb::Connection;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::{Timestamp, error_chain};
use takt_store::{Database, crash_point, quoted};

/// Folder of the data directory in which files are made before they are copied into the lake.
const STAGING: &str = "lake-staging";

/// Form of the files. zstd, because not every Spark can read Snappy (docs/lake.md).
const PARQUET: &str =
    "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE 122880";

/// The lake of a data directory.
#[derive(Debug, Clone, Copy)]
pub struct Lake<'d> {
    pub(crate) database: &'d Database,
    pub(crate) config: &'d LakeConfig,
    /// Free space of the data directory below which no file is made, in bytes.
    pub(crate) min_free_bytes: u64,
}

/// Result of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundSummary {
    /// One row for each table, in the order of [`TABLES`].
    pub tables: Vec<TableSummary>,
}

/// Result of a round for one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSummary {
    /// Name of the table.
    pub table: String,
    /// Number of files written.
    pub files: u64,
    /// Number of rows in the written files.
    pub rows: u64,
    /// Number of files that were replaced, or are past their retention.
    pub removed: u64,
    /// The error that ended the work on this table; empty if it is complete.
    pub error: String,
}

impl RoundSummary {
    /// The tables with an error, in one line; empty if all are complete.
    pub fn error(&self) -> String {
        let mut errors: Vec<&str> = self
            .tables
            .iter()
            .filter(|table| !table.error.is_empty())
            .map(|table| table.error.as_str())
            .collect();
        // A full disk is the same for all tables.
        errors.dedup();
        errors.join("; ")
    }
}

impl<'d> Lake<'d> {
    /// The configured lake of the data directory. `min_free_bytes` of its disk stay free.
    pub fn new(database: &'d Database, config: &'d LakeConfig, min_free_bytes: u64) -> Self {
        Self {
            database,
            config,
            min_free_bytes,
        }
    }

    /// Files of the lake.
    ///
    /// # Errors
    /// If none is configured, or the keys of S3 cannot be read.
    pub(crate) fn files(&self) -> Result<Box<dyn Files>, LakeError> {
        files::configured(self.config)
    }

    /// Reads the newest version of a table.
    pub(crate) fn version(&self, files: &dyn Files, table: &Table) -> Result<Version, LakeError> {
        let names = files.list(table.name)?;
        Version::read(files, table.name, &names, self.database.directory())
    }

    /// Milliseconds since 1970 before which replaced files may be deleted.
    pub(crate) fn kept_since(&self, now: Timestamp) -> i64 {
        now.0 - 3_600_000 * self.config.replaced_hours.cast_signed()
    }

    /// Writes what is missing at `now`, and notes the result in the data directory. Ends early when
    /// `stop` returns true. With `anew`, begins a lake where one is gone, and continues that of
    /// another data directory. Blocks.
    ///
    /// # Errors
    /// If the lake cannot be used at all. The summary has the errors of single tables.
    pub fn round(
        &self,
        anew: bool,
        now: Timestamp,
        stop: &dyn Fn() -> bool,
    ) -> Result<RoundSummary, LakeError> {
        let mut files = self.files()?;
        let data = self.database.directory();
        // A clock that is ahead must not end what the lake keeps.
        let now = now.min(self.database.clock_state().surely_passed());

        // One round at a time: two would write the same files. Closing the folder releases it.
        let folder = fs::File::open(data).map_err(LakeError::read(data))?;
        folder.lock().map_err(LakeError::read(data))?;
        remove_copies(data);

        let done = claim::claim(&mut *files, data, anew)
            .and_then(|id| self.write(&*files, &id, now, stop));
        let error = match &done {
            Ok(summary) => summary.error(),
            Err(error) => error_chain(error),
        };

        // Read again: the claim may have changed it.
        let mut state = LakeState::read(data);
        state.tried_at = Some(now.whole_seconds());
        if error.is_empty() {
            state.succeeded_at = state.tried_at;
        }
        state.error = error;
        state.write(data)?;
        done
    }

    fn write(
        &self,
        files: &dyn Files,
        id: &str,
        now: Timestamp,
        stop: &dyn Fn() -> bool,
    ) -> Result<RoundSummary, LakeError> {
        let round = Round {
            lake: self,
            db: self.database.connect()?,
            files,
            id,
            now,
            stop,
        };

        let mut summary = RoundSummary::default();
        for table in TABLES {
            let mut done = TableSummary {
                table: table.name.to_owned(),
                ..TableSummary::default()
            };
            // An error of one table must not keep the others from being written.
            if let Err(error) = round.table(table, &mut done) {
                done.error = error_chain(&error);
            }
            summary.tables.push(done);
        }

        let staging = self.database.directory().join(STAGING);
        if staging.exists() {
            fs::remove_dir_all(&staging).map_err(LakeError::write(staging))?;
        }

        Ok(summary)
    }
}

/// A round in progress.
pub(crate) struct Round<'r> {
    pub lake: &'r Lake<'r>,
    pub db: Connection,
    files: &'r dyn Files,
    /// Identity of the writer.
    id: &'r str,
    pub now: Timestamp,
    stop: &'r dyn Fn() -> bool,
}

/// A table in a round.
pub(crate) struct OpenTable<'r> {
    pub round: &'r Round<'r>,
    pub table: &'static Table,
    pub version: Version,
    summary: &'r mut TableSummary,
}

/// A Parquet file that is not in the lake yet.
pub(crate) struct Staged {
    path: PathBuf,
    /// Number of rows.
    pub rows: u64,
    /// Sum of the rows' hashes.
    pub digest: i128,
    /// Statistics of the file, as the log has them.
    stats: String,
}

impl Round<'_> {
    fn table(&self, table: &'static Table, summary: &mut TableSummary) -> Result<(), LakeError> {
        let names = self.files.list(table.name)?;
        let data = self.lake.database.directory();
        let version = Version::read(self.files, table.name, &names, data)?;

        // Before anything is written: what a crash left may take the space that the round needs.
        clean(
            self.files,
            table,
            &names,
            &version,
            self.lake.kept_since(self.now),
        )?;

        let mut open = OpenTable {
            round: self,
            table,
            version,
            summary,
        };

        match open.version.meta_data.clone() {
            None => {
                let actions = table.first_actions(random_id()?, self.now.0);
                open.commit("CREATE TABLE", actions)?;
            }
            // An earlier version of the program had other columns. Old files have NULL for new ones.
            Some(known) if known.schema_string != table.schema() => {
                let actions = vec![table.described(known.id, known.created_time)];
                open.commit("CHANGE COLUMNS", actions)?;
            }
            Some(_) => {}
        }

        match samples::resolution(table) {
            Some(resolution) => samples::write(&mut open, resolution)?,
            None => records::write(&mut open)?,
        }

        open.checkpoint()
    }

    /// Fails if the server is stopping.
    pub fn check_stop(&self) -> Result<(), LakeError> {
        if (self.stop)() {
            Err(LakeError::Stopped)
        } else {
            Ok(())
        }
    }
}

impl OpenTable<'_> {
    /// Writes the rows of a SELECT into a file aside. `None` if there are no rows.
    pub fn stage(&self, select: &str) -> Result<Option<Staged>, LakeError> {
        let round = self.round;
        let floor = round.lake.min_free_bytes;
        let path = round.lake.database.staging(STAGING, floor)?;

        let file = quoted(&path.to_string_lossy());
        round
            .db
            .execute_batch(&format!("COPY ({select}) TO {file} ({PARQUET})"))
            .map_err(LakeError::sql("write a file", self.table.name))?;

        let table = self.table;
        // Read back from the file, so that the log has what readers find, and a damaged file is
        // noticed here.
        let statistics = statistics(&round.db, table, &file)
            .map_err(LakeError::sql("read back a file", table.name))?
            .map(|(rows, digest, stats)| Staged {
                path,
                rows,
                digest,
                stats,
            });
        Ok(statistics)
    }

    /// Copies a file into the lake, as `name` of a partition. No version has it yet.
    pub fn place(
        &mut self,
        staged: &Staged,
        partition: &str,
        name: &str,
    ) -> Result<Add, LakeError> {
        let column = self.table.partition.name;
        let part = format!("{column}={partition}");
        let name = format!("{name}.parquet");
        let path = format!("{}/{part}/{name}", self.table.name);

        let size = self.round.files.place(&staged.path, &path)?;
        // A crash here leaves a file that no commit names, which the next round deletes.
        crash_point("lake-file-placed");
        self.summary.files += 1;
        self.summary.rows += staged.rows;

        Ok(Add {
            path: format!("{part}/{name}"),
            partition_values: BTreeMap::from([(column.to_owned(), partition.to_owned())]),
            size,
            modification_time: self.round.now.0,
            data_change: true,
            stats: Some(staged.stats.clone()),
        })
    }

    /// Replaces files of the table by others, in one commit.
    pub fn replace(
        &mut self,
        operation: &str,
        old: &[Add],
        mut new: Vec<Add>,
    ) -> Result<(), LakeError> {
        if old.is_empty() && new.is_empty() {
            return Ok(());
        }

        // A merge that adds no rows is no news for readers that follow the table.
        let rows = |files: &[Add]| files.iter().filter_map(Add::rows).sum::<u64>();
        let is_merge = self.table.partition.kind == ColumnType::Date;
        let is_change = !is_merge || old.is_empty() || rows(old) != rows(&new);
        new.iter_mut().for_each(|add| add.data_change = is_change);

        let now = self.round.now.0;
        let removes = old.iter().map(|add| add.removed(now, is_change).into());
        let adds = new.into_iter().map(Action::from);
        let actions = removes.chain(adds).collect();

        self.summary.removed += old.len() as u64;
        self.commit(operation, actions)
    }

    fn commit(&mut self, operation: &str, actions: Vec<Action>) -> Result<(), LakeError> {
        let round = self.round;
        // Another data directory may have taken the lake over since the round began.
        claim::check(round.files, round.id)?;

        let info = CommitInfo {
            timestamp: round.now.0,
            operation: operation.to_owned(),
            engine_info: concat!("Takt/", env!("CARGO_PKG_VERSION")).to_owned(),
            txn_id: random_id()?,
        };

        self.version
            .commit(round.files, self.table.name, info, actions)?;
        tracing::info!(
            table = self.table.name,
            version = self.version.number,
            operation,
            "wrote the data lake"
        );
        Ok(())
    }

    /// Writes a checkpoint if many commits were made since the last one.
    fn checkpoint(&mut self) -> Result<(), LakeError> {
        let round = self.round;
        let lake = round.lake;
        // Commits are numbered from 0.
        let commits = |number: Option<u64>| number.map_or(0, |number| number + 1);
        let since = commits(self.version.number).saturating_sub(commits(self.version.checkpoint));
        if since < lake.config.checkpoint_commits {
            return Ok(());
        }

        let staged = lake.database.staging(STAGING, lake.min_free_bytes)?;
        let kept_since = lake.kept_since(round.now);
        let table = self.table.name;
        checkpoint::write(round.files, table, &mut self.version, kept_since, &staged)
    }
}

/// Deletes the files of a table that do not belong to its newest version: those that were removed
/// before `before_ms`, and those that a crash has left.
fn clean(
    files: &dyn Files,
    table: &Table,
    names: &[String],
    version: &Version,
    before_ms: i64,
) -> Result<(), LakeError> {
    for name in names {
        let last = name.rsplit('/').next().unwrap_or_default();
        let is_left = last.starts_with(UNFINISHED) || {
            // Readers that opened the table before its removal may still read the file.
            let is_read = |at: i64| at > before_ms;
            let removed = version.removed.get(name);
            last.ends_with(".parquet")
                && !name.starts_with(LOG)
                && !version.files.contains_key(name)
                && !removed.is_some_and(|remove| is_read(remove.deletion_timestamp))
        };

        if is_left {
            files.delete(&format!("{}/{name}", table.name))?;
        }
    }
    Ok(())
}

/// Removes copies of the lake's files that a crash has left in the data directory.
fn remove_copies(data: &Path) {
    // A command may be reading its copy at this moment, `takt lake verify` for instance.
    const OLD: Duration = Duration::from_secs(86_400);
    for name in names_in(data).unwrap_or_default() {
        let path = data.join(&name);
        let age = || fs::metadata(&path).ok()?.modified().ok()?.elapsed().ok();
        if name.starts_with(COPY) && age().is_some_and(|age| age > OLD) {
            // The next round tries again.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns the number of rows of files, the sum of their hashes, and their statistics in the form
/// of the log. `None` without rows.
pub(crate) fn statistics(
    db: &Connection,
    table: &Table,
    files: &str,
) -> Result<Option<(u64, i128, String)>, duckdb::Error> {
    let mut columns = vec!["count(*)".to_owned(), table.digest()];
    for name in table.measured {
        let text = |value: &str| match table.kind_of(name) {
            // Milliseconds, the resolution that Delta's statistics have for times.
            ColumnType::Time => format!("strftime({value}(\"{name}\"), '%Y-%m-%dT%H:%M:%S.%g')"),
            _ => format!("CAST({value}(\"{name}\") AS VARCHAR)"),
        };
        columns.extend([text("min"), text("max")]);
        // Number of NULLs.
        columns.push(format!("count(*) - count(\"{name}\")"));
    }

    let sql = format!(
        "SELECT {} FROM read_parquet({files}, hive_partitioning = false)",
        columns.join(", ")
    );
    db.query_row(&sql, [], |row| {
        let rows: i64 = row.get(0)?;
        let Some(digest) = row.get::<_, Option<String>>(1)? else {
            return Ok(None);
        };

        let mut least = Map::new();
        let mut most = Map::new();
        let mut nulls = Map::new();
        for (at, name) in table.measured.iter().enumerate() {
            let at = 2 + 3 * at;
            for (values, at) in [(&mut least, at), (&mut most, at + 1)] {
                // A column of NULLs only has no smallest value.
                if let Some(value) = row.get::<_, Option<String>>(at)? {
                    values.insert((*name).to_owned(), Value::String(value));
                }
            }
            nulls.insert((*name).to_owned(), row.get::<_, i64>(at + 2)?.into());
        }

        let stats = json!({
            "numRecords": rows,
            "minValues": least,
            "maxValues": most,
            "nullCount": nulls,
        });
        let digest = digest.parse().unwrap_or_default();
        Ok(Some((rows.cast_unsigned(), digest, stats.to_string())))
    })
}
