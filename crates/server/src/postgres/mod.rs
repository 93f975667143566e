//! SQL over PostgreSQL's protocol, for psql, psycopg, Grafana's PostgreSQL data source and BI
//! tools.
//!
//! [`token`] finds the statements in a message, [`command`] answers those about the session,
//! [`dialect`] translates the rest for DuckDB, [`takt_store::sql`] checks and runs them, and
//! [`encode`] writes the values. The catalog with which clients list tables and columns is
//! `store/postgres.sql`.

mod auth;
mod command;
mod config;
mod dialect;
mod encode;
mod entrance;
mod parameter;
mod session;
mod token;

pub use auth::{Passwords, PasswordsError};
pub use config::{SqlConfig, SqlConfigError};

use auth::ClientAuth;
use entrance::Entrance;
use pgwire::api::ConnectionManager;
use pgwire::tokio::{TlsAcceptor, process_socket};
use session::Sessions;
use std::io;
use std::sync::Arc;
use takt_store::Database;
use takt_store::sql::Limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The version of PostgreSQL that clients see. They avoid features that this version lacks.
pub(crate) const SERVER_VERSION: &str = "16.0";

/// The SQL server.
pub struct SqlServer {
    database: Arc<Database>,
    limits: Limits,
    entrance: Entrance,
    manager: Arc<ConnectionManager>,
    connections: Arc<Semaphore>,
}

impl SqlServer {
    /// Creates a server over `database`.
    ///
    /// # Errors
    /// If a password, certificate or key file cannot be read.
    pub fn new(database: Arc<Database>, config: &SqlConfig) -> Result<Self, SqlConfigError> {
        let manager = Arc::new(ConnectionManager::new());
        Ok(Self {
            database,
            limits: config.limits(),
            entrance: Entrance::open(config, Arc::clone(&manager))?,
            manager,
            connections: Arc::new(Semaphore::new(config.max_connections)),
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
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            // A client above the maximum gets an error, but it may still cancel a statement of
            // another connection.
            let permit = Arc::clone(&self.connections).try_acquire_owned().ok();
            let (auth, tls) = self.entrance.current();
            let auth = if permit.is_some() {
                auth
            } else {
                Arc::new(ClientAuth::Closed)
            };
            let served = self.client(socket, auth, tls);
            clients.spawn(async move {
                let _permit = permit;
                if let Err(error) = served.await {
                    tracing::debug!(%peer, %error, "a SQL connection broke off");
                }
            });
        }
    }

    fn client(
        &self,
        socket: TcpStream,
        auth: Arc<ClientAuth>,
        tls: Option<TlsAcceptor>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let database = Arc::clone(&self.database);
        let limits = self.limits;
        let manager = Arc::clone(&self.manager);
        async move {
            let socket = socket.into_std()?;
            let peer = Arc::new(TcpStream::from_std(socket.try_clone()?)?);
            let socket = TcpStream::from_std(socket)?;
            let sessions = Sessions {
                database,
                limits,
                auth,
                manager,
                peer,
                session: Arc::default(),
                settings: Arc::default(),
            };
            process_socket(socket, tls, sessions).await
        }
    }
}
