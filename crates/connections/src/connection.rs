//! One connection and its phases.

use super::{ConnectionLimits, TakenPlace};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// No complete head of a request.
    HeaderTimeout,
    /// No next request.
    IdleTimeout,
    /// An upload stalled, or was too slow.
    ReceiveTimeout,
    /// The client did not read the answer, or read it too slowly.
    SendTimeout,
    /// Too many connections.
    Limit,
}

impl CloseReason {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::ReceiveTimeout,
        Self::SendTimeout,
        Self::Limit,
    ];

    /// Value of the label `reason`.
    pub fn name(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::ReceiveTimeout => "receive_timeout",
            Self::SendTimeout => "send_timeout",
            Self::Limit => "limit",
        }
    }
}

/// One connection, as its task and the limits see it.
#[derive(Debug)]
pub struct Connection {
    /// The client, as [`takt_model::client_of`] has it.
    pub client: IpAddr,
    state: Mutex<State>,
    close: Notify,
}

#[derive(Debug)]
struct State {
    /// When the phase began.
    since: Instant,
    has_request: bool,
    /// Whether part of the next request's head has arrived.
    has_head: bool,
    /// Whether the handler waits for more of the request's body.
    awaits_body: bool,
    /// Wakes the handler that waits for more of the body.
    upload_waker: Option<Waker>,
    /// Whether the rest of the body is not waited for: it came too slowly.
    is_upload_ended: bool,
    /// The request's body so far.
    upload: Transfer,
    /// Time in which it has to arrive, if another than of most requests.
    upload_time: Option<Duration>,
    /// The answer so far.
    answer: Transfer,
    /// Whether the answer is in memory until the client has read it.
    is_in_memory: bool,
    /// The request's place among those of its class.
    place: Option<TakenPlace>,
    /// Pieces of the answer that the kernel has not taken yet.
    unsent: usize,
    /// Whether the kernel takes no more bytes of the answer.
    is_blocked: bool,
}

/// Bytes that have moved, and the time that the server has waited for the client meanwhile.
#[derive(Debug, Default)]
struct Transfer {
    bytes: u64,
    waited: Duration,
}

impl Transfer {
    /// Whether the client is slower than the least rate: each byte gives it time, and `grace` comes
    /// on top.
    fn is_slow(&self, waiting: Duration, grace: Duration, limits: &ConnectionLimits) -> bool {
        // A rate of zero would divide by zero.
        let earned = Duration::from_secs(self.bytes / limits.min_bytes_per_second.max(1));
        self.waited + waiting > grace + earned
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The head of a request is awaited, or the TLS handshake.
    Head,
    /// An answer was sent; no byte of the next request has arrived.
    Idle,
    /// The next bytes of an upload are awaited.
    Receiving,
    /// The request is being answered.
    Answering,
    /// The client has yet to read what was sent.
    Sending,
}

impl State {
    fn phase(&self) -> Phase {
        if self.unsent > 0 || self.is_blocked {
            Phase::Sending
        } else if self.awaits_body {
            Phase::Receiving
        } else if self.has_request {
            Phase::Answering
        } else if self.has_head {
            Phase::Head
        } else {
            Phase::Idle
        }
    }
}

impl Connection {
    pub(crate) fn new(client: IpAddr, now: Instant) -> Self {
        let state = State {
            since: now,
            has_request: false,
            // The TLS handshake, or the first head, is awaited from the start: a silent client has
            // the limit of a head, not of idleness.
            has_head: true,
            awaits_body: false,
            upload_waker: None,
            is_upload_ended: false,
            upload: Transfer::default(),
            upload_time: None,
            answer: Transfer::default(),
            is_in_memory: false,
            place: None,
            unsent: 0,
            is_blocked: false,
        };

        Self {
            client,
            state: Mutex::new(state),
            close: Notify::new(),
        }
    }

    /// Returns when the connection has to be closed.
    pub async fn closed(&self) {
        self.close.notified().await;
    }

    /// Bytes arrived from the client.
    pub fn received(&self) {
        // Bytes that arrive during a request are its body, or the next request that a client
        // pipelines.
        self.change(|state| state.has_head |= !state.has_request);
    }

    /// A whole head arrived: the request is being answered until [`Connection::answered`].
    pub fn requested(&self) {
        self.change(|state| {
            state.has_request = true;
            state.has_head = false;
            state.is_upload_ended = false;
            state.upload = Transfer::default();
            state.upload_time = None;
            state.answer = Transfer::default();
            state.is_in_memory = false;
        });
    }

    /// The request's body may take so long, because it is large.
    pub fn upload_within(&self, time: Duration) {
        self.lock().upload_time = Some(time);
    }

    /// The answer is in memory until the client has read it, for which the client has a time limit.
    pub fn answers_from_memory(&self) {
        self.lock().is_in_memory = true;
    }

    /// The request has a place until it is answered: it no longer counts among the connections that
    /// wait for one, and gives way to no other.
    pub fn hold(&self, place: TakenPlace) {
        // The place that it may have had is given back outside of this lock.
        let former = self.lock().place.replace(place);
        drop(former);
    }

    /// The answer is complete, though the client may not have read it.
    pub fn answered(&self) {
        // The place is given back after this lock is released, as in `hold`.
        let mut place = None;
        self.change(|state| {
            state.has_request = false;
            state.awaits_body = false;
            state.upload_waker = None;
            place = state.place.take();
        });
        drop(place);
    }

