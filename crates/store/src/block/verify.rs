//! Verifies blocks: after writing, and on request.

use super::files::BlockFile;
use super::plan::SampleDigest;
use super::{ALL_FILES, Block, Resolution, SAMPLES, damaged};
use crate::database::quoted;
use crate::{STALE, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::{Array, AsArray, RecordBatch};
use duckdb::arrow::datatypes::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Returns the digest of a file's rows in their order, as DuckDB decodes them.
pub(super) fn read_digest(
    db: &Connection,
    file: &Path,
    resolution: Resolution,
) -> Result<SampleDigest, StoreError> {
    let columns = match resolution {
        Resolution::Raw => "mantissa, divisor, exact",
        Resolution::FiveMinutes | Resolution::Hour => {
            "samples::DOUBLE, min, max, avg, last, increase"
        }
    };

    let sql = format!(
        "SELECT series, ts, {columns} FROM read_parquet({})",
        quoted(&file.to_string_lossy())
    );
    let read = || -> Result<SampleDigest, duckdb::Error> {
        let mut digest = SampleDigest::default();
        let mut statement = db.prepare(&sql)?;
        for batch in statement.stream_arrow([])? {
            match resolution {
                Resolution::Raw => add_samples(&batch, &mut digest),
                Resolution::FiveMinutes | Resolution::Hour => add_rollups(&batch, &mut digest),
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

/// Adds samples: the columns series, time, mantissa, divisor and float.
fn add_samples(batch: &RecordBatch, digest: &mut SampleDigest) {
    let (series, times) = keys(batch);
    let mantissas = batch.column(2).as_primitive::<Int64Type>();
    let divisors = batch.column(3).as_primitive::<Float64Type>();
    let floats = batch.column(4).as_primitive::<Float64Type>();
    for (row, (&series, &at)) in series.iter().zip(times).enumerate() {
        let value = if mantissas.is_valid(row) {
            mantissas.value(row) as f64 / divisors.value(row)
        } else if floats.is_valid(row) {
            floats.value(row)
        } else {
            STALE
        };
        digest.add(series.cast_unsigned(), at, value);
    }
}

/// Adds down-sampled rows: the columns series, time and all values.
fn add_rollups(batch: &RecordBatch, digest: &mut SampleDigest) {
    let (series, times) = keys(batch);
    let values: Vec<_> = batch.columns()[2..]
        .iter()
        .map(|column| column.as_primitive::<Float64Type>().values())
        .collect();
    for (row, (&series, &at)) in series.iter().zip(times).enumerate() {
        for column in &values {
            digest.add(series.cast_unsigned(), at, column[row]);
        }
    }
}

fn keys(batch: &RecordBatch) -> (&[i32], &[i64]) {
    let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
    (
        batch.column(0).as_primitive::<Int32Type>().values(),
        times.values(),
    )
}

/// Reads every byte of some of a block's files. A changed byte need not fail to decode: it may be another value.
///
/// # Errors
/// [`StoreError::DamagedBlock`] with the file and the damage.
pub(crate) fn check_bytes(block: &Block, names: &[&str]) -> Result<(), StoreError> {
    let files = block.facts.files.iter();
    for (name, expected) in files.filter(|(name, _)| names.contains(&name.as_str())) {
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
    check_bytes(block, &ALL_FILES)?;
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
