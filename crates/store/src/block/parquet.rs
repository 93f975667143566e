//! Writes the samples of a block as a Parquet file.
//!
//! DuckDB's `COPY` passes each value through four buffers and compresses the constant columns like
//! the others, which was half the cost of sealing. Here a column of a row group is one buffer, and
//! what is the same for all samples of a series (series, metric, divisor) is a dictionary with runs.
//!
//! [Format](https://parquet.apache.org/docs/file-format/). DuckDB reads each file before it replaces
//! anything ([`super::verify`]).

use super::encode::Encoder;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use zstd::bulk::Compressor;

/// Rows of a row group. A query reads at least one.
const GROUP_ROWS: usize = 122_880;

/// Compression level, see docs/storage.md.
const LEVEL: i32 = 3;

/// First and last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Values of a dictionary that are searched for a repeated one. Divisors are few.
const SEARCHED: usize = 16;

/// Name, physical type and annotation of each column.
const COLUMNS: [(&str, i64, Annotation); 6] = [
    ("metric_hash", INT32, Annotation::Integer(17)),
    ("series", INT32, Annotation::Integer(17)),
    ("ts", INT64, Annotation::Milliseconds),
    ("mantissa", INT64, Annotation::Integer(18)),
    ("divisor", DOUBLE, Annotation::None),
    ("exact", DOUBLE, Annotation::None),
];

// Numbers of the format.
const INT32: i64 = 1;
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const OPTIONAL: i64 = 1;
const TIMESTAMP_MILLIS: i64 = 9;
const ZSTD: i64 = 6;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;

/// How readers interpret a column.
#[derive(Debug, Clone, Copy)]
enum Annotation {
    None,
    /// Number of the format's converted type.
    Integer(i64),
    Milliseconds,
}

/// A file of samples being written. Samples come in the order of the file.
pub(super) struct SampleFile {
    file: File,
    /// Number of bytes written.
    length: u64,
    rows: usize,
    group: RowGroup,
    encoder: Encoder,
    pages: PageWriter,
    /// Descriptions of the written row groups, for the footer.
    groups: Thrift,
    group_count: usize,
}

/// Rows that are not written yet.
#[derive(Debug, Default)]
struct RowGroup {
    rows: usize,
    metric_hash: Dictionary<i32>,
    series: Dictionary<i32>,
    at: Plain<i64>,
    mantissa: Plain<i64>,
    divisor: Dictionary<f64>,
    exact: Plain<f64>,
}

