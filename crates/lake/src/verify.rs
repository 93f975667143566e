//! Compares the lake with its logs and with the store.

use crate::LakeError;
use crate::checkpoint::{self, LastCheckpoint};
use crate::claim::{self, LakeState};
use crate::files::{Files, LocalFile};
use crate::log::{Add, Version};
use crate::records::{check_name, months, name_of};
use crate::round::{Lake, statistics};
use crate::samples::{block_of, day_of, kept_from, resolution};
use crate::table::{Column, TABLES, Table, USAGE};
use duckdb::Connection;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::BTreeMap;
use takt_accounting::{Period, Usage};
use takt_model::{Timestamp, error_chain};
use takt_store::{Database, Records, Resolution, file_list, in_memory};

/// Memory of the DuckDB that reads the lake, in MiB.
const MEMORY_MIB: u64 = 512;

/// The remedy for a file that is not as its log says.
const RESTORE: &str = "copy it from a backup, or remove the table's folder to have it written anew \
                       (days that the store has deleted are lost)";

/// The remedy for a checkpoint that is not as its log says.
const NEW_CHECKPOINT: &str = "remove it and _last_checkpoint, and the next round writes both; \
                              readers that do not use checkpoints are not affected";

/// Number and digest of rows.
type Rows = (u64, i128);

/// A verification in progress.
struct Verification<'v> {
    lake: &'v Lake<'v>,
    files: &'v dyn Files,
    /// Connection to the store.
    store: Connection,
    /// Reads files of the lake.
    reader: Connection,
    now: Timestamp,
    findings: Vec<String>,
}

impl Lake<'_> {
    /// Reads every file of the lake completely, and compares it with the log and with what the
    /// store still has. Returns one line for each difference, with the remedy.
    ///
    /// # Errors
    /// If no lake is configured, or the store cannot be read.
    pub fn verify(&self, now: Timestamp) -> Result<Vec<String>, LakeError> {
        let files = self.files()?;
        let mut verification = Verification {
            lake: self,
            files: &*files,
            store: self.database.connect()?,
            reader: in_memory(MEMORY_MIB, 1)?,
            now,
            findings: Vec::new(),
        };

        let state = LakeState::read(self.database.directory());
        if let Err(error) = claim::check(&*files, &state.id) {
            verification.findings.push(error_chain(&error));
        }

        for table in TABLES {
            let names = files.list(table.name)?;
            // Without checkpoints, which are compared with the result.
            match Version::replay(&*files, table.name, &names, u64::MAX) {
                Ok(version) if version.number.is_none() => {
                    let text = "it has no log: write it with takt lake init".to_owned();
                    verification.find(table, &text);
                }
                Ok(version) => {
                    verification.checkpoint(table, &names)?;
                    verification.table(table, &names, &version)?;
                }
                Err(error) => {
                    let error = error_chain(&error);
                    verification.find(table, &format!("{error}: {RESTORE}"));
                }
            }
        }
        Ok(verification.findings)
    }
}

