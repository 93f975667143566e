//! The thread that keeps the blocks: seals segments, merges finished days, and removes what is too old or too much.
//!
//! What it has replaced stays for a while, for queries that began before; a crash meanwhile does no harm, because the
//! next start can tell from the names ([`Layout::open`]).

use super::allocator;
use super::block::{self, Block, Output, Resolution, Source, without};
use super::crash::crash_point;
use super::layout::{Layout, remove_block, remove_if_there};
use super::metrics::{ByResolution, StoreMetrics, Task};
use super::segment::Segment;
use super::{Clock, Database, StoreConfig, StoreError};
use crate::database::set_aside;
use duckdb::Connection;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takt_model::Timestamp;
use takt_model::error_chain;

/// How often the keeper looks at what is due, besides whenever a segment is complete.
const ROUND: Duration = Duration::from_secs(60);

/// What was replaced stays for this long by the store's clock, and for as long as a reader holds it.
const GRACE: Duration = Duration::from_secs(20);

/// A day is merged once it has been over for this long.
const DAY_IS_OVER: i64 = 600_000;

const DAY: i64 = 86_400_000;

/// What a round consists of; what goes makes room for what comes.
const TASKS: [(&str, Chore); 3] = [
    ("expire", Keeper::expire),
    ("seal", Keeper::seal),
    ("merge", Keeper::merge),
];

type Chore = fn(&mut Keeper) -> Result<Kept, StoreError>;

/// What a round of the keeper did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Blocks that were written.
    pub written: Vec<String>,
    /// Rows in them.
    pub rows: u64,
    /// Blocks that are no longer there.
    pub removed: Vec<String>,
}

/// What a request asks of the keeper.
#[derive(Debug)]
enum Request {
    Round,
    Delete(RoaringBitmap),
}

type Reply = SyncSender<Result<Kept, StoreError>>;

/// Wakes the keeper, and takes word to it and to the writer.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    is_rung: bool,
    is_wished: bool,
    is_closing: bool,
    requests: VecDeque<(Request, Reply)>,
}

impl Bell {
    /// A segment is complete.
    pub fn ring(&self) {
        self.state().is_rung = true;
        self.changed.notify_all();
    }

    /// Asks the writer to complete its segment.
    pub fn wish(&self) {
        self.state().is_wished = true;
    }

    /// Whether somebody wants the segment completed.
    pub fn take_wish(&self) -> bool {
        std::mem::take(&mut self.state().is_wished)
    }

    /// A round, as soon as possible; returns when it is done.
    pub fn round(&self) -> Result<Kept, StoreError> {
        self.ask(Request::Round)
    }

    /// Takes these series out of every block and segment.
    pub fn delete(&self, series: RoaringBitmap) -> Result<Kept, StoreError> {
        self.ask(Request::Delete(series))
    }