impl SampleFile {
    /// Creates a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(MAGIC)?;
        Ok(Self {
            file,
            length: MAGIC.len() as u64,
            rows: 0,
            group: RowGroup::default(),
            encoder: Encoder::default(),
            pages: PageWriter::new()?,
            groups: Thrift::default(),
            group_count: 0,
        })
    }

    /// Adds samples of one series.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(
        &mut self,
        series: u32,
        metric_hash: i32,
        at: &[i64],
        values: &[f64],
    ) -> io::Result<()> {
        self.encoder.encode(values);
        let mut done = 0;
        while done < at.len() {
            // A series may fill the row group and continue in the next one.
            let rows = (GROUP_ROWS - self.group.rows).min(at.len() - done);
            let range = done..done + rows;
            let group = &mut self.group;
            group.metric_hash.push(metric_hash, rows);
            group.series.push(series.cast_signed(), rows);
            group.at.extend(&at[range.clone()]);
            group.divisor.push(self.encoder.divisor(), rows);

            // Nearly all series have a mantissa for each value; the others are split value by value.
            match self.encoder.mantissas() {
                Some(mantissas) => {
                    group.mantissa.extend(&mantissas[range]);
                    group.exact.skip(rows);
                }
                None => {
                    for &value in &values[range] {
                        let (mantissa, exact) = self.encoder.split(value);
                        group.mantissa.push(mantissa);
                        group.exact.push(exact);
                    }
                }
            }

            group.rows += rows;
            done += rows;
            if group.rows == GROUP_ROWS {
                self.write_group()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and the footer.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        if self.group.rows > 0 {
            self.write_group()?;
        }

        let mut footer = Thrift::default();

        // The numbers are those of the fields in parquet.thrift: `FileMetaData`, `SchemaElement`, `ColumnOrder`.
        footer.element(|facts| {
            facts.i32(1, 1);
            facts.list(2, STRUCT, 1 + COLUMNS.len());
            facts.element(|root| {
                root.binary(4, b"schema");
                root.i32(5, COLUMNS.len() as i64);
            });
            for (name, kind, annotation) in COLUMNS {
                facts.element(|column| describe_column(column, name, kind, annotation));
            }
            facts.i64(3, self.rows as i64);
            facts.list(4, STRUCT, self.group_count);
            facts.out.extend_from_slice(&self.groups.out);
            let writer = concat!("takt version ", env!("CARGO_PKG_VERSION"));
            facts.binary(6, writer.as_bytes());
            // Statistics are in the order of the types.
            facts.list(7, STRUCT, COLUMNS.len());
            for _ in COLUMNS {
                facts.element(|order| order.nested(1, |_| {}));
            }
        });

        let length = u32::try_from(footer.out.len()).map_err(io::Error::other)?;
        footer.out.extend_from_slice(&length.to_le_bytes());
        footer.out.extend_from_slice(MAGIC);
        self.file.write_all(&footer.out)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let group = &mut self.group;
        let rows = group.rows;
        let begin = self.length;
        let pages = &mut self.pages;

        pages.out.clear();

        // The chunks are in the order of `COLUMNS`, which describes them below.
        let mut chunks = Vec::with_capacity(COLUMNS.len());
        chunks.push(pages.dictionary(&mut group.metric_hash, rows)?);
        chunks.push(pages.dictionary(&mut group.series, rows)?);
        chunks.push(pages.plain(&mut group.at, rows)?);
        chunks.push(pages.plain(&mut group.mantissa, rows)?);
        chunks.push(pages.dictionary(&mut group.divisor, rows)?);
        chunks.push(pages.plain(&mut group.exact, rows)?);

        self.file.write_all(&pages.out)?;
        self.length += pages.out.len() as u64;
        self.rows += rows;
        self.group_count += 1;
        group.rows = 0;

        self.groups.element(|described| {
            described.list(1, STRUCT, chunks.len());
            for (chunk, (name, kind, _)) in chunks.iter().zip(COLUMNS) {
                described.element(|column| chunk.describe(column, name, kind, begin, rows));
            }
            let bytes: usize = chunks.iter().map(|chunk| chunk.uncompressed).sum();
            described.i64(2, bytes as i64);
            described.i64(3, rows as i64);
        });
        Ok(())
    }
}

fn describe_column(out: &mut Thrift, name: &str, kind: i64, annotation: Annotation) {
    out.i32(1, kind);
    // As in the files that DuckDB wrote for earlier versions.
    out.i32(3, OPTIONAL);
    out.binary(4, name.as_bytes());

    match annotation {
        Annotation::None => {}
        Annotation::Integer(converted) => out.i32(6, converted),
        Annotation::Milliseconds => {
            out.i32(6, TIMESTAMP_MILLIS);
            out.nested(10, |logical| {
                logical.nested(8, |timestamp| {
                    // Not adjusted to UTC: DuckDB would otherwise read `TIMESTAMP WITH TIME ZONE`.
                    timestamp.no(1);
                    timestamp.nested(2, |unit| unit.nested(1, |_| {}));
                });
            });
        }
    }
}

/// A type of values.
trait Value: Copy + PartialOrd {
    /// Whether readers may skip row groups by the smallest and largest value. For floats the
    /// format has special rules.
    const HAS_BOUNDS: bool;
    const BYTES: usize;

    fn write(self, out: &mut [u8]);

    fn bounds(values: &[Self]) -> Option<[Vec<u8>; 2]> {
        let (&first, rest) = values.split_first().filter(|_| Self::HAS_BOUNDS)?;
        let bounds = rest.iter().fold([first; 2], |[least, most], &value| {
            [
                if value < least { value } else { least },
                if value > most { value } else { most },
            ]
        });
        Some(bounds.map(|bound| {
            let mut bytes = vec![0; Self::BYTES];
            bound.write(&mut bytes);
            bytes
        }))
    }

    fn write_all(values: &[Self], out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + Self::BYTES * values.len(), 0);
        for (bytes, value) in out[begin..].chunks_exact_mut(Self::BYTES).zip(values) {
            value.write(bytes);
        }
    }
}

