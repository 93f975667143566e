//! A thread for a collector that may block.
//!
//! It reads at the [`Pace`] of the scrapes and publishes what it read. A reading that does not come back holds up nobody
//! but itself: the thread is its own, there is never a second one, and the page says that the collector is late.

use crate::collector::Collector;
use crate::metered::{Metered, Outcome};
use crate::pace::Pace;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use takt_model::Samples;

/// For how many intervals the last snapshot of a late collector is still shown.
const KEPT_INTERVALS: u32 = 3;

/// The threads call the kernel and NVML and keep little on their stacks.
const STACK_BYTES: usize = 256 << 10;

/// What one reading brought.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub samples: Samples,
    pub outcome: Outcome,
    pub duration: Duration,
    /// When the reading ended.
    pub at: SystemTime,
    age_from: Instant,
}

/// What the page says about the collector.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What may still be shown.
    pub snapshot: Option<Arc<Snapshot>>,
    pub outcome: Outcome,
    pub duration: Duration,
}

/// The thread's side that the page sees.
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
    /// Since when the reading goes on that has not ended.
    began: Option<Instant>,
    snapshot: Option<Arc<Snapshot>>,
    is_late: bool,
}

impl Reader {
    /// Starts the thread and its first reading.
    pub fn start(
        collector: Box<dyn Collector>,
        deadline: Duration,
        pace: Arc<Pace>,
    ) -> io::Result<Self> {
        let name = collector.name();
        let state = State {
            began: Some(Instant::now()),
            snapshot: None,
            is_late: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            published: Condvar::new(),
        });
        let metered = Metered::new(collector);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES);
        thread.spawn({
            let shared = Arc::clone(&shared);
            move || read_on(metered, &shared, &pace)
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

    /// Waits for the first snapshot, but not for ever.
    pub fn wait_for_first(&self, until: Instant) {
        let state = self.shared.lock();
        let left = until.saturating_duration_since(Instant::now());
        let waited = self
            .shared
            .published
            .wait_timeout_while(state, left, |state| state.snapshot.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What there is now; waits for nothing. `interval` is the time between two readings.
    pub fn answer(&self, now: Instant, interval: Duration) -> Answer {
        let mut state = self.shared.lock();
        let running = state
            .began
            .map(|began| now.saturating_duration_since(began));
        let late = running.filter(|running| *running > self.deadline);
        if let Some(running) = late
            && !state.is_late
        {
            state.is_late = true;
            tracing::warn!(
                collector = self.name,
                seconds = running.as_secs_f64(),
                "late"
            );
        }
        match (&state.snapshot, late) {
            (Some(snapshot), None) => Answer {
                snapshot: Some(Arc::clone(snapshot)),
                outcome: snapshot.outcome,
                duration: snapshot.duration,
            },
            (Some(snapshot), Some(running)) => {
                let age = now.saturating_duration_since(snapshot.age_from);
                let shown = (age <= interval * KEPT_INTERVALS).then(|| Arc::clone(snapshot));
                Answer {
                    snapshot: shown,
                    outcome: Outcome::Failed,
                    duration: running,
                }
            }
            (None, _) => Answer {
                snapshot: None,
                outcome: Outcome::Failed,
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

/// For how long nothing is looked for where there was nothing: an adapter that is plugged in is seen a little later.
const NOTHING_FOR: Duration = Duration::from_secs(5);

fn read_on(mut metered: Metered, shared: &Shared, pace: &Pace) {
    let mut spare = Samples::new();
    loop {
        shared.lock().began = Some(Instant::now());
        let (outcome, duration) = metered.read(&mut spare);
        let is_nothing = spare.is_empty() && outcome != Outcome::Failed;
        let samples = std::mem::take(&mut spare);
        let snapshot = Snapshot {
            samples,
            outcome,
            duration,
            at: SystemTime::now(),
            age_from: Instant::now(),
        };
        let before = publish(metered.name(), shared, snapshot);
        // The memory of the snapshot before serves the next, unless a page is just being written from it.
        spare = before
            .and_then(Arc::into_inner)
            .map(|snapshot| snapshot.samples)
            .unwrap_or_default();
        if (is_nothing && !pace.sleep(NOTHING_FOR)) || !pace.wait(duration) {
            return;
        }
    }
}

fn publish(name: &str, shared: &Shared, snapshot: Snapshot) -> Option<Arc<Snapshot>> {
    let mut state = shared.lock();
    if std::mem::take(&mut state.is_late) {
        tracing::info!(
            collector = name,
            seconds = snapshot.duration.as_secs_f64(),
            "came back"
        );
    }
    state.began = None;
    shared.published.notify_all();
    state.snapshot.replace(Arc::new(snapshot))
}
