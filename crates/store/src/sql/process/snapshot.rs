//! Copies of the open database files, for another process.
//!
//! Only one process can open a DuckDB file. A copy of the file and its log, taken while no
//! checkpoint completes, is what the disk would hold after a crash at that moment: DuckDB never
//! frees a block that the current header refers to before the next header, and the log only grows. So the copy opens
//! with all transactions that were committed before copying began.
//!
//! The log is copied before the file, because it may refer to blocks that a large transaction wrote
//! into the file. If the header, or the identity of a log, changed meanwhile, a checkpoint took
//! place, and the copy is taken again.

use crate::database::with_suffix;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

/// Length of DuckDB's main header and its two database headers, in bytes.
const HEADERS: usize = 3 * 4096;

/// Attempts to copy a database between two checkpoints.
const ATTEMPTS: u32 = 400;

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(25);

/// A file that changed less than this before it was copied is copied again: a file's time of change
/// is not exact.
const SETTLED: Duration = Duration::from_secs(1);

/// The logs of a database. DuckDB writes to the second one during a checkpoint. It comes first,
/// since the other one does not change meanwhile.
const LOGS: [&str; 2] = [".wal.checkpoint", ".wal"];

/// Identity, length and time of change of a file.
type Stamp = (u64, u64, i64, i64);

/// State of a database's files. Two equal states have the same committed content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileState {
    headers: Vec<u8>,
    file: Stamp,
    logs: [Option<Stamp>; 2],
}

impl FileState {
    /// Reads the state of the database `file`.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut headers = vec![0; HEADERS];
        let mut open = File::open(file)?;
        open.read_exact(&mut headers)?;

