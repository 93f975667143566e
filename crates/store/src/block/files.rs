//! The files in a block's folder.

use super::{ALL_FILES, Block, BlockName, FACTS, Resolution, SAMPLES, damaged, list_of};
use crate::StoreError;
use duckdb::Connection;
use duckdb::arrow::array::AsArray;
use duckdb::arrow::datatypes::{Int32Type, UInt64Type};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use takt_model::Timestamp;
use xxhash_rust::xxh64::Xxh64;

/// Format version that this program writes. Blocks of a later version are rejected.
const FORMAT: u32 = 1;

/// Description of a block, stored in `block.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockFacts {
    /// Format version.
    pub format: u32,
    /// Time of the first row.
    #[serde(rename = "from_ms")]
    pub from: Timestamp,
    /// Time of the last row.
    #[serde(rename = "to_ms")]
    pub to: Timestamp,
    /// Number of rows.
    pub rows: u64,
    /// Size and hash of the Parquet files, by name.
    pub files: BTreeMap<String, BlockFile>,
}

/// Expected size and hash of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockFile {
    pub bytes: u64,
    pub xxh64: u64,
}

impl BlockFile {
    /// Reads a file and returns its size and hash.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = fs::File::open(path)?;
        let mut hash = Xxh64::new(0);
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 18];

        loop {
            match file.read(&mut buffer)? {
                0 => {
                    return Ok(Self {
                        bytes,
                        xxh64: hash.digest(),
                    });
                }
                read => {
                    hash.update(&buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
    }
}

impl BlockFacts {
    /// Describes the Parquet files of a folder, syncs them and writes `block.json`.
    pub fn write(folder: &Path, from: Timestamp, to: Timestamp, rows: u64) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for name in ALL_FILES {
            let path = folder.join(name);
            fs::File::open(&path)?.sync_all()?;
            files.insert(name.to_owned(), BlockFile::of(&path)?);
        }

        let facts = Self {
            format: FORMAT,
            from,
            to,
            rows,
            files,
        };

        // The description comes after the files that it describes: a folder that has it is complete.
        let text = serde_json::to_vec_pretty(&facts).expect("plain fields serialise");
        fs::write(folder.join(FACTS), text)?;
        fs::File::open(folder.join(FACTS))?.sync_all()?;
        // The names of the files must be as durable as their contents.
        sync_directory(folder)?;
        Ok(facts)
    }
}

/// Syncs a directory, which makes renames in it durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

impl Block {
    /// Loads a block's description and checks the sizes of its files. The block has no series yet:
    /// see [`load_series`].
    pub fn describe(
        folder: &Path,
        name: BlockName,
        resolution: Resolution,
    ) -> Result<Self, StoreError> {
        let text = fs::read(folder.join(FACTS)).map_err(|error| unreadable(folder, &error))?;
        let facts: BlockFacts =
            serde_json::from_slice(&text).map_err(|error| damaged(folder, error))?;

        // A later version may give the rows another meaning, so the block is not read at all.
        if facts.format > FORMAT {
            let found = i64::from(facts.format);
            let known = i64::from(FORMAT);
            return Err(StoreError::Newer {
                path: folder.to_owned(),
                found,
                known,
            });
        }

        // Sizes cost a call for each file. Hashes would mean reading the whole history at every start.
        for (name, expected) in &facts.files {
            let path = folder.join(name);
            let found = fs::metadata(&path)
                .map_err(|error| unreadable(&path, &error))?
                .len();
            if found != expected.bytes {
                return Err(damaged(
                    &path,
                    format!("expected {} bytes, found {found}", expected.bytes),
                ));
            }
        }

        Ok(Self {
            name,
            resolution,
            path: folder.to_owned(),
            facts,
            series: RoaringBitmap::new(),
        })
    }
}

/// Reads the series of blocks, and checks the end of each Parquet file: views over many blocks fail
/// if one has no footer. [`verify`](super::verify) checks the rows.
///
/// Two statements read all files: a statement costs as much as the series of a small block, and two
/// years have a thousand blocks.
///
/// # Errors
/// [`StoreError::DamagedBlock`] if a file is damaged. It names the block if there is only one.
pub(crate) fn load_series(db: &Connection, blocks: &mut [Block]) -> Result<(), StoreError> {
    let Some(first) = blocks.first() else {
        return Ok(());
    };
    // With many blocks, the error cannot name the damaged one; the caller then tries each alone.
    let any = first.path.clone();
    let files = |path: fn(&Block) -> String| list_of(blocks.iter().map(path));

    let footers = format!(
        "SELECT file_name, num_rows FROM parquet_file_metadata({})",
        files(Block::samples)
    );
    let series = format!(
        "SELECT file_index, series FROM read_parquet({})",
        files(Block::series_file)
    );

    let read = || {
        let mut statement = db.prepare(&footers)?;
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<HashMap<String, i64>, _>>()?;
        let mut found: Vec<Vec<u32>> = vec![Vec::new(); blocks.len()];
        for batch in db.prepare(&series)?.query_arrow([])? {
            let files = batch.column(0).as_primitive::<UInt64Type>().values();
            let series = batch.column(1).as_primitive::<Int32Type>().values();
            for (&file, &series) in files.iter().zip(series) {
                if let Some(found) = found.get_mut(file as usize) {
                    found.push(series.cast_unsigned());
                }
            }
        }
        Ok((rows, found))
    };

    let (rows, found) = read().map_err(|error: duckdb::Error| damaged(&any, error))?;

    for (block, mut series) in blocks.iter_mut().zip(found) {
        let path = block.path.join(SAMPLES);
        let found = rows.get(&*path.to_string_lossy()).copied().unwrap_or(0);
        if found.cast_unsigned() != block.facts.rows {
            let reason = format!("expected {} rows, found {found}", block.facts.rows);
            return Err(damaged(&path, reason));
        }

        // The file is in the order of the metrics' hashes.
        series.sort_unstable();
        series.dedup();
        block.series =
            RoaringBitmap::from_sorted_iter(series).expect("the numbers are in order and differ");
        block.series.optimize();
    }
    Ok(())
}

/// A missing file means a damaged block. Missing permissions do not.
fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "the file is missing"),
        kind => StoreError::Directory {
            path: path.to_owned(),
            source: kind.into(),
        },
    }
}
