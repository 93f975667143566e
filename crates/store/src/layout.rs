//! The layout: all blocks and segments that hold samples, and the SQL views over them.

use super::attach::{Damaged, set_aside};
use super::block::{
    self, BLOCKS, Block, BlockName, BlockSource, Resolution, SEALING, SERIES, folder, list_of,
    metric_hash, sync_directory,
};
use super::database::quoted;
use super::segments::Segment;
use super::unsealed::{SegmentFile, Unsealed, scan_all, scan_metric};
use super::{Database, StoreError};
use duckdb::{Connection, params};
use roaring::RoaringBitmap;
use std::fs;
use std::io;
use std::path::Path;
use std::slice;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// File with views over the blocks for other programs, in the data directory.
const BLOCKS_SQL: &str = "blocks.sql";

/// All segments and blocks. A reader takes a snapshot; the data it names stays on disk until the
/// last reader drops the snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    /// Segments that an earlier version wrote as tables, ascending. They wait to be sealed.
    pub tables: Vec<Segment>,
    /// Ascending. The writer appends to the last one; the others wait to be sealed.
    pub segments: Vec<Arc<SegmentFile>>,
    /// Sorted by resolution, then by segment.
    pub blocks: Vec<Arc<Block>>,
}

impl Layout {
    /// Finds segments and blocks. Removes remains of a crash, sets damaged blocks aside, and
    /// adjusts the tables to the blocks.
    pub fn open(
        db: &Connection,
        data: &Path,
        damaged: &mut Vec<Damaged>,
    ) -> Result<(Self, Unsealed), StoreError> {
        // A folder there is a block that was not finished, and its source still exists.
        remove_if_there(&data.join(SEALING)).map_err(|source| StoreError::Directory {
            path: data.to_owned(),
            source,
        })?;

        let mut layout = Self::default();
        for resolution in Resolution::ALL {
            layout
                .blocks
                .extend(load_blocks(db, data, resolution, damaged)?);
        }

        // The blocks come first, because they decide which tables and series are still needed.
        layout.fit_tables(db)?;
        layout.fit_series(db, damaged)?;

        let newest_sealed = layout.blocks.iter().map(|block| block.name.last).max();
        let newest_table = layout.tables.last().map(|segment| segment.0);
        let is_sealed = |segment: u32| {
            layout
                .of(Resolution::Raw)
                .any(|block| (block.name.first..=block.name.last).contains(&segment))
        };

        // A new segment must not get the number of a sealed one.
        let least = newest_sealed.max(newest_table).map_or(1, |used| used + 1);

        let (unsealed, segments) = Unsealed::open(data, is_sealed, least, damaged)?;
        layout.segments = segments;
        Ok((layout, unsealed))
    }

    /// The complete segments, which wait to be sealed.
    pub fn frozen(&self) -> Vec<BlockSource> {
        let tables = self.tables.iter().copied().map(BlockSource::Table);
        let files = self
            .segments
            .iter()
            .filter(|file| file.is_complete())
            .cloned()
            .map(BlockSource::Segment);
        tables.chain(files).collect()
    }

    /// The blocks of a resolution, in order of their segments.
    pub fn of(&self, resolution: Resolution) -> impl Iterator<Item = &Arc<Block>> {
        self.blocks
            .iter()
            .filter(move |block| block.resolution == resolution)
    }

    /// The blocks of a resolution that no block of a finer resolution covers.
    pub fn answering(&self, resolution: Resolution) -> impl Iterator<Item = &Arc<Block>> {
        let has_finer = move |block: &Block| {
            self.blocks
                .iter()
                .filter(|other| other.resolution < resolution)
                .into_iter()
                .any(|other| {
                    other.name.first <= block.name.last && block.name.first <= other.name.last
                })
        };
        self.of(resolution).filter(move |block| !has_finer(block))
    }

