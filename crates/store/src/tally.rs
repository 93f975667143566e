//! How many samples the newest segment had at the last commit.
//!
//! DuckDB reads a damaged log up to the damage and says nothing, which looks like a crash in the middle of a write. So what
//! must be there is written down beside it, after each commit and without waiting for the disk: too little after a loss
//! of power, never too much. A start after a crash keeps a copy of the log until it knows that nothing is missing.

use super::StoreError;
use super::block::Resolution;
use super::database::{Damaged, set_aside};
use super::layout::Layout;
use super::segment::Segment;
use duckdb::Connection;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const TALLY: &str = "hot.tally";
const LOG: &str = "hot.duckdb.wal";

/// The file with the number.
#[derive(Debug)]
pub(crate) struct Tally(Option<File>);

impl Tally {
    /// Where the file cannot be made nothing is noted.
    pub fn open(data: &Path) -> Self {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(data.join(TALLY));
        Self(
            file.inspect_err(
                |error| tracing::warn!(%error, "cannot note how many samples are committed"),
            )
            .ok(),
        )
    }

    /// Notes what was committed. Always as many bytes, so there is never less of them than there should be.
    pub fn note(&self, segment: Segment, samples: u64) {
        let text = format!("{:010} {samples:020}\n", segment.0);
        if let Some(Err(error)) = self
            .0
            .as_ref()
            .map(|file| file.write_all_at(text.as_bytes(), 0))
        {
            tracing::debug!(%error, "cannot note how many samples were committed");
        }
    }
}

/// The log as it was before DuckDB read it.
#[derive(Debug)]
pub(crate) struct LogCopy(Option<PathBuf>);

impl LogCopy {
    /// Copies the log, if a crash left one. Where there is no room for a copy there is none.
    pub fn take(data: &Path) -> Self {
        let (log, copy) = (data.join(LOG), data.join(format!("{LOG}.before")));
        Self(fs::copy(&log, &copy).ok().map(|_| copy))
    }

    /// Compares what is there with what was noted; the copy is set aside if something is missing, and goes if not, or if
    /// DuckDB itself refused the log (`is_told`), which was set aside then.
    pub fn check(
        self,
        db: &Connection,
        data: &Path,
        layout: &Layout,
        is_told: bool,
    ) -> Result<Option<Damaged>, StoreError> {
        let reason = if is_told {
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
                tracing::error!(file = %data.join(LOG).display(), error = reason, "samples are missing");
                Ok(Some(Damaged {
                    moved_to: data.join(LOG),
                    reason,
                }))
            }
        }
    }
}

fn missing(db: &Connection, data: &Path, layout: &Layout) -> Result<Option<String>, StoreError> {
    let text = fs::read_to_string(data.join(TALLY)).unwrap_or_default();
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
