//! Passes rows from Rust into a DuckDB statement: the table function `takt_rows`.
//!
//! A feed passes batches from the thread that makes them to the `COPY` that writes them, and holds
//! only a few at a time. Users cannot call it: their SQL may only name functions on a list.

use crate::StoreError;
use duckdb::Connection;
use duckdb::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use duckdb::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int32Type, Int64Type, SchemaRef,
    TimestampMillisecondType,
};
use duckdb::core::{DataChunkHandle, LogicalTypeHandle, LogicalTypeId};
use duckdb::vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab, to_duckdb_logical_type};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches that wait for the writer, while the next one is made.
const WAITING: usize = 1;

/// Rows of a DuckDB data chunk.
const CHUNK: usize = 2048;

/// Open feeds by the number in their statement. DuckDB functions have no state of their own, so
/// this is global.
static OPEN: Mutex<BTreeMap<u64, Arc<Feed>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Feed {
    schema: SchemaRef,
    state: Mutex<FeedState>,
}

#[derive(Debug)]
struct FeedState {
    batches: Receiver<RecordBatch>,
    current: Option<RecordBatch>,
}

/// Reading end of a feed. Dropping it closes the feed.
#[derive(Debug)]
pub(super) struct BatchStream(u64);

impl BatchStream {
    /// Opens a feed for batches of a schema. Returns both ends.
    pub fn open(schema: SchemaRef) -> (Self, SyncSender<RecordBatch>) {
        let (send, batches) = sync_channel(WAITING);
        let feed = Feed {
            schema,
            state: Mutex::new(FeedState {
                batches,
                current: None,
            }),
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.last_key_value().map_or(1, |(last, _)| last + 1);
        open.insert(number, Arc::new(feed));
        (Self(number), send)
    }

    /// The feed as a table expression in SQL.
    pub fn table(&self) -> String {
        format!("takt_rows({}::UBIGINT)", self.0)
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        OPEN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.0);
    }
}

/// Registers `takt_rows` in a database.
pub(crate) fn register(db: &Connection) -> Result<(), StoreError> {
    db.register_table_function::<Function>("takt_rows")
        .map_err(StoreError::sql("register a table function"))
}

struct Function;

fn feed(number: u64) -> Result<Arc<Feed>, Box<dyn Error>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.get(&number)
        .cloned()
        .ok_or_else(|| format!("there is no feed {number}").into())
}

impl VTab for Function {
    type InitData = ();
    type BindData = u64;

    fn bind(bind: &BindInfo) -> Result<u64, Box<dyn Error>> {
        let number = bind.get_parameter(0).to_uint64();
        for field in feed(number)?.schema.fields() {
            bind.add_result_column(field.name(), to_duckdb_logical_type(field.data_type())?);
        }
        Ok(number)
    }

    fn init(_: &InitInfo) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    fn func(
        function: &TableFunctionInfo<Self>,
        output: &mut DataChunkHandle,
    ) -> Result<(), Box<dyn Error>> {
        let feed = feed(*function.get_bind_data())?;
        let mut state = feed.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(batch) = state.current.take().or_else(|| state.batches.recv().ok()) else {
            output.set_len(0);
            return Ok(());
        };
        let rows = batch.num_rows().min(CHUNK);
        if rows < batch.num_rows() {
            state.current = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        for (number, column) in batch.slice(0, rows).columns().iter().enumerate() {
            fill(output, number, column)?;
        }
        output.set_len(rows);
        Ok(())
    }

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        Some(vec![LogicalTypeHandle::from(LogicalTypeId::UBigint)])
    }
}

/// Copies a column without NULLs into a DuckDB chunk.
fn fill(
    output: &mut DataChunkHandle,
    number: usize,
    column: &ArrayRef,
) -> Result<(), Box<dyn Error>> {
    fn copy<T: ArrowPrimitiveType>(output: &mut DataChunkHandle, number: usize, column: &ArrayRef) {
        let values = column.as_primitive::<T>().values();
        let mut vector = output.flat_vector(number);
        // SAFETY: `bind` declared the column with the type of the schema, and a chunk has room for
        // `CHUNK` rows.
        unsafe { vector.copy::<T::Native>(values) };
    }
    match column.data_type() {
        DataType::Int32 => copy::<Int32Type>(output, number, column),
        DataType::Int64 => copy::<Int64Type>(output, number, column),
        DataType::Float64 => copy::<Float64Type>(output, number, column),
        DataType::Timestamp(..) => copy::<TimestampMillisecondType>(output, number, column),
        other => return Err(format!("no column of a feed has the type {other}").into()),
    }
    Ok(())
}
