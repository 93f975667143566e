//! The note about the last backup, a file in the data directory.

use super::{Database, Snapshot, StoreError};
use std::fs;

/// Name of the file.
const FILE: &str = "last-backup.json";

impl Database {
    /// Notes a verified backup. Its path is that of the backup.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note_backup(&self, backup: &Snapshot) -> Result<(), StoreError> {
        let path = self.path().join(FILE);
        let new = self.path().join(format!("{FILE}.new"));
        let write = || {
            fs::write(&new, serde_json::to_vec_pretty(backup)?)?;
            fs::rename(&new, &path)
        };
        write().map_err(|source| StoreError::Directory { path, source })
    }

    /// Returns the last noted backup; `None` if none was noted, or the note is unreadable.
    pub fn last_backup(&self) -> Option<Snapshot> {
        let text = fs::read(self.path().join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the time at which the databases were created, UTC seconds.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn created_at(&self) -> Result<i64, StoreError> {
        let sql = "SELECT epoch_ms(min(applied_at)) // 1000 FROM records.schema_version";
        self.connect()?
            .query_row(sql, [], |row| row.get(0))
            .map_err(StoreError::sql("look up the age of the data"))
    }
}
