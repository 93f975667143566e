//! Open connections: how many there may be, and how long each may take.
//!
//! A client that opens connections and sends nothing, or half a request, or never reads its answer,
//! must not keep the exporter from answering others. Each connection is in one phase, and a phase
//! that lasts too long ends the connection. Where the limits are reached, a connection without a
//! request gives way to the new one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples, client_of};
use tokio::sync::Notify;

/// Open connections in total, where the limit of open files allows as many.
const MAX_CONNECTIONS: usize = 1024;
/// Open connections of one client.
const MAX_PER_CLIENT: usize = 256;
/// Open files that stay for the collectors, the history of events and the driver's library.
const RESERVED_FILES: usize = 256;
/// The soft limit of open files that a start asks for, where the hard limit allows it.
const WANTED_FILES: u64 = 8192;

/// Time a client has to send the head of a request, TLS handshake included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time a connection may wait for its next request: longer than two scrape intervals of a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// Time a client has to read a page, or one message of a stream of events.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

const OPEN: Metric = Metric::gauge(
    "takt_exporter_connections",
    "Open connections to the exporter.",
    &[],
);
const CLOSED: Metric = Metric::counter(
    "takt_exporter_connections_closed_total",
    "Connections that the exporter closed: header_timeout (no complete request), idle_timeout, \
     send_timeout (the client did not read), limit (too many connections).",
    &["reason"],
);

/// Why the exporter closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloseReason {
    HeaderTimeout,
    IdleTimeout,
    SendTimeout,
    Limit,
}

impl CloseReason {
    const ALL: [Self; 4] = [
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::SendTimeout,
        Self::Limit,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::SendTimeout => "send_timeout",
            Self::Limit => "limit",
        }
    }
}

/// All open connections of the exporter.
pub(crate) struct Connections {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// In the order in which they were opened.
    open: BTreeMap<u64, Arc<Connection>>,
    next_number: u64,
    closed: BTreeMap<CloseReason, u64>,
}

/// One connection, as its task and the limits see it.
pub(crate) struct Connection {
    /// The client, as [`client_of`] has it.
    pub client: IpAddr,
    state: Mutex<State>,
    close: Notify,
}

struct State {
    /// When the phase began.
    since: Instant,
    has_request: bool,
    /// Whether part of the next request has arrived.
    has_head: bool,
    /// Pieces of the answer that the kernel has not taken yet.
    unsent: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request is awaited, or the TLS handshake.
    Head,
    /// An answer was sent; no byte of the next request has arrived.
    Idle,
    /// The request is being answered.
    Answering,
    /// The client has yet to read a piece of the answer.
    Sending,
}

impl State {
    fn phase(&self) -> Phase {
        if self.unsent > 0 {
            Phase::Sending
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
            Phase::Sending => (SEND_TIMEOUT, CloseReason::SendTimeout),
            Phase::Answering => return None,
        };
        (now.saturating_duration_since(self.since) > limit).then_some(reason)
    }
}

