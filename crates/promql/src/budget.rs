//! Limits of one query: samples, series, time and cancellation.

use crate::error::Error;
use crate::source::Point;
use std::fmt::Debug;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a sample or a computed point.
const SAMPLE_BYTES: u64 = size_of::<Point>() as u64;

/// Bytes of a series and its column without samples. Labels are shared with the store.
const SERIES_BYTES: u64 = 256;

/// Memory is asked for in steps of so many bytes: small queries ask once.
const STEP_BYTES: u64 = 1 << 20;

/// The owner of the memory that queries take.
pub trait QueryMemory: Debug + Send + Sync {
    /// Holds so many bytes for the query, until this is dropped. Asked before they are taken.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there are too few, [`Error::Execution`] if there never are.
    fn hold(&self, bytes: u64) -> Result<(), Error>;
}

/// The bounds of one query.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Samples and computed points held at one time (`query.max-samples` in Prometheus, 50 million there and here).
    pub max_samples: u64,
    /// Series that one selector may return.
    pub max_series: usize,
    /// The instant after which the query fails with a timeout.
    pub deadline: Option<Instant>,
    /// Set by the client that cancels the query.
    pub canceled: Arc<AtomicBool>,
    /// Holds the memory of samples and points; `None`: without a limit.
    pub memory: Option<Arc<dyn QueryMemory>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_samples: 50_000_000,
            max_series: 1_000_000,
            deadline: None,
            canceled: Arc::default(),
            memory: None,
        }
    }
}

/// The running account of one query, shared by the threads that work on it.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    held: AtomicU64,
    peak: AtomicU64,
    series: AtomicU64,
    /// Bytes that the owner of the memory knows of.
    asked: AtomicU64,
}

impl Budget {
    /// A fresh account.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            series: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        }
    }

    /// Fails once the deadline has passed or the query was canceled. Costs a clock reading: ask once a series, not once
    /// a sample.
    pub fn check(&self) -> Result<(), Error> {
        if self.limits.canceled.load(Ordering::Relaxed) {
            return Err(Error::Canceled);
        }
        match self.limits.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::Timeout),
            _ => Ok(()),
        }
    }

    /// Accounts for samples or points about to be held, then does what [`check`](Self::check) does.
    pub fn hold(&self, samples: usize) -> Result<(), Error> {
        // Added first, without a lock: threads of one query may exceed the limit by one request at
        // most.
        let held = self
            .held
            .fetch_add(samples as u64, Ordering::Relaxed)
            .saturating_add(samples as u64);
        self.peak.fetch_max(held, Ordering::Relaxed);
        if held > self.limits.max_samples {
            return Err(Error::TooManySamples);
        }
        self.ask(held)?;
        self.check()
    }

    /// Asks for memory where the query needs more than ever before.
    fn ask(&self, held: u64) -> Result<(), Error> {
        let Some(memory) = &self.limits.memory else {
            return Ok(());
        };
        let series = self.series.load(Ordering::Relaxed);
        // Memory is not given back while the query runs, because its peak decides.
        let bytes = held * SAMPLE_BYTES + series * SERIES_BYTES;
        if bytes <= self.asked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        memory.hold(bytes)?;
        self.asked.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Accounts for series that a selector is about to read; fails where they are too many.
    pub fn hold_series(&self, count: usize) -> Result<(), Error> {
        self.series(count)?;
        self.series.fetch_add(count as u64, Ordering::Relaxed);
        self.ask(self.held())
    }

    /// Fails where a selector yields too many series.
    pub fn series(&self, count: usize) -> Result<(), Error> {
        if count > self.limits.max_series {
            Err(Error::TooManySeries(self.limits.max_series))
        } else {
            Ok(())
        }
    }

    /// Most samples and points held at one time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets the account back: what a node worked with is gone, only its result stays.
    pub(crate) fn settle(&self, held: u64) {
        self.held.store(held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Asked(Mutex<Vec<u64>>);

    impl QueryMemory for Asked {
        fn hold(&self, bytes: u64) -> Result<(), Error> {
            self.0.lock().unwrap().push(bytes);
            if bytes > 4 * STEP_BYTES {
                Err(Error::Unavailable("full".to_owned()))
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn memory_is_asked_for_at_a_new_peak_only() {
        let memory = Arc::new(Asked::default());
        let budget = Budget::new(Limits {
            memory: Some(Arc::clone(&memory) as Arc<dyn QueryMemory>),
            ..Limits::default()
        });
        budget.hold_series(100).unwrap();
        budget.hold(1000).unwrap();
        budget.hold(100_000).unwrap();
        // The second 100,000 samples take the place of the first.
        budget.settle(0);
        budget.hold(100_000).unwrap();
        assert!(matches!(budget.hold(1 << 20), Err(Error::Unavailable(_))));
        let asked = memory.0.lock().unwrap();
        assert_eq!(asked[..2], [STEP_BYTES, 2 * STEP_BYTES]);
        assert_eq!(asked.len(), 3);
    }
}