        let mut logs = [None; 2];
        for (stamp, suffix) in logs.iter_mut().zip(LOGS) {
            *stamp = match fs::metadata(with_suffix(file, suffix)) {
                Ok(metadata) => Some(stamp_of(&metadata)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }

        Ok(Self {
            headers,
            // From the open file, so that headers and stamp belong together.
            file: stamp_of(&open.metadata()?),
            logs,
        })
    }

    /// Whether no checkpoint completed or began between two states.
    fn is_same_checkpoint(&self, later: &Self) -> bool {
        // A log keeps its inode while it grows, and a checkpoint begins another file.
        let identity = |log: &Option<Stamp>| log.map(|(inode, ..)| inode);
        self.headers == later.headers
            && self.file.0 == later.file.0
            && self
                .logs
                .iter()
                .map(identity)
                .eq(later.logs.iter().map(identity))
    }

    /// Whether a checkpoint is running. It may write into blocks that are in use.
    fn is_checkpointing(&self) -> bool {
        self.logs[0].is_some()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.file.1 + self.logs.iter().flatten().map(|log| log.1).sum::<u64>()
    }
}

fn stamp_of(metadata: &fs::Metadata) -> Stamp {
    (
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

/// A copy of a database.
#[derive(Debug)]
pub(super) struct Copy {
    /// The copied database file; its logs lie beside it.
    pub path: PathBuf,
    /// State of the original before copying.
    pub state: FileState,
    began: SystemTime,
}

impl Copy {
    /// Copies the database `file` into the directory `to`. Takes the unchanged file of an earlier
    /// copy as a hard link.
    pub fn take(file: &Path, to: &Path, earlier: Option<&Self>) -> io::Result<Self> {
        let path = to.join(file.file_name().unwrap_or_default());
        for _ in 0..ATTEMPTS {
            // Files of the last attempt may not fit together.
            remove(&path)?;
            let began = SystemTime::now();
            let state = FileState::read(file)?;

            for (log, suffix) in state.logs.iter().zip(LOGS) {
                if log.is_some() {
                    copy_if_there(&with_suffix(file, suffix), &with_suffix(&path, suffix))?;
                }
            }

            // Copies never change, so two of them can share a file.
            match earlier.filter(|earlier| earlier.has_file_of(&state)) {
                Some(earlier) => fs::hard_link(&earlier.path, &path)?,
                None => drop(fs::copy(file, &path)?),
            }

            if !state.is_checkpointing() && state.is_same_checkpoint(&FileState::read(file)?) {
                return Ok(Self { path, state, began });
            }
            thread::sleep(PAUSE);
        }

        remove(&path)?;
        Err(io::Error::other("the database is being checkpointed"))
    }

    /// Whether the copied file, without its logs, is still the original's.
    fn has_file_of(&self, state: &FileState) -> bool {
        let (_, _, seconds, nanoseconds) = self.state.file;
        let changed = Duration::new(
            seconds.unsigned_abs(),
            u32::try_from(nanoseconds).unwrap_or(0),
        );
        self.state.headers == state.headers
            && self.state.file == state.file
            && SystemTime::UNIX_EPOCH + changed + SETTLED < self.began
    }
}

/// Copies a file. On XFS and Btrfs, the copy shares the blocks of the original.
fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        // A checkpoint may remove the log meanwhile. The comparison afterwards shows that.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map(drop),
    }
}

/// Removes a copied database and its logs.
fn remove(path: &Path) -> io::Result<()> {
    let logs = LOGS.map(|suffix| with_suffix(path, suffix));
    for file in logs.iter().map(PathBuf::as_path).chain([path]) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use duckdb::{Config, Connection};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use tempfile::tempdir;

    /// Both tables get the same number in each transaction, while checkpoints, large transactions
    /// and copies take place.
    #[test]
    fn a_copy_has_every_transaction_that_was_committed_before_it() {
        let root = tempdir().unwrap();
        let file = root.path().join("hot.duckdb");
        // A small log makes many checkpoints.
        let config = Config::default()
            .with("wal_autocheckpoint", "200KB")
            .unwrap();
        let db = Connection::open_with_flags(&file, config).unwrap();
        db.execute_batch("CREATE TABLE a (n BIGINT, t VARCHAR); CREATE TABLE b (n BIGINT);")
            .unwrap();
        let committed = AtomicU64::new(0);
        thread::scope(|scope| {
            let written = &committed;
            let writer = scope.spawn(move || {
                for n in 1..=1500_u64 {
                    // A large transaction writes blocks before it commits.
                    let rows = if n % 200 == 0 { 150_000 } else { 20 };
                    db.execute_batch(&format!(
                        "BEGIN; INSERT INTO a SELECT {n}, sha256(r::VARCHAR) FROM range({rows}) AS t(r);
                         INSERT INTO b VALUES ({n}); COMMIT;"
                    ))
                    .unwrap();
                    written.store(n, Ordering::SeqCst);
                    if n % 300 == 0 {
                        db.execute_batch("DELETE FROM a WHERE n % 3 = 0; CHECKPOINT").unwrap();
                    }
                }
            });
            let mut earlier: Option<Copy> = None;
            let mut copies = 0;
            while !writer.is_finished() {
                // Read before the copy begins: it must have all transactions up to this one.
                let least = committed.load(Ordering::SeqCst);
                let to = root.path().join(copies.to_string());
                fs::create_dir(&to).unwrap();
                let copy = Copy::take(&file, &to, earlier.as_ref()).unwrap();
                check(&copy.path, least);
                earlier = Some(copy);
                copies += 1;
            }
            assert!(copies > 10, "{copies}");
        });
        let to = root.path().join("last");
        fs::create_dir(&to).unwrap();
        check(&Copy::take(&file, &to, None).unwrap().path, 1500);
    }

    fn check(path: &Path, least: u64) {
        let config = Config::default().threads(1).unwrap();
        let db = Connection::open_in_memory_with_flags(config).unwrap();
        let attach = format!("ATTACH '{}' AS copy (READ_ONLY)", path.display());
        db.execute_batch(&attach).unwrap();
        let (rows, a, b, texts): (u64, u64, u64, u64) = db
            .query_row(
                "SELECT (SELECT count(*) FROM copy.b), (SELECT max(n) FROM copy.a),
                 (SELECT max(n) FROM copy.b), (SELECT count(DISTINCT t) FROM copy.a)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .unwrap_or_default();

        // After a deletion, the largest number of `a` may be missing.
        assert!(
            b >= least && rows == b && (a == b || b % 3 == 0),
            "{least}: {rows} {a} {b}"
        );
        assert!(texts > 0 || least == 0);
    }

    #[test]
    fn an_unchanged_database_has_the_same_state() {
        let root = tempdir().unwrap();
        let file = root.path().join("records.duckdb");
        let db = Connection::open(&file).unwrap();
        db.execute_batch("CREATE TABLE a (n BIGINT)").unwrap();
        let before = FileState::read(&file).unwrap();
        assert_eq!(before, FileState::read(&file).unwrap());

        // A commit grows the log, and a checkpoint ends it.
        db.execute_batch("INSERT INTO a VALUES (1)").unwrap();
        let after = FileState::read(&file).unwrap();
        assert_ne!(before, after);
        assert!(before.is_same_checkpoint(&after) && after.bytes() > before.bytes());
        db.execute_batch("CHECKPOINT").unwrap();
        assert!(!after.is_same_checkpoint(&FileState::read(&file).unwrap()));
    }
}