macro_rules! value {
    ($type:ty, $has_bounds:literal) => {
        impl Value for $type {
            const HAS_BOUNDS: bool = $has_bounds;
            const BYTES: usize = size_of::<$type>();

            #[inline]
            fn write(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}

value!(i32, true);
value!(i64, true);
value!(f64, false);

/// A column whose values stay the same over many rows.
#[derive(Debug)]
struct Dictionary<T> {
    values: Vec<T>,
    /// Index of a value, and its number of consecutive rows.
    runs: Vec<(usize, usize)>,
}

impl<T> Default for Dictionary<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            runs: Vec::new(),
        }
    }
}

impl<T: Value> Dictionary<T> {
    fn push(&mut self, value: T, rows: usize) {
        // A repetition that the search misses is stored again, which costs a few bytes and changes no row.
        let recent = self.values.len().saturating_sub(SEARCHED);
        let known = self.values[recent..].iter().rposition(|&one| one == value);
        let index = known.map_or(self.values.len(), |at| recent + at);
        if known.is_none() {
            self.values.push(value);
        }
        match self.runs.last_mut() {
            Some((last, count)) if *last == index => *count += rows,
            _ => self.runs.push((index, rows)),
        }
    }
}

/// A column of any values, or none.
#[derive(Debug)]
struct Plain<T> {
    values: Vec<T>,
    /// Whether rows have a value, and the number of such consecutive rows.
    runs: Vec<(bool, usize)>,
}

impl<T> Default for Plain<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            runs: Vec::new(),
        }
    }
}

impl<T: Value> Plain<T> {
    fn extend(&mut self, values: &[T]) {
        self.values.extend_from_slice(values);
        self.count(true, values.len());
    }

    fn skip(&mut self, rows: usize) {
        self.count(false, rows);
    }

    fn push(&mut self, value: Option<T>) {
        self.values.extend(value);
        self.count(value.is_some(), 1);
    }

    fn count(&mut self, has_value: bool, rows: usize) {
        match self.runs.last_mut() {
            Some((last, count)) if *last == has_value => *count += rows,
            _ => self.runs.push((has_value, rows)),
        }
    }
}

/// A written column of a row group.
#[derive(Debug)]
struct ColumnChunk {
    /// Place in the row group.
    begin: usize,
    compressed: usize,
    uncompressed: usize,
    /// Place of the values behind the dictionary.
    data: Option<usize>,
    nulls: usize,
    /// Smallest and largest value.
    bounds: Option<[Vec<u8>; 2]>,
}

impl ColumnChunk {
    fn describe(&self, out: &mut Thrift, name: &str, kind: i64, group: u64, rows: usize) {
        let place = |offset: usize| (group + offset as u64).cast_signed();
        out.i64(2, place(self.begin));

        out.nested(3, |facts| {
            facts.i32(1, kind);
            let encodings = [
                RLE,
                if self.data.is_some() {
                    RLE_DICTIONARY
                } else {
                    PLAIN
                },
            ];

            facts.list(2, I32, encodings.len());
            encodings
                .into_iter()
                .for_each(|encoding| facts.signed(encoding));

            facts.list(3, BINARY, 1);
            facts.bytes(name.as_bytes());
            facts.i32(4, ZSTD);
            facts.i64(5, rows as i64);
            facts.i64(6, self.uncompressed as i64);
            facts.i64(7, self.compressed as i64);
            // The dictionary comes first in its column, and the data page behind it.
            facts.i64(9, place(self.data.unwrap_or(self.begin)));
            if self.data.is_some() {
                facts.i64(11, place(self.begin));
            }

            facts.nested(12, |statistics| {
                statistics.i64(3, self.nulls as i64);
                if let Some([least, most]) = &self.bounds {
                    statistics.binary(5, most);
                    statistics.binary(6, least);
                }
            });
        });
    }
}

