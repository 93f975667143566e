//! Requests to the compactor, from the writer and from the store's methods.

use super::CompactionSummary;
use crate::StoreError;
use roaring::RoaringBitmap;
use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two rounds of the compactor while no segment completes.
const ROUND_INTERVAL: Duration = Duration::from_secs(60);

/// A request to the compactor.
#[derive(Debug)]
pub(super) enum CompactionRequest {
    /// Run all tasks.
    Round,
    /// Delete the samples of these series.
    Delete(RoaringBitmap),
}

pub(super) type ReplySender = SyncSender<Result<CompactionSummary, StoreError>>;

/// Wakes the compactor and carries requests to it and to the writer.
#[derive(Debug, Default)]
pub(crate) struct CompactionSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    has_complete_segment: bool,
    wants_segment_end: bool,
    is_closing: bool,
    requests: VecDeque<(CompactionRequest, ReplySender)>,
}

impl CompactionSignal {
    /// Wakes the compactor to seal a complete segment.
    pub fn segment_completed(&self) {
        self.state().has_complete_segment = true;
        self.changed.notify_all();
    }

    /// Asks the writer to end its current segment after the next commit.
    pub fn request_segment_end(&self) {
        self.state().wants_segment_end = true;
    }

    /// Returns whether the writer must end its segment, and clears the request.
    pub fn take_segment_end_request(&self) -> bool {
        mem::take(&mut self.state().wants_segment_end)
    }

    /// Runs a round now and waits for its result. Blocks.
    pub fn run_round(&self) -> Result<CompactionSummary, StoreError> {
        self.ask(CompactionRequest::Round)
    }

    /// Deletes series from all blocks and complete segments, and waits for the result. Blocks.
    pub fn delete(&self, series: RoaringBitmap) -> Result<CompactionSummary, StoreError> {
        self.ask(CompactionRequest::Delete(series))
    }

    /// Stops the compactor. Callers that wait for a reply get [`StoreError::Closing`].
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closing = true;
        // Dropping the reply channels wakes the callers.
        state.requests.clear();
        self.changed.notify_all();
    }

    fn ask(&self, request: CompactionRequest) -> Result<CompactionSummary, StoreError> {
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

    /// Waits for the next round or request. `None` after [`close`](Self::close); `Some(None)` for a
    /// round that no caller waits for.
    pub(super) fn wait(&self) -> Option<Option<(CompactionRequest, ReplySender)>> {
        let deadline = Instant::now() + ROUND_INTERVAL;
        let mut state = self.state();

        loop {
            if state.is_closing {
                return None;
            }

            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(request) = state.requests.pop_front() {
                return Some(Some(request));
            }

            if mem::take(&mut state.has_complete_segment) || left.is_zero() {
                return Some(None);
            }

            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn state(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
