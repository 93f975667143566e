//! Who may connect: with a password file, whoever proves to know a password in it (SCRAM-SHA-256, so the password does
//! not travel); without one, everybody, which is allowed on loopback only.

use super::{SERVER_VERSION, Sessions};
use async_trait::async_trait;
use futures_util::Sink;
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{ScramAuth, gen_salted_password};
use pgwire::api::auth::{
    AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler,
    finish_authentication, protocol_negotiation, save_startup_parameters_to_metadata,
};
use pgwire::api::{
    ClientInfo, ConnectionManager, PgWireConnectionState, PidSecretKeyGenerator,
    RandomPidSecretKeyGenerator,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Rounds of hashing, PostgreSQL's number.
const ITERATIONS: usize = 4096;
const SALT_BYTES: usize = 16;

/// A line of a password file that says no user and password.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordsError {
    /// Neither empty, nor a comment, nor `user:password`.
    #[error("line {0}: expected user:password")]
    Line(usize),
    /// Too easy to guess.
    #[error("line {0}: the password is shorter than 8 characters")]
    Short(usize),
    /// There is nobody in it.
    #[error("expected lines of user:password, found none")]
    Empty,
}

/// Users and what is known of their passwords: a hash with its salt.
#[derive(Clone)]
pub struct Passwords {
    known: HashMap<String, Password>,
    /// What an unknown user is checked against, so that it takes as long as a wrong password.
    nobody: Password,
}

impl Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.known.len())
            .finish()
    }
}

impl Passwords {
    /// Reads lines of `user:password`; empty ones and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// A line that says something else.
    pub fn read(text: &str) -> Result<Self, PasswordsError> {
        let mut known = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, password) = line.split_once(':').ok_or(PasswordsError::Line(at + 1))?;
            if user.is_empty() {
                return Err(PasswordsError::Line(at + 1));
            }
            if password.chars().count() < 8 {
                return Err(PasswordsError::Short(at + 1));
            }
            known.insert(user.to_owned(), salted(password));
        }
        match known.is_empty() {
            true => Err(PasswordsError::Empty),
            false => Ok(Self {
                known,
                nobody: Password::new(Some(random::<SALT_BYTES>()), random::<32>()),
            }),
        }
    }
}

fn salted(password: &str) -> Password {
    let salt = random::<SALT_BYTES>();
    let hash = gen_salted_password(password, &salt, ITERATIONS);
    Password::new(Some(salt), hash)
}

fn random<const N: usize>() -> Vec<u8> {
    let mut bytes = vec![0; N];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .expect("the kernel has random numbers");
    bytes
}

#[async_trait]
impl AuthSource for Passwords {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        Ok(login
            .user()
            .and_then(|user| self.known.get(user))
            .unwrap_or(&self.nobody)
            .clone())
    }
}

/// The way in.
pub enum Door {
    /// Nobody is asked for a password.
    Open(Arc<ConnectionManager>, RandomPidSecretKeyGenerator),
    /// Everybody is.
    Password {
        /// Over a connection in clear.
        plain: Box<Scram>,
        /// Over TLS, to whose certificate SCRAM can bind: only there may that be offered.
        bound: Box<Scram>,
    },
    /// There are as many clients as may be.
    Closed,
}

type Scram = SASLAuthStartupHandler<DefaultServerParameterProvider>;

impl Door {
    /// The door of a server. `certificate` is its TLS certificate as PEM.
    pub fn new(
        passwords: Option<Passwords>,
        certificate: Option<&[u8]>,
        manager: Arc<ConnectionManager>,
    ) -> Self {
        let Some(passwords) = passwords else {
            return Self::Open(manager, RandomPidSecretKeyGenerator::default());
        };
        let passwords = Arc::new(passwords);
        let scram = |certificate: Option<&[u8]>| {
            let mut scram = ScramAuth::new(Arc::clone(&passwords) as Arc<dyn AuthSource>);
            scram.set_iterations(ITERATIONS);
            if let Some(certificate) = certificate {
                // To a certificate of a kind that it does not know (Ed25519) SCRAM does not bind.
                let _ = scram.configure_certificate(certificate);
            }
            let handler = SASLAuthStartupHandler::new(Arc::new(parameters())).with_scram(scram);
            Box::new(handler.with_connection_manager(Arc::clone(&manager)))
        };
        Self::Password {
            plain: scram(None),
            bound: scram(certificate),
        }
    }
}

/// What clients are told of the server as soon as they are in.
fn parameters() -> DefaultServerParameterProvider {
    let mut parameters = DefaultServerParameterProvider::default();
    parameters.server_version = SERVER_VERSION.to_owned();
    parameters.is_superuser = false;
    parameters.default_transaction_read_only = true;
    parameters.search_path = "\"$user\", public, metrics".to_owned();
    parameters.time_zone = "UTC".to_owned();
    parameters.date_style = "ISO, MDY".to_owned();
    parameters
}

#[async_trait]
impl StartupHandler for Sessions {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let started = match (&*self.door, message) {
            (Door::Password { plain, bound }, message) => {
                let handler = if client.is_secure() { bound } else { plain };
                handler.on_startup(client, message).await
            }
            (Door::Open(manager, generator), PgWireFrontendMessage::Startup(startup)) => {
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                let (pid, key) = generator.generate(client);
                client.set_pid_and_secret_key(pid, key);
                // While both are there, a cancel request finds this connection.
                let (handle, guard) = manager.register(pid, client.pid_and_secret_key().1);
                client.session_extensions().insert(handle);
                client.session_extensions().insert(guard);
                finish_authentication(client, &parameters()).await
            }
            (Door::Open(..), _) => Ok(()),
            (Door::Closed, _) => {
                let said = "sorry, too many clients already (sql.max_connections)".to_owned();
                let info = ErrorInfo::new("FATAL".to_owned(), "53300".to_owned(), said);
                Err(PgWireError::UserError(Box::new(info)))
            }
        };
        if matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            self.logged_in.cancel();
        }
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_says_who_and_how() {
        let read = |text: &str| Passwords::read(text).map(|passwords| passwords.known.len());
        assert_eq!(
            read("# dashboards\n\ngrafana:correct horse: battery\nalice:12345678\n"),
            Ok(2)
        );
        assert_eq!(read("grafana\n"), Err(PasswordsError::Line(1)));
        assert_eq!(read("# x\n:secret-secret\n"), Err(PasswordsError::Line(2)));
        assert_eq!(read("grafana:1234567\n"), Err(PasswordsError::Short(1)));
        assert_eq!(read("# nobody\n"), Err(PasswordsError::Empty));
        assert!(!format!("{:?}", Passwords::read("a:secret-secret").unwrap()).contains("secret"));
    }
}