    /// Returns the layout without the blocks `gone`, with the blocks `new`.
    pub fn with(&self, gone: &[Arc<Block>], new: impl IntoIterator<Item = Arc<Block>>) -> Self {
        let mut blocks: Vec<_> = self
            .blocks
            .iter()
            .filter(|block| !gone.iter().any(|gone| Arc::ptr_eq(gone, block)))
            .cloned()
            .chain(new)
            .collect();
        blocks.sort_by_key(|block| (block.resolution, block.name.first));
        Self {
            tables: self.tables.clone(),
            segments: self.segments.clone(),
            blocks,
        }
    }

    /// Drops the tables of sealed segments.
    fn fit_tables(&mut self, db: &Connection) -> Result<(), StoreError> {
        let tables = || -> Result<Vec<Segment>, duckdb::Error> {
            let names = db
                .prepare("SELECT table_name FROM duckdb_tables() WHERE database_name = 'hot'")?
                .query_map([], |row| row.get::<_, String>(0))?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(names.iter().filter_map(|name| Segment::of(name)).collect())
        };

        let is_sealed = |segment: &Segment| {
            self.of(Resolution::Raw)
                .any(|block| (block.name.first..=block.name.last).contains(&segment.0))
        };

        // A crash between sealing and dropping leaves such a table, whose rows would count twice.
        let (sealed, mut left): (Vec<_>, Vec<_>) = tables()
            .map_err(StoreError::sql("list the tables of samples"))?
            .into_iter()
            .partition(is_sealed);
        left.sort_unstable();

        let statements: Vec<String> = sealed
            .iter()
            .map(|segment| format!("DROP TABLE hot.{}", segment.table()))
            .collect();
        if !statements.is_empty() {
            let failed = StoreError::sql("adjust the tables of samples");
            db.execute_batch(&statements.join("; ")).map_err(failed)?;
        }

        self.tables = left;
        Ok(())
    }

    /// Restores series that the database lost: each block stores its series. A block whose list is
    /// damaged is set aside.
    fn fit_series(
        &mut self,
        db: &Connection,
        damaged: &mut Vec<Damaged>,
    ) -> Result<(), StoreError> {
        let failed = || StoreError::sql("restore series from blocks");
        let known = known_series(db).map_err(failed())?;
        let mut with_unknown = Vec::new();
        let mut gone = Vec::new();

        for block in &self.blocks {
            if block.series.is_subset(&known) {
                continue;
            }
            // A changed byte may be another series.
            match block::check_bytes(block, &[SERIES]) {
                Ok(()) => with_unknown.push(block.series_file()),
                Err(StoreError::DamagedBlock { reason, .. }) => {
                    damaged.push(set_aside(&block.path, &reason)?);
                    gone.push(Arc::clone(block));
                }
                Err(other) => return Err(other),
            }
        }

        self.blocks = self.with(&gone, []).blocks;
        if with_unknown.is_empty() {
            return Ok(());
        }

        // Several blocks list the same series, with equal labels.
        let sql = format!(
            "INSERT INTO hot.series (id, metric, labels, metric_hash)
             SELECT series, any_value(metric), any_value(labels), any_value(metric_hash) FROM read_parquet({})
             WHERE series NOT IN (SELECT id FROM hot.series) GROUP BY series ORDER BY series",
            list_of(with_unknown.into_iter())
        );

        let restored = db.execute(&sql, []).map_err(failed())?;
        if restored > 0 {
            tracing::warn!(series = restored, "restored series from blocks");
        }
        Ok(())
    }