/// Encodes and compresses the pages of a row group.
struct PageWriter {
    compressor: Compressor<'static>,
    /// The row group so far.
    out: Vec<u8>,
    /// The page being made, and the same compressed.
    page: Vec<u8>,
    compressed: Vec<u8>,
}

impl PageWriter {
    fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(LEVEL)?,
            out: Vec::new(),
            page: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// Writes a column and empties it.
    fn dictionary<T: Value>(
        &mut self,
        column: &mut Dictionary<T>,
        rows: usize,
    ) -> io::Result<ColumnChunk> {
        let begin = self.out.len();
        let count = column.values.len();

        T::write_all(&column.values, &mut self.page);
        let dictionary = self.add(DICTIONARY_PAGE, |header| {
            header.nested(7, |page| {
                page.i32(1, count as i64);
                page.i32(2, PLAIN);
            });
        })?;

        let data = self.out.len();
        // Each row of such a column has a value, so one run of definition levels says it all.
        push_levels(&[(true, rows)], &mut self.page);
        let width = (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1);
        self.page.push(width as u8);
        for &(index, rows) in &column.runs {
            // A run is its length times two, since an odd number would begin packed bits, and then the value.
            push_unsigned((rows as u64) << 1, &mut self.page);
            let bytes = (index as u64).to_le_bytes();
            let length = width.div_ceil(8) as usize;
            self.page.extend_from_slice(&bytes[..length]);
        }

        let uncompressed = dictionary + self.add_data(rows, RLE_DICTIONARY)?;
        let bounds = T::bounds(&column.values);
        column.values.clear();
        column.runs.clear();

        Ok(ColumnChunk {
            begin,
            compressed: self.out.len() - begin,
            uncompressed,
            data: Some(data),
            nulls: 0,
            bounds,
        })
    }

    /// Writes a column and empties it.
    fn plain<T: Value>(&mut self, column: &mut Plain<T>, rows: usize) -> io::Result<ColumnChunk> {
        let begin = self.out.len();
        push_levels(&column.runs, &mut self.page);
        T::write_all(&column.values, &mut self.page);
        let uncompressed = self.add_data(rows, PLAIN)?;
        let chunk = ColumnChunk {
            begin,
            compressed: self.out.len() - begin,
            uncompressed,
            data: None,
            nulls: rows - column.values.len(),
            bounds: T::bounds(&column.values),
        };
        column.values.clear();
        column.runs.clear();
        Ok(chunk)
    }

    fn add_data(&mut self, rows: usize, encoding: i64) -> io::Result<usize> {
        self.add(DATA_PAGE, |header| {
            header.nested(5, |page| {
                page.i32(1, rows as i64);
                page.i32(2, encoding);
                page.i32(3, RLE);
                page.i32(4, RLE);
            });
        })
    }

    /// Adds the page with its header, and begins another one. Returns the size before compression.
    fn add(&mut self, kind: i64, describe: impl FnOnce(&mut Thrift)) -> io::Result<usize> {
        self.compressed.clear();
        // The compressor uses the capacity that is there and does not grow the buffer.
        let most = zstd::zstd_safe::compress_bound(self.page.len());
        self.compressed.reserve(most);
        self.compressor
            .compress_to_buffer(&self.page, &mut self.compressed)?;

        let mut header = Thrift::default();
        header.element(|header| {
            header.i32(1, kind);
            header.i32(2, self.page.len() as i64);
            header.i32(3, self.compressed.len() as i64);
            describe(header);
        });

        self.out.extend_from_slice(&header.out);
        self.out.extend_from_slice(&self.compressed);

        // The format counts the header as a part of the uncompressed size.
        let uncompressed = header.out.len() + self.page.len();
        self.page.clear();
        Ok(uncompressed)
    }
}

