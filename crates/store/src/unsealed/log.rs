//! The log: the rows of the last minutes. A commit appends one record and syncs the file.
//!
//! A row holds the series of its group once per log, and then only the values that differ from the
//! row before. A log is deleted when all its rows are in chunks.

use super::loose::{SINGLE_BYTES, single_bytes};
use super::record::{Fields, HEADER, Record, header};
use super::{Coverage, LooseBatch, LooseSample};
use crate::Sample;
use crate::segments::Segment;
use hashbrown::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::Timestamp;

/// A log with this many bytes is complete.
const MAX_BYTES: u64 = 16 << 20;

/// A log of this age is complete.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Kind of the only records in a log.
const COMMIT: u32 = 16;

/// Kinds of entries in a record.
const ROW: u8 = 1;
const SAME_SERIES: u8 = 2;
const LOOSE: u8 = 3;

/// Path of a log.
pub(super) fn path_of(folder: &Path, segment: Segment, number: u32) -> PathBuf {
    folder.join(format!("{}-{number}.log", segment.0))
}

/// Writes logs.
#[derive(Debug)]
pub(crate) struct LogWriter {
    folder: PathBuf,
    run: u64,
    /// Number of the current log, or of the last one.
    number: u32,
    current: Option<OpenLog>,
    /// Complete logs, the oldest first.
    complete: Vec<CompleteLog>,
    record: Vec<u8>,
}

#[derive(Debug)]
struct OpenLog {
    path: PathBuf,
    file: File,
    length: u64,
    began: Instant,
    rows: HashMap<u32, LastRow>,
    has_loose: bool,
}

/// The last row of a group in a log.
#[derive(Debug)]
struct LastRow {
    at: Timestamp,
    series: Arc<[u32]>,
    values: Vec<f64>,
}

#[derive(Debug)]
struct CompleteLog {
    number: u32,
    path: PathBuf,
    newest: Vec<(u32, Timestamp)>,
    has_loose: bool,
}

impl LogWriter {
    /// Returns a writer whose logs have numbers above `number`.
    pub fn new(folder: &Path, run: u64, number: u32) -> Self {
        Self {
            folder: folder.to_owned(),
            run,
            number,
            current: None,
            complete: Vec::new(),
            record: Vec::new(),
        }
    }

    /// Number of the current log, or of the last one.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Number and length of the current log.
    pub fn position(&self) -> Option<(u32, u64)> {
        let current = self.current.as_ref()?;
        Some((self.number, current.length))
    }

    /// Appends rows and loose samples, and syncs the log.
    ///
    /// # Errors
    /// If the log cannot be written. The next call begins another log.
    pub fn append<'b>(
        &mut self,
        segment: Segment,
        rows: impl Iterator<Item = (u32, Timestamp, &'b [u32], &'b [f64])>,
        loose: &[LooseBatch],
    ) -> io::Result<()> {
        self.try_append(segment, rows, loose)
            .inspect_err(|_| self.end())
    }

    fn try_append<'b>(
        &mut self,
        segment: Segment,
        rows: impl Iterator<Item = (u32, Timestamp, &'b [u32], &'b [f64])>,
        loose: &[LooseBatch],
    ) -> io::Result<()> {
        if self.current.is_none() {
            self.number += 1;
            let path = path_of(&self.folder, segment, self.number);
            self.current = Some(OpenLog::create(path, self.run)?);
        }
        let Some(log) = &mut self.current else {
            return Ok(());
        };

        self.record.clear();
        // Room for the header, whose checksum needs the content.
        self.record.resize(HEADER as usize, 0);
        for (group, at, series, values) in rows {
            log.encode(&mut self.record, group, at, series, values);
        }
        for batch in loose.iter().filter(|batch| !batch.is_empty()) {
            log.has_loose = true;
            encode_loose(&mut self.record, batch);
        }

        let (head, content) = self.record.split_at_mut(HEADER as usize);
        head.copy_from_slice(&header(COMMIT, content)?);
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"))
        };

        log.file
            .write_all_at(&self.record, log.length)
            .and_then(|()| log.file.sync_data())
            .map_err(failed(&log.path))?;

        // The length grows only after the sync, so that `end` cuts off what a failure left.
        log.length += self.record.len() as u64;

        // The first record of a log has all values, the others only those that changed.
        if self.record.capacity() > 4 * self.record.len() {
            self.record.shrink_to_fit();
        }
        Ok(())
    }

    /// Returns whether the current log is old or large enough.
    pub fn is_full(&self) -> bool {
        let is_full = |log: &OpenLog| log.length >= MAX_BYTES || log.began.elapsed() >= MAX_AGE;
        self.current.as_ref().is_some_and(is_full)
    }

    /// Ends the current log. The next commit begins another one.
    pub fn end(&mut self) {
        if let Some(log) = self.current.take() {
            // A record that was not written whole must not be read.
            if let Err(error) = log.file.set_len(log.length) {
                tracing::debug!(%error, "cannot truncate a log");
            }
            let newest = log.rows.iter().map(|(&group, row)| (group, row.at));
            self.complete.push(CompleteLog {
                number: self.number,
                path: log.path,
                newest: newest.collect(),
                has_loose: log.has_loose,
            });
        }
    }

    /// Deletes complete logs whose rows and loose samples are all elsewhere. Returns whether no
    /// complete log is left.
    pub fn delete_covered(&mut self, covered: &Coverage, loose_log: u32) -> bool {
        let run = self.run;
        self.complete.retain(|log| {
            let has_rows = |&(group, newest): &(u32, Timestamp)| {
                covered.get((run, group)).is_some_and(|at| at >= newest)
            };
            let is_covered =
                log.newest.iter().all(has_rows) && (!log.has_loose || log.number <= loose_log);
            if !is_covered {
                return true;
            }

            match fs::remove_file(&log.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(file = %log.path.display(), %error, "cannot delete a log");
                    true
                }
                _ => false,
            }
        });
        self.complete.is_empty()
    }
}

