//! A block's folder: what it must hold, and making it durable.

use super::{Block, FACTS, Name, Resolution, SAMPLES, SERIES, damaged};
use crate::StoreError;
use crate::database::quoted;
use duckdb::Connection;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use xxhash_rust::xxh64::Xxh64;

/// The format this program writes. A block of a later one is refused.
const FORMAT: u32 = 1;

/// What a block is, as `block.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The version of the layout.
    pub format: u32,
    /// Its first instant, milliseconds since 1970.
    pub from_ms: i64,
    /// Its last instant.
    pub to_ms: i64,
    /// How many rows it has.
    pub rows: u64,
    /// Its files.
    pub files: BTreeMap<String, File>,
}

/// What a file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    pub bytes: u64,
    pub xxh64: u64,
}

impl File {
    /// Reads a file to its end.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (mut file, mut hash, mut bytes) = (fs::File::open(path)?, Xxh64::new(0), 0);
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

impl Facts {
    /// Describes the Parquet files of a folder, makes them durable and writes `block.json` beside them.
    pub fn write(folder: &Path, from_ms: i64, to_ms: i64, rows: u64) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for name in [SAMPLES, SERIES] {
            let path = folder.join(name);
            fs::File::open(&path)?.sync_all()?;
            files.insert(name.to_owned(), File::of(&path)?);
        }
        let facts = Self {
            format: FORMAT,
            from_ms,
            to_ms,
            rows,
            files,
        };
        let text = serde_json::to_vec_pretty(&facts).expect("plain fields serialise");
        fs::write(folder.join(FACTS), text)?;
        fs::File::open(folder.join(FACTS))?.sync_all()?;
        sync_directory(folder)?;
        Ok(facts)
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

impl Block {
    /// Reads what a block's folder says of itself, the end of its Parquet file included: views over many of them cannot be made
    /// where one has none. The rows are not read: that is [`verify`](super::verify)'s work.
    pub fn load(
        db: &Connection,
        folder: &Path,
        name: Name,
        resolution: Resolution,
    ) -> Result<Self, StoreError> {
        let text = fs::read(folder.join(FACTS)).map_err(|error| unreadable(folder, &error))?;
        let facts: Facts = serde_json::from_slice(&text).map_err(|error| damaged(folder, error))?;
        if facts.format > FORMAT {
            let (found, known) = (i64::from(facts.format), i64::from(FORMAT));
            return Err(StoreError::Newer {
                path: folder.to_owned(),
                found,
                known,
            });
        }
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
        let path = folder.join(SAMPLES);
        let count = format!(
            "SELECT count(*) FROM read_parquet({})",
            quoted(&path.to_string_lossy())
        );
        let rows: i64 = db
            .query_row(&count, [], |row| row.get(0))
            .map_err(|error| damaged(&path, error))?;
        if rows.cast_unsigned() != facts.rows {
            return Err(damaged(
                &path,
                format!("expected {} rows, found {rows}", facts.rows),
            ));
        }
        let path = folder.join(SERIES);
        let read = || -> Result<RoaringBitmap, duckdb::Error> {
            let mut statement = db.prepare(&format!(
                "SELECT series FROM read_parquet({})",
                quoted(&path.to_string_lossy())
            ))?;
            let ids = statement.query_map([], |row| row.get::<_, u32>(0))?;
            ids.collect()
        };
        let series = read().map_err(|error| damaged(&path, error))?;
        Ok(Self {
            name,
            resolution,
            path: folder.to_owned(),
            facts,
            series,
        })
    }
}

/// A missing file is damage to a block; one that may not be read is not.
fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "the file is missing"),
        kind => StoreError::Directory {
            path: path.to_owned(),
            source: kind.into(),
        },
    }
}
