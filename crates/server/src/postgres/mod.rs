//! SQL over PostgreSQL's protocol, for psql, psycopg, Grafana's PostgreSQL data source and BI
//! tools.
//!
//! [`token`] finds the statements in a message, [`command`] answers those about the session,
//! [`dialect`] translates the rest for DuckDB, [`takt_store::sql`] checks and runs them, and
//! [`encode`] writes the values. The catalog with which clients list tables and columns is
//! `store/postgres.sql`.

mod array_parameter;
mod auth;
mod command;
mod config;
mod connection;
mod dialect;
mod encode;
mod entrance;
mod metrics;
mod parameter;
mod session;
mod token;

pub use auth::{Passwords, PasswordsError};
pub use config::{SqlConfig, SqlConfigError};
pub use metrics::SqlMetrics;

use crate::http::{Access, Peer, account_of};
use auth::ClientAuth;
use connection::ConnectionError;
use entrance::Entrance;
use futures_util::FutureExt;
use pgwire::api::ConnectionManager;
use pgwire::tokio::TlsAcceptor;
use session::Sessions;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use takt_access::Role;
use takt_model::client_of;
use takt_store::sql::Limits;
use takt_store::{Database, MemoryBudget};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// The version of PostgreSQL that clients see. They avoid features that this version lacks.
pub(crate) const SERVER_VERSION: &str = "16.0";

/// Time a client has from connecting until it is logged in, TLS handshake included.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of connections beyond `sql.max_connections`. They may cancel a statement of
/// another connection, or read why they are refused.
const MAX_REFUSED: usize = 64;

/// The SQL server.
pub struct SqlServer {
    database: Arc<Database>,
    limits: Limits,
    entrance: Entrance,
    manager: Arc<ConnectionManager>,
    places: Arc<Places>,
    access: Access,
    metrics: SqlMetrics,
    memory: MemoryBudget,
}

/// Places for clients. One address cannot have all of them.
struct Places {
    all: Arc<Semaphore>,
    refused: Arc<Semaphore>,
    of_address: Mutex<HashMap<IpAddr, usize>>,
    max_of_address: usize,
}

/// A place of one client; given back when this is dropped.
struct Place {
    _permit: OwnedSemaphorePermit,
    client: IpAddr,
    places: Arc<Places>,
}

impl Places {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(max)),
            refused: Arc::new(Semaphore::new(MAX_REFUSED)),
            of_address: Mutex::default(),
            max_of_address: max - max / 4,
        })
    }

    /// A place for a client, if one is free.
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let client = client_of(address);
        let mut of_address = self.lock();
        let count = of_address.get(&client).copied().unwrap_or(0);
        if count >= self.max_of_address {
            return None;
        }
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        of_address.insert(client, count + 1);
        Some(Place {
            _permit: permit,
            client,
            places: Arc::clone(self),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.of_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_address = self.places.lock();
        if let Some(count) = of_address.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                of_address.remove(&self.client);
            }
        }
    }
}

impl SqlServer {
    /// Creates a server over `database`.
    ///
    /// # Errors
    /// If a password, certificate or key file cannot be read.
    pub fn new(
        database: Arc<Database>,
        config: &SqlConfig,
        access: Access,
        metrics: SqlMetrics,
        memory: MemoryBudget,
    ) -> Result<Self, SqlConfigError> {
        let manager = Arc::new(ConnectionManager::new());
        Ok(Self {
            database,
            limits: config.limits(),
            entrance: Entrance::open(config, Arc::clone(&manager))?,
            manager,
            places: Places::new(config.max_connections),
            access,
            metrics,
            memory,
        })
    }

    /// Serves clients until the future is dropped, which also interrupts their statements.
    pub async fn serve(mut self, listener: TcpListener) {
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a SQL connection");
                    time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (auth, tls) = self.entrance.current();
            let place = self.places.take(peer.ip());
            let metrics = self.metrics.clone();
            if place.is_some() {
                let served = self.client(socket, auth, tls);
                clients.spawn(note_failure(served, peer, metrics, place));
                continue;
            }
            metrics.count_limit();
            // A client above the maximum gets an error, but it may still cancel a statement of
            // another connection.
            if let Ok(permit) = Arc::clone(&self.places.refused).try_acquire_owned() {
                let served = self.client(socket, Arc::new(ClientAuth::Closed), tls);
                clients.spawn(note_failure(served, peer, metrics, permit));
            }
        }
    }

    fn client(
        &self,
        socket: TcpStream,
        auth: Arc<ClientAuth>,
        tls: Option<TlsAcceptor>,
    ) -> impl Future<Output = Result<(), ConnectionError>> + Send + use<> {
        let database = Arc::clone(&self.database);
        let limits = self.limits;
        let manager = Arc::clone(&self.manager);
        let access = self.access.clone();
        let memory = self.memory.clone();
        let logged_in = CancellationToken::new();
        async move {
            let mut is_admin = false;
            let mut account = None;
            let auth = if auth.is_open() {
                let peer = Peer::of(socket.peer_addr()?, socket.local_addr().ok());
                let viewer = access.viewer_of(peer).await;
                is_admin = viewer.role() == Role::Admin;
                account = Some(account_of(&memory, &viewer));
                if viewer.sees_samples() {
                    auth
                } else {
                    Arc::new(ClientAuth::Refused)
                }
            } else {
                auth
            };
            let socket = socket.into_std()?;
            let peer = Arc::new(TcpStream::from_std(socket.try_clone()?)?);
            let socket = TcpStream::from_std(socket)?;
            let sessions = Sessions {
                is_admin,
                memory,
                account,
                database,
                limits,
                auth,
                manager,
                peer,
                logged_in: logged_in.clone(),
                sql: Arc::default(),
                settings: Arc::default(),
            };
            tokio::select! {
                ended = connection::serve(socket, tls, sessions, access) => ended,
                () = login_timeout(logged_in) => Err(ConnectionError::LoginTimeout),
            }
        }
    }
}

/// Returns where the client does not log in in time.
async fn login_timeout(logged_in: CancellationToken) {
    let in_time = time::timeout(LOGIN_TIMEOUT, logged_in.cancelled()).await;
    if in_time.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Serves a connection, and gives its place back.
async fn note_failure<P>(
    served: impl Future<Output = Result<(), ConnectionError>>,
    peer: SocketAddr,
    metrics: SqlMetrics,
    place: P,
) {
    let open = metrics.begin();
    // pgwire panics at some malformed messages.
    let served = AssertUnwindSafe(served).catch_unwind().await;
    if let Err(error) = served.unwrap_or(Err(ConnectionError::Undecodable)) {
        metrics.note(peer, &error);
    }
    drop((open, place));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_have_all_places() {
        let one = IpAddr::from([10, 0, 0, 1]);
        let other = IpAddr::from([10, 0, 0, 2]);
        let places = Places::new(8);
        let mut taken: Vec<_> = (0..6).map(|_| places.take(one).unwrap()).collect();
        assert!(places.take(one).is_none());
        let others = [places.take(other).unwrap(), places.take(other).unwrap()];
        assert!(places.take(other).is_none(), "all are taken");
        taken.pop();
        assert!(places.take(one).is_some());
        drop((taken, others));
        assert!(places.lock().is_empty());
        assert!(Places::new(1).take(one).is_some());
    }
}
