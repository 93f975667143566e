//! Writes blocks: to a folder aside, compared with the source, synced, and renamed to the final
//! path.

use super::feed::BatchStream;
use super::files::{BlockFacts, sync_directory};
use super::parquet::SampleFile;
use super::plan::{BlockSource, RowPositions, SampleDigest, Slice, SliceEntry, cut};
use super::rollup::RollupColumns;
use super::verify::{check_bytes, read_digest};
use super::{ALL_FILES, Block, BlockName, Resolution, SAMPLES, SEALING, SERIES, damaged, folder};
use crate::crash::crash_point;
use crate::database::quoted;
use crate::layout::Layout;
use crate::{Database, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use hashbrown::HashMap;
use roaring::RoaringBitmap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use takt_model::Timestamp;

/// Rows of a batch. A column of a batch is smaller than what the allocator maps anew each time.
const BATCH_ROWS: usize = 12_288;

/// Format of down-sampled rows and of series; samples are written by [`SampleFile`]. Dictionaries
/// are disabled: they made integers half as large again (docs/storage.md), and a filter per
/// dictionary costs more than the row groups' minimum and maximum save.
const PARQUET: &str = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, PARQUET_VERSION V1, \
                       ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 1, WRITE_BLOOM_FILTER false";

/// The blocks to be written from a source.
#[derive(Debug, Clone)]
pub(crate) struct BlockOutput {
    /// First and last segment of the samples.
    pub segments: (u32, u32),
    /// The raw block must be last: its name implies that the others exist.
    pub resolutions: Vec<Resolution>,
    /// Number of samples in memory at a time.
    pub slice_samples: usize,
}

/// Writes blocks from a source and publishes them. Returns no blocks if the source is empty.
///
/// # Errors
/// If the source cannot be read, the blocks cannot be written, or reading back returns other
/// samples. Nothing has changed then.
pub(crate) fn write(
    database: &Database,
    source: &BlockSource,
    output: &BlockOutput,
) -> Result<Vec<Block>, StoreError> {
    let db = database.connect()?;
    let entries = source.entries(&db)?;
    if entries.is_empty() {
        return Ok(Vec::new());
    }

    let drafts = output
        .resolutions
        .iter()
        .map(|&resolution| BlockDraft::begin(database.path(), resolution))
        .collect::<Result<Vec<_>, _>>()?;

    let layout = database.layout();
    let summaries = std::thread::scope(|scope| {
        let mut outputs = Vec::new();
        let mut writers = Vec::new();
        for (draft, &resolution) in drafts.iter().zip(&output.resolutions) {
            let path = draft.file(SAMPLES);
            if resolution == Resolution::Raw {
                outputs.push(Output::Raw(Box::new(RawOutput::create(path)?)));
                continue;
            }

            // DuckDB writes the rows in a thread of its own, while this one makes them.
            let (rows, sender) = BatchStream::open(RollupColumns::schema());
            let writing = database.connect()?;
            writers.push(scope.spawn(move || {
                let select = format!("SELECT * FROM {}", rows.table());
                copy(&writing, &select, &path)
            }));

            let before = last_values(&db, &layout, resolution, output.segments.0);
            outputs.push(Output::Rollup(
                RollupColumns::new(resolution, before),
                sender,
            ));
        }

        let mut positions = RowPositions::new(&entries);
        let mut slice = Slice::default();
        let mut produced = Ok(true);
        for run in cut(&entries, output.slice_samples) {
            produced = source
                .fill(&db, run, &mut positions, &mut slice)
                .map(|()| true);

            for output in &mut outputs {
                produced = produced.and_then(|goes_on| Ok(goes_on && output.add(&slice)?));
            }
            // A writer that has stopped reports its own error.
            if !matches!(produced, Ok(true)) {
                break;
            }
        }

        // After an error the outputs are dropped here. That ends the writers, which are joined below.
        let finished = produced.and_then(|_| outputs.into_iter().map(Output::finish).collect());
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("a writer does not panic"))?;
        finished
    });
    let summaries: Vec<Summary> = summaries?;

    crash_point("written");
    // The source's samples are removed after this, so they must be those that were written.
    if let BlockSource::Blocks(sources) = source {
        sources
            .iter()
            .try_for_each(|block| check_bytes(block, &ALL_FILES))?;
    }

    let mut blocks = Vec::new();
    for (draft, summary) in drafts.into_iter().zip(summaries) {
        blocks.extend(draft.finish(&db, summary, output)?);
    }
    Ok(blocks)
}

/// Returns the last value of each series in the block of this resolution before a segment. If that
/// block cannot be read, later days are still merged.
fn last_values(
    db: &Connection,
    layout: &Layout,
    resolution: Resolution,
    segment: u32,
) -> HashMap<u32, f64> {
    let before = layout
        .of(resolution)
        .filter(|block| block.name.last < segment)
        .max_by_key(|block| block.name.last);
    let Some(before) = before else {
        return HashMap::new();
    };

    let read = || -> Result<HashMap<u32, f64>, duckdb::Error> {
        let sql = format!(
            "SELECT series, arg_max(last, ts) FROM read_parquet({}) GROUP BY series",
            before.samples()
        );
        let mut statement = db.prepare(&sql)?;
        statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    };

    read().unwrap_or_else(|error| {
        tracing::warn!(
            block = %before.title(),
            %error,
            "cannot read the last values of the previous block"
        );
        HashMap::new()
    })
}

