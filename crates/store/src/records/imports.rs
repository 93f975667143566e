//! The log of imports, and the deletion of records.

use super::import::{ImportError, ImportSummary, Origin};
use super::{Records, StoreError, TimeColumns, micros};
use duckdb::params;
use duckdb::params_from_iter;
use duckdb::types::Value;
use serde::{Deserialize, Serialize};
use takt_jobs::Entry;
use takt_model::UnixTime;

/// An import of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRecord {
    /// Number of the import.
    pub id: i64,
    /// Kind of the source: `sacct`, `jobcomp`.
    pub source: String,
    /// Name of the file.
    pub name: String,
    /// Time zone of the file's times.
    pub timezone: Option<String>,
    /// Time of the import.
    pub imported_at: UnixTime,
    /// Number of runs that the import stored.
    pub runs_inserted: u64,
    /// Number of runs that the import corrected.
    pub runs_updated: u64,
    /// Number of runs that only this import has stored: those that undoing it deletes.
    pub runs_left: u64,
    /// Time at which the import was undone.
    pub undone_at: Option<UnixTime>,
}

/// Runs to delete. At least one condition is needed; a run must meet all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeleteRuns {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Job id.
    pub job_id: Option<String>,
    /// Submit time.
    pub submit: Option<UnixTime>,
}

impl Records<'_> {
    /// Imports a file like [`Records::import`], and logs the import with the time zone of the file. The
    /// entries have the numbers of their lines.
    ///
    /// # Errors
    /// The source's own, or the store's.
    pub fn import_file<E>(
        &self,
        origin: &Origin<'_>,
        zone: Option<&str>,
        entries: impl IntoIterator<Item = Result<(u64, Entry), E>>,
    ) -> Result<ImportSummary, ImportError<E>> {
        let entries = entries.into_iter().map(|entry| {
            let (line, entry) = entry?;
            Ok((Some(line), entry))
        });
        self.import_as(origin, Some(zone), entries)
    }

    /// The imports, the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn imports(&self) -> Result<Vec<ImportRecord>, StoreError> {
        self.list(
            "list the imports",
            "SELECT id, source, name, timezone, epoch_ms(imported_at) // 1000, runs_inserted, runs_updated,
                    (SELECT count(*) FROM records.jobs AS j WHERE j.import_id = i.id), epoch_ms(undone_at) // 1000
             FROM records.imports AS i ORDER BY id DESC",
            Vec::new(),
            |row| {
                Ok(ImportRecord {
                    id: row.get(0)?,
                    source: row.get(1)?,
                    name: row.get(2)?,
                    timezone: row.get(3)?,
                    imported_at: row.time(4)?,
                    runs_inserted: row.get(5)?,
                    runs_updated: row.get(6)?,
                    runs_left: row.get(7)?,
                    undone_at: row.time_if_set(8)?,
                })
            },
        )
    }

    /// Deletes the runs that only the import `id` has stored. Returns their number, or `None` if the import is unknown or
    /// was undone before.
    ///
    /// # Errors
    /// When DuckDB cannot write.
    pub fn undo_import(&self, id: i64, now: UnixTime) -> Result<Option<u64>, StoreError> {
        let mut deleted = None;
        self.writing("undo the import", |db| {
            let undone = db.execute(
                "UPDATE records.imports SET undone_at = make_timestamp(?::BIGINT) WHERE id = ? AND undone_at IS NULL",
                params![micros(now), id],
            )?;
            if undone > 0 {
                let runs = db.execute("DELETE FROM records.jobs WHERE import_id = ?", [id])?;
                deleted = Some(runs as u64);
            }
            Ok(())
        })?;
        Ok(deleted)
    }

    /// Deletes runs. Returns their number; 0 without a condition.
    ///
    /// # Errors
    /// When DuckDB cannot write.
    pub fn delete_runs(&self, which: &DeleteRuns) -> Result<u64, StoreError> {
        let mut conditions = Vec::new();
        let mut values: Vec<Value> = Vec::new();
        if let Some(cluster) = &which.cluster {
            conditions.push("cluster = ?");
            values.push(cluster.clone().into());
        }
        if let Some(job_id) = &which.job_id {
            conditions.push("job_id = ?");
            values.push(job_id.clone().into());
        }
        if let Some(submit) = which.submit {
            conditions.push("submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S");
            values.push(micros(submit).into());
        }

        if conditions.is_empty() {
            return Ok(0);
        }
        let sql = format!(
            "DELETE FROM records.jobs WHERE {}",
            conditions.join(" AND ")
        );

        let mut deleted = 0;
        self.writing("delete job records", |db| {
            deleted = db.execute(&sql, params_from_iter(values))? as u64;
            Ok(())
        })?;
        Ok(deleted)
    }
}