    /// Tells the keeper to end.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closing = true;
        // Whoever waits for an answer learns that none comes.
        state.requests.clear();
        self.changed.notify_all();
    }

    fn ask(&self, request: Request) -> Result<Kept, StoreError> {
        let (reply, answer) = sync_channel(1);
        let mut state = self.state();
        if state.is_closing {
            return Err(StoreError::Closing);
        }
        state.requests.push_back((request, reply));
        self.changed.notify_all();
        drop(state);
        answer.recv().unwrap_or(Err(StoreError::Closing))
    }

    /// Waits for something to do. `None` at the end; a request, or none where it is just time.
    fn wait(&self) -> Option<Option<(Request, Reply)>> {
        let deadline = Instant::now() + ROUND;
        let mut state = self.state();
        loop {
            if state.is_closing {
                return None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(request) = state.requests.pop_front() {
                return Some(Some(request));
            }
            if std::mem::take(&mut state.is_rung) || left.is_zero() {
                return Some(None);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn state(&self) -> MutexGuard<'_, BellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
pub(crate) struct Keeper {
    pub database: Arc<Database>,
    pub config: StoreConfig,
    pub clock: Clock,
    pub metrics: StoreMetrics,
    pub bell: Arc<Bell>,
    pub replaced: Vec<Replaced>,
}

/// Something that queries may still read, and since when nothing names it any more.
pub(crate) struct Replaced {
    what: Thing,
    since: Timestamp,
}

enum Thing {
    Segment(Segment),
    Block(Arc<Block>),
}

impl Keeper {
    /// Works until the bell is closed.
    pub fn run(mut self) {
        self.count();
        while let Some(request) = self.bell.wait() {
            match request {
                None => drop(self.round()),
                Some((Request::Round, reply)) => drop(reply.send(self.round())),
                Some((Request::Delete(series), reply)) => {
                    let done = self.attempt("delete", |keeper| keeper.delete(&series)).inspect_err(|error| {
                        tracing::error!(error = %error_chain(error), "series could not be deleted everywhere");
                    });
                    // Whoever asked may be gone.
                    drop(reply.send(done));
                }
            }
            allocator::give_back();
        }
        self.sweep(Duration::ZERO);
    }

    /// Everything that is due. A task that fails keeps no other from its turn; the first error is returned.
    fn round(&mut self) -> Result<Kept, StoreError> {
        let mut kept = Kept::default();
        let mut first_error = None;
        for (name, task) in TASKS {
            match self.attempt(name, task) {
                Ok(done) => kept.add(done),
                Err(error) => {
                    tracing::error!(task = name, error = %error_chain(&error), "the store's keeper failed and tries again");
                    first_error = first_error.or(Some(error));
                }
            }
        }
        self.sweep(GRACE);
        self.count();
        first_error.map_or(Ok(kept), Err)
    }

    /// Runs a task. Where it fails nothing has changed but for what it had finished before.
    fn attempt(
        &mut self,
        name: &'static str,
        task: impl FnOnce(&mut Self) -> Result<Kept, StoreError>,
    ) -> Result<Kept, StoreError> {
        // A stream of rows tells its errors by panics.
        let done = catch_unwind(AssertUnwindSafe(|| task(&mut *self)));
        let done = done.unwrap_or_else(|_| {
            Err(StoreError::Unsealed {
                what: name.to_owned(),
                reason: "reading samples broke off; see the log",
            })
        });
        if done.is_err() {
            self.metrics
                .keeper_failures
                .get_or_create(&Task { task: name })
                .inc();
            // What was half written takes room.
            drop(remove_if_there(&self.database.path().join(block::SEALING)));
        }
        done
    }

    /// Makes a block of every segment that is complete.
    fn seal(&mut self) -> Result<Kept, StoreError> {
        let mut kept = Kept::default();
        for segment in self.database.layout().frozen().to_vec() {
            self.check_room()?;
            let began = Instant::now();
            let output = Output {
                segments: (segment.0, segment.0),
                resolutions: vec![Resolution::Raw],
                slice_samples: self.config.slice_samples(),
            };
            let blocks = block::write(&self.database, &Source::Segment(segment), &output)?;
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
            kept.add(self.publish(blocks, Some(segment))?);
        }
        Ok(kept)
    }

    /// Makes one block of each day that is over, and its lower resolutions.
    fn merge(&mut self) -> Result<Kept, StoreError> {
        let mut kept = Kept::default();
        let now = self.clock.now();
        for day in days(&self.database.layout()) {
            let resolutions = self.due(&day, now);
            if resolutions.is_empty() {
                continue;
            }
            self.check_room()?;
            let (first, last) = (&day[0], &day[day.len() - 1]);
            let output = Output {
                segments: (first.name.first, last.name.last),
                resolutions,
                slice_samples: self.config.slice_samples(),
            };
            let blocks = match block::write(&self.database, &Source::Blocks(day.clone()), &output) {
                Err(error) if set_damaged_aside(&self.database, &self.metrics, &day) => {
                    tracing::warn!(error = %error_chain(&error), "a day is merged without its damaged blocks");
                    continue;
                }
                written => written?,
            };
            for block in &blocks {
                tracing::info!(block = %block.title(), rows = block.facts.rows, bytes = block.bytes(), "merged a day");
            }
            kept.add(self.publish(blocks, None)?);
        }
        Ok(kept)
    }

    /// What is to be made of a day's raw blocks; nothing while it lasts, or where all is there.
    fn due(&self, day: &[Arc<Block>], now: Timestamp) -> Vec<Resolution> {
        let (first, last) = (&day[0], &day[day.len() - 1]);
        let newest = day
            .iter()
            .map(|block| block.facts.to_ms)
            .max()
            .unwrap_or(i64::MAX);
        if now.0 < (newest.div_euclid(DAY) + 1) * DAY + DAY_IS_OVER {
            return Vec::new();
        }
        let layout = self.database.layout();
        let is_missing = |resolution: &Resolution| {
            let is_kept = self
                .config
                .retention_of(*resolution)
                .is_some_and(|kept| newest >= now.minus(kept).0);
            let mut there = layout.of(*resolution);
            is_kept
                && !there.any(|b| b.name.first == first.name.first && b.name.last == last.name.last)
        };
        [Resolution::Hour, Resolution::FiveMinutes, Resolution::Raw]
            .into_iter()
            .filter(is_missing)
            .collect()
    }

    /// Removes blocks past their retention, then the oldest until the rest fits the limit of bytes.
    fn expire(&mut self) -> Result<Kept, StoreError> {
        let (now, layout) = (self.clock.now(), self.database.layout());
        let is_past = |block: &Arc<Block>, resolution| {
            self.config
                .retention_of(resolution)
                .is_none_or(|kept| block.facts.to_ms < now.minus(kept).0)
        };
        // Samples of a day that is not merged yet wait for it, or the day would lack them at the lower resolutions.
        let is_awaited = |block: &Arc<Block>| {
            [Resolution::FiveMinutes, Resolution::Hour]
                .into_iter()
                .any(|coarse| {
                    let is_made = layout.of(coarse).any(|row| row.name.covers(&block.name));
                    !is_made && !is_past(block, coarse)
                })
        };
        let is_old = |block: &Arc<Block>| {
            is_past(block, block.resolution)
                && (block.resolution != Resolution::Raw || !is_awaited(block))
        };
        let (mut gone, mut left): (Vec<_>, Vec<_>) =
            layout.blocks.iter().cloned().partition(is_old);
        if let Some(limit) = self.config.max_disk_bytes() {
            left.sort_by_key(|block| (block.resolution, block.facts.to_ms));
            let mut bytes: u64 = left.iter().map(|block| block.bytes()).sum();
            for block in left {
                if bytes <= limit {
                    break;
                }
                bytes -= block.bytes();
                tracing::warn!(block = %block.title(), limit, "removing a block before its time: max_disk_gib");
                gone.push(block);
            }
        }
        self.remove(&gone)
    }

    fn remove(&mut self, gone: &[Arc<Block>]) -> Result<Kept, StoreError> {
        if !gone.is_empty() {
            self.database.set_layout(|layout| layout.with(gone, []))?;
        }
        for block in gone {
            tracing::info!(block = %block.title(), bytes = block.bytes(), "removing a block");
            self.replaced.push(Replaced {
                what: Thing::Block(Arc::clone(block)),
                since: self.clock.now(),
            });
        }
        Ok(Kept {
            removed: gone.iter().map(|block| block.title()).collect(),
            ..Kept::default()
        })
    }

    /// Lets queries see new blocks in place of what they were made from.
    fn publish(&mut self, blocks: Vec<Block>, sealed: Option<Segment>) -> Result<Kept, StoreError> {
        let rows = blocks.iter().map(|block| block.facts.rows).sum();
        let written: Vec<String> = blocks.iter().map(Block::title).collect();
        let new: Vec<Arc<Block>> = blocks.into_iter().map(Arc::new).collect();
        let layout = self.database.layout();
        let is_replaced = |block: &&Arc<Block>| {
            new.iter()
                .any(|new| new.resolution == block.resolution && new.name.replaces(&block.name))
        };
        let gone: Vec<_> = layout.blocks.iter().filter(is_replaced).cloned().collect();
        self.database.set_layout(|layout| {
            let mut layout = layout.with(&gone, new);
            layout.segments.retain(|segment| Some(*segment) != sealed);
            layout
        })?;
        crash_point("published");
        let things = gone
            .iter()
            .cloned()
            .map(Thing::Block)
            .chain(sealed.map(Thing::Segment));
        let since = self.clock.now();
        self.replaced
            .extend(things.map(|what| Replaced { what, since }));
        Ok(Kept {
            written,
            rows,
            removed: gone.iter().map(|block| block.title()).collect(),
        })
    }

    /// Takes series out of all blocks and segments.
    fn delete(&mut self, series: &RoaringBitmap) -> Result<Kept, StoreError> {
        let mut kept = Kept::default();
        let db = self.database.connect()?;
        let list = series
            .iter()
            .map(|id| id.to_string())
            .collect::<Vec<_>>()
            .join(",");
        for segment in self.database.layout().frozen() {
            let sql = format!(
                "DELETE FROM hot.{} WHERE series IN ({list})",
                segment.table()
            );
            kept.rows += db
                .execute(&sql, [])
                .map_err(StoreError::sql("delete samples"))? as u64;
        }
        let layout = self.database.layout();
        for block in layout
            .blocks
            .iter()
            .filter(|block| !block.series.is_disjoint(series))
        {
            let rewritten = without(&self.database, block, series)?;
            let rows_left = rewritten.as_ref().map_or(0, |new| new.facts.rows);
            kept.rows += block.facts.rows - rows_left;
            match rewritten {
                Some(new) => kept.add(Kept {
                    rows: 0,
                    ..self.publish(vec![new], None)?
                }),
                None => kept.add(self.remove(&[Arc::clone(block)])?),
            }
        }
        self.sweep(Duration::ZERO);
        Ok(kept)
    }

    /// Removes what was replaced, once nobody reads it.
    fn sweep(&mut self, grace: Duration) {
        let database = Arc::clone(&self.database);
        let before = self.clock.now().minus(grace);
        self.replaced.retain(|replaced| {
            let is_read = matches!(&replaced.what, Thing::Block(block) if Arc::strong_count(block) > 1);
            if (replaced.since > before && !grace.is_zero()) || (is_read && !grace.is_zero()) {
                return true;
            }
            match replaced.what.remove(&database) {
                Ok(()) => false,
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "cannot remove what was replaced; it is tried again");
                    true
                }
            }
        });
    }

    fn check_room(&self) -> Result<(), StoreError> {
        super::hot::check_room(self.database.path(), self.config.min_free_bytes)
    }

    fn count(&self) {
        let layout = self.database.layout();
        self.metrics
            .unsealed_segments
            .set(layout.frozen().len() as i64);
        for resolution in Resolution::ALL {
            let label = ByResolution {
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

impl Thing {
    fn remove(&self, database: &Database) -> Result<(), StoreError> {
        match self {
            Self::Segment(segment) => {
                let sql = format!("DROP TABLE IF EXISTS hot.{}", segment.table());
                let db: Connection = database.connect()?;
                db.execute_batch(&sql)
                    .map_err(StoreError::sql("drop a sealed table"))
            }
            Self::Block(block) => {
                remove_block(database.path(), block).map_err(|source| StoreError::Directory {
                    path: block.path.clone(),
                    source,
                })
            }
        }
    }
}

impl Kept {
    fn add(&mut self, other: Self) {
        self.written.extend(other.written);
        self.removed.extend(other.removed);
        self.rows += other.rows;
    }
}

/// Raw blocks that follow each other and end on the same day.
fn days(layout: &Layout) -> Vec<Vec<Arc<Block>>> {
    let blocks: Vec<_> = layout.of(Resolution::Raw).cloned().collect();
    let day = |block: &Arc<Block>| block.facts.to_ms.div_euclid(DAY);
    blocks
        .chunk_by(|one, next| day(one) == day(next))
        .map(<[_]>::to_vec)
        .collect()
}

/// Verifies blocks and sets those aside that are damaged. Whether there were any.
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
            // Another reader may have met it first.
            if let Ok(()) =
                database.set_layout(|layout| layout.with(std::slice::from_ref(block), []))
                && set_aside(&block.path, &reason).is_ok()
            {
                metrics.damaged_files.inc();
            }
            damaged.push(block);
        }
    }
    !damaged.is_empty()
}

/// What the store has on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Series that were ever stored.
    pub series: u64,
    /// Samples that are not sealed yet.
    pub hot_samples: u64,
    /// Bytes of `hot.duckdb` and its log.
    pub hot_bytes: u64,
    /// The blocks, by resolution and time.
    pub blocks: Vec<StatBlock>,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatBlock {
    /// `raw`, `5m` or `1h`.
    pub resolution: String,
    /// Its folder.
    pub name: String,
    /// Its first instant, milliseconds since 1970.
    pub from_ms: i64,
    /// Its last instant.
    pub to_ms: i64,
    /// How many series are in it.
    pub series: u64,
    /// How many rows.
    pub rows: u64,
    /// The bytes of its files.
    pub bytes: u64,
}

impl Database {
    /// What there is on disk.
    ///
    /// # Errors
    /// When the hot samples cannot be counted.
    pub fn stat(&self) -> Result<Stat, StoreError> {
        let (db, layout) = (self.connect()?, self.layout());
        let count = |sql: &str| {
            db.query_row(sql, [], |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
        };
        let failed = || StoreError::sql("count samples");
        let mut hot_samples = 0;
        for segment in &layout.segments {
            hot_samples +=
                count(&format!("SELECT count(*) FROM hot.{}", segment.table())).map_err(failed())?;
        }
        let bytes =
            |name: &str| std::fs::metadata(self.path().join(name)).map_or(0, |file| file.len());
        let blocks = layout.blocks.iter().map(|block| StatBlock {
            resolution: block.resolution.name().to_owned(),
            name: block.name.to_string(),
            from_ms: block.facts.from_ms,
            to_ms: block.facts.to_ms,
            series: block.series.len(),
            rows: block.facts.rows,
            bytes: block.bytes(),
        });
        Ok(Stat {
            series: count("SELECT count(*) FROM hot.series").map_err(failed())?,
            hot_samples,
            hot_bytes: bytes("hot.duckdb") + bytes("hot.duckdb.wal"),
            blocks: blocks.collect(),
        })
    }

    /// Reads every block to its end and says what is wrong, one line a block; empty where nothing is.
    ///
    /// # Errors
    /// When the database itself fails.
    pub fn verify_blocks(&self) -> Result<Vec<String>, StoreError> {
        let db = self.connect()?;
        let layout = self.layout();
        let verdicts = layout.blocks.iter().map(|block| block::verify(&db, block));
        Ok(verdicts
            .filter_map(Result::err)
            .map(|error| error_chain(&error))
            .collect())
    }
}
