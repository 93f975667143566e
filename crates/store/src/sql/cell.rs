//! Reads single values from Arrow columns.

use crate::HeldMemory;
use duckdb::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use duckdb::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Schema, SchemaRef, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

/// Result of a statement.
#[derive(Debug)]
pub struct ResultSet {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
    truncated: bool,
    /// Memory of the batches.
    memory: Option<HeldMemory>,
}

impl ResultSet {
    pub(super) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            batches: Vec::new(),
            rows: 0,
            truncated: false,
            memory: None,
        }
    }

    /// Puts a result together.
    pub(super) fn of(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        truncated: bool,
        memory: HeldMemory,
    ) -> Self {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        Self {
            schema,
            batches,
            rows,
            truncated,
            memory: Some(memory),
        }
    }

    /// Adds the rows of a batch, up to `max_rows` in total. Returns whether more rows are wanted.
    pub(super) fn take(&mut self, batch: &StructArray, max_rows: usize) -> bool {
        let batch = RecordBatch::from(batch);
        let fit = batch.num_rows().min(max_rows - self.rows);
        self.truncated = fit < batch.num_rows();
        self.rows += fit;
        if fit > 0 {
            self.batches.push(batch.slice(0, fit));
        }
        !self.truncated
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the statement had more rows than the limit.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The rows, in batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Returns the rows by value, and their memory, which is held until it is dropped.
    pub fn into_batches(self) -> (Vec<RecordBatch>, Option<HeldMemory>) {
        (self.batches, self.memory)
    }
}

/// A value of any type.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// Boolean.
    Bool(bool),
    /// Integer of any size.
    Int(i128),
    /// Decimal number: `n × 10^-scale`.
    Decimal(i128, i8),
    /// 32-bit floating point number.
    Float(f32),
    /// 64-bit floating point number.
    Double(f64),
    /// Text, ENUM or JSON.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Microseconds since 1970, UTC.
    Timestamp(i64),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Interval.
    Interval {
        /// Months.
        months: i32,
        /// Days.
        days: i32,
        /// Microseconds besides the months and days.
        microseconds: i64,
    },
    /// Values of one type.
    List(ArrayRef),
    /// Named values.
    Struct(Vec<(&'a str, Cell<'a>)>),
    /// Pairs of key and value.
    Map(Vec<(Cell<'a>, Cell<'a>)>),
    /// A type that this module does not support.
    Other(&'a DataType),
}

/// Returns the value in a row of a column.
pub fn cell(array: &dyn Array, row: usize) -> Cell<'_> {
    if array.is_null(row) {
        return Cell::Null;
    }
    macro_rules! value {
        ($type:ty) => {
            array.as_primitive::<$type>().value(row)
        };
    }
    match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Cell::Int(value!(Int8Type).into()),
        DataType::Int16 => Cell::Int(value!(Int16Type).into()),
        DataType::Int32 => Cell::Int(value!(Int32Type).into()),
        DataType::Int64 => Cell::Int(value!(Int64Type).into()),
        DataType::UInt8 => Cell::Int(value!(UInt8Type).into()),
        DataType::UInt16 => Cell::Int(value!(UInt16Type).into()),
        DataType::UInt32 => Cell::Int(value!(UInt32Type).into()),
        DataType::UInt64 => Cell::Int(value!(UInt64Type).into()),
        DataType::Float32 => Cell::Float(value!(Float32Type)),
        DataType::Float64 => Cell::Double(value!(Float64Type)),
        // DuckDB gives a HUGEINT as a decimal without places.
        DataType::Decimal128(_, 0) => Cell::Int(value!(Decimal128Type)),
        DataType::Decimal128(_, scale) => Cell::Decimal(value!(Decimal128Type), *scale),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row)),
        DataType::Binary => Cell::Bytes(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Cell::Bytes(array.as_binary::<i64>().value(row)),
        DataType::Timestamp(TimeUnit::Second, _) => seconds(value!(TimestampSecondType), 1_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            seconds(value!(TimestampMillisecondType), 1_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Cell::Timestamp(value!(TimestampMicrosecondType))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            // Rounded down: a plain division would round up before 1970.
            Cell::Timestamp(value!(TimestampNanosecondType).div_euclid(1_000))
        }
        DataType::Date32 => Cell::Date(value!(Date32Type)),
        DataType::Time64(TimeUnit::Microsecond) => Cell::Time(value!(Time64MicrosecondType)),
        DataType::Time64(TimeUnit::Nanosecond) => Cell::Time(value!(Time64NanosecondType) / 1_000),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let span = value!(IntervalMonthDayNanoType);
            Cell::Interval {
                months: span.months,
                days: span.days,
                microseconds: span.nanoseconds / 1_000,
            }
        }
        // An ENUM comes as a dictionary.
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            match dictionary.normalized_keys().get(row) {
                Some(&key) => cell(dictionary.values().as_ref(), key),
                None => Cell::Null,
            }
        }
        DataType::List(_) => Cell::List(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Cell::List(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => Cell::List(array.as_fixed_size_list().value(row)),
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            Cell::Struct(
                fields
                    .iter()
                    .zip(columns)
                    .map(|(field, column)| (field.name().as_str(), cell(column, row)))
                    .collect(),
            )
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let from = map.value_offsets()[row] as usize;
            let to = map.value_offsets()[row + 1] as usize;
            Cell::Map(
                (from..to)
                    .map(|at| {
                        (
                            cell(map.keys().as_ref(), at),
                            cell(map.values().as_ref(), at),
                        )
                    })
                    .collect(),
            )
        }
        other => Cell::Other(other),
    }
}

/// Converts seconds to a timestamp. DuckDB's infinite timestamps are the ends of each unit's range.
fn seconds(n: i64, microseconds: i64) -> Cell<'static> {
    Cell::Timestamp(n.saturating_mul(microseconds))
}
