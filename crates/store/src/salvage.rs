//! A database file with a damaged block: what can be read of it goes into a new one.
//!
//! DuckDB compares a block's sum when it reads it. So such a file attaches, and fails later, in the middle of something:
//! the start, every question about the last hour, every sealing. Here everything is read once, at the start.

use super::StoreError;
use super::database::{Damaged, quoted, set_aside, with_suffix};
use super::migrate::{HOT, Schema, migrate};
use duckdb::Connection;
use std::fs;
use std::path::Path;

/// Rows that lie together in the file, and are lost together.
const ROW_GROUP: i64 = 122_880;

const SALVAGED: &str = ".salvaged";

/// Records beyond this many rows are not read at the start, which is every command's, too. What is damaged in them fails a
/// question, not the server.
const MOST_RECORDS: i64 = 500_000;

/// Reads every table of a schema that is attached and up to date.
///
/// # Errors
/// The first thing that cannot be read.
pub(super) fn check(db: &Connection, schema: &Schema) -> Result<(), StoreError> {
    let is_hot = schema.catalog == HOT.catalog;
    let tables = tables(db, schema.catalog)?;
    for table in tables
        .iter()
        .filter(|table| is_hot || table.rows <= MOST_RECORDS)
    {
        // A sum over all values of each column: no statistics of DuckDB's answer that.
        let sql = format!(
            "SELECT max(hash(COLUMNS(*))) FROM {}.{}",
            schema.catalog, table.name
        );
        let read = db
            .prepare(&sql)
            .and_then(|mut statement| statement.query_arrow([]).map(drop));
        read.map_err(StoreError::sql("read a table to its end"))?;
    }
    Ok(())
}

/// Ends what a start that died between its last two steps left: the damaged file is aside, the new one has not its name yet.
pub(super) fn finish(file: &Path) -> Result<(), StoreError> {
    let new = with_suffix(file, SALVAGED);
    match !file.exists() && new.exists() {
        true => {
            fs::rename(&new, file).map_err(|source| StoreError::Directory { path: new, source })
        }
        false => Ok(()),
    }
}

/// Whether an error says that bytes of a file are not what was written.
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

/// Puts what can be read of an attached file into a new one of its name, which is attached then, and the damaged one aside.
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
        // Of a start that died here.
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
        // Not even its tables can be listed.
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
    name: String,
    rows: i64,
}

fn tables(db: &Connection, catalog: &str) -> Result<Vec<Table>, StoreError> {
    let sql = "SELECT table_name, estimated_size FROM duckdb_tables() WHERE database_name = ? ORDER BY table_oid";
    let read = || -> Result<Vec<Table>, duckdb::Error> {
        let mut statement = db.prepare(sql)?;
        let tables = statement.query_map([catalog], |row| {
            Ok(Table {
                name: row.get(0)?,
                rows: row.get(1)?,
            })
        })?;
        tables.collect()
    };
    read().map_err(StoreError::sql("list the tables"))
}

/// Copies table by table and, where that fails, row group by row group. Says what was lost.
fn copy(db: &Connection, schema: &Schema, new: &Schema) -> Result<Vec<String>, StoreError> {
    let mut lost = Vec::new();
    let known = tables(db, new.catalog)?;
    for Table { name, rows } in tables(db, schema.catalog)?
        .into_iter()
        .filter(|table| table.name != "schema_version")
    {
        let failed = || StoreError::sql("copy what can be read");
        let (from, to) = (
            format!("{}.{name}", schema.catalog),
            format!("{}.{name}", new.catalog),
        );
        if !known.iter().any(|table| table.name == name) {
            db.execute_batch(&format!("CREATE TABLE {to} AS FROM {from} LIMIT 0"))
                .map_err(failed())?;
        }
        let insert = format!("INSERT INTO {to} BY NAME SELECT * FROM {from}");
        if db.execute_batch(&insert).is_ok() {
            continue;
        }
        if schema.catalog == HOT.catalog && name == "series" {
            // A sample whose series nobody knows is worth nothing, and its number would be given out again.
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
