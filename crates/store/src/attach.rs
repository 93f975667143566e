//! Attaching database files: creating new ones, and setting damaged ones aside.

use super::StoreError;
use super::block::{Resolution, folder, sync_directory};
use super::database::{quoted, with_suffix};
use super::migrate::Schema;
use super::unsealed::FOLDER;
use duckdb::Connection;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Length and checksum before each entry of a log, in bytes. DuckDB names the place after them.
const ENTRY_HEADER: u64 = 16;

/// Cuts of damaged logs for one file: it has two logs during a checkpoint.
const CUTS_MAX: u32 = 2;

/// A damaged file that was renamed, or a damaged log that was copied and cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Path of the renamed or copied file.
    pub moved_to: PathBuf,
    /// Error message of DuckDB.
    pub reason: String,
}

/// Attaches a file, and creates it if it does not exist. A damaged log is cut before its first damaged
/// entry. If that does not help, the log is set aside, then the file: a server that starts with
/// partial data and reports the loss is better than one that never starts.
pub(super) fn attach_or_set_aside(
    db: &Connection,
    schema: &Schema,
    file: &Path,
    damaged: &mut Vec<Damaged>,
) -> Result<(), StoreError> {
    let attach = || -> Result<Result<(), duckdb::Error>, StoreError> {
        if !file.exists() {
            create(db, file)?;
        }
        Ok(db.execute_batch(&attach_as(file, schema.catalog)))
    };

    // The log goes first: the file may be whole without it.
    let suspects = [with_suffix(file, ".wal"), file.to_owned()];
    let mut suspects = suspects.iter().filter(|path| path.exists());
    let mut cuts = 0;

    while let Err(source) = attach()? {
        if let Some((log, place)) = damaged_entry(&source).filter(|_| cuts < CUTS_MAX) {
            cuts += 1;
            damaged.push(cut(&log, place, &source.to_string())?);
            continue;
        }

        // Missing permissions or a full disk are no damage, and the file must stay where it is.
        let suspect = suspects.next().filter(|_| is_damage(&source));
        let Some(path) = suspect else {
            return Err(StoreError::Open {
                path: file.to_owned(),
                source,
            });
        };
        damaged.push(set_aside(path, &source.to_string())?);
    }
    Ok(())
}

/// Creates a database file under another name and renames it, so that a crash leaves no half of it.
fn create(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let new = with_suffix(file, ".new");
    // A crash may have left half of a file.
    let _ = fs::remove_file(&new);
    let made = db
        .execute_batch(&format!("{}; DETACH new;", attach_as(&new, "new")))
        .map_err(|source| StoreError::Open {
            path: file.to_owned(),
            source,
        })
        .and_then(|()| {
            let renamed = fs::rename(&new, file);
            let directory = file.parent().unwrap_or(file);
            renamed
                .and_then(|()| sync_directory(directory))
                .map_err(|source| StoreError::Directory {
                    path: file.to_owned(),
                    source,
                })
        });

    if made.is_err() {
        let _ = fs::remove_file(&new);
    }
    made
}

fn attach_as(file: &Path, catalog: &str) -> String {
    format!("ATTACH {} AS {catalog}", quoted(&file.to_string_lossy()))
}

/// The log that cannot be replayed, and the place of its first damaged entry.
fn damaged_entry(error: &duckdb::Error) -> Option<(PathBuf, u64)> {
    // DuckDB names the place in its message only.
    let text = error.to_string();
    let (_, rest) = text.split_once("replaying WAL file \"")?;
    let (log, rest) = rest.split_once('"')?;
    let (_, rest) = rest.split_once("entry at byte position ")?;
    let (place, _) = rest.split_once(' ')?;
    let content: u64 = place.parse().ok()?;
    Some((log.into(), content.checked_sub(ENTRY_HEADER)?))
}

