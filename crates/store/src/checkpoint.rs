//! Checkpoints that survive a power loss.
//!
//! A checkpoint of DuckDB writes changed data into free blocks and then refers to them in a new
//! header. Metadata are different: a block of 256 KiB holds 64 pieces of them, and DuckDB rewrites
//! such a block in place while the current header still refers to some of its pieces. A power loss in
//! the middle of this write damages the block, and the file cannot be opened. Therefore DuckDB never
//! writes a checkpoint on its own. [`checkpoint`] first copies the blocks with metadata and the
//! headers into the *undo file* beside the database. If the checkpoint does not complete,
//! [`undo_interrupted`] copies them back at the next start, and DuckDB replays its log.

use super::StoreError;
use super::block::sync_directory;
use super::database::with_suffix;
use duckdb::Connection;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh64::xxh64;

/// First bytes of an undo file.
const MAGIC: &[u8; 8] = b"TAKTUND1";

const UNDO: &str = ".undo";

/// Length of each header of a database file, in bytes.
const HEADER: usize = 4096;

/// Length of the main header and the two database headers, in bytes. The first block follows them.
const HEADERS: usize = 3 * HEADER;

/// Writes the log of an attached database back into its file. Call it once at a time for each file.
///
/// # Errors
/// If the undo file cannot be written, or DuckDB refuses, for instance because a transaction is
/// writing. The log keeps all rows then.
pub(super) fn checkpoint(db: &Connection, catalog: &str, file: &Path) -> Result<(), StoreError> {
    let path = with_suffix(file, UNDO);
    let headers = Headers::read(file).map_err(failed(file))?;
    let earlier = Undo::read(&path).map_err(failed(&path))?;
    // After a checkpoint that failed, its undo file still holds what these headers refer to.
    if !earlier.is_some_and(|undo| undo.is_needed(&headers)) {
        let blocks = metadata_blocks(db, catalog)?;
        Undo::of(file, headers, &blocks)
            .and_then(|undo| undo.write(&path))
            .map_err(failed(&path))?;
    }
    db.execute_batch(&format!("CHECKPOINT {catalog}"))
        .map_err(StoreError::sql("write a checkpoint"))?;
    // The checkpoint is complete, so there is nothing to undo.
    fs::remove_file(&path).map_err(failed(&path))
}

/// Restores the blocks of a checkpoint that did not complete. Call it before the file is attached.
///
/// # Errors
/// If a file cannot be read or written. The undo file stays then.
pub(super) fn undo_interrupted(file: &Path) -> Result<(), StoreError> {
    let path = with_suffix(file, UNDO);
    if !path.exists() {
        return Ok(());
    }

    match Undo::read(&path).map_err(failed(&path))? {
        Some(undo) => {
            let is_needed =
                file.exists() && undo.is_needed(&Headers::read(file).map_err(failed(file))?);
            if is_needed {
                undo.restore(file).map_err(failed(file))?;
                tracing::warn!(
                    file = %file.display(),
                    "a checkpoint was interrupted; restored the blocks that it was writing"
                );
            }
        }
        // The checkpoint begins only after the undo file is whole.
        None => tracing::error!(file = %path.display(), "ignored a damaged undo file"),
    }
    fs::remove_file(&path).map_err(failed(&path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Directory {
        path: path.clone(),
        source,
    }
}

/// Returns the numbers of the blocks that hold metadata. They follow from the current header.
fn metadata_blocks(db: &Connection, catalog: &str) -> Result<Vec<u64>, StoreError> {
    let sql = "SELECT block_id::UBIGINT FROM pragma_metadata_info(?) ORDER BY 1";
    let read = || -> duckdb::Result<Vec<u64>> {
        db.prepare(sql)?
            .query_map([catalog], |row| row.get(0))?
            .collect()
    };
    read().map_err(StoreError::sql("list the blocks with metadata"))
}

/// The headers of a database file. DuckDB writes its two database headers in turn: the one with the
/// higher iteration is current.
struct Headers(Vec<u8>);

impl Headers {
    /// Reads the headers. A file that is too short has zeros instead.
    fn read(file: &Path) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(HEADERS);
        File::open(file)?
            .take(HEADERS as u64)
            .read_to_end(&mut bytes)?;
        bytes.resize(HEADERS, 0);
        Ok(Self(bytes))
    }

    fn main(&self) -> &[u8] {
        &self.0[..HEADER]
    }

    /// One of the two database headers.
    fn database(&self, slot: usize) -> &[u8] {
        &self.0[HEADER * (slot + 1)..][..HEADER]
    }

    /// Iteration of a database header. `None` if its checksum does not match.
    fn iteration(&self, slot: usize) -> Option<u64> {
        let header = self.database(slot);
        let is_whole = number(header, 0) == checksum(&header[8..]);
        is_whole.then(|| number(header, 8))
    }

    /// The slot with the current header, and its iteration.
    fn current(&self) -> Option<(usize, u64)> {
        (0..2)
            .filter_map(|slot| Some((slot, self.iteration(slot)?)))
            .max_by_key(|&(_, iteration)| iteration)
    }

    /// Length of a block in bytes.
    fn block_bytes(&self) -> Option<u64> {
        let (slot, _) = self.current()?;
        // DuckDB stores it behind the number of blocks.
        Some(number(self.database(slot), 40))
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// DuckDB's checksum of a header.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(5381, |sum, word| {
        sum ^ number(word, 0).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    })
}

