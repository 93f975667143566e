//! Limits of one query: samples, series, time and cancellation.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_samples: 50_000_000,
            max_series: 1_000_000,
            deadline: None,
            canceled: Arc::default(),
        }
    }
}

/// The running account of one query, shared by the threads that work on it.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    held: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// A fresh account.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
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
        let held = self
            .held
            .fetch_add(samples as u64, Ordering::Relaxed)
            .saturating_add(samples as u64);
        self.peak.fetch_max(held, Ordering::Relaxed);
        if held > self.limits.max_samples {
            return Err(Error::TooManySamples);
        }
        self.check()
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
