//! Samples on their way to the database: a bounded queue between the scrapes and the one writer.

use super::{Sample, SeriesId, Ticket};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The samples of one row.
#[derive(Debug)]
pub(crate) struct Batch {
    pub ticket: Ticket,
    pub series: Vec<u32>,
    /// One for each of `series`; [`STALE`](super::STALE) where it ended.
    pub values: Vec<f64>,
    /// Samples with timestamps of their own.
    pub own_time: Vec<(SeriesId, Sample)>,
}

impl Batch {
    pub fn samples(&self) -> usize {
        self.series.len() + self.own_time.len()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.series.len() * (size_of::<u32>() + size_of::<f64>())
            + self.own_time.len() * size_of::<(SeriesId, Sample)>()
    }
}

/// Why the writer was woken.
#[derive(Debug)]
pub(crate) struct Work {
    pub batches: Vec<Batch>,
    /// To be handed back with [`Queue::done`].
    pub flush: FlushMark,
    pub is_closing: bool,
}

/// Beyond its limit the queue drops the oldest batches: the newest say what the cluster is doing.
#[derive(Debug)]
pub(crate) struct Queue {
    limit_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
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

    /// Adds a batch and returns how many samples had to go for it.
    pub fn push(&self, batch: Batch) -> usize {
        let mut state = self.state();
        state.bytes += batch.bytes();
        state.batches.push_back(batch);
        state.shed(self.limit_bytes)
    }

    /// Waits until `deadline`, a flush or the end, then takes everything.
    pub fn wait(&self, deadline: Instant) -> Work {
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
        Work {
            batches: std::mem::take(&mut state.batches).into(),
            flush: FlushMark(state.flush_asked),
            is_closing: state.is_closing,
        }
    }

    /// Says that what [`Queue::wait`] gave was tried; `left` could not be written and waits on, before what came
    /// since. Returns how many samples had to go.
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

    /// Asks for a commit now and waits until it was tried.
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

    /// Tells the writer to finish.
    pub fn close(&self) {
        self.state().is_closing = true;
        self.changed.notify_all();
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to which [`Queue::flush`] a piece of work answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushMark(u64);

impl State {
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
    use std::sync::Arc;
    use takt_model::Timestamp;

    #[test]
    fn a_full_queue_drops_the_oldest_and_lets_the_watermark_pass() {
        let mark = Arc::new(Watermark::new(Timestamp(0)));
        let batch = |at| Batch {
            ticket: mark.hold(Timestamp(at)).unwrap(),
            series: vec![0; 100],
            values: vec![0.0; 100],
            own_time: Vec::new(),
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
        // The disk was full; meanwhile another one came.
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
        assert_eq!((mark.get(), queue.bytes()), (Timestamp(5), 0));
    }
}
