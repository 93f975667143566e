//! The compactor thread: seals segments, merges finished days, removes expired blocks.
//!
//! Retention goes by the trusted time, not by the clock: a clock that jumped removes nothing.
//!
//! Replaced segments and blocks stay on disk for a grace period, because running queries may still
//! read them. A crash in that period does no harm: the next start recognizes replaced blocks by
//! their names ([`Layout::open`]).

mod removed;
mod replaced;
mod signal;

pub(crate) use replaced::Replaced;
use replaced::ReplacedData;
use signal::CompactionRequest;
pub(crate) use signal::CompactionSignal;

use super::allocator;
use super::attach::set_aside;
use super::block::{self, Block, BlockOutput, BlockSource, Resolution, without};
use super::crash::crash_point;
use super::database::with_suffix;
use super::free_space::check_free_space;
use super::layout::{Layout, remove_if_there};
use super::metrics::{ResolutionLabel, StoreMetrics, TaskLabel};
use super::unsealed::SegmentFile;
use super::{Clock, Database, StoreConfig, StoreError};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_model::{Timestamp, error_chain};

/// Time that replaced data stays on disk, by the store's clock. Data that a query still reads stays
/// longer.
const REPLACED_GRACE: Duration = Duration::from_secs(20);

/// Milliseconds from the end of a day until its blocks are merged.
const MERGE_DELAY_MS: i64 = 600_000;

const DAY_MS: i64 = 86_400_000;

/// Length above which a round writes a database's log back, in bytes.
const LOG_LIMIT: u64 = 64 << 20;

/// Tasks of a round, in order. Expired blocks go first to free space for new ones.
const TASKS: [(&str, CompactionTask); 4] = [
    ("delete_removed", Compactor::delete_removed),
    ("expire", Compactor::expire),
    ("seal", Compactor::seal),
    ("merge", Compactor::merge),
];

type CompactionTask = fn(&mut Compactor) -> Result<CompactionSummary, StoreError>;

/// Result of a round of the compactor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionSummary {
    /// Titles of the blocks written.
    pub written: Vec<String>,
    /// Rows in the written blocks; for a deletion, rows deleted.
    pub rows: u64,
    /// Titles of the blocks removed or replaced.
    pub removed: Vec<String>,
}

/// State of the compactor thread.
pub(crate) struct Compactor {
    pub database: Arc<Database>,
    pub config: StoreConfig,
    pub clock: Clock,
    pub metrics: StoreMetrics,
    pub signal: Arc<CompactionSignal>,
    pub replaced: Vec<Replaced>,
}

impl Compactor {
    /// Runs until [`CompactionSignal::close`].
    pub fn run(mut self) {
        self.count();
        // Opening has read more than the server needs.
        allocator::give_back();

        while let Some(request) = self.signal.wait() {
            match request {
                None => drop(self.round()),
                Some((CompactionRequest::Round, reply)) => drop(reply.send(self.round())),
                Some((CompactionRequest::Delete(series), reply)) => {
                    let done = self.attempt("delete", |compactor| compactor.delete(&series));
                    if let Err(error) = &done {
                        tracing::error!(
                            error = %error_chain(error),
                            "series could not be deleted from all blocks"
                        );
                    }
                    // The caller may have stopped waiting.
                    drop(reply.send(done));
                }
            }
            allocator::give_back();
        }

        self.sweep(Duration::ZERO);
        self.database.trusted_clock().save();
    }

    /// Runs all tasks. A failed task does not stop the others; the first error is returned.
    fn round(&mut self) -> Result<CompactionSummary, StoreError> {
        let mut summary = CompactionSummary::default();
        let mut first_error = None;
        for (name, task) in TASKS {
            match self.attempt(name, task) {
                Ok(done) => summary.add(done),
                Err(error) => {
                    tracing::error!(
                        task = name,
                        error = %error_chain(&error),
                        "compaction failed; it is retried"
                    );
                    first_error = first_error.or(Some(error));
                }
            }
        }

        self.database.checkpoint_logs(LOG_LIMIT);
        self.sweep(REPLACED_GRACE);
        self.count();
        self.database.trusted_clock().save();

        first_error.map_or(Ok(summary), Err)
    }

