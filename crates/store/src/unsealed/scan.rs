//! Unsealed samples in SQL: the table function `takt_unsealed(segment, hash, needed)`.
//!
//! It returns the samples of a segment, of one metric or of all ([`ALL_METRICS`]). For the current
//! segment this includes the rows in the head that are in the log. Samples that the statement does
//! not need ([`Needed`]) may be missing. Users cannot call it: their SQL may only name functions on
//! a list.

use super::file::SegmentFile;
use super::read::Part;
use super::{Coverage, Needed, Unsealed, VARIABLE};
use crate::head::{GroupRows, is_stale};
use crate::{Sample, StoreError};
use duckdb::Connection;
use duckdb::core::{DataChunkHandle, LogicalTypeHandle, LogicalTypeId};
use duckdb::vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use takt_model::Timestamp;

/// Name of the function.
pub(crate) const FUNCTION: &str = "takt_unsealed";

/// Value of the argument `hash` for the samples of all metrics.
const ALL_METRICS: i64 = i64::MAX;

/// Rows of a DuckDB data chunk.
pub(crate) const CHUNK: usize = 2048;

/// Arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arguments {
    segment: u32,
    hash: i64,
    /// Text of [`Needed`].
    needed: String,
}

/// SQL of a scan of all metrics of a segment.
pub(crate) fn scan_all(segment: u32) -> String {
    scan_metric(segment, &ALL_METRICS.to_string())
}

/// SQL of a scan of the metric whose hash is the SQL expression `hash`.
pub(crate) fn scan_metric(segment: u32, hash: &str) -> String {
    let needed = format!("coalesce(getvariable('{VARIABLE}')::VARCHAR, '')");
    format!("{FUNCTION}({segment}::UINTEGER, {hash}::BIGINT, {needed})")
}

/// Registers the function in a database.
pub(crate) fn register(db: &Connection, unsealed: &Arc<Unsealed>) -> Result<(), StoreError> {
    db.register_table_function_with_extra_info::<Function, Arc<Unsealed>>(FUNCTION, unsealed)
        .map_err(StoreError::sql("register a table function"))
}

struct Function;

/// The samples that a call reads.
struct Bound {
    unsealed: Arc<Unsealed>,
    file: Arc<SegmentFile>,
    wanted: Option<RoaringBitmap>,
    range: (Timestamp, Timestamp),
}

/// Sources that are still to be read, and rows that were read.
struct Scan {
    state: Mutex<ScanState>,
}

#[derive(Default)]
struct ScanState {
    parts: VecDeque<Part>,
    covered: Coverage,
    /// Groups, each with the time of its newest row to be read.
    groups: VecDeque<(u32, Arc<RwLock<GroupRows>>, Timestamp)>,
    rows: Vec<(u32, Sample)>,
    taken: usize,
}

impl VTab for Function {
    type InitData = Scan;
    type BindData = Bound;

    fn bind(bind: &BindInfo) -> Result<Bound, Box<dyn Error>> {
        let arguments = declare(bind);
        // SAFETY: `register` set this value, which lives as long as the function.
        let unsealed = unsafe { &*bind.get_extra_info::<Arc<Unsealed>>() };
        Bound::find(unsealed, &arguments)
    }

    fn init(init: &InitInfo) -> Result<Scan, Box<dyn Error>> {
        init.set_max_threads(1);
        // SAFETY: DuckDB passes the value that `bind` returned.
        let bound = unsafe { &*init.get_bind_data::<Bound>() };
        Ok(Scan {
            state: Mutex::new(ScanState::begin(bound)),
        })
    }

    fn func(
        function: &TableFunctionInfo<Self>,
        output: &mut DataChunkHandle,
    ) -> Result<(), Box<dyn Error>> {
        let bound = function.get_bind_data();
        let scan = function.get_init_data();
        let mut state = scan.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.taken == state.rows.len() {
            if !state.read_next(bound)? {
                output.set_len(0);
                return Ok(());
            }
        }
        let end = (state.taken + CHUNK).min(state.rows.len());
        fill(output, &state.rows[state.taken..end]);
        state.taken = end;
        Ok(())
    }

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        Some(parameters())
    }
}

/// Declares the columns of the function. Returns its arguments.
pub(crate) fn declare(bind: &BindInfo) -> Arguments {
    for (name, kind) in [
        ("series", LogicalTypeId::Integer),
        ("ts", LogicalTypeId::TimestampMs),
        ("value", LogicalTypeId::Double),
    ] {
        bind.add_result_column(name, LogicalTypeHandle::from(kind));
    }
    Arguments {
        segment: bind.get_parameter(0).to_uint32(),
        hash: bind.get_parameter(1).to_int64(),
        needed: bind.get_parameter(2).to_string(),
    }
}

/// Types of the function's arguments.
pub(crate) fn parameters() -> Vec<LogicalTypeHandle> {
    vec![
        LogicalTypeHandle::from(LogicalTypeId::UInteger),
        LogicalTypeHandle::from(LogicalTypeId::Bigint),
        LogicalTypeHandle::from(LogicalTypeId::Varchar),
    ]
}