/// Headers and blocks of a database before a checkpoint.
struct Undo {
    headers: Headers,
    /// Each block with its place in the file.
    blocks: Vec<(u64, Vec<u8>)>,
}

impl Undo {
    /// Reads blocks of a database.
    fn of(file: &Path, headers: Headers, numbers: &[u64]) -> io::Result<Self> {
        let bytes = headers
            .block_bytes()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the headers are damaged"))?;
        let open = File::open(file)?;
        let end = open.metadata()?.len();
        let mut blocks = Vec::new();
        let places = numbers.iter().map(|n| HEADERS as u64 + n * bytes);
        // The header refers to no block beyond the end.
        for place in places.filter(|place| place + bytes <= end) {
            let mut block = vec![0; usize::try_from(bytes).unwrap_or(0)];
            open.read_exact_at(&mut block, place)?;
            blocks.push((place, block));
        }
        Ok(Self { headers, blocks })
    }

    /// Reads an undo file. `None` if it does not exist or is damaged.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        let rest = content.strip_prefix(MAGIC)?;
        if number(hash, 0) != xxh64(content, 0) {
            return None;
        }

        let (headers, mut rest) = rest.split_at_checked(HEADERS)?;
        let headers = Headers(headers.to_vec());
        let length = usize::try_from(headers.block_bytes()?).ok()?;

        let mut blocks = Vec::new();
        while !rest.is_empty() {
            let (place, after) = rest.split_at_checked(8)?;
            let (block, after) = after.split_at_checked(length)?;
            blocks.push((number(place, 0), block.to_vec()));
            rest = after;
        }