/// Appends definition levels: whether rows have a value, as runs with their total length.
fn push_levels(runs: &[(bool, usize)], out: &mut Vec<u8>) {
    let begin = out.len();
    // The length of the runs is known only behind them, so its place is filled in at the end.
    out.extend_from_slice(&[0; 4]);
    for &(has_value, rows) in runs {
        push_unsigned((rows as u64) << 1, out);
        out.push(u8::from(has_value));
    }
    let length = u32::try_from(out.len() - begin - 4).expect("two to four bytes per row at most");
    out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends a number with seven bits per byte.
fn push_unsigned(number: u64, out: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

// Types of Thrift's compact protocol.
const FALSE: u8 = 2;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Writes Thrift's compact protocol, in which Parquet describes its files. Fields must come in
/// ascending order.
#[derive(Debug, Default)]
struct Thrift {
    out: Vec<u8>,
    /// Number of the structure's last field.
    last: u8,
}

impl Thrift {
    fn field(&mut self, field: u8, kind: u8) {
        // The difference from the last field has four bits, which is enough for the fields written here.
        self.out.push((field - self.last) << 4 | kind);
        self.last = field;
    }

    fn no(&mut self, field: u8) {
        self.field(field, FALSE);
    }

    fn i32(&mut self, field: u8, number: i64) {
        self.field(field, I32);
        self.signed(number);
    }

    fn i64(&mut self, field: u8, number: i64) {
        self.field(field, I64);
        self.signed(number);
    }

    fn binary(&mut self, field: u8, bytes: &[u8]) {
        self.field(field, BINARY);
        self.bytes(bytes);
    }

    /// Begins a list; its elements follow.
    fn list(&mut self, field: u8, kind: u8, length: usize) {
        self.field(field, LIST);
        // Up to 14 elements, the header's four bits hold the length.
        if length < 15 {
            self.out.push((length as u8) << 4 | kind);
        } else {
            self.out.push(0xf0 | kind);
            push_unsigned(length as u64, &mut self.out);
        }
    }

    /// Writes a structure as a field.
    fn nested(&mut self, field: u8, fill: impl FnOnce(&mut Self)) {
        self.field(field, STRUCT);
        self.element(fill);
    }

    /// Writes a structure as an element of a list, or at the top.
    fn element(&mut self, fill: impl FnOnce(&mut Self)) {
        // Field numbers count from zero again within each structure.
        let last = std::mem::take(&mut self.last);
        fill(self);
        self.out.push(0);
        self.last = last;
    }

    fn signed(&mut self, number: i64) {
        // Zigzag: small numbers of either sign take few bytes.
        push_unsigned((number << 1 ^ number >> 63).cast_unsigned(), &mut self.out);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        push_unsigned(bytes.len() as u64, &mut self.out);
        self.out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::STALE;
    use duckdb::Connection;
    use proptest::prelude::*;

    /// Samples of one series: number, hash of the metric, times and values.
    type Given = (u32, i32, Vec<i64>, Vec<f64>);

    /// A row as DuckDB reads it: metric, series, microseconds and the value's bits.
    type Row = (i32, u32, i64, u64);

    fn write(given: &[Given]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = SampleFile::create(file.path()).unwrap();
        for (series, hash, at, values) in given {
            out.push(*series, *hash, at, values).unwrap();
        }
        out.finish().unwrap();
        file
    }

    fn bits(value: f64) -> u64 {
        if value.is_nan() && !crate::is_stale(value) {
            f64::NAN.to_bits()
        } else {
            value.to_bits()
        }
    }

    fn read(file: &Path) -> Vec<Row> {
        let db = Connection::open_in_memory().unwrap();
        let sql = format!(
            "SELECT metric_hash, series, epoch_us(ts), coalesce(mantissa / divisor, exact) FROM read_parquet('{}')",
            file.display()
        );
        let mut statement = db.prepare(&sql).unwrap();
        let row = |row: &duckdb::Row<'_>| {
            let value: Option<f64> = row.get(3)?;
            let value = bits(value.unwrap_or(STALE));
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, value))
        };
        statement
            .query_map([], row)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn rows(given: &[Given]) -> Vec<Row> {
        let row = |&(series, hash, ref at, ref values): &Given| {
            at.iter()
                .zip(values)
                .map(|(at, &value)| (hash, series, at * 1000, bits(value)))
                .collect::<Vec<_>>()
        };
        given.iter().flat_map(row).collect()
    }

    #[test]
    fn series_longer_than_a_row_group_come_back() {
        // 300,000 samples take three row groups, and the next series begins within the third.
        let at: Vec<i64> = (0..300_000).map(|n| 1_700_000_000_000 + n * 250).collect();
        let values = |step: f64| (0..at.len()).map(|n| n as f64 * step).collect::<Vec<f64>>();
        let given = [
            (5, -9, at.clone(), values(0.25)),
            (6, -9, at[..7].to_vec(), vec![STALE; 7]),
            (1, 4, at.clone(), values(1.0 / 3.0)),
        ];
        let file = write(&given);
        assert!(read(file.path()) == rows(&given));
    }

    #[test]
    fn many_series_of_one_sample_come_back() {
        // More series than a group has rows, so that the dictionaries are as long as they can be.
        let given: Vec<Given> = (0..200_000_u32)
            .map(|n| {
                (
                    n,
                    n.cast_signed() / 3,
                    vec![i64::from(n)],
                    vec![f64::from(n) / 8.0],
                )
            })
            .collect();
        let file = write(&given);
        assert!(read(file.path()) == rows(&given));
    }

    /// The columns that DuckDB's `COPY` wrote for earlier versions, and the bounds by which a query
    /// skips row groups.
    #[test]
    fn the_file_describes_itself() {
        let given = [
            (3, -5, vec![10, 20], vec![1.5, -2.0]),
            (4, 8, vec![5], vec![f64::NAN]),
        ];
        let file = write(&given);

        let db = Connection::open_in_memory().unwrap();
        let text = |sql: &str| -> Vec<String> {
            let sql = sql.replace("FILE", &format!("'{}'", file.path().display()));
            let mut statement = db.prepare(&sql).unwrap();
            statement
                .query_map([], |row| row.get(0))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap()
        };
        assert_eq!(
            text(
                "SELECT column_name || ' ' || column_type FROM (DESCRIBE SELECT * FROM read_parquet(FILE))"
            ),
            [
                "metric_hash INTEGER",
                "series INTEGER",
                "ts TIMESTAMP",
                "mantissa BIGINT",
                "divisor DOUBLE",
                "exact DOUBLE"
            ]
        );
        let bounds = "SELECT concat_ws(' ', path_in_schema, stats_min_value, stats_max_value, \
                      stats_null_count, compression) FROM parquet_metadata(FILE)";
        assert_eq!(
            text(bounds),
            [
                "metric_hash -5 8 0 ZSTD",
                "series 3 4 0 ZSTD",
                "ts 1970-01-01 00:00:00.005 1970-01-01 00:00:00.02 0 ZSTD",
                "mantissa -20 15 1 ZSTD",
                "divisor 0 ZSTD",
                "exact 2 ZSTD"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn every_sample_comes_back(
            series in prop::collection::vec(
                (0_i32..3, prop::collection::vec(prop_oneof![
                    4 => (-1000_i32..1000, 0_i32..4).prop_map(|(n, digits)| f64::from(n) / 10_f64.powi(digits)),
                    1 => any::<f64>(),
                    1 => Just(STALE),
                ], 1..40)),
                1..40,
            )
        ) {
            let given: Vec<Given> = (0..).zip(series).map(|(number, (hash, values))| {
                (number, hash, (0..values.len() as i64).collect(), values)
            }).collect();
            let file = write(&given);
            prop_assert_eq!(read(file.path()), rows(&given));
        }
    }
}
