//! Reads the samples of series in a time range from segments and blocks.

use crate::block::{Block, Reading, Resolution, SampleSelection, collect, read_blocks, read_rows};
use crate::block_cache::BlockCache;
use crate::layout::Layout;
use crate::{Meter, Sample, StoreError};
use duckdb::Connection;
use hashbrown::HashMap;
use std::sync::Arc;

/// Returns the selected samples from segments and blocks, by series, in order of time.
///
/// # Errors
/// [`StoreError::GivenUp`] if the meter stopped the read, or if DuckDB fails.
pub(crate) fn read_range(
    db: &Connection,
    layout: &Layout,
    cache: &BlockCache,
    wanted: &SampleSelection,
    meter: Meter<'_>,
) -> Result<HashMap<u32, Vec<Sample>>, StoreError> {
    let mut found = HashMap::new();
    if wanted.series.is_empty() || wanted.from > wanted.to {
        return Ok(found);
    }
    let is_asked = |block: &&Arc<Block>| {
        block.overlaps(wanted.from, wanted.to) && !block.series.is_disjoint(&wanted.series)
    };
    let asked = |resolution| {
        layout
            .answering(resolution)
            .filter(is_asked)
            .collect::<Vec<_>>()
    };
    read_rows(
        db,
        &[Resolution::Hour, Resolution::FiveMinutes].map(asked),
        wanted,
        &mut found,
        meter,
    )?;
    let unknown = cache.read(db, asked(Resolution::Raw), wanted, &mut found, meter)?;
    read_blocks(db, &unknown, wanted, &mut found, meter)?;
    for segment in &layout.segments {
        let sql = format!(
            "SELECT series, ts, value FROM hot.{} WHERE {}",
            segment.table(),
            wanted.hot_condition()
        );
        let complete = collect(db, &sql, &wanted.series, &mut found, meter);
        if !complete.map_err(StoreError::sql("read samples"))? {
            return Err(StoreError::GivenUp);
        }
    }
    for samples in found.values_mut() {
        put_in_order(samples, wanted.reading);
    }
    Ok(found)
}

/// Sorts samples by time and joins samples of the same time. The input is in block order: earlier
/// blocks first.
fn put_in_order(samples: &mut Vec<Sample>, reading: Reading) {
    if samples.is_sorted_by(|one, next| one.at < next.at) {
        return;
    }
    samples.sort_by_key(|sample| sample.at);
    if reading != Reading::Count {
        samples.dedup_by(|next, kept| {
            next.at == kept.at && {
                kept.value = reading.join(kept.value, next.value);
                true
            }
        });
    }
}
