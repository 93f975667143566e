//! Opens the unsealed samples, and turns the rows that a crash left in logs into chunks.

use super::file::SegmentFile;
use super::log::{LogReader, path_of, read_log};
use super::position::{CommitPosition, Position};
use super::{CLEAN, Coverage, FOLDER, LooseSample, Unsealed};
use crate::attach::{Damaged, set_aside};
use crate::database::with_suffix;
use crate::head::{GroupRows, STALE};
use crate::segments::Segment;
use crate::{SeriesId, StoreError};
use hashbrown::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use takt_model::Timestamp;

/// Window of the rows while a log is read. It gives the length of the chunks.
const WINDOW: Duration = Duration::from_secs(900);

/// Files in the folder.
#[derive(Debug, Default)]
struct Found {
    segments: Vec<u32>,
    /// Segment and number of each log, in order.
    logs: Vec<(u32, u32)>,
}

impl Found {
    fn list(folder: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let numbers = |text: &str| {
                let (segment, log) = text.split_once('-')?;
                Some((segment.parse().ok()?, log.parse().ok()?))
            };

            if let Some(segment) = name.strip_suffix(".chunks") {
                found.segments.extend(segment.parse::<u32>().ok());
            } else if let Some(text) = name.strip_suffix(".log") {
                found.logs.extend(numbers(text));
            }
        }

        found.segments.sort_unstable();
        found.logs.sort_unstable_by_key(|&(_, number)| number);
        Ok(found)
    }
}

impl Unsealed {
    /// Opens the segments that no block has. A new segment gets a number of at least `least`.
    ///
    /// # Errors
    /// If the files cannot be read or written. Damaged ones are set aside.
    pub fn open(
        data: &Path,
        is_sealed: impl Fn(u32) -> bool,
        least: u32,
        damaged: &mut Vec<Damaged>,
    ) -> Result<(Self, Vec<Arc<SegmentFile>>), StoreError> {
        let folder = data.join(FOLDER);
        let failed = |source| StoreError::Directory {
            path: folder.clone(),
            source,
        };

        fs::create_dir_all(&folder).map_err(failed)?;
        let mut found = Found::list(&folder).map_err(failed)?;
        let log = found.logs.last().map_or(0, |&(_, number)| number);
        let noted = Position::read(&folder).map_err(failed)?;
        let noted = noted.unwrap_or_default();
        remove_sealed(&folder, &mut found, is_sealed).map_err(failed)?;

        let is_clean = folder.join(CLEAN).exists() && found.logs.is_empty();
        let mut files = Vec::new();
        let mut covered = Coverage::default();
        let mut loose_log = 0;
        for &segment in &found.segments {
            // Without logs, everything is in the segments' files.
            let synced = if found.logs.is_empty() {
                u64::MAX
            } else {
                noted.synced(segment)
            };

            let (file, findings) =
                SegmentFile::open(&folder, Segment(segment), !is_clean, synced).map_err(failed)?;
            let is_short = noted.segment == segment && findings.length < noted.chunks;

            if findings.damaged > 0 || is_short {
                let copy = with_suffix(file.path(), ".before");
                fs::copy(file.path(), &copy).map_err(failed)?;
                damaged.push(set_aside(&copy, "a part of its samples cannot be read")?);
            }

            if !is_clean {
                file.cut().map_err(failed)?;
            }

            covered.add(&file.coverage());
            loose_log = loose_log.max(file.loose_log());
            files.push(Arc::new(file));
        }

        if files.is_empty() {
            let next = found
                .logs
                .iter()
                .map(|&(segment, _)| segment)
                .max()
                .unwrap_or(0)
                .max(least);
            let file = SegmentFile::create(&folder, Segment(next)).map_err(failed)?;
            files.push(Arc::new(file));
        }

        let (older, current) = files.split_at(files.len() - 1);
        older.iter().for_each(|file| file.complete());
        let current = Arc::clone(&current[0]);

        let mut rows = Replay {
            file: &current,
            covered,
            loose_log,
            log: 0,
            groups: HashMap::new(),
            loose: Vec::new(),
        };
        replay(&folder, &found.logs, noted, &mut rows, damaged)?;

        let nanoseconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos());
        let unsealed = Self {
            run: nanoseconds as u64,
            folder,
            // Numbers are not used again: a file knows the newest log whose samples it has.
            log: log.max(noted.log).max(loose_log),
            current: RwLock::new(current),
            open: Mutex::default(),
            live: OnceLock::new(),
            repeated: OnceLock::new(),
            failure: Mutex::default(),
        };

        files.iter().for_each(|file| unsealed.remember(file));
        Ok((unsealed, files))
    }
}

