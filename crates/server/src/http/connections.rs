//! Open HTTP connections: how many there may be, and how long each may take.
//!
//! A client that opens connections and sends nothing, or half a request, or never reads its answer, must not keep the server from
//! answering others, nor take the open files that notifications and the store need. Each connection is in one phase, and a phase
//! that lasts too long ends the connection. Where the limits are reached, a connection without a request gives way to the new one.
//! An answer may take its time: statements and queries have limits of their own.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takt_model::client_of;
use tokio::sync::Notify;

/// Open connections in total, where the limit of open files allows as many.
const MAX_CONNECTIONS: usize = 1024;
/// Open connections of one client.
const MAX_PER_CLIENT: usize = 256;
/// Open files that stay for the store, scrapes, event streams, notifications and SQL clients.
const RESERVED_FILES: usize = 4096;
/// The soft limit of open files that a start asks for, where the hard limit allows it.
const WANTED_FILES: u64 = 65_536;

/// Time a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time a connection may wait for its next request: longer than a dashboard's refresh of a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// Time without a byte of an upload, or without a byte read of an answer.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a stalled connection gives way to a new one.
const STALL_PATIENCE: Duration = Duration::from_secs(5);

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    HeaderTimeout,
    IdleTimeout,
    ReceiveTimeout,
    SendTimeout,
    Limit,
}

impl CloseReason {
    const ALL: [Self; 5] = [
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::ReceiveTimeout,
        Self::SendTimeout,
        Self::Limit,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::ReceiveTimeout => "receive_timeout",
            Self::SendTimeout => "send_timeout",
            Self::Limit => "limit",
        }
    }

    fn label(self) -> CloseLabel {
        let reason = self.name();
        CloseLabel { reason }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloseLabel {
    reason: &'static str,
}

/// Connections of all listeners of the server.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    table: Mutex<Table>,
    metrics: Metrics,
}

#[derive(Debug, Clone, Default)]
struct Metrics {
    open: Gauge,
    closed: Family<CloseLabel, Counter>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they were opened.
    open: BTreeMap<u64, Arc<Connection>>,
    next_number: u64,
}

/// One connection, as its task and the limits see it.
#[derive(Debug)]
pub(crate) struct Connection {
    client: IpAddr,
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
    /// Whether the kernel takes no more bytes of the answer.
    is_blocked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request is awaited.
    Head,
    /// An answer was sent; no byte of the next request has arrived.
    Idle,
    /// The next bytes of an upload are awaited.
    Receiving,
    /// The request is being answered.
    Answering,
    /// The client has yet to read the bytes sent so far.
    Sending,
}

