//! Writes blocks: to a folder aside, compared with the source, synced, and renamed to the final
//! path.

use super::encode::Scale;
use super::feed::BatchStream;
use super::files::{BlockFacts, sync_directory};
use super::plan::{BlockSource, RowPositions, SampleDigest, Slice, cut};
use super::rollup::RollupColumns;
use super::verify::{check_bytes, read_digest};
use super::{Block, BlockName, Resolution, SAMPLES, SEALING, SERIES, damaged, folder};
use crate::crash::crash_point;
use crate::database::quoted;
use crate::layout::Layout;
use crate::{Database, StoreError};
use duckdb::Connection;
use duckdb::arrow::array::{
    ArrayRef, Float64Array, Float64Builder, Int32Array, Int64Array, Int64Builder, RecordBatch,
    TimestampMillisecondArray,
};
use duckdb::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
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

/// Dictionaries are disabled: they made integers half as large again (docs/storage.md), and a
/// filter per dictionary costs more than the row groups' minimum and maximum save.
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
        .map(|&resolution| BlockDraft::begin(database.path(), resolution));
    let drafts = drafts.collect::<Result<Vec<_>, _>>()?;
    let layout = database.layout();
    let begin = |&resolution: &Resolution| match resolution {
        Resolution::Raw => Columns::Raw(Box::default()),
        coarse => Columns::Rollup(RollupColumns::new(
            coarse,
            last_values(&db, &layout, coarse, output.segments.0),
        )),
    };
    let mut columns: Vec<Columns> = output.resolutions.iter().map(begin).collect();
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut writers = Vec::new();
        for (draft, columns) in drafts.iter().zip(&columns) {
            let (rows, sender) = BatchStream::open(columns.schema());
            let db = database.connect()?;
            senders.push(sender);
            writers.push(scope.spawn(move || {
                copy(
                    &db,
                    &format!("SELECT * FROM {}", rows.table()),
                    &draft.file(SAMPLES),
                )
            }));
        }
        let mut positions = RowPositions::new(&entries);
        let mut slice = Slice::default();
        let mut produced = Ok(());
        'slices: for run in cut(&entries, output.slice_samples) {
            produced = source.fill(&db, run, &mut positions, &mut slice);
            if produced.is_err() {
                break;
            }
            for (columns, sender) in columns.iter_mut().zip(&senders) {
                // A writer that has stopped reports its own error.
                if !columns.send(&slice, sender) {
                    break 'slices;
                }
            }
        }
        for (columns, sender) in columns.iter_mut().zip(&senders) {
            columns.flush(sender);
        }
        drop(senders);
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("a writer does not panic"))?;
        produced
    })?;
    crash_point("written");
    // The source's samples are removed after this, so they must be those that were written.
    if let BlockSource::Blocks(sources) = source {
        sources.iter().try_for_each(|block| check_bytes(block))?;
    }
    let mut blocks = Vec::new();
    for (draft, columns) in drafts.into_iter().zip(columns) {
        blocks.extend(draft.finish(&db, columns.summary(), output)?);
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
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
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

/// Rows to be written to the file of one resolution.
enum Columns {
    Raw(Box<RawColumns>),
    Rollup(RollupColumns),
}

impl Columns {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::Raw(_) => RawColumns::schema(),
            Self::Rollup(_) => RollupColumns::schema(),
        }
    }

    /// Returns `false` if the writer has stopped.
    fn send(&mut self, slice: &Slice, sender: &SyncSender<RecordBatch>) -> bool {
        match self {
            Self::Raw(columns) => slice.series().all(|(entry, at, values)| {
                columns.push(entry.series, entry.metric_hash, at, values);
                columns.len() < BATCH_ROWS || sender.send(columns.take()).is_ok()
            }),
            Self::Rollup(columns) => slice.series().all(|(entry, at, values)| {
                columns.push(entry.series, entry.metric_hash, at, values);
                columns.len() < BATCH_ROWS || sender.send(columns.take()).is_ok()
            }),
        }
    }

    fn flush(&mut self, sender: &SyncSender<RecordBatch>) {
        let rest = match self {
            Self::Raw(columns) => columns.take(),
            Self::Rollup(columns) => columns.take(),
        };
        if rest.num_rows() > 0 {
            // As above: the writer reports its own error.
            let _ = sender.send(rest);
        }
    }

    fn summary(self) -> Summary {
        match self {
            Self::Raw(columns) => columns.summary,
            Self::Rollup(columns) => columns.summary,
        }
    }
}

/// Columns of raw samples.
#[derive(Default)]
struct RawColumns {
    metric_hash: Vec<i32>,
    series: Vec<i32>,
    at: Vec<i64>,
    mantissa: Int64Builder,
    divisor: Vec<f64>,
    exact: Float64Builder,
    scratch: Vec<i64>,
    summary: Summary,
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

impl RawColumns {
    fn schema() -> SchemaRef {
        let mut fields = key_fields();
        fields.push(Field::new("mantissa", DataType::Int64, true));
        fields.push(Field::new("divisor", DataType::Float64, false));
        fields.push(Field::new("exact", DataType::Float64, true));
        Arc::new(Schema::new(fields))
    }

    fn len(&self) -> usize {
        self.at.len()
    }

    fn push(&mut self, series: u32, metric_hash: i32, at: &[i64], values: &[f64]) {
        let scale = Scale::of(values);
        self.at.extend_from_slice(at);
        let end = self.at.len();
        self.metric_hash.resize(end, metric_hash);
        self.series.resize(end, series.cast_signed());
        self.divisor.resize(end, scale.divisor());
        // Nearly all series have only one of the two columns.
        if scale.mantissas(values, &mut self.scratch) {
            self.mantissa.append_slice(&self.scratch);
            self.exact.append_nulls(values.len());
        } else {
            for &value in values {
                let (mantissa, exact) = scale.split(value);
                self.mantissa.append_option(mantissa);
                self.exact.append_option(exact);
            }
        }
        self.summary.samples(series, metric_hash, at, values);
    }

    fn take(&mut self) -> RecordBatch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(replace(&mut self.metric_hash))),
            Arc::new(Int32Array::from(replace(&mut self.series))),
            Arc::new(TimestampMillisecondArray::from(replace(&mut self.at))),
            Arc::new(self.mantissa.finish()),
            Arc::new(Float64Array::from(replace(&mut self.divisor))),
            Arc::new(self.exact.finish()),
        ];
        RecordBatch::try_new(Self::schema(), columns)
            .expect("six columns of one length and of the schema's types")
    }
}

/// Returns a column, and puts an empty one of the same capacity in its place.
fn replace<T>(column: &mut Vec<T>) -> Vec<T> {
    let capacity = column.capacity();
    std::mem::replace(column, Vec::with_capacity(capacity))
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
        let series: RoaringBitmap = summary.series.iter().map(|fact| fact.series).collect();
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
