//! Numbered SQL files bring a database file to the schema this program knows.
//!
//! Every file may be run twice (`IF NOT EXISTS`), so a crash between a file and its note in `schema_version` does no
//! harm. DDL in the write-ahead log is DuckDB's weakest point at replay, so each migration ends with a checkpoint.

use super::StoreError;
use super::database::microseconds_now;
use duckdb::Connection;
use std::path::Path;

/// The schema of one database file.
pub(crate) struct Schema {
    /// The name it is attached under, and its file's stem.
    pub catalog: &'static str,
    /// SQL files in order; version N is the Nth.
    pub migrations: &'static [&'static str],
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
    ],
};

pub(crate) const HOT: Schema = Schema {
    catalog: "hot",
    migrations: &[
        include_str!("migrations/hot/0001_samples.sql"),
        include_str!("migrations/hot/0002_blocks.sql"),
    ],
};

/// Runs what is missing. The connection's current catalog is changed.
pub(crate) fn migrate(db: &Connection, schema: &Schema, file: &Path) -> Result<(), StoreError> {
    let failed = StoreError::sql("bring the schema up to date");
    (|| -> Result<_, duckdb::Error> {
        db.execute_batch(&format!(
            "USE {};
             CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL, applied_at TIMESTAMP_S NOT NULL);",
            schema.catalog
        ))?;
        let found: i64 = db.query_row("SELECT coalesce(max(version), 0) FROM schema_version", [], |row| row.get(0))?;
        let known = schema.migrations.len() as i64;
        if found > known {
            return Ok(Err(StoreError::Newer { path: file.to_owned(), found, known }));
        }
        for (version, sql) in (1..).zip(schema.migrations).skip(usize::try_from(found).unwrap_or(0)) {
            db.execute_batch(&format!(
                "BEGIN; {sql}
                 INSERT INTO schema_version VALUES ({version}, make_timestamp({}));
                 COMMIT; CHECKPOINT {};",
                microseconds_now(),
                schema.catalog
            ))?;
        }
        Ok(Ok(()))
    })()
    .map_err(failed)?
}
