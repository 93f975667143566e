//! Open HTTP connections of a server: how many there may be, and how long each may take.
//!
//! A client that opens connections and sends nothing, or half a request, or never reads its answer,
//! must not keep the server from answering others, nor take the open files that the process needs
//! for its work. Each connection is in one phase, and a phase that lasts too long ends the
//! connection; so do a body that arrives and an answer that is read too slowly. Where the limits are
//! reached, a connection without a request gives way to the new one. An answer may take its time.
//!
//! Who asks is known only after the head of a request. A server may then give the request a
//! [`TakenPlace`] of its class. The connection leaves room for others to arrive, and a crowd of one class
//! cannot take the places of another.

mod connection;
mod limits;
mod places;
#[cfg(test)]
mod tests;

pub use connection::{CloseReason, Connection};
pub use limits::{
    ANSWER_TIME, CHECK_INTERVAL, ConnectionLimits, UPLOAD_TIME, open_files_max, raise_open_files,
};
pub use places::{ClassPlaces, NoPlace, PlaceHolder, TakenPlace};

use connection::Phase;
use places::{LOG_PAUSE, largest_holders};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use takt_model::client_of;
use tokio::time;

/// Pause after an accept that failed, for lack of open files for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Counts connections for the server's metrics.
pub trait Meter: Send + Sync + 'static {
    /// The number of open connections has changed to this.
    fn opened(&self, count: usize);

    /// The server closed a connection, or refused one ([`CloseReason::Limit`]).
    fn closed(&self, reason: CloseReason);
}

/// All open connections of the server.
#[derive(Debug)]
pub struct Connections<M> {
    limits: ConnectionLimits,
    table: Mutex<Table>,
    meter: M,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they were opened.
    open: BTreeMap<u64, Arc<Connection>>,
    next_number: u64,
    logged_at: Option<Instant>,
}