    /// Runs a task and counts its failure. A failed task keeps the steps it completed.
    fn attempt(
        &mut self,
        name: &'static str,
        task: impl FnOnce(&mut Self) -> Result<CompactionSummary, StoreError>,
    ) -> Result<CompactionSummary, StoreError> {
        // The iterator over query results panics on errors.
        let done = catch_unwind(AssertUnwindSafe(|| task(&mut *self))).unwrap_or_else(|_| {
            Err(StoreError::Unsealed {
                what: name.to_owned(),
                reason: "reading samples failed; see the log",
            })
        });

        if done.is_err() {
            self.metrics
                .compaction_failures
                .get_or_create(&TaskLabel { task: name })
                .inc();
            // Free the space of unfinished blocks.
            drop(remove_if_there(&self.database.path().join(block::SEALING)));
        }
        done
    }

    /// Seals each complete segment into a block.
    fn seal(&mut self) -> Result<CompactionSummary, StoreError> {
        let mut summary = CompactionSummary::default();
        for source in self.database.layout().frozen() {
            // The block needs room beside the segment, which stays until the block is complete.
            self.check_room()?;

            let began = Instant::now();
            let number = match &source {
                BlockSource::Table(segment) => segment.0,
                BlockSource::Segment(file) => {
                    // A damaged chunk would make each attempt to seal the segment fail.
                    self.leave_damaged_out(file)?;
                    file.segment.0
                }
                BlockSource::Blocks(_) => continue,
            };

            let output = BlockOutput {
                segments: (number, number),
                resolutions: vec![Resolution::Raw],
                slice_samples: self.config.slice_samples(),
            };

            let blocks = block::write(&self.database, &source, &output)?;
            self.metrics
                .seal_seconds
                .observe(began.elapsed().as_secs_f64());

            for block in &blocks {
                self.metrics.sealed_samples.inc_by(block.facts.rows);
                tracing::info!(
                    block = %block.title(),
                    samples = block.facts.rows,
                    bytes = block.bytes(),
                    seconds = began.elapsed().as_secs_f64(),
                    "sealed samples"
                );
            }

            let sealed = match source {
                BlockSource::Table(segment) => Some(ReplacedData::Table(segment)),
                BlockSource::Segment(file) => Some(ReplacedData::Segment(file)),
                BlockSource::Blocks(_) => None,
            };
            summary.add(self.publish(blocks, sealed)?);
        }
        Ok(summary)
    }

    /// Reads a segment completely. Damaged chunks are left out, and a copy of the file is set
    /// aside.
    fn leave_damaged_out(&self, file: &SegmentFile) -> Result<(), StoreError> {
        let failed = |source| StoreError::Directory {
            path: file.path().to_owned(),
            source,
        };
        if file.leave_damaged_out().map_err(failed)? > 0 {
            let copy = with_suffix(file.path(), ".before");
            fs::copy(file.path(), &copy).map_err(failed)?;
            set_aside(&copy, "a part of its samples cannot be read")?;
        }
        Ok(())
    }

