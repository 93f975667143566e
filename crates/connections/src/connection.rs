//! One connection and its phases.

use super::Limits;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// No complete head of a request.
    HeaderTimeout,
    /// No next request.
    IdleTimeout,
    /// An upload stalled.
    ReceiveTimeout,
    /// The client did not read the answer.
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
    /// Pieces of the answer that the kernel has not taken yet.
    unsent: usize,
    /// Whether the kernel takes no more bytes of the answer.
    is_blocked: bool,
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
            has_head: true,
            awaits_body: false,
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
        self.change(|state| state.has_head |= !state.has_request);
    }

    /// A whole head arrived: the request is being answered until [`Connection::answered`].
    pub fn requested(&self) {
        self.change(|state| {
            state.has_request = true;
            state.has_head = false;
        });
    }

    /// The answer is complete, though the client may not have read it.
    pub fn answered(&self) {
        self.change(|state| {
            state.has_request = false;
            state.awaits_body = false;
        });
    }

    /// The handler waits for more of the request's body, or has just got it.
    pub fn awaits_body(&self, awaits: bool) {
        self.change(|state| state.awaits_body = awaits && state.has_request);
    }

    /// The kernel takes no more bytes of the answer, or has just taken some: a client that reads
    /// slowly has the time limit for each part that it reads.
    pub fn is_blocked(&self, is_blocked: bool) {
        self.change(|state| state.is_blocked = is_blocked);
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
        change(&mut state);
        if state.phase() != before {
            state.since = Instant::now();
        }
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
    pub(crate) fn overdue(&self, limits: &Limits, now: Instant) -> Option<CloseReason> {
        let state = self.lock();
        let (limit, reason) = match state.phase() {
            Phase::Head => (limits.head, CloseReason::HeaderTimeout),
            Phase::Idle => (limits.idle, CloseReason::IdleTimeout),
            Phase::Receiving => (limits.stall, CloseReason::ReceiveTimeout),
            Phase::Sending => (limits.stall, CloseReason::SendTimeout),
            Phase::Answering => return None,
        };
        (now.saturating_duration_since(state.since) > limit).then_some(reason)
    }

    /// Whether the connection may be closed for a new one.
    pub(crate) fn gives_way(&self, limits: &Limits, now: Instant) -> bool {
        let state = self.lock();
        match state.phase() {
            Phase::Head | Phase::Idle => true,
            Phase::Receiving | Phase::Sending => {
                now.saturating_duration_since(state.since) >= limits.stall_patience
            }
            Phase::Answering => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