impl State {
    fn phase(&self) -> Phase {
        if self.is_blocked {
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

    /// The reason to close the connection now, if its phase has lasted too long.
    fn overdue(&self, now: Instant) -> Option<CloseReason> {
        let (limit, reason) = match self.phase() {
            Phase::Head => (HEAD_TIMEOUT, CloseReason::HeaderTimeout),
            Phase::Idle => (IDLE_TIMEOUT, CloseReason::IdleTimeout),
            Phase::Receiving => (STALL_TIMEOUT, CloseReason::ReceiveTimeout),
            Phase::Sending => (STALL_TIMEOUT, CloseReason::SendTimeout),
            Phase::Answering => return None,
        };
        (now.saturating_duration_since(self.since) > limit).then_some(reason)
    }

    /// Whether the connection may be closed for a new one.
    fn gives_way(&self, now: Instant) -> bool {
        match self.phase() {
            Phase::Head | Phase::Idle => true,
            Phase::Receiving | Phase::Sending => {
                now.saturating_duration_since(self.since) >= STALL_PATIENCE
            }
            Phase::Answering => false,
        }
    }
}

impl Connection {
    fn new(client: IpAddr, now: Instant) -> Self {
        let state = State {
            since: now,
            has_request: false,
            has_head: true,
            awaits_body: false,
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

    /// The kernel takes no more bytes of the answer, or has just taken some.
    pub fn is_blocked(&self, is_blocked: bool) {
        self.change(|state| state.is_blocked = is_blocked);
    }

    /// A phase begins anew only where it changes: a head that arrives byte by byte has one time limit.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = state.phase();
        change(&mut state);
        if state.phase() != before {
            state.since = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// No connections yet, with limits for this process. Raises its soft limit of open files.
    pub fn new(registry: &mut Registry) -> Self {
        raise_open_files();
        let connections = Self::with_files(open_files_max());
        connections.register(registry);
        connections
    }

    fn with_files(files: usize) -> Self {
        // Where the limit is low, half of it is for connections.
        let allowed = files.saturating_sub(RESERVED_FILES).max(files / 2);
        Self {
            max: MAX_CONNECTIONS.min(allowed),
            table: Mutex::default(),
            metrics: Metrics::default(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        let Metrics { open, closed } = self.metrics.clone();
        registry.register(
            "takt_server_connections",
            "Open HTTP connections to the server",
            open,
        );
        for reason in CloseReason::ALL {
            drop(closed.get_or_create(&reason.label()));
        }
        registry.register(
            "takt_server_connections_closed",
            "HTTP connections that the server closed: header_timeout (no complete request), \
             idle_timeout, receive_timeout (an upload stalled), send_timeout (the client did not \
             read), limit (too many connections)",
            closed,
        );
    }

    /// Adds a connection. `None` where the limits are reached and every other connection is in use.
    pub fn open(self: &Arc<Self>, address: IpAddr) -> Option<OpenConnection> {
        let client = client_of(address);
        let mut table = self.lock();
        let counts = table.counts();
        let of_client = counts.get(&client).copied().unwrap_or(0);
        let crowded = if of_client >= MAX_PER_CLIENT {
            Some(client)
        } else if table.open.len() >= self.max {
            largest(counts)
        } else {
            None
        };
        if let Some(crowded) = crowded
            && !self.close_waiting(&mut table, crowded)
        {
            self.count(CloseReason::Limit);
            return None;
        }
        let number = table.next_number;
        table.next_number += 1;
        let connection = Arc::new(Connection::new(client, Instant::now()));
        table.open.insert(number, Arc::clone(&connection));
        self.metrics.open.set(table.open.len() as i64);
        Some(OpenConnection {
            number,
            connection,
            connections: Arc::clone(self),
        })
    }

    /// Closes the connection that has waited longest, of the client with the most.
    pub fn make_room(&self) {
        let mut table = self.lock();
        if let Some(client) = largest(table.counts()) {
            self.close_waiting(&mut table, client);
        }
    }

    /// Closes the connections whose phase has lasted too long.
    pub fn close_overdue(&self, now: Instant) {
        let mut table = self.lock();
        let overdue: Vec<_> = table
            .open
            .iter()
            .filter_map(|(number, connection)| Some((*number, connection.lock().overdue(now)?)))
            .collect();
        for (number, reason) in overdue {
            self.close(&mut table, number, reason);
        }
    }

    /// Closes the connection of the client that has waited longest. False where all are in use.
    fn close_waiting(&self, table: &mut Table, client: IpAddr) -> bool {
        let now = Instant::now();
        let waiting = table
            .open
            .iter()
            .filter(|(_, connection)| connection.client == client)
            .filter_map(|(number, connection)| {
                let state = connection.lock();
                state.gives_way(now).then_some((*number, state.since))
            })
            .min_by_key(|(_, since)| *since);
        if let Some((number, _)) = waiting {
            self.close(table, number, CloseReason::Limit);
        }
        waiting.is_some()
    }

    fn close(&self, table: &mut Table, number: u64, reason: CloseReason) {
        if let Some(connection) = table.open.remove(&number) {
            connection.close.notify_one();
            self.metrics.open.set(table.open.len() as i64);
            self.count(reason);
            tracing::debug!(client = %connection.client, reason = reason.name(), "connection closed");
        }
    }

    fn count(&self, reason: CloseReason) {
        self.metrics.closed.get_or_create(&reason.label()).inc();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Open connections by client.
    fn counts(&self) -> HashMap<IpAddr, usize> {
        let mut counts = HashMap::new();
        for connection in self.open.values() {
            *counts.entry(connection.client).or_insert(0) += 1;
        }
        counts
    }
}

/// The client with the most connections.
fn largest(counts: HashMap<IpAddr, usize>) -> Option<IpAddr> {
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(client, _)| client)
}

/// A connection's place among the open ones; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    number: u64,
    pub connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        table.open.remove(&self.number);
        self.connections.metrics.open.set(table.open.len() as i64);
    }
}

/// Raises the soft limit of open files, where the hard limit allows it.
fn raise_open_files() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now
        .maximum
        .map_or(WANTED_FILES, |most| most.min(WANTED_FILES));
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: now.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, wanted, "cannot raise the limit of open files");
    }
}

fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn is_closed(open: &OpenConnection) -> bool {
        !open.connections.lock().open.contains_key(&open.number)
    }

    #[test]
    fn connections_leave_files_for_the_store_and_notifications() {
        let max = |files| Connections::with_files(files).max;
        assert_eq!(max(usize::MAX), MAX_CONNECTIONS);
        assert_eq!(max(4096), MAX_CONNECTIONS);
        assert_eq!(max(1024), 512);
        assert_eq!(max(256), 128);
    }

    #[test]
    fn where_all_places_are_taken_the_largest_client_gives_way() {
        let connections = Arc::new(Connections::with_files(8));
        assert_eq!(connections.max, 4);
        let other = connections.open(OTHER).unwrap();
        let crowd: Vec<_> = (0..3).map(|_| connections.open(ONE).unwrap()).collect();
        crowd[0].connection.requested();
        let late = connections.open(ONE).unwrap();
        assert!(!is_closed(&other), "its client has only one");
        assert!(!is_closed(&crowd[0]), "it is being answered");
        assert!(is_closed(&crowd[1]) && !is_closed(&crowd[2]) && !is_closed(&late));
        for busy in [&crowd[2], &late] {
            busy.connection.requested();
        }
        assert!(connections.open(ONE).is_none(), "all are in use");
        drop(crowd);
        assert!(connections.open(ONE).is_some());
    }

    #[test]
    fn one_client_cannot_have_all() {
        let connections = Arc::new(Connections::with_files(100_000));
        let crowd: Vec<_> = (0..=MAX_PER_CLIENT)
            .map(|_| connections.open(ONE).unwrap())
            .collect();
        assert!(is_closed(&crowd[0]) && !is_closed(&crowd[1]));
        assert_eq!(connections.lock().open.len(), MAX_PER_CLIENT);
        assert_eq!(connections.metrics.open.get(), MAX_PER_CLIENT as i64);
    }

    #[test]
    fn each_phase_has_its_time() {
        let connections = Arc::new(Connections::with_files(1000));
        let phase = |prepare: fn(&Connection), limit: Duration, reason: CloseReason| {
            let open = connections.open(ONE).unwrap();
            prepare(&open.connection);
            let now = Instant::now();
            assert_eq!(open.connection.lock().overdue(now + limit / 2), None);
            connections.close_overdue(now + limit * 2);
            assert!(is_closed(&open));
            let closed = &connections.metrics.closed;
            assert_eq!(closed.get_or_create(&reason.label()).get(), 1);
        };
        phase(|_| {}, HEAD_TIMEOUT, CloseReason::HeaderTimeout);
        let idle = |connection: &Connection| {
            connection.requested();
            connection.answered();
        };
        phase(idle, IDLE_TIMEOUT, CloseReason::IdleTimeout);
        let unread = |connection: &Connection| {
            connection.requested();
            connection.is_blocked(true);
            connection.answered();
        };
        phase(unread, STALL_TIMEOUT, CloseReason::SendTimeout);
        let stalled = |connection: &Connection| {
            connection.requested();
            connection.awaits_body(true);
        };
        phase(stalled, STALL_TIMEOUT, CloseReason::ReceiveTimeout);
        let slow = connections.open(ONE).unwrap();
        slow.connection.requested();
        connections.close_overdue(Instant::now() + Duration::from_secs(86_400));
        assert!(!is_closed(&slow), "an answer may take its time");
    }

    #[test]
    fn a_head_that_comes_byte_by_byte_has_one_limit_and_an_upload_one_for_each_piece() {
        let connection = Connection::new(ONE, Instant::now());
        let began = connection.lock().since;
        connection.received();
        connection.received();
        assert_eq!(connection.lock().since, began);
        connection.requested();
        connection.awaits_body(true);
        let first = connection.lock().since;
        connection.awaits_body(false);
        connection.awaits_body(true);
        assert!(connection.lock().since > first);
    }
}
