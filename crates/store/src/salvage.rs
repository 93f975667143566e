//! Salvage: copies the readable part of a damaged database file into a new file.
//!
//! DuckDB verifies a block's checksum when it reads the block. A damaged file therefore attaches
//! without an error and fails later: at the start, in queries of the last hour, while sealing. This
//! module reads everything once, at the start.

use super::StoreError;
use super::attach::{Damaged, set_aside};
use super::database::{quoted, with_suffix};
use super::migrate::{HOT, Schema, migrate};
use duckdb::Connection;
use std::fs;
use std::path::Path;

/// Rows of a row group, which are lost together.
const ROW_GROUP: i64 = 122_880;

const SALVAGED: &str = ".salvaged";

/// Tables of records with more rows than this are not read at the start, because every command
/// opens the database. Damage in them fails a query, not the server.
const MOST_RECORDS: i64 = 500_000;

/// Reads every table of an attached, migrated schema.
///
/// # Errors
/// The first table that cannot be read.
pub(super) fn check(db: &Connection, schema: &Schema) -> Result<(), StoreError> {
    let is_hot = schema.catalog == HOT.catalog;
    let tables = tables(db, schema.catalog)?;
    for table in tables
        .iter()
        .filter(|table| is_hot || table.rows <= MOST_RECORDS)
    {
        // An aggregate over all values of each column, so that DuckDB cannot answer from
        // statistics.
        let sql = format!(
            "SELECT max(hash(COLUMNS(*))) FROM {}.{}",
            schema.catalog, table.name
        );
        db.prepare(&sql)
            .and_then(|mut statement| statement.query_arrow([]).map(drop))
            .map_err(StoreError::sql("read a whole table"))?;
    }
    Ok(())
}

/// Completes a salvage that was interrupted between its last two renames: the damaged file is set
/// aside, the new one has not got its name yet.
pub(super) fn finish(file: &Path) -> Result<(), StoreError> {
    let new = with_suffix(file, SALVAGED);
    if !file.exists() && new.exists() {
        fs::rename(&new, file).map_err(|source| StoreError::Directory { path: new, source })
    } else {
        Ok(())
    }
}

/// Returns whether an error means that the content of a file is damaged.
pub(super) fn is_unreadable(error: &StoreError) -> bool {
    const SIGNS: &[&str] = &[
        "Corrupt",
        "checksum",
        "Could not read enough bytes",
        "eserializ",
    ];
    let StoreError::Sql { source, .. } = error else {
        return false;
    };
    let text = source.to_string();
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Copies the readable part of an attached file into a new one, attaches the new one under the same
/// name, and sets the damaged one aside.
pub(super) fn salvage(
    db: &Connection,
    schema: &Schema,
    file: &Path,
    reason: &str,
) -> Result<Damaged, StoreError> {
    let new = Schema {
        catalog: "salvaged",
        migrations: schema.migrations,
    };

    let new_file = with_suffix(file, SALVAGED);
    let failed = |source| StoreError::Open {
        path: file.to_owned(),
        source,
    };
    for left_over in [&new_file, &with_suffix(&new_file, ".wal")] {
        // Left over from a start that was interrupted here.
        let _ = fs::remove_file(left_over);
    }

    db.execute_batch(&format!(
        "ATTACH {} AS {}",
        quoted(&new_file.to_string_lossy()),
        new.catalog
    ))
    .map_err(failed)?;

    let lost = match migrate(db, &new, &new_file).and_then(|()| copy(db, schema, &new)) {
        Ok(lost) => Some(lost),
        // The tables cannot even be listed.
        Err(error) if is_unreadable(&error) => None,
        Err(error) => return Err(error),
    };

    let detach = format!(
        "USE memory; CHECKPOINT {0}; DETACH {0}; DETACH {1};",
        new.catalog, schema.catalog
    );
    db.execute_batch(&detach).map_err(failed)?;

    let lost = match lost {
        Some(lost) if lost.is_empty() => "every row could be read".to_owned(),
        Some(lost) => format!("lost: {}", lost.join(", ")),
        None => "nothing could be read".to_owned(),
    };

    let damaged = set_aside(file, &format!("{reason}; {lost}"))?;
    let moved = |source| StoreError::Directory {
        path: new_file.clone(),
        source,
    };

    let log = with_suffix(file, ".wal");
    if log.exists() {
        fs::rename(&log, with_suffix(&damaged.moved_to, ".wal")).map_err(moved)?;
    }

    fs::rename(&new_file, file).map_err(moved)?;
    Ok(damaged)
}

struct Table {
    /// Name, with the schema unless that is `main`.
    name: String,
    rows: i64,
}

fn tables(db: &Connection, catalog: &str) -> Result<Vec<Table>, StoreError> {
    let sql = "SELECT if(schema_name = 'main', table_name, schema_name || '.' || table_name), estimated_size
               FROM duckdb_tables() WHERE database_name = ? ORDER BY table_oid";
    let read = || -> Result<Vec<Table>, duckdb::Error> {
        db.prepare(sql)?
            .query_map([catalog], |row| {
                Ok(Table {
                    name: row.get(0)?,
                    rows: row.get(1)?,
                })
            })?
            .collect()
    };
    read().map_err(StoreError::sql("list the tables"))
}

/// Copies each table, or where that fails each row group. Returns a description of the losses.
pub(super) fn copy(
    db: &Connection,
    schema: &Schema,
    new: &Schema,
) -> Result<Vec<String>, StoreError> {
    let mut lost = Vec::new();
    let known = tables(db, new.catalog)?;

    for Table { name, rows } in tables(db, schema.catalog)?
        .into_iter()
        .filter(|table| table.name != "schema_version")
    {
        let failed = || StoreError::sql("copy the readable rows");
        let from = format!("{}.{name}", schema.catalog);
        let to = format!("{}.{name}", new.catalog);

        if !known.iter().any(|table| table.name == name) {
            db.execute_batch(&format!("CREATE TABLE {to} AS FROM {from} LIMIT 0"))
                .map_err(failed())?;
        }

        let insert = format!("INSERT INTO {to} BY NAME SELECT * FROM {from}");
        if db.execute_batch(&insert).is_ok() {
            continue;
        }

        if schema.catalog == HOT.catalog && name == "series" {
            // A sample without its series is useless, and the series' number would be assigned
            // again.
            return Ok(vec![
                "the series, and with them every sample that was not sealed".to_owned(),
            ]);
        }

        let mut groups = 0;
        for begin in (0..rows.max(1)).step_by(ROW_GROUP as usize) {
            let some = format!(
                "{insert} WHERE rowid BETWEEN {begin} AND {}",
                begin + ROW_GROUP - 1
            );
            groups += usize::from(db.execute_batch(&some).is_err());
        }

        lost.push(format!("{groups} times {ROW_GROUP} rows of {name} at most"));
    }
    Ok(lost)
}
