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

use auth::ClientAuth;
use connection::ConnectionError;
use entrance::Entrance;
use futures_util::FutureExt;
use pgwire::api::ConnectionManager;
use pgwire::tokio::TlsAcceptor;
use session::Sessions;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use takt_access::Role;
use takt_connections::{ANSWER_TIME, CHECK_INTERVAL, ClassPlaces, PlaceHolder};
use takt_identity::{Access, Peer, holder_of};
use takt_store::sql::Limits;
use takt_store::{Database, MemoryBudget};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// The version of PostgreSQL that clients see. They avoid features that this version lacks.
pub(crate) const SERVER_VERSION: &str = "16.0";

/// Time a client has from connecting until it is logged in, TLS handshake included.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of connections that are not logged in.
pub const LOGIN_CONNECTIONS: usize = 128;

/// Time without a byte that a client reads of its rows.
const STALL_TIME: Duration = Duration::from_secs(30);

/// Of the connections that are not logged in, the one that has waited longest, of the address with
/// the most, gives way to a new one. A request to cancel a statement needs no more. A client that is
/// logged in has to read its rows, which are in memory; it may wait for as long as it likes.
const LIMITS: takt_connections::ConnectionLimits = takt_connections::ConnectionLimits {
    total: LOGIN_CONNECTIONS,
    per_client: LOGIN_CONNECTIONS / 4,
    // The login has a limit of its own, which is shorter.
    head: STALL_TIME,
    idle: STALL_TIME,
    stall: STALL_TIME,
    min_bytes_per_second: 1024,
    upload_grace: LOGIN_TIMEOUT,
    upload: LOGIN_TIMEOUT,
    answer_in_memory: ANSWER_TIME,
    stall_patience: LOGIN_TIMEOUT,
};

type Connections = takt_connections::Connections<SqlMetrics>;

type OpenConnection = takt_connections::OpenConnection<SqlMetrics>;

/// Places for the clients that are logged in: one of them cannot have all.
pub fn session_places(max: usize) -> Arc<ClassPlaces> {
    Arc::new(ClassPlaces::new("sql", max, max - max / 4))
}

/// The SQL server.
pub struct SqlServer {
    database: Arc<Database>,
    limits: Limits,
    entrance: Entrance,
    manager: Arc<ConnectionManager>,
    connections: Arc<Connections>,
    places: Arc<ClassPlaces>,
    access: Access,
    metrics: SqlMetrics,
    memory: MemoryBudget,
}

impl SqlServer {
    /// Creates a server over `database`, with these places for clients that are logged in.
    ///
    /// # Errors
    /// If a password, certificate or key file cannot be read.
    pub fn new(
        database: Arc<Database>,
        config: &SqlConfig,
        access: Access,
        places: Arc<ClassPlaces>,
        metrics: SqlMetrics,
        memory: MemoryBudget,
    ) -> Result<Self, SqlConfigError> {
        let manager = Arc::new(ConnectionManager::new());
        Ok(Self {
            database,
            limits: config.limits(),
            entrance: Entrance::open(config, Arc::clone(&manager))?,
            manager,
            connections: Arc::new(Connections::new(LIMITS, metrics.clone())),
            places,
            access,
            metrics,
            memory,
        })
    }

    /// Serves clients until the future is dropped, which also interrupts their statements.
    pub async fn serve(mut self, listener: TcpListener) {
        let mut check = time::interval(CHECK_INTERVAL);
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
                _ = check.tick() => {
                    self.connections.close_overdue(Instant::now());
                    continue;
                }
            };

            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a SQL connection");
                    // Without open files, accepting fails at once, again and again.
                    time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };

            let (auth, tls) = self.entrance.current();
            if let Some(open) = self.connections.open(peer.ip()) {
                let served = self.client(socket, auth, tls, open);
                clients.spawn(note_failure(served, peer, self.metrics.clone()));
            }
        }
    }

    fn client(
        &self,
        socket: TcpStream,
        auth: Arc<ClientAuth>,
        tls: Option<TlsAcceptor>,
        open: OpenConnection,
    ) -> impl Future<Output = Result<(), ConnectionError>> + Send + use<> {
        let database = Arc::clone(&self.database);
        let limits = self.limits;
        let manager = Arc::clone(&self.manager);
        let access = self.access.clone();
        let memory = self.memory.clone();
        let places = Arc::clone(&self.places);
        let logged_in = CancellationToken::new();

        async move {
            let mut is_admin = false;
            let mut caller = None;
            let mut holder = PlaceHolder::Address(open.connection.client);

            // Without passwords the kernel says who the client is; the user's name in the message
            // proves nothing.
            let auth = if auth.is_open() {
                let peer = Peer::of(socket.peer_addr()?, socket.local_addr().ok());
                let viewer = access.viewer_of(peer).await;
                is_admin = viewer.role() == Role::Admin;
                holder = holder_of(&viewer, peer);
                caller = Some(holder.to_string().into());
                if viewer.sees_samples() {
                    auth
                } else {
                    Arc::new(ClientAuth::Refused)
                }
            } else {
                auth
            };

            // The second handle sees the end of the connection while pgwire has the first one.
            let socket = socket.into_std()?;
            let peer = Arc::new(TcpStream::from_std(socket.try_clone()?)?);
            let socket = TcpStream::from_std(socket)?;

            let sessions = Sessions {
                is_admin,
                memory,
                caller,
                database,
                limits,
                auth,
                manager,
                peer,
                logged_in: logged_in.clone(),
                places,
                holder,
                connection: Arc::clone(&open.connection),
                sql: Arc::default(),
                settings: Arc::default(),
            };

            tokio::select! {
                ended = connection::serve(socket, tls, sessions, access) => ended,
                () = login_timeout(logged_in) => Err(ConnectionError::LoginTimeout),
                () = open.connection.closed() => Err(ConnectionError::Closed),
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

/// Serves a connection, and notes why it failed.
async fn note_failure(
    served: impl Future<Output = Result<(), ConnectionError>>,
    peer: SocketAddr,
    metrics: SqlMetrics,
) {
    // pgwire panics at some malformed messages.
    let served = AssertUnwindSafe(served).catch_unwind().await;
    if let Err(error) = served.unwrap_or(Err(ConnectionError::Undecodable)) {
        metrics.note(peer, &error);
    }
}
