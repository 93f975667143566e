//! The trusted time of a data directory, which outlives the process in a file.

use super::layout::Layout;
use super::trusted_time::{TrustedTime, WITNESS_AGE_MS};
use super::{Clock, ClockState, Database, Resolution, Sample, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp, UnixTime};

/// Name of the file in the data directory.
const FILE: &str = "clock.json";

/// Time of a node, in seconds since 1970.
const TIME: &str = "node_time_seconds";

/// Whether NTP keeps that clock.
const KEPT: &str = "node_timex_sync_status";

/// Time of a node's boot by its clock, in seconds since 1970.
const BOOT: &str = "node_boot_time_seconds";

/// Label with the name of a target's node.
const NODE: &str = "node";

/// Difference up to which two boot times are those of one machine, in milliseconds. The kernel counts
/// whole seconds.
const SAME_BOOT_MS: i64 = 2000;

/// The trusted time, and the clocks behind it.
#[derive(Debug)]
pub(crate) struct TrustedClock {
    clock: Clock,
    time: Mutex<TrustedTime>,
    file: PathBuf,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    /// The machine's start since which `time` counts.
    boot: String,
    time: TrustedTime,
}

impl TrustedClock {
    /// Continues from the file. Without one, the newest stored sample says up to when time has
    /// passed; a store without samples has nothing that a wrong clock could harm.
    pub fn open(directory: &Path, clock: Clock, newest: Option<Timestamp>) -> Self {
        let file = directory.join(FILE);
        let now = clock.now();
        let boot_ms = clock.boot_ms();

        let is_same_boot = |saved: &Saved| {
            // The name is empty if it cannot be read.
            !saved.boot.is_empty() && saved.boot == clock.boot() && saved.time.continues_at(boot_ms)
        };

        let time = match read(&file) {
            Some(saved) if is_same_boot(&saved) => saved.time,
            // After a restart of the machine, the time in between is unknown.
            Some(saved) => saved.time.after_boot(now, boot_ms),
            None => {
                let known = newest.map_or(now, |newest| newest.min(now));
                TrustedTime::new(known, boot_ms).after_boot(now, boot_ms)
            }
        };

        Self {
            clock,
            time: Mutex::new(time),
            file,
        }
    }

    /// Looks at the clocks.
    pub fn look(&self) -> ClockState {
        let mut time = self.time();
        if let Some(by) = time.look(self.clock.now(), self.clock.boot_ms()) {
            tracing::warn!(
                seconds = by as f64 / 1e3,
                is_trusted = time.state().is_trusted,
                "the clock was set"
            );
        }
        time.state()
    }

    /// Hears the clocks of witnesses, as milliseconds ahead of the system's.
    fn hear(&self, ahead_ms: &[i64]) -> ClockState {
        let before = self.look();
        let mut time = self.time();
        time.hear(ahead_ms);
        let state = time.state();

        match (before.is_trusted, state.is_trusted) {
            (false, true) => tracing::info!(
                witnesses = ahead_ms.len(),
                "the clocks of other nodes agree with the server's: it is trusted"
            ),
            (true, false) => tracing::warn!(
                witnesses = ahead_ms.len(),
                "the clocks of most nodes differ from the server's: it is not trusted"
            ),
            _ => {}
        }
        state
    }

    /// Writes the file. Without it, the next start knows less about the time that has passed, and
    /// deletes later.
    pub fn save(&self) {
        self.look();
        let saved = Saved {
            boot: self.clock.boot().to_owned(),
            time: *self.time(),
        };
        let new = self.file.with_extension("json.new");
        // Renamed, so that a crash leaves the old file or the new one.
        let write = || -> io::Result<()> {
            fs::write(&new, serde_json::to_vec(&saved)?)?;
            fs::rename(&new, &self.file)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, file = %self.file.display(), "cannot save the trusted time");
        }
    }

    fn time(&self) -> MutexGuard<'_, TrustedTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &Path) -> Option<Saved> {
    let text = fs::read(file).ok()?;
    serde_json::from_slice(&text)
        .inspect_err(|error| {
            tracing::warn!(%error, file = %file.display(), "cannot read the trusted time");
        })
        .ok()
}

/// Time of the newest stored sample.
pub(crate) fn newest_sample(layout: &Layout) -> Option<Timestamp> {
    let blocks = layout.of(Resolution::Raw).map(|block| block.facts.to);
    let unsealed = layout
        .segments
        .iter()
        .filter_map(|file| file.times().map(|(_, last)| last));
    blocks.chain(unsealed).max()
}

impl Database {
    /// Looks at the clock.
    pub fn clock_state(&self) -> ClockState {
        self.trusted_clock().look()
    }

    /// Returns the part of `at` that has surely passed: acts that cannot be undone go by it.
    pub fn surely_passed(&self, at: UnixTime) -> UnixTime {
        at.min(self.clock_state().surely_passed().whole_seconds())
    }
}

impl Store {
    /// Compares the clock with the NTP-kept clocks of other nodes, by the newest samples of `targets`:
    /// the labels of the targets that this server scrapes, and whose last scrape succeeded. Each node
    /// has one vote. Pushed series have none, nor has the server's own machine, whose clock is judged.
    ///
    /// # Errors
    /// If samples cannot be read.
    pub fn hear_witnesses(&self, targets: &[Labels]) -> Result<ClockState, StoreError> {
        let clock = self.database().trusted_clock();
        let now = clock.look().now;
        let (times, kept, boots) = (
            self.newest_by_target(TIME, now)?,
            self.newest_by_target(KEPT, now)?,
            self.newest_by_target(BOOT, now)?,
        );

        // The server's own node is found by its boot: it may have any name.
        let own_boot = now.minus_ms(clock.clock.boot_ms());
        let mut votes = BTreeMap::new();
        for target in targets {
            let read = (times.get(target), kept.get(target), boots.get(target));
            let (Some(time), Some(kept), Some(boot)) = read else {
                continue;
            };
            let is_own = ahead_of(boot.value, own_boot).saturating_abs() <= SAME_BOOT_MS;
            if kept.value == 1.0 && time.value.is_finite() && !is_own {
                votes.insert(target.get(NODE), ahead_of(time.value, time.at));
            }
        }

        let ahead_ms: Vec<i64> = votes.into_values().collect();
        let state = clock.hear(&ahead_ms);
        self.shared.metrics.note_clock(&state);
        Ok(state)
    }

    /// Newest scraped samples of a metric without labels of its own, by the labels of their targets. Another
    /// engine's samples have the times of its clock, so this store's are read.
    fn newest_by_target(
        &self,
        metric: &str,
        now: Timestamp,
    ) -> Result<BTreeMap<Labels, Sample>, StoreError> {
        let from = now.minus_ms(WITNESS_AGE_MS);
        let found = self.own_range(&[Matcher::metric(metric)], from, now)?;
        Ok(found
            .into_iter()
            .filter(|series| self.shared.head.is_scraped(series.id))
            .filter_map(|series| Some((without_name(&series.labels), *series.samples.last()?)))
            .collect())
    }
}

/// Milliseconds by which a time in seconds is ahead of another.
fn ahead_of(seconds: f64, at: Timestamp) -> i64 {
    ((seconds * 1e3) as i64).saturating_sub(at.0)
}

fn without_name(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.remove(METRIC_NAME);
    labels
}