    /// The views for the server's SQL, over blocks and segments.
    pub fn views(&self) -> String {
        let hot = |segment: &Segment| {
            let table = segment.table();
            format!(
                "SELECT s.metric, s.labels, h.ts::TIMESTAMP AS ts, h.value FROM hot.{table} AS h
                 JOIN hot.series AS s ON s.id = h.series"
            )
        };

        let unsealed = |file: &Arc<SegmentFile>| {
            format!(
                "SELECT s.metric, s.labels, h.ts::TIMESTAMP AS ts, h.value
                 FROM {} AS h JOIN hot.series AS s ON s.id = h.series",
                scan_all(file.segment.0)
            )
        };

        let path = |block: &Block, file: &str| quoted(&block.path.join(file).to_string_lossy());
        let raw: Vec<_> = self.of(Resolution::Raw).collect();
        let recent = raw
            .iter()
            .map(|block| block.facts.to)
            .max()
            .unwrap_or_default()
            .minus(RECENT);
        let last: Vec<_> = raw
            .iter()
            .copied()
            .filter(|block| block.facts.to > recent)
            .collect();

        let mut sql = String::new();
        for (view, blocks) in [("samples", raw), ("recent", last)] {
            let sealed =
                (!blocks.is_empty()).then(|| rows("hot.series", &blocks, RAW_VALUES, &path));
            let tables = self.tables.iter().map(hot);
            let files = self.segments.iter().map(unsealed);
            let all: Vec<String> = tables.chain(files).chain(sealed).collect();
            sql += &format!(
                "CREATE OR REPLACE VIEW memory.{view} AS\n{};\n",
                all.join("\nUNION ALL\n")
            );
        }

        self.write_rollups(&mut sql, "memory.", "hot.series", &path);
        sql += &self.points(&path);
        sql
    }

    /// Statements that read the footers of all blocks, so that DuckDB keeps them in memory.
    pub fn read_footers(&self) -> String {
        let mut sql = String::new();
        for resolution in Resolution::ALL {
            let mut files = self
                .of(resolution)
                .map(|block| quoted(&block.path.join(block::SAMPLES).to_string_lossy()))
                .peekable();
            if files.peek().is_some() {
                sql += &format!("SELECT count(*) FROM read_parquet({});\n", list_of(files));
            }
        }
        sql
    }

    /// Macro for the samples of one metric by its hash, with series numbers, over blocks and
    /// segments. (Tables have no hash: rows of all metrics.) A join with few series then reads only
    /// their rows.
    fn points(&self, path: &dyn Fn(&Block, &str) -> String) -> String {
        let hot = self.tables.iter().map(|segment| {
            format!(
                "SELECT series, ts::TIMESTAMP AS ts, value FROM hot.{}",
                segment.table()
            )
        });

        let files = self.segments.iter().map(|file| {
            format!(
                "SELECT series, ts::TIMESTAMP AS ts, value FROM {}",
                scan_metric(file.segment.0, "hash")
            )
        });

        let raw: Vec<_> = self.of(Resolution::Raw).collect();
        let sealed = (!raw.is_empty()).then(|| {
            let files = list_of(raw.iter().map(|block| path(block, block::SAMPLES)));
            format!("SELECT b.series, b.ts, {RAW_VALUES} FROM read_parquet({files}) AS b WHERE b.metric_hash = hash")
        });

        let all: Vec<String> = hot.chain(files).chain(sealed).collect();
        format!(
            "CREATE OR REPLACE MACRO memory.{POINTS}(hash) AS TABLE\n{};\n",
            all.join("\nUNION ALL\n")
        )
    }

    /// The views for other programs, over the blocks only.
    fn views_for_others(&self) -> String {
        // Paths are relative, so the views work wherever the data directory is mounted.
        let path = |block: &Block, file: &str| {
            quoted(&format!(
                "{BLOCKS}/{}/{}/{file}",
                block.resolution.name(),
                block.name
            ))
        };

        let mut sql = String::from(
            "-- Views over takt's blocks, for DuckDB 1.2 or newer; rewritten when the blocks change.\n\
             -- In this directory: duckdb -init blocks.sql\n\
             -- Samples that are not sealed yet are missing: query the server, or seal: takt store seal\n",
        );

        if self.blocks.is_empty() {
            sql += "-- No block has been sealed yet.\n";
            return sql;
        }

        let files = list_of(self.blocks.iter().map(|block| path(block, SERIES)));
        sql += &format!(
            "CREATE OR REPLACE VIEW series AS\nSELECT series AS id, any_value(metric) AS metric, any_value(labels) AS labels, \
             any_value(metric_hash) AS metric_hash\nFROM read_parquet({files}) GROUP BY series;\n"
        );

        let raw: Vec<_> = self.of(Resolution::Raw).collect();
        if !raw.is_empty() {
            let rows = rows("series", &raw, RAW_VALUES, &path);
            sql += &format!("CREATE OR REPLACE VIEW samples AS\n{rows};\n");
        }

        self.write_rollups(&mut sql, "", "series", &path);
        sql
    }

