//! Migrates database files: numbered SQL files bring a file to the current schema.
//!
//! Each SQL file can run twice (`IF NOT EXISTS`), so a crash between a migration and its entry in
//! `schema_version` does no harm. DuckDB is least reliable at replaying DDL from its log, so
//! migrations end with a checkpoint.

use super::StoreError;
use super::checkpoint::checkpoint;
use super::database::microseconds_now;
use duckdb::Connection;
use std::path::{Path, PathBuf};

/// Schema of one database file.
pub(crate) struct Schema {
    /// Name of the attached catalog, and stem of the file's name.
    pub catalog: &'static str,
    /// SQL files in order; the Nth one creates version N.
    pub migrations: &'static [&'static str],
}

impl Schema {
    /// Path of the database file in a data directory.
    pub fn file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.duckdb", self.catalog))
    }
}

pub(crate) const RECORDS: Schema = Schema {
    catalog: "records",
    migrations: &[
        include_str!("migrations/records/0001_jobs.sql"),
        include_str!("migrations/records/0002_alerts.sql"),
        include_str!("migrations/records/0003_efficiency.sql"),
        include_str!("migrations/records/0004_shares.sql"),
        include_str!("migrations/records/0005_held_gpus.sql"),
        include_str!("migrations/records/0006_nodes.sql"),
        include_str!("migrations/records/0007_reservations.sql"),
        include_str!("migrations/records/0008_raw_job_ids.sql"),
        include_str!("migrations/records/0009_imports.sql"),
        include_str!("migrations/records/0010_remote_write.sql"),
        include_str!("migrations/records/0011_access.sql"),
        include_str!("migrations/records/0012_run_curves.sql"),
        include_str!("migrations/records/0013_events.sql"),
        include_str!("migrations/records/0014_sign_in.sql"),
        include_str!("migrations/records/0015_calendar.sql"),
        include_str!("migrations/records/0016_secrets.sql"),
        include_str!("migrations/records/0017_slurm_26_05.sql"),
        include_str!("migrations/records/0018_used_links.sql"),
        include_str!("migrations/records/0019_forecasts.sql"),
        include_str!("migrations/records/0020_cards.sql"),
    ],
};

pub(crate) const HOT: Schema = Schema {
    catalog: "hot",
    migrations: &[
        include_str!("migrations/hot/0001_samples.sql"),
        include_str!("migrations/hot/0002_blocks.sql"),
    ],
};

/// Runs the missing migrations. Changes the connection's current catalog.
pub(crate) fn migrate(db: &Connection, schema: &Schema, file: &Path) -> Result<(), StoreError> {
    let found = run(db, schema).map_err(StoreError::sql("migrate the schema"))?;
    let known = schema.migrations.len() as i64;
    if found > known {
        return Err(StoreError::Newer {
            path: file.to_owned(),
            found,
            known,
        });
    }
    if found < known {
        checkpoint(db, schema.catalog, file)?;
    }
    Ok(())
}

/// Runs the missing migrations. Returns the version before.
fn run(db: &Connection, schema: &Schema) -> duckdb::Result<i64> {
    db.execute_batch(&format!(
        "USE {};
         CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL, applied_at TIMESTAMP_S NOT NULL);",
        schema.catalog
    ))?;

    let sql = "SELECT coalesce(max(version), 0) FROM schema_version";
    let found: i64 = db.query_row(sql, [], |row| row.get(0))?;
    let done = usize::try_from(found).unwrap_or(0);

    for (version, sql) in (1..).zip(schema.migrations).skip(done) {
        db.execute_batch(&format!(
            "BEGIN; {sql}
             INSERT INTO schema_version VALUES ({version}, make_timestamp({}));
             COMMIT;",
            microseconds_now()
        ))?;
    }

    Ok(found)
}