    /// Merges the raw blocks of each finished day into one, and writes its lower resolutions.
    fn merge(&mut self) -> Result<CompactionSummary, StoreError> {
        let mut summary = CompactionSummary::default();
        let now = self.surely_passed();

        for day in days(&self.database.layout()) {
            let resolutions = self.due(&day, now);
            if resolutions.is_empty() {
                continue;
            }

            self.check_room()?;
            let first = &day[0];
            let last = &day[day.len() - 1];
            let output = BlockOutput {
                segments: (first.name.first, last.name.last),
                resolutions,
                slice_samples: self.config.slice_samples(),
            };
            let source = BlockSource::Blocks(day.clone());

            // The iterator over query results panics if a page cannot be decoded.
            let write = || block::write(&self.database, &source, &output);
            let written = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|_| {
                Err(StoreError::Unsealed {
                    what: format!("the day of {}", first.title()),
                    reason: "a block cannot be decoded",
                })
            });

            let blocks = match written {
                Err(error) if set_damaged_aside(&self.database, &self.metrics, &day) => {
                    tracing::warn!(
                        error = %error_chain(&error),
                        "merging a day without its damaged blocks"
                    );
                    // The next round merges the rest of the day.
                    continue;
                }
                written => written?,
            };

            for block in &blocks {
                tracing::info!(
                    block = %block.title(),
                    rows = block.facts.rows,
                    bytes = block.bytes(),
                    "merged a day"
                );
            }
            summary.add(self.publish(blocks, None)?);
        }
        Ok(summary)
    }

    /// Returns the resolutions that must still be written for a day's raw blocks. Empty if the day
    /// is not finished.
    fn due(&self, day: &[Arc<Block>], now: Timestamp) -> Vec<Resolution> {
        let first = &day[0];
        let last = &day[day.len() - 1];
        let newest = day
            .iter()
            .map(|block| block.facts.to)
            .max()
            .unwrap_or(Timestamp::MAX);

        if !is_over(newest, now) {
            return Vec::new();
        }

        let layout = self.database.layout();
        // Raw comes last: the name of that block implies that the others exist.
        [Resolution::Hour, Resolution::FiveMinutes, Resolution::Raw]
            .into_iter()
            .filter(|resolution| {
                let is_kept = self
                    .config
                    .retention_of(*resolution)
                    .is_some_and(|retention| newest >= now.minus(retention));
                let mut existing = layout.of(*resolution);
                is_kept
                    && !existing
                        .any(|b| b.name.first == first.name.first && b.name.last == last.name.last)
            })
            .collect()
    }

    /// Removes blocks past their retention, then the oldest blocks until the rest fits
    /// `max_disk_gib`.
    fn expire(&mut self) -> Result<CompactionSummary, StoreError> {
        let now = self.surely_passed();
        let layout = self.database.layout();
        let is_past = |block: &Arc<Block>, resolution| {
            self.config
                .retention_of(resolution)
                .is_none_or(|retention| block.facts.to < now.minus(retention))
        };
        // Keep the samples of an unmerged day: its lower resolutions are computed from them.
        let is_awaited = |block: &Arc<Block>| {
            [Resolution::FiveMinutes, Resolution::Hour]
                .into_iter()
                .any(|coarse| {
                    let is_made = layout.of(coarse).any(|row| row.name.covers(&block.name));
                    !is_made && !is_past(block, coarse)
                })
        };
        let (past, mut left): (Vec<_>, Vec<_>) = layout.blocks.iter().cloned().partition(|block| {
            is_past(block, block.resolution)
                && (block.resolution != Resolution::Raw || !is_awaited(block))
        });
        let config = self.config.clone();
        let mut summary = self.remove(past, |block| {
            let kept_days = config
                .retention_of(block.resolution)
                .map_or(0, |kept| kept.as_secs() / 86_400);
            tracing::info!(
                block = %block.title(),
                bytes = block.bytes(),
                kept_days,
                "removing a block past its retention; it stays in removed/ for a day"
            );
            ReplacedData::Expired(block)
        })?;

        if let Some(limit) = self.config.max_disk_bytes() {
            let mut gone = Vec::new();
            // Fine resolutions go first, because a coarse block covers the same time in far less space.
            left.sort_by_key(|block| (block.resolution, block.facts.to));
            let mut bytes: u64 = left.iter().map(|block| block.bytes()).sum();
            for block in left {
                if bytes <= limit {
                    break;
                }
                bytes -= block.bytes();
                tracing::warn!(
                    block = %block.title(),
                    limit,
                    "removing a block before its retention ends: max_disk_gib"
                );
                gone.push(block);
            }
            summary.add(self.remove(gone, ReplacedData::Block)?);
        }
        Ok(summary)
    }

    /// Deletes removed blocks: those of days that are over, and all of them if space is needed.
    fn delete_removed(&mut self) -> Result<CompactionSummary, StoreError> {
        let data = self.database.path();
        let blocks = self.database.layout();
        let is_over_limit = self.config.max_disk_bytes().is_some_and(|limit| {
            let sealed: u64 = blocks.blocks.iter().map(|block| block.bytes()).sum();
            sealed + removed::removed_bytes(data) > limit
        });

        let deleted = if is_over_limit {
            removed::delete_all(data, "max_disk_gib is exceeded")
        } else if check_free_space(data, 2 * self.config.min_free_bytes).is_err() {
            // Samples stop at `min_free_bytes`.
            removed::delete_all(data, "less than twice min_free_bytes is free")
        } else {
            removed::delete_old(data, self.surely_passed())
        };

        deleted
            .map(|()| CompactionSummary::default())
            .map_err(|source| StoreError::Directory {
                path: data.join(removed::REMOVED),
                source,
            })
    }

    /// Takes blocks out of the layout. `remains` says what becomes of their files.
    fn remove(
        &mut self,
        gone: Vec<Arc<Block>>,
        remains: impl Fn(Arc<Block>) -> ReplacedData,
    ) -> Result<CompactionSummary, StoreError> {
        if !gone.is_empty() {
            self.database.set_layout(|layout| layout.with(&gone, []))?;
        }
        let removed = gone.iter().map(|block| block.title()).collect();
        let since = self.clock.now();
        self.replaced.extend(gone.into_iter().map(|block| Replaced {
            data: remains(block),
            since,
        }));
        Ok(CompactionSummary {
            removed,
            ..CompactionSummary::default()
        })
    }

    /// The time by which samples expire.
    fn surely_passed(&self) -> Timestamp {
        self.database.clock_state().surely_passed()
    }

    /// Publishes new blocks in the layout, in place of the segment or blocks they replace.
    fn publish(
        &mut self,
        blocks: Vec<Block>,
        sealed: Option<ReplacedData>,
    ) -> Result<CompactionSummary, StoreError> {
        let rows = blocks.iter().map(|block| block.facts.rows).sum();
        let written: Vec<String> = blocks.iter().map(Block::title).collect();
        let new: Vec<Arc<Block>> = blocks.into_iter().map(Arc::new).collect();

        let layout = self.database.layout();
        let gone: Vec<_> = layout
            .blocks
            .iter()
            .filter(|block| {
                new.iter()
                    .any(|new| new.resolution == block.resolution && new.name.replaces(&block.name))
            })
            .cloned()
            .collect();

        // Segment and block change places in one step, so that a query sees each sample once.
        self.database.set_layout(|layout| {
            let mut layout = layout.with(&gone, new);
            match &sealed {
                Some(ReplacedData::Table(sealed)) => layout.tables.retain(|table| table != sealed),
                Some(ReplacedData::Segment(sealed)) => {
                    layout.segments.retain(|file| !Arc::ptr_eq(file, sealed));
                }
                Some(ReplacedData::Block(_) | ReplacedData::Expired(_)) | None => {}
            }
            layout
        })?;

        crash_point("published");
        let things = gone.iter().cloned().map(ReplacedData::Block).chain(sealed);
        let since = self.clock.now();
        self.replaced
            .extend(things.map(|data| Replaced { data, since }));

        Ok(CompactionSummary {
            written,
            rows,
            removed: gone.iter().map(|block| block.title()).collect(),
        })
    }

    /// Deletes the samples of series from all blocks and complete segments.
    fn delete(&mut self, series: &RoaringBitmap) -> Result<CompactionSummary, StoreError> {
        let mut summary = CompactionSummary::default();

        let db = self.database.connect()?;
        let list = series
            .iter()
            .map(|id| id.to_string())
            .collect::<Vec<_>>()
            .join(",");

        for source in self.database.layout().frozen() {
            summary.rows += match source {
                BlockSource::Table(segment) => {
                    let table = segment.table();
                    let sql = format!("DELETE FROM hot.{table} WHERE series IN ({list})");
                    let deleted = db.execute(&sql, []);
                    deleted.map_err(StoreError::sql("delete samples"))? as u64
                }
                BlockSource::Segment(file) => {
                    file.delete(series)
                        .map_err(|source| StoreError::Directory {
                            path: file.path().to_owned(),
                            source,
                        })?
                }
                BlockSource::Blocks(_) => 0,
            };
        }

        let layout = self.database.layout();
        for block in layout
            .blocks
            .iter()
            .filter(|block| !block.series.is_disjoint(series))
        {
            let rewritten = match without(&self.database, block, series) {
                Err(error)
                    if set_damaged_aside(&self.database, &self.metrics, slice::from_ref(block)) =>
                {
                    tracing::warn!(
                        error = %error_chain(&error),
                        "a damaged block keeps the deleted series in its copy"
                    );
                    continue;
                }
                rewritten => rewritten?,
            };

            let rows_left = rewritten.as_ref().map_or(0, |new| new.facts.rows);
            summary.rows += block.facts.rows - rows_left;
            match rewritten {
                Some(new) => summary.add(CompactionSummary {
                    rows: 0,
                    ..self.publish(vec![new], None)?
                }),
                None => summary.add(self.remove(vec![Arc::clone(block)], ReplacedData::Block)?),
            }
        }

        // Deleted samples must not stay on disk for the grace period.
        self.sweep(Duration::ZERO);
        Ok(summary)
    }

    /// Removes replaced data after the grace period, unless a query still reads it. A `grace` of
    /// zero removes everything.
    fn sweep(&mut self, grace: Duration) {
        let database = Arc::clone(&self.database);
        let before = self.clock.now().minus(grace);

        self.replaced.retain(|replaced| {
            let is_read = replaced.data.is_read();
            if (replaced.since > before && !grace.is_zero()) || (is_read && !grace.is_zero()) {
                return true;
            }

            match replaced.data.remove(&database) {
                Ok(()) => false,
                Err(error) => {
                    tracing::warn!(
                        error = %error_chain(&error),
                        "cannot remove replaced samples; the removal is retried"
                    );
                    true
                }
            }
        });
    }

    fn check_room(&self) -> Result<(), StoreError> {
        check_free_space(self.database.path(), self.config.min_free_bytes)
    }

    fn count(&self) {
        let layout = self.database.layout();
        let set_aside = self.database.set_aside_files().len();
        self.metrics.damaged_files.set(set_aside as i64);
        let removed = removed::removed_bytes(self.database.path());
        self.metrics.removed_bytes.set(removed as i64);
        self.metrics
            .unsealed_segments
            .set(layout.frozen().len() as i64);

        for resolution in Resolution::ALL {
            let label = ResolutionLabel {
                resolution: resolution.name(),
            };

            let bytes: u64 = layout.of(resolution).map(|block| block.bytes()).sum();
            self.metrics
                .blocks
                .get_or_create(&label)
                .set(layout.of(resolution).count() as i64);
            self.metrics
                .block_bytes
                .get_or_create(&label)
                .set(bytes as i64);
        }
    }
}