impl Verification<'_> {
    fn find(&mut self, table: &Table, text: &str) {
        self.findings.push(format!("{}: {text}", table.name));
    }

    /// Compares the newest checkpoint with the commits before it.
    fn checkpoint(&mut self, table: &'static Table, names: &[String]) -> Result<(), LakeError> {
        let text = self.files.read(&checkpoint::pointer_of(table.name))?;
        let named = text
            .as_deref()
            .map(serde_json::from_slice::<LastCheckpoint>);

        let newest = checkpoint::newest(names);
        let is_named = match &named {
            None => newest.is_none(),
            // It may name an older one: a crash between both files leaves the former pointer.
            Some(Ok(named)) => {
                let name = checkpoint::name_of(table.name, named.version);
                newest.is_some() && self.files.size(&name)?.is_some()
            }
            Some(Err(_)) => false,
        };

        if !is_named {
            let text = "_last_checkpoint names no checkpoint";
            self.find(table, &format!("{text}: {NEW_CHECKPOINT}"));
        }

        let Some(number) = newest else { return Ok(()) };
        let aside = self.lake.database.directory();
        let replayed = Version::replay(self.files, table.name, names, number)?;

        let defect = match checkpoint::read(self.files, table.name, number, aside) {
            Ok(found) if is_version(&found, replayed) => None,
            Ok(_) => Some("it has other files than the commits before it".to_owned()),
            Err(error) => Some(error_chain(&error)),
        };

        if let Some(defect) = defect {
            let name = checkpoint::name_of(table.name, number);
            self.find(table, &format!("{name}: {defect}: {NEW_CHECKPOINT}"));
        }
        Ok(())
    }

    fn table(
        &mut self,
        table: &'static Table,
        names: &[String],
        version: &Version,
    ) -> Result<(), LakeError> {
        let mut found: BTreeMap<&str, Rows> = BTreeMap::new();
        for file in version.files.values() {
            match self.file(table, file) {
                Ok(rows) => drop(found.insert(&file.path, rows)),
                Err(defect) => self.find(table, &format!("{}: {defect}: {RESTORE}", file.path)),
            }
        }

        self.removed(table, names, version);
        match resolution(table) {
            Some(resolution) => self.samples(table, resolution, version, &found),
            None => self.records(table, version, &found)?,
        }
        if table.name == USAGE.name {
            self.gpu_hours(names, version)?;
        }
        Ok(())
    }

    /// Reads a file completely. Returns the number and the digest of its rows.
    fn file(&self, table: &Table, file: &Add) -> Result<Rows, String> {
        let name = format!("{}/{}", table.name, file.path);
        // The size first: it is known without reading the file.
        let size = self
            .files
            .size(&name)
            .map_err(|error| error_chain(&error))?;
        match size {
            None => return Err("No such file".to_owned()),
            Some(size) if size != file.size => {
                return Err(format!("it has {size} bytes instead of {}", file.size));
            }
            Some(_) => {}
        }

        let local = self.fetch(&name).map_err(|error| error_chain(&error))?;
        let list = file_list([local.path()]);

        let expected: Vec<(String, String)> = table
            .columns
            .iter()
            .map(|Column { name, kind }| ((*name).to_owned(), kind.sql().to_owned()))
            .collect();

        let read = columns(&self.reader, &list).map_err(|error| error.to_string())?;
        if read != expected {
            return Err("it has other columns than the table".to_owned());
        }

        let (rows, digest, stats) = statistics(&self.reader, table, &list)
            .map_err(|error| error.to_string())?
            .ok_or("it has no rows")?;

        if !agrees(file.stats.as_deref(), &stats) {
            return Err(format!(
                "its {rows} rows are not those of its statistics in the log"
            ));
        }
        Ok((rows, digest))
    }

    fn fetch(&self, name: &str) -> Result<LocalFile, LakeError> {
        self.files.fetch(name, self.lake.database.directory())
    }

    /// Checks that readers of an older version still find its files.
    fn removed(&mut self, table: &Table, names: &[String], version: &Version) {
        let since = self.lake.kept_since(self.now);
        for path in version
            .removed
            .values()
            .filter(|r| r.deletion_timestamp > since)
            .map(|r| &r.path)
        {
            if !names.contains(path) {
                let hours = self.lake.config.replaced_hours;
                let text = format!(
                    "{path} was replaced less than {hours} hours ago and is gone: readers that \
                     opened the table before fail once; nothing to do"
                );
                self.find(table, &text);
            }
        }
    }

    /// Compares the rows of each block and day with the store's.
    fn samples(
        &mut self,
        table: &'static Table,
        resolution: Resolution,
        version: &Version,
        found: &BTreeMap<&str, Rows>,
    ) {
        let mut lake: BTreeMap<(String, String), Rows> = BTreeMap::new();
        let mut unreadable = Vec::new();
        for file in version.files.values() {
            let block = match block_of(table, file) {
                Ok(block) => block.to_owned(),
                Err(error) => {
                    self.find(table, &error.to_string());
                    continue;
                }
            };

            let key = (block, file.partition().to_owned());
            match found.get(file.path.as_str()) {
                Some((rows, digest)) => {
                    let sum = lake.entry(key).or_default();
                    *sum = (sum.0 + rows, sum.1.wrapping_add(*digest));
                }
                // It has its own finding; a second one about its rows would mislead.
                None => unreadable.push(key),
            }
        }

        let kept_from = kept_from(self.lake.config, resolution, self.now);

        for block in self.lake.database.finished_blocks(resolution, self.now) {
            let name = block.to_string();
            // A block is replaced or written as a whole, so each finished one must be there, unless
            // it is too old.
            let is_past = day_of(block.to()) < kept_from;
            let is_known = |(known, _): &(String, String)| *known == name;
            if !lake.keys().chain(&unreadable).any(is_known) {
                if !is_past {
                    let text = format!(
                        "the block {name} is missing: the next round writes it, or takt lake init"
                    );
                    self.find(table, &text);
                }
                continue;
            }

            let span = day_of(block.from())..=day_of(block.to());
            for (other, day) in lake.keys() {
                if span.contains(day) && block.replaces(other) {
                    let text = format!(
                        "day {day} has the rows of the block {other} and of {name}, which replaces \
                         it: {RESTORE}"
                    );
                    self.find(table, &text);
                }
            }

            let sql = format!(
                "SELECT CAST(CAST(ts AS DATE) AS VARCHAR), count(*), {} FROM ({})
                 GROUP BY 1 ORDER BY 1",
                table.digest(),
                block.query()
            );
            let days = match rows_by(&self.store, &sql) {
                Ok(days) => days,
                Err(error) => {
                    let text = format!(
                        "the store's block {name} cannot be read: {error}: see takt store verify"
                    );
                    self.find(table, &text);
                    continue;
                }
            };

            for (day, of_store) in days {
                let key = (name.clone(), day);
                let of_lake = lake.get(&key).copied();
                if unreadable.contains(&key) || of_lake == Some(of_store) {
                    continue;
                }
                let (_, day) = key;

                // A day past the lake's retention has no files.
                if of_lake.is_none() && day < kept_from {
                    continue;
                }

                let text = format!(
                    "day {day} has {} rows, the store has {}, or rows differ: {RESTORE}",
                    of_lake.unwrap_or_default().0,
                    of_store.0
                );
                self.find(table, &text);
            }
        }
    }

    /// Compares the digest of each month with the name of its file and with the store's rows.
    fn records(
        &mut self,
        table: &'static Table,
        version: &Version,
        found: &BTreeMap<&str, Rows>,
    ) -> Result<(), LakeError> {
        let months = months(&self.store, table, self.now)?;
        for file in version.files.values() {
            let month = file.partition();
            if let Err(error) = check_name(table, file) {
                self.find(table, &error.to_string());
                continue;
            }

            // The name is the digest of the rows, so the file can be checked without the store.
            let is_as_named = found
                .get(file.path.as_str())
                .is_none_or(|(_, digest)| name_of(*digest) == file.stem());
            if !is_as_named {
                let text = format!("{}: its rows have changed: {RESTORE}", file.path);
                self.find(table, &text);
            }

            if months.get(month).is_some_and(|name| name != file.stem()) {
                let text = format!(
                    "month {month} is not as in the records: the next round writes it, or \
                     takt lake init"
                );
                self.find(table, &text);
            }
        }

        for month in months.keys() {
            if !version.files.values().any(|file| file.partition() == month) {
                let text = format!(
                    "month {month} is missing: the next round writes it, or takt lake init"
                );
                self.find(table, &text);
            }
        }
        Ok(())
    }

    /// Compares the GPU-hours of each month and cluster with those of the report.
    fn gpu_hours(&mut self, names: &[String], version: &Version) -> Result<(), LakeError> {
        let local: Result<Vec<LocalFile>, LakeError> = version
            .files
            .keys()
            .filter(|path| names.contains(path))
            .map(|path| self.fetch(&format!("{}/{path}", USAGE.name)))
            .collect();
        let local = local?;

        if local.is_empty() {
            return Ok(());
        }

        let list = file_list(local.iter().map(LocalFile::path));
        let sql = format!(
            "SELECT cluster, strftime(day, '%Y-%m'), CAST(coalesce(sum(gpu_seconds), 0) AS BIGINT)
             FROM read_parquet({list}, hive_partitioning = false) GROUP BY ALL ORDER BY ALL"
        );

        // A damaged file has its own finding.
        let Ok(sums) = sums(&self.reader, &sql) else {
            return Ok(());
        };

        let zones = zones(&self.store)?;
        for (cluster, month, of_lake) in sums {
            // Without a calendar, the days of this cluster have no known begin and end to compare.
            let Some(zone) = zones.get(&cluster) else {
                continue;
            };
            let of_report = reported(self.lake.database, &cluster, &month, zone, self.now)?;

            if of_report != of_lake {
                let hours = |seconds: u64| seconds as f64 / 3600.0;
                let text = format!(
                    "month {month} of {cluster} has {:.2} GPU-hours, the report has {:.2}: the \
                     next round writes it, or takt lake init",
                    hours(of_lake),
                    hours(of_report)
                );
                self.find(&USAGE, &text);
            }
        }
        Ok(())
    }
}

