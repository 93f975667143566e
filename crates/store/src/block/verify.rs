//! Verifies blocks: after writing, and on request.

use super::files::BlockFile;
use super::plan::SampleDigest;
use super::{Block, Resolution, SAMPLES, damaged};
use crate::database::quoted;
use crate::{STALE, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::{Array, AsArray};
use duckdb::arrow::datatypes::{Float64Type, Int32Type, TimestampMillisecondType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Returns the digest of a file's rows in their order, as DuckDB decodes them.
pub(super) fn read_digest(
    db: &Connection,
    file: &Path,
    resolution: Resolution,
) -> Result<SampleDigest, StoreError> {
    let values = match resolution {
        Resolution::Raw => "coalesce(mantissa / divisor, exact)",
        Resolution::FiveMinutes | Resolution::Hour => {
            "samples::DOUBLE, min, max, avg, last, increase"
        }
    };
    let sql = format!(
        "SELECT series, ts::TIMESTAMP_MS, {values} FROM read_parquet({})",
        quoted(&file.to_string_lossy())
    );
    let read = || -> Result<SampleDigest, duckdb::Error> {
        let mut digest = SampleDigest::default();
        let mut statement = db.prepare(&sql)?;
        for batch in statement.stream_arrow([])? {
            let series = batch.column(0).as_primitive::<Int32Type>().values();
            let at = batch
                .column(1)
                .as_primitive::<TimestampMillisecondType>()
                .values();
            let values: Vec<_> = batch.columns()[2..]
                .iter()
                .map(|column| column.as_primitive::<Float64Type>())
                .collect();
            for row in 0..batch.num_rows() {
                for column in &values {
                    let value = if column.is_null(row) {
                        STALE
                    } else {
                        column.value(row)
                    };
                    digest.add(series[row].cast_unsigned(), at[row], value);
                }
            }
        }
        Ok(digest)
    };
    // The stream panics if a page cannot be decoded.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) => Err(damaged(file, error)),
        Err(_) => Err(damaged(file, "its pages cannot be decoded")),
    }
}

/// Reads every byte of a block. A changed byte need not fail to decode: it may be another value.
///
/// # Errors
/// [`StoreError::DamagedBlock`] with the file and the damage.
pub(super) fn check_bytes(block: &Block) -> Result<(), StoreError> {
    for (name, expected) in &block.facts.files {
        let path = block.path.join(name);
        let found = BlockFile::of(&path).map_err(|error| damaged(&path, error))?;
        if found != *expected {
            return Err(damaged(&path, "its bytes are not those that were written"));
        }
    }
    Ok(())
}

/// Reads every byte of a block and decodes every row.
///
/// # Errors
/// [`StoreError::DamagedBlock`] with the file and the damage.
pub(crate) fn verify(db: &Connection, block: &Block) -> Result<(), StoreError> {
    check_bytes(block)?;
    let file = block.path.join(SAMPLES);
    let columns = if block.resolution == Resolution::Raw {
        1
    } else {
        6
    };
    let found = read_digest(db, &file, block.resolution)?.samples / columns;
    if found == block.facts.rows {
        Ok(())
    } else {
        Err(damaged(
            &file,
            format!("expected {} rows, found {found}", block.facts.rows),
        ))
    }
}