pub(super) fn copy(db: &Connection, select: &str, file: &Path) -> Result<(), StoreError> {
    let sql = format!(
        "COPY ({select}) TO {} ({PARQUET})",
        quoted(&file.to_string_lossy())
    );
    db.execute_batch(&sql)
        .map_err(StoreError::sql("write a block"))
}

/// Contents of a file of rows.
#[derive(Debug, Default)]
pub(super) struct Summary {
    digest: SampleDigest,
    series: Vec<SeriesFact>,
}

#[derive(Debug, Clone, Copy)]
struct SeriesFact {
    series: u32,
    metric_hash: i32,
    samples: i64,
    first: i64,
    last: i64,
}

impl Summary {
    /// Adds a row; rows come in the order of the file.
    pub fn row(&mut self, series: u32, metric_hash: i32, at: i64, values: &[f64]) {
        for &value in values {
            self.digest.add(series, microseconds(at), value);
        }
        self.count(series, metric_hash, &[at]);
    }

    /// Adds samples of one series.
    fn samples(&mut self, series: u32, metric_hash: i32, at: &[i64], values: &[f64]) {
        for (&at, &value) in at.iter().zip(values) {
            self.digest.add(series, microseconds(at), value);
        }
        self.count(series, metric_hash, at);
    }

    fn count(&mut self, series: u32, metric_hash: i32, at: &[i64]) {
        let (Some(&first), Some(&last)) = (at.first(), at.last()) else {
            return;
        };

        // The rows of a series are adjacent, so they belong to the last entry or to a new one.
        match self.series.last_mut() {
            Some(fact) if fact.series == series => {
                fact.samples += at.len() as i64;
                fact.last = last;
            }
            _ => self.series.push(SeriesFact {
                series,
                metric_hash,
                samples: at.len() as i64,
                first,
                last,
            }),
        }
    }

    fn rows(&self) -> u64 {
        self.series
            .iter()
            .map(|fact| fact.samples.cast_unsigned())
            .sum()
    }
}

/// DuckDB returns the times of a file in microseconds.
fn microseconds(at: i64) -> i64 {
    at.wrapping_mul(1000)
}

/// Writes the rows of one resolution.
enum Output {
    Raw(Box<RawOutput>),
    /// Rows, and the thread that writes them.
    Rollup(RollupColumns, SyncSender<RecordBatch>),
}

impl Output {
    /// Adds the samples of a slice. Returns `false` if the writing thread has stopped.
    fn add(&mut self, slice: &Slice) -> Result<bool, StoreError> {
        match self {
            Self::Raw(raw) => raw.add(slice).map(|()| true),
            Self::Rollup(columns, sender) => Ok(slice.series().all(|(entry, at, values)| {
                columns.push(entry.series, entry.metric_hash, at, values);
                columns.len() < BATCH_ROWS || sender.send(columns.take()).is_ok()
            })),
        }
    }

    fn finish(self) -> Result<Summary, StoreError> {
        match self {
            Self::Raw(raw) => raw.finish(),
            Self::Rollup(mut columns, sender) => {
                let rest = columns.take();
                if rest.num_rows() > 0 {
                    // A writer that has stopped reports its own error.
                    let _ = sender.send(rest);
                }
                Ok(columns.summary)
            }
        }
    }
}

/// Writes raw samples.
struct RawOutput {
    path: PathBuf,
    file: SampleFile,
    summary: Summary,
}

impl RawOutput {
    fn create(path: PathBuf) -> Result<Self, StoreError> {
        match SampleFile::create(&path) {
            Ok(file) => Ok(Self {
                path,
                file,
                summary: Summary::default(),
            }),
            Err(source) => Err(StoreError::Directory { path, source }),
        }
    }

    fn add(&mut self, slice: &Slice) -> Result<(), StoreError> {
        for (entry, at, values) in slice.series() {
            let SliceEntry {
                series,
                metric_hash,
                ..
            } = entry;
            self.file
                .push(series, metric_hash, at, values)
                .map_err(|source| StoreError::Directory {
                    path: self.path.clone(),
                    source,
                })?;
            self.summary.samples(series, metric_hash, at, values);
        }
        Ok(())
    }

    fn finish(self) -> Result<Summary, StoreError> {
        let Self {
            path,
            file,
            summary,
        } = self;
        match file.finish() {
            Ok(()) => Ok(summary),
            Err(source) => Err(StoreError::Directory { path, source }),
        }
    }
}