impl CompactionSummary {
    fn add(&mut self, other: Self) {
        self.written.extend(other.written);
        self.removed.extend(other.removed);
        self.rows += other.rows;
    }
}

/// Returns whether the UTC day of `newest` is over, and its blocks may be merged.
pub(crate) fn is_over(newest: Timestamp, now: Timestamp) -> bool {
    now.0 >= (newest.0.div_euclid(DAY_MS) + 1) * DAY_MS + MERGE_DELAY_MS
}

/// Returns consecutive raw blocks, grouped by the day on which they end.
pub(crate) fn days(layout: &Layout) -> Vec<Vec<Arc<Block>>> {
    let blocks: Vec<_> = layout.of(Resolution::Raw).cloned().collect();
    let day = |block: &Arc<Block>| block.facts.to.0.div_euclid(DAY_MS);
    blocks
        .chunk_by(|one, next| day(one) == day(next))
        .map(<[_]>::to_vec)
        .collect()
}

/// Verifies blocks and sets damaged ones aside. Returns whether any was damaged.
pub(crate) fn set_damaged_aside(
    database: &Database,
    metrics: &StoreMetrics,
    blocks: &[Arc<Block>],
) -> bool {
    let Ok(db) = database.connect() else {
        return false;
    };

    let mut damaged = Vec::new();
    for block in blocks {
        if let Err(StoreError::DamagedBlock { path, reason }) = block::verify(&db, block) {
            let reason = format!("{}: {reason}", path.display());
            // Another reader may have set it aside already.
            if let Ok(()) = database.set_layout(|layout| layout.with(slice::from_ref(block), []))
                && set_aside(&block.path, &reason).is_ok()
            {
                metrics.damaged_files.inc();
            }
            damaged.push(block);
        }
    }

    !damaged.is_empty()
}