    fn write_rollups(
        &self,
        sql: &mut String,
        catalog: &str,
        series: &str,
        path: &dyn Fn(&Block, &str) -> String,
    ) {
        for resolution in [Resolution::FiveMinutes, Resolution::Hour] {
            let blocks: Vec<_> = self.of(resolution).collect();
            let rows = if blocks.is_empty() {
                NO_ROLLUPS.to_owned()
            } else {
                rows(series, &blocks, ROLLUP_VALUES, path)
            };
            *sql += &format!(
                "CREATE OR REPLACE VIEW {catalog}samples_{} AS\n{rows};\n",
                resolution.name()
            );
        }
    }
}

/// Name of the macro that the views of metrics use.
pub(super) const POINTS: &str = "points_of_metric";

/// Length of the view `recent` besides the hot samples.
const RECENT: Duration = Duration::from_secs(7200);

pub(crate) const RAW_VALUES: &str = "coalesce(b.mantissa / b.divisor, b.exact) AS value";

pub(crate) const ROLLUP_VALUES: &str = "b.samples, b.min, b.max, b.avg, b.last, b.increase";

/// Definition of a roll-up view while no such block exists.
const NO_ROLLUPS: &str = "SELECT ''::VARCHAR AS metric, ''::VARCHAR AS labels, NULL::TIMESTAMP AS ts, 0::INTEGER AS samples, \
    0::DOUBLE AS min, 0::DOUBLE AS max, 0::DOUBLE AS avg, 0::DOUBLE AS last, 0::DOUBLE AS increase WHERE false";

/// Returns a SELECT of the rows of blocks with their labels. The join includes the metric's hash
/// because files are sorted by it: a query of one metric then skips nearly all row groups.
fn rows(
    series: &str,
    blocks: &[&Arc<Block>],
    values: &str,
    path: &dyn Fn(&Block, &str) -> String,
) -> String {
    let files = list_of(blocks.iter().map(|block| path(block, block::SAMPLES)));
    format!(
        "SELECT s.metric, s.labels, b.ts, {values}\nFROM read_parquet({files}) AS b\n\
         JOIN {series} AS s ON s.id = b.series AND s.metric_hash = b.metric_hash"
    )
}

impl Database {
    /// Returns the current layout.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a new layout. Data that it no longer names must stay on disk for running queries.
    pub(crate) fn set_layout(
        &self,
        change: impl FnOnce(&Layout) -> Layout,
    ) -> Result<(), StoreError> {
        // The lock is held until the views agree with the layout.
        let mut current = self.layout.write().unwrap_or_else(PoisonError::into_inner);

        let layout = change(&current);
        self.root()
            .execute_batch(&layout.views())
            .map_err(StoreError::sql("update the views of samples"))?;

        // `blocks.sql` names blocks only, so a new segment does not change it.
        let has_new_blocks = current.blocks.len() != layout.blocks.len()
            || !current
                .blocks
                .iter()
                .zip(&layout.blocks)
                .all(|(one, other)| Arc::ptr_eq(one, other));

        if has_new_blocks {
            write_for_others(self.path(), &layout);
        }

        *current = Arc::new(layout);
        Ok(())
    }
}