/// Cuts a log at a place and keeps a copy of the whole log. After a power loss, the damaged entry is
/// usually that of the last transaction, which was not committed yet.
fn cut(log: &Path, place: u64, reason: &str) -> Result<Damaged, StoreError> {
    let damaged = named(log, reason);

    let copied = || -> io::Result<()> {
        fs::copy(log, &damaged.moved_to)?;
        // The copy is durable before the cut, because from then on it is the only whole log.
        File::open(&damaged.moved_to)?.sync_all()?;
        let file = File::options().write(true).open(log)?;
        file.set_len(place)?;
        file.sync_all()
    };

    copied().map_err(|source| StoreError::Directory {
        path: log.to_owned(),
        source,
    })?;

    tracing::error!(
        file = %log.display(),
        copy = %damaged.moved_to.display(),
        place,
        error = reason,
        "cut a damaged log"
    );
    Ok(damaged)
}

/// Renames a damaged file or folder, with the time in its new name, and logs it.
pub(super) fn set_aside(path: &Path, reason: &str) -> Result<Damaged, StoreError> {
    let damaged = named(path, reason);
    fs::rename(path, &damaged.moved_to).map_err(|source| StoreError::Directory {
        path: path.to_owned(),
        source,
    })?;
    tracing::error!(
        file = %path.display(),
        moved_to = %damaged.moved_to.display(),
        error = reason,
        "set a damaged file aside"
    );
    Ok(damaged)
}

/// Part of the names of damaged files, before the time.
const DAMAGED: &str = ".damaged-";

/// Returns what was set aside in a data directory and is still there, in order.
pub(super) fn set_aside_files(data: &Path) -> Vec<PathBuf> {
    let blocks = Resolution::ALL.map(|resolution| folder(data, resolution));
    let folders = [data.to_owned(), data.join(FOLDER)].into_iter();

    let mut found: Vec<PathBuf> = folders
        .chain(blocks)
        .filter_map(|one| fs::read_dir(one).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .contains(DAMAGED)
        })
        .collect();

    found.sort();
    found
}

/// The new name of a damaged file: it ends with the time.
fn named(path: &Path, reason: &str) -> Damaged {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Damaged {
        moved_to: with_suffix(path, &format!("{DAMAGED}{seconds}")),
        reason: reason.to_owned(),
    }
}

/// Returns whether an error means damaged content, not missing access or resources.
fn is_damage(error: &duckdb::Error) -> bool {
    const ACCESS: &[&str] = &[
        "Permission denied",
        "No space left",
        "File too large",
        "Disk quota exceeded",
        "Input/output error",
        "Read-only file system",
        "Could not set lock",
        "Too many open files",
        "Out of Memory",
    ];
    let text = error.to_string();
    !ACCESS.iter().any(|cause| text.contains(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Database, Settings};
    use tempfile::tempdir;

    fn open(root: &Path) -> Database {
        Database::open(&DataDir::claim(root).unwrap(), &Settings::default()).unwrap()
    }

    #[test]
    fn a_damaged_log_is_cut_and_earlier_transactions_stay() {
        let root = tempdir().unwrap();
        let log = root.path().join("records.duckdb.wal");
        // The connection outlives its database, so no checkpoint is written.
        let db = open(root.path()).connect().unwrap();
        let mut ends = Vec::new();
        for n in 0..4 {
            let sql = format!("INSERT INTO records.alert_state VALUES ('event', '{n}', 'body')");
            db.execute_batch(&sql).unwrap();
            ends.push(fs::metadata(&log).unwrap().len() as usize);
        }
        drop(db);
        let mut bytes = fs::read(&log).unwrap();

        // Zeros, as in pages that a power loss kept from the disk.
        bytes[ends[2]..].fill(0);
        fs::write(&log, &bytes).unwrap();

        let database = open(root.path());
        let [damaged] = database.damaged() else {
            panic!("{:?}", database.damaged())
        };
        assert_eq!(fs::read(&damaged.moved_to).unwrap(), bytes);
        let db = database.connect().unwrap();
        let sql = "SELECT count(*) FROM records.alert_state";
        let rows: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 3);
    }
}