impl OpenLog {
    fn create(path: PathBuf, run: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        file.write_all_at(&run.to_le_bytes(), 0)?;

        // A commit is durable only if the name of its file is.
        if let Some(folder) = path.parent() {
            crate::block::sync_directory(folder)?;
        }
        Ok(Self {
            path,
            file,
            length: size_of::<u64>() as u64,
            began: Instant::now(),
            rows: HashMap::new(),
            has_loose: false,
        })
    }

    fn encode(
        &mut self,
        out: &mut Vec<u8>,
        group: u32,
        at: Timestamp,
        series: &[u32],
        values: &[f64],
    ) {
        let last = self.rows.get_mut(&group);
        let last = last.filter(|last| *last.series == *series);
        out.push(if last.is_some() { SAME_SERIES } else { ROW });
        out.extend_from_slice(&group.to_le_bytes());
        out.extend_from_slice(&at.0.to_le_bytes());

        let Some(last) = last else {
            out.extend_from_slice(&(series.len() as u32).to_le_bytes());
            series
                .iter()
                .for_each(|series| out.extend_from_slice(&series.to_le_bytes()));
            values
                .iter()
                .for_each(|value| out.extend_from_slice(&value.to_bits().to_le_bytes()));
            let row = LastRow {
                at,
                series: series.into(),
                values: values.to_vec(),
            };
            self.rows.insert(group, row);
            return;
        };

        last.at = at;
        let bits = out.len();
        out.resize(bits + series.len().div_ceil(8), 0);
        for (column, (last, &value)) in last.values.iter_mut().zip(values).enumerate() {
            // Bits are compared, so that a NaN can be unchanged.
            if last.to_bits() != value.to_bits() {
                *last = value;
                out[bits + column / 8] |= 1 << (column % 8);
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
    }
}

fn encode_loose(out: &mut Vec<u8>, loose: &[LooseSample]) {
    out.push(LOOSE);
    out.extend_from_slice(&(loose.len() as u32).to_le_bytes());
    out.reserve(loose.len() * SINGLE_BYTES);
    loose
        .iter()
        .map(single_bytes)
        .for_each(|bytes| out.extend_from_slice(&bytes));
}

/// Content of a log.
#[derive(Debug, Default)]
pub(super) struct ReadLog {
    pub run: u64,
    /// Length of the part that could be read.
    pub length: u64,
    /// Number of damaged records.
    pub damaged: usize,
}

/// Receives the content of a log.
pub(super) trait LogReader {
    /// A row of a group.
    fn row(&mut self, owner: (u64, u32), at: Timestamp, series: &Arc<[u32]>, values: &[f64]);
    /// A loose sample.
    fn loose(&mut self, sample: LooseSample);
}

/// Reads a log up to the first damaged record.
pub(super) fn read_log(path: &Path, reader: &mut impl LogReader) -> io::Result<ReadLog> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut found = ReadLog::default();

    let begin = size_of::<u64>() as u64;
    // A crash may leave a file without its first field.
    if end < begin {
        return Ok(found);
    }

    let run = super::record::read(&file, 0, size_of::<u64>())?;
    found.run = u64::from_le_bytes(run.try_into().expect("8 bytes"));
    found.length = begin;

    let mut rows = HashMap::new();
    while let Some(record) = Record::at(&file, found.length, end)? {
        let content = record.read(&file)?;
        let is_whole = record.kind == COMMIT
            && record.is_intact(&content)
            && decode(&content, found.run, &mut rows, reader).is_some();
        if !is_whole {
            found.damaged += 1;
            break;
        }

        found.length = record.end();
    }
    Ok(found)
}

fn decode(
    content: &[u8],
    run: u64,
    rows: &mut HashMap<u32, (Arc<[u32]>, Vec<f64>)>,
    reader: &mut impl LogReader,
) -> Option<()> {
    let mut fields = Fields(content);
    while let Some(kind) = fields.take(1) {
        if kind == [LOOSE] {
            for _ in 0..fields.u32()? {
                let series = fields.u32()?;
                let at = Timestamp(fields.i64()?);
                let value = fields.f64()?;
                reader.loose((series, Sample { at, value }));
            }
            continue;
        }

        let group = fields.u32()?;
        let at = Timestamp(fields.i64()?);
        if kind == [ROW] {
            let count = fields.u32()? as usize;
            // `take` fails before a damaged number allocates memory.
            let series = Fields(fields.take(4 * count)?);
            let values = Fields(fields.take(8 * count)?);
            rows.insert(group, (numbers(series), doubles(values)));
        } else {
            // Changes without a whole row before them mean nothing.
            let (series, values) = rows.get_mut(&group)?;
            let bits = fields.take(series.len().div_ceil(8))?;
            for (column, value) in values.iter_mut().enumerate() {
                if bits[column / 8] >> (column % 8) & 1 == 1 {
                    *value = fields.f64()?;
                }
            }
        }

        let (series, values) = rows.get(&group)?;
        reader.row((run, group), at, series, values);
    }
    Some(())
}

fn numbers(mut fields: Fields<'_>) -> Arc<[u32]> {
    std::iter::from_fn(|| fields.u32()).collect()
}

fn doubles(mut fields: Fields<'_>) -> Vec<f64> {
    std::iter::from_fn(|| fields.f64()).collect()
}