/// First columns of every file of rows.
pub(super) fn key_fields() -> Vec<Field> {
    vec![
        Field::new("metric_hash", DataType::Int32, false),
        Field::new("series", DataType::Int32, false),
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Millisecond, None),
            false,
        ),
    ]
}

/// A block being written, in a folder of its own.
pub(super) struct BlockDraft {
    resolution: Resolution,
    data: PathBuf,
    path: PathBuf,
}

impl BlockDraft {
    pub fn begin(data: &Path, resolution: Resolution) -> Result<Self, StoreError> {
        let path = data.join(SEALING).join(resolution.name());
        let failed = |source| StoreError::Directory {
            path: path.clone(),
            source,
        };
        // Files of an attempt that failed must not become a part of this block.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => fs::create_dir_all(&path).map_err(failed)?,
        }
        Ok(Self {
            resolution,
            data: data.to_owned(),
            path,
        })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Verifies the rows, describes them and publishes the block.
    fn finish(
        self,
        db: &Connection,
        summary: Summary,
        output: &BlockOutput,
    ) -> Result<Option<Block>, StoreError> {
        if summary.series.is_empty() {
            return Ok(None);
        }

        // The source is deleted later, so the file is read back before the block exists.
        let found = read_digest(db, &self.file(SAMPLES), self.resolution)?;
        if found != summary.digest {
            let reason = format!(
                "wrote {} values and read others back",
                summary.digest.samples
            );
            return Err(damaged(&self.file(SAMPLES), reason));
        }

        self.write_series(db, &summary.series)?;
        crash_point("verified");

        let facts = || summary.series.iter();
        let first_row = facts().map(|fact| fact.first).min().unwrap_or(0);
        let last_row = facts().map(|fact| fact.last).max().unwrap_or(0);

        // A down-sampled row also covers its interval before this time.
        let from = Timestamp(first_row - (self.resolution.milliseconds() - 1));
        let to = Timestamp(last_row);
        let (first, last) = output.segments;
        let name = BlockName::new(from, first, last, 0);

        let mut series: RoaringBitmap = summary.series.iter().map(|fact| fact.series).collect();
        series.optimize();
        self.publish(name, (from, to), summary.rows(), series)
            .map(Some)
    }

    /// Syncs the files, describes them, and renames the folder to its final path.
    pub fn publish(
        self,
        name: BlockName,
        (from, to): (Timestamp, Timestamp),
        rows: u64,
        series: RoaringBitmap,
    ) -> Result<Block, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Directory { path, source }
        };

        let facts = BlockFacts::write(&self.path, from, to, rows).map_err(failed(&self.path))?;
        crash_point("durable");

        let parent = folder(&self.data, self.resolution);
        let path = parent.join(name.to_string());
        // A crash between two blocks of one source left this folder; it is written again.
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failed(&path))?;
        }
        fs::create_dir_all(&parent).map_err(failed(&parent))?;
        // The rename is atomic, so a block exists as a whole or not at all.
        fs::rename(&self.path, &path).map_err(failed(&path))?;
        sync_directory(&parent).map_err(failed(&parent))?;

        crash_point("renamed");
        Ok(Block {
            name,
            resolution: self.resolution,
            path,
            facts,
            series,
        })
    }

    /// Writes the series with their labels, so that the block can be read by itself.
    fn write_series(&self, db: &Connection, series: &[SeriesFact]) -> Result<(), StoreError> {
        let instant = DataType::Timestamp(TimeUnit::Millisecond, None);
        let schema = Arc::new(Schema::new(vec![
            Field::new("series", DataType::Int32, false),
            Field::new("metric_hash", DataType::Int32, false),
            Field::new("samples", DataType::Int64, false),
            Field::new("first_ts", instant.clone(), false),
            Field::new("last_ts", instant, false),
        ]));

        let numbers = |of: fn(&SeriesFact) -> i64| series.iter().map(of).collect::<Vec<_>>();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(
                series
                    .iter()
                    .map(|fact| fact.series.cast_signed())
                    .collect::<Int32Array>(),
            ),
            Arc::new(
                series
                    .iter()
                    .map(|fact| fact.metric_hash)
                    .collect::<Int32Array>(),
            ),
            Arc::new(Int64Array::from(numbers(|fact| fact.samples))),
            Arc::new(TimestampMillisecondArray::from(numbers(|fact| fact.first))),
            Arc::new(TimestampMillisecondArray::from(numbers(|fact| fact.last))),
        ];

        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .expect("five columns of the schema's types");
        // The feed takes one batch without a reader, so this does not block before the statement runs.
        let (rows, sender) = BatchStream::open(schema);
        sender
            .send(batch)
            .expect("the feed is open, and one batch fits");
        drop(sender);

        let select = format!(
            "SELECT r.series, s.metric, s.labels, r.metric_hash, r.samples, r.first_ts, r.last_ts
             FROM {} AS r JOIN hot.series AS s ON s.id = r.series ORDER BY r.metric_hash, r.series",
            rows.table()
        );
        copy(db, &select, &self.file(SERIES))
    }
}
