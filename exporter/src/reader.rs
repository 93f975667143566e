//! A thread for a collector that may block.
//!
//! It reads at the [`Pace`] of the scrapes and publishes snapshots. A reading that hangs delays
//! only its own collector: each collector has one thread, and the page reports the collector as
//! failed.

use crate::collector::Collector;
use crate::crash_guard::CrashGuard;
use crate::metered::{MeteredCollector, ReadingOutcome};
use crate::pace::Pace;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use takt_model::Samples;

/// Intervals for which the last snapshot of a late collector is still shown.
const KEPT_INTERVALS: u32 = 3;

/// Stack of a thread: it calls the kernel and NVML and needs little.
const STACK_BYTES: usize = 256 << 10;

/// The result of one reading.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub samples: Samples,
    pub outcome: ReadingOutcome,
    pub duration: Duration,
    /// When the reading ended.
    pub at: SystemTime,
    age_from: Instant,
}

/// The collector's part of the page.
#[derive(Debug)]
pub(crate) struct ReaderAnswer {
    /// The last snapshot, unless it is too old to be shown.
    pub snapshot: Option<Arc<Snapshot>>,
    pub outcome: ReadingOutcome,
    pub duration: Duration,
}

/// Handle to a collector's thread.
pub(crate) struct Reader {
    name: &'static str,
    deadline: Duration,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    published: Condvar,
}

struct State {
    /// Start of the reading under way.
    began: Option<Instant>,
    snapshot: Option<Arc<Snapshot>>,
    is_late: bool,
}

impl Reader {
    /// Starts the thread and its first reading.
    pub fn start(
        name: &'static str,
        collector: Box<dyn Collector>,
        deadline: Duration,
        pause: Duration,
        pace: Arc<Pace>,
        guard: Option<Arc<CrashGuard>>,
    ) -> io::Result<Self> {
        let state = State {
            began: Some(Instant::now()),
            snapshot: None,
            is_late: false,
        };

        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            published: Condvar::new(),
        });

        let metered = MeteredCollector::new(name, collector);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES);

        thread.spawn({
            let shared = Arc::clone(&shared);
            move || {
                if wait_after_crashes(metered.name(), guard.as_deref(), &pace) {
                    read_on(metered, &shared, pause, &pace, guard);
                }
            }
        })?;

        Ok(Self {
            name,
            deadline,
            shared,
        })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits for the first snapshot, at the most until `until`.
    pub fn wait_for_first(&self, until: Instant) {
        let state = self.shared.lock();
        let left = until.saturating_duration_since(Instant::now());
        let published = &self.shared.published;
        let waited = published.wait_timeout_while(state, left, |state| state.snapshot.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The collector's part of the page at `now`; does not wait. `interval` is the time between two
    /// readings.
    pub fn answer(&self, now: Instant, interval: Duration) -> ReaderAnswer {
        let mut state = self.shared.lock();
        let running = state.began;
        let running = running.map(|began| now.saturating_duration_since(began));
        let late = running.filter(|running| *running > self.deadline);
        // Once for each delay, not at every scrape.
        if let Some(running) = late
            && !state.is_late
        {
            state.is_late = true;
            let seconds = running.as_secs_f64();
            tracing::warn!(collector = self.name, seconds, "late");
        }

        match (&state.snapshot, late) {
            (Some(snapshot), None) => ReaderAnswer {
                snapshot: Some(Arc::clone(snapshot)),
                outcome: snapshot.outcome,
                duration: snapshot.duration,
            },
            (Some(snapshot), Some(running)) => {
                let age = now.saturating_duration_since(snapshot.age_from);
                // Old values shown as new would hide that the collector hangs.
                let shown = (age <= interval * KEPT_INTERVALS).then(|| Arc::clone(snapshot));
                ReaderAnswer {
                    snapshot: shown,
                    outcome: ReadingOutcome::Failed,
                    duration: running,
                }
            }
            (None, _) => ReaderAnswer {
                snapshot: None,
                outcome: ReadingOutcome::Failed,
                duration: running.unwrap_or_default(),
            },
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pause after a reading that found no such hardware.
const NOTHING_FOR: Duration = Duration::from_secs(5);

/// Waits where the last starts ended during the first reading. False when the exporter ended
/// meanwhile.
fn wait_after_crashes(name: &str, guard: Option<&CrashGuard>, pace: &Pace) -> bool {
    let Some((guard, wait)) = guard.and_then(|guard| Some((guard, guard.wait()?))) else {
        return true;
    };

    tracing::error!(
        collector = name,
        starts = guard.crashes(),
        wait_seconds = wait.as_secs(),
        "the exporter ended during the collector's first reading; the collector waits"
    );
    pace.sleep(wait)
}

fn read_on(
    mut metered: MeteredCollector,
    shared: &Shared,
    pause: Duration,
    pace: &Pace,
    mut guard: Option<Arc<CrashGuard>>,
) {
    let mut spare = Samples::new();
    loop {
        shared.lock().began = Some(Instant::now());
        let (outcome, duration) = metered.read(&mut spare);

        if outcome != ReadingOutcome::Failed
            // A first reading that ended, even without hardware, has crashed nothing.
            && let Some(guard) = guard.take()
        {
            guard.clear();
        }

        let is_nothing = spare.is_empty() && outcome != ReadingOutcome::Failed;
        let samples = std::mem::take(&mut spare);
        let snapshot = Snapshot {
            samples,
            outcome,
            duration,
            at: SystemTime::now(),
            age_from: Instant::now(),
        };
        let before = publish(metered.name(), shared, snapshot);

        // The memory of the snapshot before serves the next, unless a page is just being written
        // from it.
        let before = before.and_then(Arc::into_inner);
        spare = before.map(|before| before.samples).unwrap_or_default();

        let pause = if is_nothing { NOTHING_FOR } else { pause };
        if !pace.sleep(pause) || !pace.wait(duration) {
            return;
        }
    }
}

fn publish(name: &str, shared: &Shared, snapshot: Snapshot) -> Option<Arc<Snapshot>> {
    let mut state = shared.lock();
    if std::mem::take(&mut state.is_late) {
        let seconds = snapshot.duration.as_secs_f64();
        tracing::info!(collector = name, seconds, "came back");
    }

    state.began = None;

    // The lock is still held, so a reader that wakes finds the snapshot.
    shared.published.notify_all();

    state.snapshot.replace(Arc::new(snapshot))
}
