//! Authentication of clients. With a password file, a client proves with SCRAM-SHA-256 that it
//! knows a password in the file, without sending the password. Without one, every client may
//! connect; this is allowed only on loopback.

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
use rustls::crypto::ring;
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Iterations of the hash, as in PostgreSQL.
const ITERATIONS: usize = 4096;
const SALT_BYTES: usize = 16;

/// PostgreSQL's code for a refusal because all places are taken.
pub(super) const TOO_MANY_CLIENTS: &str = "53300";

/// An error in a password file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordsError {
    /// The line is not empty, not a comment, and not `user:password`.
    #[error("line {0}: expected user:password")]
    Line(usize),
    /// The password is too short.
    #[error("line {0}: the password is shorter than 8 characters")]
    Short(usize),
    /// The file has no users.
    #[error("expected lines of user:password, found none")]
    Empty,
}

/// Users with the salted hashes of their passwords.
#[derive(Clone)]
pub struct Passwords {
    known: HashMap<String, Password>,
    /// Password for unknown users: checking it takes as long as checking a wrong password.
    unknown_user: Password,
}

impl Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.known.len())
            .finish()
    }
}

impl Passwords {
    /// Reads lines of `user:password`. Skips empty lines and lines that begin with `#`.
    ///
    /// # Errors
    /// Returns the first malformed line.
    pub fn read(text: &str) -> Result<Self, PasswordsError> {
        let mut known = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }

            // At the first colon: a password may contain colons, a user's name may not.
            let (user, password) = line.split_once(':').ok_or(PasswordsError::Line(at + 1))?;
            if user.is_empty() {
                return Err(PasswordsError::Line(at + 1));
            }
            if password.chars().count() < 8 {
                return Err(PasswordsError::Short(at + 1));
            }
            known.insert(user.to_owned(), salted(password));
        }

        if known.is_empty() {
            Err(PasswordsError::Empty)
        } else {
            Ok(Self {
                known,
                unknown_user: Password::new(Some(random::<SALT_BYTES>()), random::<32>()),
            })
        }
    }
}

fn salted(password: &str) -> Password {
    // A salt of its own for each user and each start: equal passwords have different hashes.
    let salt = random::<SALT_BYTES>();
    let hash = gen_salted_password(password, &salt, ITERATIONS);
    Password::new(Some(salt), hash)
}

fn random<const N: usize>() -> Vec<u8> {
    let mut bytes = vec![0; N];
    ring::default_provider()
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
            .unwrap_or(&self.unknown_user)
            .clone())
    }
}

/// The authentication of one connection.
pub enum ClientAuth {
    /// No passwords.
    Open(Arc<ConnectionManager>, RandomPidSecretKeyGenerator),
    /// A password for every user.
    Password {
        /// For a connection without TLS.
        plain: Box<Scram>,
        /// For a connection with TLS: SCRAM can bind to the certificate only there.
        bound: Box<Scram>,
    },
    /// No connection: without a password, the client may not see the data of all users.
    Refused,
}

type Scram = SASLAuthStartupHandler<DefaultServerParameterProvider>;

impl ClientAuth {
    /// Returns whether clients need no password.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open(..))
    }

    /// Returns whether clients prove a password.
    pub fn has_passwords(&self) -> bool {
        matches!(self, Self::Password { .. })
    }

    /// Creates the authentication. `certificate` is the server's TLS certificate in PEM.
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
                // SCRAM cannot bind to some kinds of certificates (Ed25519). It then works without
                // binding.
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

/// Returns the server's parameters, which clients receive after the login.
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
        // Taken before the client is logged in, so that it is not told so in vain, and kept only then.
        let place = match (&*self.auth, &message) {
            (ClientAuth::Password { .. }, PgWireFrontendMessage::PasswordMessageFamily(_))
            | (ClientAuth::Open(..), PgWireFrontendMessage::Startup(_)) => {
                let full = "sorry, too many clients already (sql.max_connections)";
                let place = self.places.take(self.holder.clone());
                Some(place.map_err(|_| fatal(TOO_MANY_CLIENTS, full))?)
            }
            _ => None,
        };

        let started = match (&*self.auth, message) {
            (ClientAuth::Password { plain, bound }, message) => {
                let handler = if client.is_secure() { bound } else { plain };
                handler.on_startup(client, message).await
            }
            (ClientAuth::Open(manager, generator), PgWireFrontendMessage::Startup(startup)) => {
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                let (pid, key) = generator.generate(client);
                client.set_pid_and_secret_key(pid, key);
                // A cancel request finds this connection while both values exist.
                let (handle, guard) = manager.register(pid, client.pid_and_secret_key().1);
                client.session_extensions().insert(handle);
                client.session_extensions().insert(guard);
                finish_authentication(client, &parameters()).await
            }
            // Without passwords, only the first message belongs to the login.
            (ClientAuth::Open(..), _) => Ok(()),
            (ClientAuth::Refused, _) => Err(fatal(
                "28000",
                "SQL shows the data of all users and needs the role viewer, or a password (sql.password_file)",
            )),
        };

        // A failed login drops the place here, so that guesses of passwords take none.
        if matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            place
                .into_iter()
                .for_each(|place| self.connection.hold(place));
            self.logged_in.cancel();
        }
        started
    }
}

fn fatal(code: &str, message: &str) -> PgWireError {
    let info = ErrorInfo::new("FATAL".to_owned(), code.to_owned(), message.to_owned());
    PgWireError::UserError(Box::new(info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_is_read_or_its_error_is_named() {
        let read = |text: &str| Passwords::read(text).map(|passwords| passwords.known.len());
        assert_eq!(
            read("# dashboards\n\ngrafana:correct horse: battery\nalice:12345678\n"),
            Ok(2)
        );
        assert_eq!(read("grafana\n"), Err(PasswordsError::Line(1)));
        assert_eq!(read("# x\n:secret-secret\n"), Err(PasswordsError::Line(2)));
        assert_eq!(read("grafana:1234567\n"), Err(PasswordsError::Short(1)));
        assert_eq!(read("# nobody\n"), Err(PasswordsError::Empty));

        // Errors and logs print such values with `Debug`.
        assert!(!format!("{:?}", Passwords::read("a:secret-secret").unwrap()).contains("secret"));
    }
}