/// Writes `blocks.sql` atomically. A failure, such as a full disk, must not prevent the server from
/// starting, so it is only logged.
pub(crate) fn write_for_others(data: &Path, layout: &Layout) {
    let aside = data.join(format!("{BLOCKS_SQL}.new"));
    let path = data.join(BLOCKS_SQL);
    let written =
        fs::write(&aside, layout.views_for_others()).and_then(|()| fs::rename(aside, &path));
    if let Err(error) = written {
        tracing::warn!(file = %path.display(), %error, "cannot write the views for other programs");
    }
}

/// Removes a folder and its contents, if it exists.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a block: renames it first, which is atomic, then deletes its files.
pub(crate) fn remove_block(data: &Path, block: &Block) -> io::Result<()> {
    let trash = data.join(SEALING).join("trash");
    fs::create_dir_all(data.join(SEALING))?;
    // An earlier removal may have stopped halfway.
    remove_if_there(&trash)?;
    match fs::rename(&block.path, &trash) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        done => done?,
    }
    // Without this, a power failure could bring the folder back with some of its files missing.
    sync_directory(&folder(data, block.resolution))?;
    remove_if_there(&trash)
}

/// Numbers of the series in the database. Adds hashes that an earlier version did not write.
fn known_series(db: &Connection) -> Result<RoaringBitmap, duckdb::Error> {
    let mut statement =
        db.prepare("SELECT DISTINCT metric FROM hot.series WHERE metric_hash IS NULL")?;
    let metrics = statement
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    for metric in metrics {
        let sql = "UPDATE hot.series SET metric_hash = ? WHERE metric = ?";
        db.execute(sql, params![metric_hash(&metric), metric])?;
    }
    db.prepare("SELECT id FROM hot.series")?
        .query_map([], |row| row.get::<_, u32>(0))?
        .collect()
}

/// Loads the blocks of a resolution in order of their segments, without replaced ones.
fn load_blocks(
    db: &Connection,
    data: &Path,
    resolution: Resolution,
    damaged: &mut Vec<Damaged>,
) -> Result<Vec<Arc<Block>>, StoreError> {
    let path = folder(data, resolution);
    let failed = |source| StoreError::Directory {
        path: path.clone(),
        source,
    };

    let entries = match fs::read_dir(&path) {
        // No block of this resolution has been written yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .map_err(failed)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?,
    };

    let mut blocks: Vec<Block> = Vec::new();
    for entry in entries {
        let Some(name) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<BlockName>().ok())
        else {
            continue;
        };

        match Block::describe(&entry.path(), name, resolution) {
            Ok(block) => blocks.push(block),
            Err(StoreError::DamagedBlock { reason, .. }) => {
                damaged.push(set_aside(&entry.path(), &reason)?)
            }
            Err(other) => return Err(other),
        }
    }

    // All blocks are loaded at once, since nearly always none is damaged.
    if let Err(StoreError::DamagedBlock { .. }) = block::load_series(db, &mut blocks) {
        // One at a time, to find the damaged one.
        let mut whole = Vec::with_capacity(blocks.len());
        for mut block in blocks {
            match block::load_series(db, slice::from_mut(&mut block)) {
                Ok(()) => whole.push(block),
                Err(StoreError::DamagedBlock { reason, .. }) => {
                    damaged.push(set_aside(&block.path, &reason)?);
                }
                Err(other) => return Err(other),
            }
        }
        blocks = whole;
    }

    // A crash between writing a block and removing its sources leaves both.
    let is_replaced = |block: &Block| blocks.iter().any(|other| other.name.replaces(&block.name));
    let (old, _): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| is_replaced(block));
    for block in &old {
        tracing::info!(block = %block.title(), "removing a replaced block");
        remove_block(data, block).map_err(failed)?;
    }
    let old: Vec<BlockName> = old.into_iter().map(|block| block.name.clone()).collect();
    blocks.retain(|block| !old.contains(&block.name));
    blocks.sort_by_key(|block| block.name.first);
    Ok(blocks.into_iter().map(Arc::new).collect())
}
