//! SQL over PostgreSQL's protocol: what psql, psycopg, Grafana's PostgreSQL data source and BI tools speak.
//!
//! [`token`] finds the statements in a message, [`command`] answers what is about the session, [`dialect`] puts the
//! rest into DuckDB's words, [`takt_store::sql`] judges and runs it, [`encode`] writes the values. The catalog that
//! clients ask for tables and columns is `store/postgres.sql`.

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

use auth::Door;
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

/// What clients take for the version of PostgreSQL: they leave out what a server of that age cannot.
pub(crate) const SERVER_VERSION: &str = "16.0";

/// How a server serves SQL.
pub struct SqlServer {
    database: Arc<Database>,
    limits: Limits,
    entrance: Entrance,
    manager: Arc<ConnectionManager>,
    connections: Arc<Semaphore>,
}

impl SqlServer {
    /// A server over `database`, by its configuration.
    ///
    /// # Errors
    /// Password, certificate and key files that cannot be read.
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

    /// Answers clients until it is dropped; their statements are interrupted then.
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
            // One client too many is told so, and may still cancel a statement of an earlier one.
            let permit = Arc::clone(&self.connections).try_acquire_owned().ok();
            let (door, tls) = self.entrance.current();
            let door = if permit.is_some() {
                door
            } else {
                Arc::new(Door::Closed)
            };
            let served = self.client(socket, door, tls);
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
        door: Arc<Door>,
        tls: Option<TlsAcceptor>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (database, limits) = (Arc::clone(&self.database), self.limits);
        let manager = Arc::clone(&self.manager);
        async move {
            let socket = socket.into_std()?;
            let peer = Arc::new(TcpStream::from_std(socket.try_clone()?)?);
            let socket = TcpStream::from_std(socket)?;
            let sessions = Sessions {
                database,
                limits,
                door,
                manager,
                peer,
                session: Arc::default(),
                settings: Arc::default(),
            };
            process_socket(socket, tls, sessions).await
        }
    }
}
