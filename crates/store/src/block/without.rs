//! Deletes series from a block.

use super::files::BlockFacts;
use super::verify::check_bytes;
use super::write::{BlockDraft, copy};
use super::{ALL_FILES, Block, BlockName, SAMPLES, SERIES, damaged};
use crate::{Database, StoreError};
use roaring::RoaringBitmap;

/// Writes a new edition of a block without some series. Returns `None` if no series is left.
///
/// # Errors
/// If the block cannot be read, the new one cannot be written, or the new one has a wrong number of
/// rows.
pub(crate) fn without(
    database: &Database,
    block: &Block,
    series: &RoaringBitmap,
) -> Result<Option<Block>, StoreError> {
    let left = &block.series - series;
    if left.is_empty() {
        return Ok(None);
    }

    let db = database.connect()?;
    let draft = BlockDraft::begin(database.path(), block.resolution)?;
    let gone = (&block.series & series)
        .iter()
        .map(|id| id.to_string())
        .collect::<Vec<_>>()
        .join(",");

    for (name, source) in [(SAMPLES, block.samples()), (SERIES, block.series_file())] {
        let select = format!("SELECT * FROM read_parquet({source}) WHERE series NOT IN ({gone})");
        copy(&db, &select, &draft.file(name))?;
    }

    let count = |sql: String| {
        db.query_row(&sql, [], |row| row.get::<_, i64>(0))
            .map(i64::cast_unsigned)
    };

    let counted = || StoreError::sql("count the rows of a block");
    let file = super::quoted(&draft.file(SERIES).to_string_lossy());
    let expected = count(format!(
        "SELECT sum(samples)::BIGINT FROM read_parquet({file})"
    ))
    .map_err(counted())?;

    let file = super::quoted(&draft.file(SAMPLES).to_string_lossy());
    let found = count(format!("SELECT count(*) FROM read_parquet({file})")).map_err(counted())?;

    if expected != found {
        return Err(damaged(
            &draft.file(SAMPLES),
            format!("expected {expected} rows, found {found}"),
        ));
    }

    check_bytes(block, &ALL_FILES)?;
    let BlockFacts { from, to, .. } = block.facts;
    let name = BlockName::new(
        from,
        block.name.first,
        block.name.last,
        block.name.edition + 1,
    );

    draft.publish(name, (from, to), found, left).map(Some)
}