        Some(Self { headers, blocks })
    }

    /// Writes the file and syncs it, before DuckDB may change a block.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(&self.headers.0);
        for (place, block) in &self.blocks {
            bytes.extend(place.to_le_bytes());
            bytes.extend(block);
        }
        bytes.extend(xxh64(&bytes, 0).to_le_bytes());
        let new = with_suffix(path, ".new");
        let written = write_new(&new, &bytes).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            // A full disk needs the space.
            let _ = fs::remove_file(&new);
        }
        written?;
        sync_directory(&parent(path))
    }

    /// Whether the current header of the database is still the one before the checkpoint.
    fn is_needed(&self, now: &Headers) -> bool {
        let Some((slot, iteration)) = self.headers.current() else {
            return false;
        };
        let is_newer = now
            .iteration(1 - slot)
            .is_some_and(|other| other > iteration);
        self.headers.main() == now.main()
            && self.headers.database(slot) == now.database(slot)
            && !is_newer
    }

    /// Writes all blocks and headers back.
    fn restore(&self, file: &Path) -> io::Result<()> {
        let open = File::options().write(true).open(file)?;
        for (place, block) in &self.blocks {
            open.write_all_at(block, *place)?;
        }
        // Last, so that an interruption leaves the undo file in force.
        open.write_all_at(&self.headers.0, 0)?;
        open.sync_all()
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn database(file: &Path) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        // Only the test writes checkpoints.
        let sql = "PRAGMA disable_checkpoint_on_shutdown; SET wal_autocheckpoint = '1TB'";
        db.execute_batch(sql).unwrap();
        db.execute_batch(&format!("ATTACH '{}' AS records", file.display()))
            .unwrap();
        db
    }

    fn fill(db: &Connection, table: usize, rows: usize) {
        db.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS records.t{table} (n BIGINT, text VARCHAR, other VARCHAR);
             INSERT INTO records.t{table} SELECT n, sha256(n::VARCHAR), 'x' FROM range({rows}) AS t(n)"
        ))
        .unwrap();
    }

    fn count(file: &Path) -> duckdb::Result<i64> {
        let sql = "SELECT (SELECT count(DISTINCT text) FROM records.t0)
                        + (SELECT count(DISTINCT text) FROM records.t1)";
        let db = Connection::open_in_memory()?;
        db.execute_batch(&format!("ATTACH '{}' AS records", file.display()))?;
        db.query_row(sql, [], |row| row.get(0))
    }

    /// A checkpoint that destroys a block which the header refers to, and stops there.
    #[test]
    fn blocks_of_an_interrupted_checkpoint_are_restored() {
        let root = tempdir().unwrap();
        let file = root.path().join("records.duckdb");
        let db = database(&file);
        fill(&db, 0, 5000);
        checkpoint(&db, "records", &file).unwrap();
        fill(&db, 1, 5000);
        let before = fs::read(&file).unwrap();
        let headers = Headers::read(&file).unwrap();
        let numbers = metadata_blocks(&db, "records").unwrap();
        let undo = Undo::of(&file, headers, &numbers).unwrap();
        assert!(!undo.blocks.is_empty());
        undo.write(&with_suffix(&file, UNDO)).unwrap();
        drop(db);

        let mut bytes = before.clone();

        // Each block is damaged, as by a write that was interrupted.
        for (place, _) in &undo.blocks {
            bytes[*place as usize + 100_000..][..1000].fill(7);
        }
        fs::write(&file, &bytes).unwrap();
        count(&file).unwrap_err();
        fs::write(&file, &bytes).unwrap();
        undo_interrupted(&file).unwrap();
        assert!(!with_suffix(&file, UNDO).exists());
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(count(&file).unwrap(), 10_000);
    }

    #[test]
    fn a_completed_checkpoint_is_not_undone() {
        let root = tempdir().unwrap();
        let file = root.path().join("records.duckdb");
        let path = with_suffix(&file, UNDO);
        let db = database(&file);
        fill(&db, 0, 5000);
        checkpoint(&db, "records", &file).unwrap();
        assert!(!path.exists());
        let numbers = metadata_blocks(&db, "records").unwrap();
        let undo = Undo::of(&file, Headers::read(&file).unwrap(), &numbers).unwrap();
        fill(&db, 1, 5000);
        checkpoint(&db, "records", &file).unwrap();
        drop(db);
        // The undo file was deleted, but the power loss brings it back.
        undo.write(&path).unwrap();
        undo_interrupted(&file).unwrap();
        assert!(!path.exists());
        assert_eq!(count(&file).unwrap(), 10_000);
    }

    #[test]
    fn a_damaged_undo_file_is_ignored() {
        let root = tempdir().unwrap();
        let file = root.path().join("records.duckdb");
        let path = with_suffix(&file, UNDO);
        let db = database(&file);
        fill(&db, 0, 10);
        checkpoint(&db, "records", &file).unwrap();
        let undo = Undo::of(&file, Headers::read(&file).unwrap(), &[0]).unwrap();
        undo.write(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for length in [0, 7, 8, 16, HEADERS, bytes.len() - 1] {
            assert!(Undo::parse(&bytes[..length]).is_none());
        }
        let mut changed = bytes.clone();
        changed[HEADERS + 50] ^= 1;
        assert!(Undo::parse(&changed).is_none() && Undo::parse(&bytes).is_some());
    }
}