impl<M> Connections<M>
where
    M: Meter,
{
    /// No connections yet.
    pub fn new(limits: ConnectionLimits, meter: M) -> Self {
        Self {
            limits,
            table: Mutex::default(),
            meter,
        }
    }

    /// The meter of the server.
    pub fn meter(&self) -> &M {
        &self.meter
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// Adds a connection. `None` where the limits are reached and every other connection is in use.
    pub fn open(self: &Arc<Self>, address: IpAddr) -> Option<OpenConnection<M>> {
        // The part of an IPv6 address that its owner chooses does not make it another client.
        let client = client_of(address);
        let mut table = self.lock();

        if let Some(crowded) = self.crowded(&table, client)
            && !self.close_waiting(&mut table, crowded)
        {
            self.meter.closed(CloseReason::Limit);
            table.log_refusal();
            return None;
        }

        let number = table.next_number;
        table.next_number += 1;

        let connection = Arc::new(Connection::new(client, Instant::now()));
        table.open.insert(number, Arc::clone(&connection));
        self.meter.opened(table.open.len());

        Some(OpenConnection {
            number,
            connection,
            connections: Arc::clone(self),
        })
    }

    /// The client that has to give way to a new connection of `client`. `None` below the limits.
    fn crowded(&self, table: &Table, client: IpAddr) -> Option<IpAddr> {
        let counts = table.counts();

        // A client beyond its own limit loses one of its own connections, before others are looked
        // at.
        if counts.get(&client).copied().unwrap_or(0) >= self.limits.per_client {
            Some(client)
        } else if counts.values().sum::<usize>() >= self.limits.total {
            largest(counts)
        } else {
            None
        }
    }

    /// Closes the connection that has waited longest, of the client with the most.
    pub fn make_room(&self) {
        let mut table = self.lock();
        if let Some(client) = largest(table.counts()) {
            self.close_waiting(&mut table, client);
        }
    }

    /// Logs why a connection could not be accepted, and makes room for the next one.
    pub async fn accept_failed(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        // The client has gone before it was accepted.
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionRefused | ConnectionReset
        ) {
            return;
        }

        // The usual cause is a lack of open files. The pause keeps the loop of accepts from
        // spinning until one is closed.
        tracing::warn!(%error, "cannot accept a connection");
        self.make_room();
        time::sleep(ACCEPT_PAUSE).await;
    }

    /// Closes the connections whose phase has lasted too long. The handler of a slow upload is told
    /// first, so that the client gets an answer.
    pub fn close_overdue(&self, now: Instant) {
        let mut table = self.lock();
        let overdue: Vec<_> = table
            .open
            .iter()
            .filter_map(|(number, connection)| {
                let reason = connection.overdue(&self.limits, now)?;
                Some((*number, reason))
            })
            .collect();

        for (number, reason) in overdue {
            // The second time, the handler has had its chance to answer, and the connection closes.
            let told = reason == CloseReason::ReceiveTimeout
                && table.open.get(&number).is_some_and(|one| one.end_upload());
            if told {
                self.meter.closed(reason);
                continue;
            }
            self.close(&mut table, number, reason);
        }
    }

    /// Closes the connection that has not read its answer for the longest time, if that is
    /// `patience` or more.
    pub fn close_slowest_reader(&self, patience: Duration) {
        let now = Instant::now();
        let mut table = self.lock();
        let slowest = table.longest(|connection| connection.phase() == Phase::Sending);
        if let Some((number, since)) = slowest
            && now.saturating_duration_since(since) >= patience
        {
            self.close(&mut table, number, CloseReason::SendTimeout);
        }
    }

    /// Closes the connection of the client that has waited longest. False where all are in use.
    fn close_waiting(&self, table: &mut Table, client: IpAddr) -> bool {
        let now = Instant::now();
        let waiting = table.longest(|connection| {
            connection.client == client && connection.gives_way(&self.limits, now)
        });
        if let Some((number, _)) = waiting {
            self.close(table, number, CloseReason::Limit);
        }
        waiting.is_some()
    }

    fn close(&self, table: &mut Table, number: u64, reason: CloseReason) {
        if let Some(connection) = table.open.remove(&number) {
            // Removed here at once, not when its task ends, so that the new connection finds room
            // now.
            connection.close();
            self.meter.opened(table.open.len());
            self.meter.closed(reason);
            let client = connection.client;
            tracing::debug!(%client, reason = reason.name(), "connection closed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Open connections without a place, by client.
    fn counts(&self) -> HashMap<IpAddr, usize> {
        // A request with a place is counted by its class; here it would take the room of clients
        // that are not known yet.
        let mut counts = HashMap::new();
        for connection in self.open.values().filter(|one| !one.has_place()) {
            *counts.entry(connection.client).or_insert(0) += 1;
        }
        counts
    }

    /// Logs, at most once a minute, that no connection gives way to a new one.
    fn log_refusal(&mut self) {
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_PAUSE) {
            return;
        }

        self.logged_at = Some(Instant::now());
        let counts = self.counts();
        let held_by = largest_holders(counts.iter());
        tracing::warn!(
            connections = self.open.len(),
            held_by,
            "no room: refused a connection; more within a minute are not logged"
        );
    }

    /// The connection, one that `is_wanted`, whose phase has lasted longest, and since when.
    fn longest(&self, is_wanted: impl Fn(&Connection) -> bool) -> Option<(u64, Instant)> {
        let since = self
            .open
            .iter()
            .filter(|(_, one)| is_wanted(one))
            .map(|(number, one)| (*number, one.since()));

        since.min_by_key(|(_, since)| *since)
    }
}

/// The client with the most connections.
fn largest(counts: HashMap<IpAddr, usize>) -> Option<IpAddr> {
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(client, _)| client)
}

/// A connection's place among the open ones; given back when this is dropped.
#[derive(Debug)]
pub struct OpenConnection<M: Meter> {
    number: u64,
    /// The connection.
    pub connection: Arc<Connection>,
    connections: Arc<Connections<M>>,
}

impl<M> Drop for OpenConnection<M>
where
    M: Meter,
{
    fn drop(&mut self) {
        // One that was closed for another is no longer in the table, and removing it twice does no
        // harm.
        let mut table = self.connections.lock();
        table.open.remove(&self.number);
        self.connections.meter.opened(table.open.len());
    }
}