    /// The handler asked for more of the request's body: it got some bytes, or has to wait. Returns
    /// false if it must not wait any longer, because the body comes too slowly.
    pub fn uploads(&self, bytes: Poll<usize>, waker: &Waker) -> bool {
        let mut goes_on = true;
        self.change(|state| {
            // A body that the handler discards after its answer, or after its time, is not waited
            // for.
            state.awaits_body = bytes.is_pending() && state.has_request && !state.is_upload_ended;
            match bytes {
                Poll::Ready(bytes) => state.upload.bytes += bytes as u64,
                Poll::Pending => {
                    goes_on = !state.is_upload_ended;
                    state.upload_waker = Some(waker.clone());
                }
            }
        });
        goes_on
    }

    /// The handler waits no more for the request's body.
    pub fn upload_over(&self) {
        self.change(|state| {
            state.awaits_body = false;
            state.upload_waker = None;
        });
    }

    /// Whether the server stopped waiting for the rest of the request's body.
    pub fn is_upload_ended(&self) -> bool {
        self.lock().is_upload_ended
    }

    /// Ends the wait for the rest of the body: the handler is told, and can still answer. False if
    /// it was told before.
    pub(crate) fn end_upload(&self) -> bool {
        let mut state = self.lock();
        if state.is_upload_ended {
            return false;
        }

        state.is_upload_ended = true;
        // The handler gets as long as a client that stalls.
        state.since = Instant::now();
        state.upload.waited = Duration::ZERO;
        // A waker may poll the handler at once, which takes this lock.
        let waker = state.upload_waker.take();

        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// The kernel took some bytes of the answer, or takes no more for now.
    pub fn writes(&self, bytes: Poll<usize>) {
        self.change(|state| {
            state.is_blocked = bytes.is_pending();
            if let Poll::Ready(bytes) = bytes {
                state.answer.bytes += bytes as u64;
            }
        });
    }

    /// As [`Connection::writes`], of the result of a write.
    pub fn wrote(&self, result: &Poll<io::Result<usize>>) {
        self.writes(match result {
            Poll::Ready(written) => Poll::Ready(written.as_ref().map_or(0, |bytes| *bytes)),
            Poll::Pending => Poll::Pending,
        });
    }

    /// A piece of the answer waits to be sent: a client has one time limit for the whole piece.
    pub fn sending(&self) {
        self.change(|state| state.unsent += 1);
    }

    /// The kernel has taken a piece of the answer.
    pub fn sent(&self) {
        self.change(|state| state.unsent = state.unsent.saturating_sub(1));
    }

    /// A phase begins anew only where it changes: a head that arrives byte by byte has one time
    /// limit.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = state.phase();
        let was_blocked = state.is_blocked;
        change(&mut state);
        if state.phase() == before {
            return;
        }

        let now = Instant::now();
        let lasted = now.saturating_duration_since(state.since);
        match before {
            Phase::Receiving => state.upload.waited += lasted,
            Phase::Sending if was_blocked => state.answer.waited += lasted,
            _ => {}
        }
        state.since = now;
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase()
    }

    /// When the phase began.
    pub(crate) fn since(&self) -> Instant {
        self.lock().since
    }

    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    /// The reason to close the connection now, if its phase has lasted too long.
    pub(crate) fn overdue(&self, limits: &ConnectionLimits, now: Instant) -> Option<CloseReason> {
        let state = self.lock();
        let lasted = now.saturating_duration_since(state.since);

        let (limit, is_slow, reason) = match state.phase() {
            Phase::Head => (limits.head, false, CloseReason::HeaderTimeout),
            Phase::Idle => (limits.idle, false, CloseReason::IdleTimeout),
            Phase::Receiving => {
                let most = state.upload_time.unwrap_or(limits.upload);
                // A steady trickle passes the least rate; the total time ends it nevertheless.
                let is_slow = state.upload.is_slow(lasted, limits.upload_grace, limits)
                    || state.upload.waited + lasted > most;
                (limits.stall, is_slow, CloseReason::ReceiveTimeout)
            }
            Phase::Sending => {
                // Only an answer in memory has a total time: one that is made while it is read
                // holds little.
                let is_late =
                    state.is_in_memory && state.answer.waited + lasted > limits.answer_in_memory;
                // The rate counts only while the kernel's buffer is full: otherwise the server is
                // the slow one.
                let is_slow = state.is_blocked
                    && (is_late || state.answer.is_slow(lasted, limits.stall, limits));
                (limits.stall, is_slow, CloseReason::SendTimeout)
            }
            // The server's own work has limits of its own, of queries and of reports.
            Phase::Answering => return None,
        };

        (is_slow || lasted > limit).then_some(reason)
    }

    /// Whether the request has a place among those of its class.
    pub(crate) fn has_place(&self) -> bool {
        self.lock().place.is_some()
    }

    /// Whether the connection may be closed for a new one. One with a place takes no room of new ones.
    pub(crate) fn gives_way(&self, limits: &ConnectionLimits, now: Instant) -> bool {
        let state = self.lock();
        if state.place.is_some() {
            return false;
        }

        match state.phase() {
            // Of a request without a place, the body is read only for the sake of its refusal.
            Phase::Head | Phase::Idle | Phase::Receiving => true,
            // A reader that has just begun to wait may have lost a packet; it keeps its answer for
            // a moment.
            Phase::Sending => now.saturating_duration_since(state.since) >= limits.stall_patience,
            Phase::Answering => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before it could panic, so a poisoned lock still has a consistent
        // state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
