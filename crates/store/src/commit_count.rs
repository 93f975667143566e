//! Detects lost samples: the number of samples in the newest segment, written to a file at each
//! commit.
//!
//! DuckDB replays a damaged log up to the damage and reports nothing, as after a crash in the
//! middle of a write. The number of samples is therefore written beside the log after each commit,
//! without an fsync: after a power failure it may be too small, never too large. A start after a
//! crash keeps a copy of the log until this check has passed.

use super::StoreError;
use super::block::Resolution;
use super::database::{Damaged, set_aside};
use super::layout::Layout;
use super::segments::Segment;
use duckdb::Connection;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const COUNT_FILE: &str = "hot.tally";
const LOG: &str = "hot.duckdb.wal";

/// The file with the number. `None` if it could not be created.
#[derive(Debug)]
pub(crate) struct CommitCount(Option<File>);

impl CommitCount {
    /// Opens the file. A failure disables the check and is logged.
    pub fn open(data: &Path) -> Self {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(data.join(COUNT_FILE));
        Self(
            file.inspect_err(
                |error| tracing::warn!(%error, "cannot open the file for the number of committed samples"),
            )
            .ok(),
        )
    }

    /// Records the number of committed samples. The text has a fixed length, so a write never
    /// truncates the file.
    pub fn note(&self, segment: Segment, samples: u64) {
        let text = format!("{:010} {samples:020}\n", segment.0);
        if let Some(Err(error)) = self
            .0
            .as_ref()
            .map(|file| file.write_all_at(text.as_bytes(), 0))
        {
            tracing::debug!(%error, "cannot record the number of committed samples");
        }
    }
}

/// Copy of the log, taken before DuckDB replays it.
#[derive(Debug)]
pub(crate) struct LogCopy(Option<PathBuf>);

impl LogCopy {
    /// Copies the log that a crash left. Without a log, or without space for a copy, there will be
    /// none.
    pub fn take(data: &Path) -> Self {
        let log = data.join(LOG);
        let copy = data.join(format!("{LOG}.before"));
        Self(fs::copy(&log, &copy).ok().map(|_| copy))
    }

    /// Compares the stored samples with the recorded number. Sets the copy aside if samples are
    /// missing, and deletes it otherwise. `is_reported`: DuckDB itself rejected the log, which was
    /// set aside already.
    pub fn check(
        self,
        db: &Connection,
        data: &Path,
        layout: &Layout,
        is_reported: bool,
    ) -> Result<Option<Damaged>, StoreError> {
        let reason = if is_reported {
            None
        } else {
            missing(db, data, layout)?
        };
        let Some(reason) = reason else {
            if let Some(copy) = &self.0 {
                fs::remove_file(copy).map_err(|source| StoreError::Directory {
                    path: copy.clone(),
                    source,
                })?;
            }
            return Ok(None);
        };
        match &self.0 {
            Some(copy) => set_aside(copy, &reason).map(Some),
            None => {
                tracing::error!(
                    file = %data.join(LOG).display(),
                    error = reason,
                    "samples are missing"
                );
                Ok(Some(Damaged {
                    moved_to: data.join(LOG),
                    reason,
                }))
            }
        }
    }
}

fn missing(db: &Connection, data: &Path, layout: &Layout) -> Result<Option<String>, StoreError> {
    let text = fs::read_to_string(data.join(COUNT_FILE)).unwrap_or_default();
    let noted = text
        .trim_end()
        .split_once(' ')
        .and_then(|(segment, samples)| {
            Some((Segment(segment.parse().ok()?), samples.parse::<u64>().ok()?))
        });
    let Some((segment, noted)) = noted else {
        return Ok(None);
    };
    let mut sealed = layout
        .of(Resolution::Raw)
        .map(|block| block.name.first..=block.name.last);
    if noted == 0 || sealed.any(|segments| segments.contains(&segment.0)) {
        return Ok(None);
    }
    let mut found = 0;
    if layout.segments.contains(&segment) {
        let sql = format!("SELECT count(*) FROM hot.{}", segment.table());
        found = db
            .query_row(&sql, [], |row| row.get::<_, i64>(0))
            .map_err(StoreError::sql("count samples"))?;
    }
    let lost = noted.saturating_sub(found.cast_unsigned());
    Ok((lost > 0)
        .then(|| format!("{lost} samples that were committed could not be read back from the log")))
}
