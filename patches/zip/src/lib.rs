//! Refuses to unpack, in place of the archive reader of the same name: see `patches/ureq`.

use std::fs::File;
use std::io;
use std::path::Path;

/// An archive that cannot be opened.
#[derive(Debug)]
pub enum ZipArchive {}

impl ZipArchive {
    /// Refuses to open an archive.
    ///
    /// # Errors
    /// Always.
    pub fn new(_file: File) -> io::Result<Self> {
        Err(io::Error::other(
            "builds of takt unpack no library. Unset DUCKDB_DOWNLOAD_LIB, and set \
             DUCKDB_LIB_DIR=$(scripts/libduckdb.sh).",
        ))
    }

    /// Unpacks the archive.
    ///
    /// # Errors
    /// None; there is no archive.
    pub fn extract(&mut self, _destination: &Path) -> io::Result<()> {
        match *self {}
    }
}
