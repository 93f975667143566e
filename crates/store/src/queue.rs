//! Bounded queue of samples between the scrapes and the writer.

use super::unsealed::LooseBatch;
use super::{Sample, SeriesId, Ticket};
use std::collections::VecDeque;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Samples of one row.
#[derive(Debug)]
pub(crate) struct Batch {
    pub ticket: Ticket,
    /// Number of the group.
    pub group: u32,
    /// Timestamp of the group's newest row in the log, set by the writer.
    pub committed: Arc<AtomicI64>,
    pub series: Vec<u32>,
    /// Values of `series`, in the same order; [`STALE`](super::STALE) where the series ended.
    pub values: Vec<f64>,
    /// Samples with timestamps of their own.
    pub own_time: Vec<(SeriesId, Sample)>,
    /// Samples from before the store was opened, which the database does not have.
    pub past: LooseBatch,
}

impl Batch {
    pub fn samples(&self) -> usize {
        self.series.len() + self.own_time.len() + self.past.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.series.len() * (size_of::<u32>() + size_of::<f64>())
            + (self.own_time.len() + self.past.len()) * size_of::<(SeriesId, Sample)>()
    }
}

/// Everything queued at one wake-up of the writer.
#[derive(Debug)]
pub(crate) struct QueuedWork {
    pub batches: Vec<Batch>,
    /// Pass this to [`Queue::done`].
    pub flush: FlushMark,
    pub is_closing: bool,
}

/// The queue. Beyond its limit it drops the oldest batches, because the newest show the current
/// state of the cluster.
#[derive(Debug)]
pub(crate) struct Queue {
    limit_bytes: usize,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<Batch>,
    bytes: usize,
    flush_asked: u64,
    flush_done: u64,
    is_closing: bool,
}

impl Queue {
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds a batch. Returns the number of samples dropped to make room.
    pub fn push(&self, batch: Batch) -> usize {
        let mut state = self.state();
        state.bytes += batch.bytes();
        state.batches.push_back(batch);
        state.shed(self.limit_bytes)
    }

    /// Removes the batch with this mark from the queue. Returns whether it was there.
    pub fn withdraw(&self, committed: &Arc<AtomicI64>) -> bool {
        let mut state = self.state();
        let mut batches = state.batches.iter();
        let found = batches.position(|batch| Arc::ptr_eq(&batch.committed, committed));
        let Some(batch) = found.and_then(|at| state.batches.remove(at)) else {
            return false;
        };
        state.bytes -= batch.bytes();
        true
    }

    /// Waits for `deadline`, a flush or the end, then returns all batches.
    pub fn wait(&self, deadline: Instant) -> QueuedWork {
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closing || state.flush_asked > state.flush_done {
                break;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }

        state.bytes = 0;
        QueuedWork {
            batches: std::mem::take(&mut state.batches).into(),
            flush: FlushMark(state.flush_asked),
            is_closing: state.is_closing,
        }
    }

    /// Reports that the work of [`Queue::wait`] was tried. The batches in `left` could not be
    /// written; they return to the front of the queue. Returns the number of samples dropped to
    /// make room.
    pub fn done(&self, flush: FlushMark, left: Vec<Batch>) -> usize {
        let mut state = self.state();
        for batch in left.into_iter().rev() {
            state.bytes += batch.bytes();
            state.batches.push_front(batch);
        }
        state.flush_done = flush.0;
        self.changed.notify_all();
        state.shed(self.limit_bytes)
    }

    /// Requests a commit and waits until it was tried.
    pub fn flush(&self) {
        let mut state = self.state();
        state.flush_asked += 1;
        let wanted = state.flush_asked;
        self.changed.notify_all();
        while state.flush_done < wanted && !state.is_closing {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes the writer commit a last time and stop.
    pub fn close(&self) {
        self.state().is_closing = true;
        self.changed.notify_all();
    }

    /// Size of the queued samples, in bytes.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The flush requests that a piece of work includes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushMark(u64);

impl QueueState {
    fn shed(&mut self, limit_bytes: usize) -> usize {
        let mut dropped = 0;
        while self.bytes > limit_bytes
            && let Some(oldest) = self.batches.pop_front()
        {
            self.bytes -= oldest.bytes();
            dropped += oldest.samples();
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::watermark::Watermark;
    use super::*;
    use takt_model::Timestamp;

    #[test]
    fn a_full_queue_drops_the_oldest_and_lets_the_watermark_pass() {
        let mark = Arc::new(Watermark::new(Timestamp(0)));
        let batch = |at| Batch {
            ticket: mark.hold(Timestamp(at)).unwrap(),
            group: 1,
            committed: Arc::default(),
            series: vec![0; 100],
            values: vec![0.0; 100],
            own_time: Vec::new(),
            past: Arc::default(),
        };
        let queue = Queue::new(3 * batch(1).bytes());
        assert_eq!([1, 2, 3, 4].map(|at| queue.push(batch(at))), [0, 0, 0, 100]);
        assert_eq!(mark.get(), Timestamp(1));
        let work = queue.wait(Instant::now());
        assert_eq!(
            work.batches
                .iter()
                .map(|batch| batch.ticket.at().0)
                .collect::<Vec<_>>(),
            [2, 3, 4]
        );
        // One more batch arrived while the disk was full.
        assert_eq!(queue.push(batch(5)), 0);
        assert_eq!(queue.done(work.flush, work.batches), 100);
        let left = queue.wait(Instant::now()).batches;
        assert_eq!(
            left.iter()
                .map(|batch| batch.ticket.at().0)
                .collect::<Vec<_>>(),
            [3, 4, 5]
        );
        drop(left);
        assert_eq!(mark.get(), Timestamp(5));
        assert_eq!(queue.bytes(), 0);
    }
}
