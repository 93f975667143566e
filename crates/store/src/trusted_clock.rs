//! The trusted time of a data directory, which outlives the process in a file.

use super::layout::Layout;
use super::trusted_time::{TrustedTime, WITNESS_AGE_MS};
use super::{Clock, ClockState, Database, Resolution, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp, UnixTime};

/// Name of the file in the data directory.
const FILE: &str = "clock.json";

/// Time of a target's machine, in seconds since 1970.
const WITNESS: &str = "node_time_seconds";

/// Whether NTP keeps that clock.
const KEPT: &str = "node_timex_sync_status";

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
    /// The machine's start whose steady time `time` has.
    boot: String,
    time: TrustedTime,
}

impl TrustedClock {
    /// Continues from the file. Without one, the newest stored sample says up to when time has
    /// passed; a store without samples has nothing that a wrong clock could harm.
    pub fn open(directory: &Path, clock: Clock, newest: Option<Timestamp>) -> Self {
        let file = directory.join(FILE);
        let now = clock.now();
        let steady_ms = clock.steady_ms();
        let time = match read(&file) {
            Some(saved) if saved.boot == clock.boot() => saved.time,
            Some(saved) => saved.time.after_boot(now, steady_ms),
            None => {
                let known = newest.map_or(now, |newest| newest.min(now));
                TrustedTime::new(known, steady_ms).after_boot(now, steady_ms)
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
        if let Some(by) = time.look(self.clock.now(), self.clock.steady_ms()) {
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
                "the clocks of targets agree with the server's: it is trusted"
            ),
            (true, false) => tracing::warn!(
                witnesses = ahead_ms.len(),
                "the clocks of most targets differ from the server's: it is not trusted"
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
    pub fn settled(&self, at: UnixTime) -> UnixTime {
        at.min(self.clock_state().settled().whole_seconds())
    }
}

impl Store {
    /// Compares the clock with the NTP-kept clocks of targets, by their newest samples.
    ///
    /// # Errors
    /// If samples cannot be read.
    pub fn hear_witnesses(&self) -> Result<ClockState, StoreError> {
        let clock = self.database().trusted_clock();
        let now = clock.look().now;
        let newest = |metric: &str| {
            let age = Duration::from_millis(WITNESS_AGE_MS.unsigned_abs());
            self.instant(&[Matcher::metric(metric)], now, age)
        };
        let kept: BTreeSet<Labels> = newest(KEPT)?
            .into_iter()
            .filter(|series| series.samples.last().is_some_and(|last| last.value == 1.0))
            .map(|series| without_name(&series.labels))
            .collect();
        let ahead_ms: Vec<i64> = newest(WITNESS)?
            .into_iter()
            .filter(|series| kept.contains(&without_name(&series.labels)))
            .filter_map(|series| {
                let read = series.samples.last()?;
                Some((read.value * 1e3) as i64 - read.at.0)
            })
            .collect();
        let state = clock.hear(&ahead_ms);
        self.shared.metrics.note_clock(&state);
        Ok(state)
    }
}

fn without_name(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.remove(METRIC_NAME);
    labels
}