/// Whether a checkpoint has the version of its number, by the commits up to there.
fn is_version(found: &Version, mut expected: Version) -> bool {
    // A checkpoint is no news, and it may have forgotten files that were deleted long ago.
    for file in expected.files.values_mut() {
        file.data_change = false;
    }
    let mut removed = found.removed.keys();
    found.files == expected.files
        && found.meta_data == expected.meta_data
        && found.protocol == expected.protocol
        && removed.all(|path| expected.removed.contains_key(path))
}

/// Whether a file's statistics are those of the log, which may have fewer.
fn agrees(of_log: Option<&str>, found: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let of_log = parse(of_log.unwrap_or_default());
    let found = parse(found);

    let has_all = |key: &str| {
        of_log[key]
            .as_object()
            .into_iter()
            .flatten()
            .into_iter()
            .all(|(name, value)| found[key][name] == *value)
    };

    of_log["numRecords"] == found["numRecords"]
        && ["minValues", "maxValues", "nullCount"]
            .into_iter()
            .all(has_all)
}

/// The GPU-seconds of the finished days of a month, as the usage report has them.
fn reported(
    database: &Database,
    cluster: &str,
    month: &str,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<u64, LakeError> {
    let now = jiff::Timestamp::try_from(now).unwrap_or_default();
    let today = now.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string();
    // The current month ends with the last finished day, as in the lake.
    let period = if today.starts_with(month) {
        Period::span(&format!("{month}-01"), &today, zone, now)
    } else {
        Period::month(month, zone, now)
    };
    let Ok(period) = period else { return Ok(0) };
    let mut usage = Usage::new(&period, &[], now.into());
    Records::of(database).held_runs(cluster, period.from(), period.to(), |run| usage.add(run))?;
    Ok(usage.report(cluster).totals.gpu_seconds.unwrap_or(0))
}

/// The time zone of each cluster with a calendar.
fn zones(store: &Connection) -> Result<BTreeMap<String, TimeZone>, LakeError> {
    let read = || -> Result<Vec<(String, String)>, duckdb::Error> {
        let sql = "SELECT DISTINCT cluster, timezone FROM records.time_offsets";
        store
            .prepare(sql)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    };

    let zones = read().map_err(LakeError::sql("read the time zones", USAGE.name))?;

    let known = zones
        .into_iter()
        .filter_map(|(cluster, name)| Some((cluster, takt_jobs::time_zone(&name).ok()?)))
        .collect();
    Ok(known)
}

fn columns(db: &Connection, list: &str) -> Result<Vec<(String, String)>, duckdb::Error> {
    let sql = format!("DESCRIBE SELECT * FROM read_parquet({list}, hive_partitioning = false)");
    db.prepare(&sql)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn rows_by(db: &Connection, sql: &str) -> Result<Vec<(String, Rows)>, duckdb::Error> {
    db.prepare(sql)?
        .query_map([], |row| {
            let digest: String = row.get(2)?;
            let count: i64 = row.get(1)?;
            let rows = (count.cast_unsigned(), digest.parse().unwrap_or_default());
            Ok((row.get(0)?, rows))
        })?
        .collect()
}

fn sums(db: &Connection, sql: &str) -> Result<Vec<(String, String, u64)>, duckdb::Error> {
    db.prepare(sql)?
        .query_map([], |row| {
            let seconds: i64 = row.get(2)?;
            Ok((row.get(0)?, row.get(1)?, seconds.cast_unsigned()))
        })?
        .collect()
}