/// Writes at most [`CHUNK`] rows into a chunk with the columns of [`declare`].
pub(crate) fn fill(output: &mut DataChunkHandle, rows: &[(u32, Sample)]) {
    let count = rows.len();
    // SAFETY: the columns have the types that `declare` gave them, and room for 2048 rows.
    unsafe {
        let mut column = output.flat_vector(0);
        let series = column.as_mut_slice_with_len::<i32>(count);
        for (to, (series, _)) in series.iter_mut().zip(rows) {
            *to = series.cast_signed();
        }

        let mut column = output.flat_vector(1);
        let times = column.as_mut_slice_with_len::<i64>(count);
        for (to, (_, sample)) in times.iter_mut().zip(rows) {
            *to = sample.at.0;
        }

        let mut column = output.flat_vector(2);
        let values = column.as_mut_slice_with_len::<f64>(count);
        for (to, (_, sample)) in values.iter_mut().zip(rows) {
            *to = sample.value;
        }

        for (row, (_, sample)) in rows.iter().enumerate() {
            if is_stale(sample.value) {
                column.set_null(row);
            }
        }
    }
    output.set_len(count);
}

/// A scan outside of DuckDB, for a statement in another process.
pub(crate) struct SegmentScan {
    bound: Bound,
    state: ScanState,
}

impl SegmentScan {
    /// Begins to read a segment.
    ///
    /// # Errors
    /// If the segment does not exist any more.
    pub fn open(unsealed: &Arc<Unsealed>, arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let bound = Bound::find(unsealed, arguments)?;
        let state = ScanState::begin(&bound);
        Ok(Self { bound, state })
    }

    /// Returns the next rows; none at the end.
    ///
    /// # Errors
    /// If the segment's file cannot be read.
    pub fn next(&mut self) -> Result<&[(u32, Sample)], Box<dyn Error>> {
        while self.state.read_next(&self.bound)? {
            if !self.state.rows.is_empty() {
                return Ok(&self.state.rows);
            }
        }
        Ok(&[])
    }
}

impl Bound {
    fn find(unsealed: &Arc<Unsealed>, arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let segment = arguments.segment;
        let file = unsealed
            .find(segment)
            .ok_or_else(|| format!("segment {segment} was sealed a while ago"))?;
        let needed = Needed::parse(&arguments.needed);
        let hashes = match arguments.hash {
            ALL_METRICS => needed.metrics,
            hash => Some(vec![hash as i32]),
        };

        let shared = unsealed.live.get().and_then(Weak::upgrade);
        let wanted = shared.zip(hashes).map(|(shared, hashes)| {
            let table = shared.series.read().unwrap_or_else(PoisonError::into_inner);
            hashes.into_iter().fold(RoaringBitmap::new(), |all, hash| {
                all | table.with_metric_hash(hash)
            })
        });
        Ok(Self {
            unsealed: Arc::clone(unsealed),
            file,
            wanted,
            range: needed.range,
        })
    }
}

impl ScanState {
    fn begin(bound: &Bound) -> Self {
        let mut state = Self::default();
        // In this order: a group that closes afterwards is still in the list, and a chunk that is
        // sealed afterwards is still in the head.
        if Arc::ptr_eq(&bound.unsealed.current(), &bound.file)
            && let Some(shared) = bound.unsealed.live.get().and_then(Weak::upgrade)
        {
            let groups = shared.head.groups().into_iter();
            let until = |rows: &RwLock<GroupRows>| {
                let rows = rows.read().unwrap_or_else(PoisonError::into_inner);
                rows.committed_until()
            };
            state.groups = groups
                .map(|(group, rows)| {
                    let until = until(&rows);
                    (group, rows, until)
                })
                .collect();
        }

        let (parts, covered) = bound.file.parts(bound.wanted.as_ref(), bound.range);
        state.parts = parts.into();
        state.covered = covered;
        state
    }

    /// Reads the next source. Returns `false` if none is left.
    fn read_next(&mut self, bound: &Bound) -> Result<bool, Box<dyn Error>> {
        self.rows.clear();
        self.taken = 0;
        let repeated = bound.unsealed.repeated();
        let rows = &mut self.rows;

        if let Some(part) = self.parts.pop_front() {
            let is_memory = part.is_memory();
            let wanted = bound.wanted.as_ref();
            let mut each = |series, samples: &[Sample]| {
                let samples = samples
                    .iter()
                    .filter(|sample| !is_memory || !repeated.has(sample.at, series));
                rows.extend(samples.map(|&sample| (series, sample)));
                true
            };
            bound
                .file
                .read_part(&part, wanted, bound.range, &mut each)?;
            return Ok(true);
        }

        let Some((group, group_rows, until)) = self.groups.pop_front() else {
            return Ok(false);
        };
        let covered = self
            .covered
            .get((bound.unsealed.run(), group))
            .unwrap_or(Timestamp(i64::MIN));

        let (from, to) = bound.range;
        let from = from.max(Timestamp(covered.0.saturating_add(1)));
        let wanted = bound.wanted.as_ref();
        let group_rows = group_rows.read().unwrap_or_else(PoisonError::into_inner);

        group_rows.each(wanted, (from, to.min(until)), |series, samples| {
            let samples = samples
                .into_iter()
                .filter(|sample| !repeated.has(sample.at, series.0));
            rows.extend(samples.map(|sample| (series.0, sample)));
        });
        Ok(true)
    }
}