/// Deletes the files of sealed segments.
fn remove_sealed(
    folder: &Path,
    found: &mut Found,
    is_sealed: impl Fn(u32) -> bool,
) -> io::Result<()> {
    for &segment in found.segments.iter().filter(|segment| is_sealed(**segment)) {
        fs::remove_file(SegmentFile::path_of(folder, Segment(segment)))?;
    }
    for &(segment, number) in found.logs.iter().filter(|(segment, _)| is_sealed(*segment)) {
        fs::remove_file(path_of(folder, Segment(segment), number))?;
    }
    found.segments.retain(|segment| !is_sealed(*segment));
    found.logs.retain(|(segment, _)| !is_sealed(*segment));
    Ok(())
}

/// Turns the rows of logs into chunks, then deletes the logs.
fn replay(
    folder: &Path,
    logs: &[(u32, u32)],
    noted: Position,
    replay: &mut Replay<'_>,
    damaged: &mut Vec<Damaged>,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Directory {
        path: folder.to_owned(),
        source,
    };

    // The position may be older than the newest log, never newer.
    let is_missing = !logs.is_empty() && logs.iter().all(|&(_, number)| number < noted.log);
    if is_missing {
        tracing::error!(log = noted.log, "a log of samples is missing");
    }

    if logs.is_empty() {
        return Ok(());
    }

    let file = replay.file;
    let mut bad = Vec::new();
    for &(segment, number) in logs {
        let path = path_of(folder, Segment(segment), number);
        replay.log = number;

        let found = read_log(&path, replay).map_err(failed)?;
        // A crash may leave a part of a record at the end of the newest log.
        let is_damaged = if number < noted.log {
            found.damaged > 0
        } else {
            number == noted.log && found.length < noted.log_bytes
        };

        if is_damaged {
            bad.push(path.clone());
        }
    }

    for (owner, group) in &mut replay.groups {
        if let Some(full) = group.rows.seal_open() {
            file.add(*owner, full);
        }
    }
    file.add_loose(&[Arc::new(std::mem::take(&mut replay.loose).into())]);

    let newest = logs.last().map_or(0, |&(_, number)| number);
    let synced = file
        .persist(&super::Repeated::default())
        .and_then(|()| file.persist_loose(newest))
        .and_then(|()| file.sync())
        .map_err(failed)?;
    CommitPosition::open(folder)
        .and_then(|mut position| position.sync_chunks(file.segment, synced.length))
        .map_err(failed)?;

    for path in bad {
        damaged.push(set_aside(
            &path,
            "samples that were committed could not be read back from the log",
        )?);
    }

    for &(segment, number) in logs {
        match fs::remove_file(path_of(folder, Segment(segment), number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Rows of a log on their way into chunks.
struct Replay<'f> {
    file: &'f SegmentFile,
    covered: Coverage,
    /// Loose samples of logs up to this one are in the file.
    loose_log: u32,
    /// Number of the log that is being read.
    log: u32,
    groups: HashMap<(u64, u32), ReplayedGroup>,
    loose: Vec<LooseSample>,
}

struct ReplayedGroup {
    rows: GroupRows,
    columns: HashMap<u32, u32>,
    row: Vec<f64>,
}

impl LogReader for Replay<'_> {
    fn row(&mut self, owner: (u64, u32), at: Timestamp, series: &Arc<[u32]>, values: &[f64]) {
        let group = self.groups.entry(owner).or_insert_with(|| {
            let rows = GroupRows::new(at, WINDOW, 0);
            rows.committed().store(i64::MAX, Ordering::Release);
            ReplayedGroup {
                rows,
                columns: HashMap::new(),
                row: Vec::new(),
            }
        });

        // A commit that failed after it was written is in two logs.
        if group.rows.newest().is_some_and(|newest| newest >= at) {
            return;
        }

        group.row.fill(STALE);
        for (&series, &value) in series.iter().zip(values) {
            let rows = &mut group.rows;
            let column = *group
                .columns
                .entry(series)
                .or_insert_with(|| rows.add_column(SeriesId(series), at));
            if group.row.len() <= column as usize {
                group.row.resize(column as usize + 1, STALE);
            }
            group.row[column as usize] = value;
        }

        if self.covered.get(owner).is_some_and(|newest| newest >= at) {
            group.rows.skip(at, &group.row);
            return;
        }

        let outcome = group.rows.push(at, &group.row, |_, _| {});
        for dropped in &outcome.dropped {
            group.columns.remove(&dropped.series.0);
        }
        if let Some(full) = outcome.full {
            self.file.add(owner, full);
        }
    }

    fn loose(&mut self, sample: LooseSample) {
        if self.log > self.loose_log {
            self.loose.push(sample);
        }
    }
}