impl Connection {
    fn new(client: IpAddr, now: Instant) -> Self {
        let state = State {
            since: now,
            has_request: false,
            has_head: true,
            unsent: 0,
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
        self.change(|state| {
            if !state.has_request {
                state.has_head = true;
            }
        });
    }

    /// A whole head arrived: the request is being answered until [`Connection::answered`].
    pub fn requested(&self) {
        self.change(|state| {
            state.has_request = true;
            state.has_head = false;
        });
    }

    /// The answer is complete, though pieces of it may be unsent.
    pub fn answered(&self) {
        self.change(|state| state.has_request = false);
    }

    /// A piece of the answer waits to be sent.
    pub fn sending(&self) {
        self.change(|state| state.unsent += 1);
    }

    /// The kernel has taken a piece of the answer.
    pub fn sent(&self) {
        self.change(|state| state.unsent = state.unsent.saturating_sub(1));
    }

    /// A phase starts again only when it changes: a head that arrives byte by byte has one time
    /// limit.
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

impl Default for Connections {
    fn default() -> Self {
        raise_open_files();
        Self::with_files(open_files_max())
    }
}

impl Connections {
    fn with_files(files: usize) -> Self {
        // Where the limit is low, half of it is for connections.
        let allowed = files.saturating_sub(RESERVED_FILES).max(files / 2);
        Self {
            max: MAX_CONNECTIONS.min(allowed),
            table: Mutex::default(),
        }
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
            counts
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map(|(client, _)| client)
        } else {
            None
        };
        if crowded.is_some_and(|crowded| !table.close_waiting(crowded)) {
            table.count(CloseReason::Limit);
            return None;
        }
        let number = table.next_number;
        table.next_number += 1;
        let connection = Arc::new(Connection::new(client, Instant::now()));
        table.open.insert(number, Arc::clone(&connection));
        Some(OpenConnection {
            number,
            connection,
            connections: Arc::clone(self),
        })
    }

    /// Closes the connection that has waited longest for a request, of the client with the most.
    pub fn make_room(&self) {
        let mut table = self.lock();
        let most = table.counts().into_iter().max_by_key(|(_, count)| *count);
        if let Some((client, _)) = most {
            table.close_waiting(client);
        }
    }

    /// Closes the connections whose phase has lasted too long.
    pub fn close_overdue(&self, now: Instant) {
        let mut table = self.lock();
        let overdue: Vec<_> = table
            .open
            .iter()
            .filter_map(|(number, connection)| {
                let reason = connection.lock().overdue(now)?;
                Some((*number, reason))
            })
            .collect();
        for (number, reason) in overdue {
            table.close(number, reason);
        }
    }

    /// Closes the connection that has not read its answer for the longest time, if that is
    /// `patience` or more.
    pub fn close_slowest_reader(&self, patience: Duration) {
        let now = Instant::now();
        let mut table = self.lock();
        let slowest = table.longest(|phase| phase == Phase::Sending);
        if let Some((number, since)) = slowest
            && now.saturating_duration_since(since) >= patience
        {
            table.close(number, CloseReason::SendTimeout);
        }
    }

    /// Adds the metrics of the connections to the page.
    pub fn report(&self, out: &mut Samples) {
        let table = self.lock();
        out.push::<&str>(&OPEN, &[], table.open.len() as f64);
        for reason in CloseReason::ALL {
            let count = table.closed.get(&reason).copied().unwrap_or(0);
            out.push(&CLOSED, &[reason.name()], count as f64);
        }
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

    /// The connection whose phase, one that `is_wanted`, has lasted longest, and since when.
    fn longest(&self, is_wanted: impl Fn(Phase) -> bool) -> Option<(u64, Instant)> {
        self.open
            .iter()
            .filter_map(|(number, connection)| {
                let state = connection.lock();
                is_wanted(state.phase()).then_some((*number, state.since))
            })
            .min_by_key(|(_, since)| *since)
    }

    /// Closes the connection of the client that has waited longest for a request. False where none
    /// waits.
    fn close_waiting(&mut self, client: IpAddr) -> bool {
        let waiting = self
            .open
            .iter()
            .filter(|(_, connection)| connection.client == client)
            .filter_map(|(number, connection)| {
                let state = connection.lock();
                let is_waiting = matches!(state.phase(), Phase::Head | Phase::Idle);
                is_waiting.then_some((*number, state.since))
            })
            .min_by_key(|(_, since)| *since);
        if let Some((number, _)) = waiting {
            self.close(number, CloseReason::Limit);
        }
        waiting.is_some()
    }

    fn close(&mut self, number: u64, reason: CloseReason) {
        if let Some(connection) = self.open.remove(&number) {
            connection.close.notify_one();
            self.count(reason);
            tracing::debug!(client = %connection.client, reason = reason.name(), "connection closed");
        }
    }

    fn count(&mut self, reason: CloseReason) {
        *self.closed.entry(reason).or_insert(0) += 1;
    }
}

/// A connection's place among the open ones; given back when this is dropped.
pub(crate) struct OpenConnection {
    number: u64,
    pub connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

/// Raises the soft limit of open files to what many connections need, where the hard limit allows
/// it.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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
        tracing::debug!(%error, wanted, "cannot raise the limit of open files");
    }
}

fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
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
    fn the_longest_waiting_connection_of_the_busiest_client_closes() {
        let connections = Arc::new(Connections::with_files(8));
        assert_eq!(connections.max, 4);
        let server = connections.open(OTHER).unwrap();
        let crowd: Vec<_> = (0..3).map(|_| connections.open(ONE).unwrap()).collect();
        crowd[0].connection.requested();
        let late = connections.open(ONE).unwrap();
        assert!(!is_closed(&server), "its client has only one");
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
    }

    #[test]
    fn each_phase_has_its_time() {
        let connections = Arc::new(Connections::with_files(1000));
        let phase = |prepare: fn(&Connection), limit: Duration, reason: CloseReason| {
            let open = connections.open(ONE).unwrap();
            prepare(&open.connection);
            let now = Instant::now();
            assert_eq!(open.connection.lock().overdue(now + limit / 2), None);
            assert_eq!(
                open.connection.lock().overdue(now + limit * 2),
                Some(reason)
            );
            connections.close_overdue(now + limit * 2);
            assert!(is_closed(&open));
            assert_eq!(connections.lock().closed[&reason], 1);
        };
        phase(|_| {}, HEAD_TIMEOUT, CloseReason::HeaderTimeout);
        let idle = |connection: &Connection| {
            connection.requested();
            connection.sending();
            connection.answered();
            connection.sent();
        };
        phase(idle, IDLE_TIMEOUT, CloseReason::IdleTimeout);
        let unread = |connection: &Connection| {
            connection.requested();
            connection.sending();
            connection.answered();
        };
        phase(unread, SEND_TIMEOUT, CloseReason::SendTimeout);
        let listening = connections.open(ONE).unwrap();
        listening.connection.requested();
        connections.close_overdue(Instant::now() + Duration::from_secs(86_400));
        assert!(!is_closed(&listening), "an answer may take its time");
    }

    #[test]
    fn a_head_that_comes_byte_by_byte_has_one_limit() {
        let connection = Connection::new(ONE, Instant::now());
        let began = connection.lock().since;
        connection.received();
        connection.received();
        assert_eq!(connection.lock().since, began);
    }
}
