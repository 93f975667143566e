//! Reads the samples of series in a time range from segments and blocks.

use crate::block::{
    Block, Caching, Reading, Resolution, SampleSelection, collect, read_blocks, read_rows,
};
use crate::layout::Layout;
use crate::{Database, Meter, Sample, StoreError};
use duckdb::Connection;
use hashbrown::HashMap;
use std::sync::Arc;

/// Returns the selected samples from segments and blocks, by series, in order of time.
///
/// # Errors
/// [`StoreError::GivenUp`] if the meter stopped the read, or if DuckDB fails.
pub(crate) fn read_range(
    database: &Database,
    layout: &Layout,
    wanted: &SampleSelection,
    meter: Meter<'_>,
) -> Result<HashMap<u32, Vec<Sample>>, StoreError> {
    let mut found = HashMap::new();
    let range = (wanted.from, wanted.to);
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
    let asked = Resolution::ALL.map(asked);

    if asked.iter().any(|blocks| !blocks.is_empty()) || !layout.tables.is_empty() {
        // A connection costs as much as reading a few series.
        let db = database.reader()?;
        let [raw, five_minutes, hours] = asked;
        let cache = database.block_cache();
        read_rows(&db, &[hours, five_minutes], wanted, &mut found, meter)?;
        let uncached = match wanted.caching {
            Caching::Metrics => cache.read(&db, raw, wanted, &mut found, meter)?,
            Caching::Nothing => raw,
        };
        read_blocks(&db, &uncached, wanted, &mut found, meter)?;
        read_tables(&db, layout, wanted, &mut found, meter)?;
    }

    for file in &layout.segments {
        let complete = file.each(&wanted.series, range, &mut |series, samples| {
            found.entry(series).or_default().extend_from_slice(samples);
            meter(samples.len())
        });

        let failed = |source| StoreError::Directory {
            path: file.path().to_owned(),
            source,
        };
        if !complete.map_err(failed)? {
            return Err(StoreError::GivenUp);
        }
    }

    for samples in found.values_mut() {
        put_in_order(samples, wanted.reading);
    }
    Ok(found)
}

/// Adds the selected samples of tables to `found`.
fn read_tables(
    db: &Connection,
    layout: &Layout,
    wanted: &SampleSelection,
    found: &mut HashMap<u32, Vec<Sample>>,
    meter: Meter<'_>,
) -> Result<(), StoreError> {
    for segment in &layout.tables {
        let sql = format!(
            "SELECT series, ts, value FROM hot.{} WHERE {}",
            segment.table(),
            wanted.hot_condition()
        );
        let complete = collect(db, &sql, &wanted.series, found, meter);
        if !complete.map_err(StoreError::sql("read samples"))? {
            return Err(StoreError::GivenUp);
        }
    }
    Ok(())
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
