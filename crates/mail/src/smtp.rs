//! The SMTP client: one mail to one address over one connection.
//!
//! lettre speaks SMTP, with three rules around it. lettre's asynchronous side limits only the TCP
//! connect, so the whole session gets a deadline. A session that was cut off still has replies to
//! earlier commands under way, so connections are never used again: lettre's pool would hand them
//! out, and a refused mail would count as sent. Each envelope has one recipient, because one
//! refused address would keep the mail from all others. A mail counts as sent only if the server
//! answered 250 to its last line.

use super::compose::{Mail, SenderAddresses, mailbox};
use super::error::{CONNECTING, HANDOVER};
use super::limit::{EncryptedStream, LimitedStream};
use super::{EmailConfig, MailError, TlsMode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lettre::address::Envelope;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, Tls, TlsParameters, TlsVersion,
};
use lettre::transport::smtp::extension::ClientId;
use std::error::Error as _;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use takt_model::ConfigError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections of one [`Mailer`] at a time; mail servers limit connections per client.
const CONNECTIONS_MAX: usize = 2;

/// Time limit for QUIT. The server has taken the mail by then.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of [`Mailer::probe`].
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// First line of a certificate in a PEM file.
const PEM_CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The time limit of a session grows by one second for each of these bytes.
const BYTES_PER_SECOND: u64 = 50_000;

/// User and password at the mail server.
#[derive(Clone, PartialEq, Eq)]
pub struct SmtpLogin {
    /// User to log in as (the authentication identity).
    pub user: String,
    /// The user's password.
    pub password: String,
    /// User to act as (the authorization identity of SASL PLAIN), if it differs from `user`.
    pub identity: Option<String>,
}

impl fmt::Debug for SmtpLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpLogin")
            .field("user", &self.user)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Oldest TLS version to accept. Versions before 1.2 are never used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MinTlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Settings of an SMTP session that an Alertmanager configuration has and `[email]` lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmtpOptions {
    /// User and password; the session is anonymous if left out.
    pub login: Option<SmtpLogin>,
    /// Host name for EHLO; this machine's name if left out.
    pub hello: Option<String>,
    /// Name in the server's certificate; the server's host name if left out.
    pub server_name: Option<String>,
    /// Oldest TLS version to accept.
    pub min_tls_version: MinTlsVersion,
}

/// Sends mail through one server.
#[derive(Debug)]
pub struct Mailer {
    host: String,
    port: u16,
    tls: Tls,
    login: Option<SmtpLogin>,
    sender: SenderAddresses,
    hello: ClientId,
    timeout: Duration,
    permits: Semaphore,
}

impl Mailer {
    /// A mailer for `[email]`; reads the files that the configuration names.
    ///
    /// # Errors
    /// If [`EmailConfig::validate`] fails or a file cannot be read.
    pub fn new(config: &EmailConfig) -> Result<Self, MailError> {
        config.validate()?;

        let mut options = SmtpOptions::default();
        if let (Some(user), Some(path)) = (&config.username, &config.password_file) {
            let password = read("password_file", path)?;
            // Editors end a file with a line break, which is no part of the password.
            let password = String::from_utf8_lossy(&password).trim_end().to_owned();
            if password.is_empty() {
                let found = format!("the empty file {}", path.display());
                return Err(ConfigError::new("password_file", "the password in it", found).into());
            }

            options.login = Some(SmtpLogin {
                user: user.clone(),
                password,
                identity: None,
            });
        }

        Self::with_options(config, options)
    }

    /// A mailer with these session settings; `username` and `password_file` of the configuration
    /// are ignored.
    ///
    /// # Errors
    /// As [`Mailer::new`].
    pub fn with_options(config: &EmailConfig, options: SmtpOptions) -> Result<Self, MailError> {
        config.validate()?;

        let (host, port, mode) = config.endpoint()?;
        let tls = match mode {
            TlsMode::None => Tls::None,
            TlsMode::StartTls => Tls::Required(tls_parameters(&host, config, &options)?),
            TlsMode::Tls => Tls::Wrapper(tls_parameters(&host, config, &options)?),
        };

        Ok(Self {
            host,
            port,
            tls,
            login: options.login,
            sender: SenderAddresses {
                from: mailbox(&config.from)?,
                reply_to: config.reply_to.as_deref().map(mailbox).transpose()?,
            },
            hello: ClientId::Domain(options.hello.unwrap_or_else(host_name)),
            timeout: config.timeout(),
            permits: Semaphore::new(CONNECTIONS_MAX),
        })
    }

    /// Domain of the sender's address; Message-IDs end with it.
    pub fn domain(&self) -> &str {
        self.sender.from.email.domain()
    }

    /// Checks the syntax of an address.
    ///
    /// # Errors
    /// If the address is malformed.
    pub fn check(&self, to: &str) -> Result<(), MailError> {
        mailbox(to).map(drop)
    }

    /// The bytes of a mail as they would be sent.
    ///
    /// # Errors
    /// If the address or a header is invalid.
    pub fn eml(&self, mail: &Mail) -> Result<Vec<u8>, MailError> {
        self.sender.compose(mail, mailbox(&mail.to)?)
    }

    /// Sends a mail. On success the server has taken it.
    ///
    /// # Errors
    /// If the server did not take the mail; [`MailError::is_permanent`] says whether another
    /// attempt can succeed. After a timeout the server may or may not have the mail.
    pub async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        let to = mailbox(&mail.to)?;
        let bytes = self.sender.compose(mail, to.clone())?;

        let compose = |source| MailError::Compose {
            to: mail.to.clone(),
            source: Box::new(source),
        };
        let from = self.sender.from.email.clone();
        let envelope = Envelope::new(Some(from), vec![to.email]).map_err(compose)?;

        // The deadline begins after this wait: mails before this one do not use up its time.
        let _permit = self
            .permits
            .acquire()
            .await
            .expect("the semaphore is never closed");

        // A report with attachments over a slow line needs longer than the configured limit.
        let limit = self.timeout + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
        let Ok(sent) = timeout(limit, self.session(&envelope, &bytes)).await else {
            return Err(MailError::Timeout {
                server: self.server(),
                seconds: limit.as_secs(),
            });
        };

        let mut connection = sent?;
        // The server has taken the mail, so the reply to QUIT does not matter.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(())
    }

    /// Connects and logs in, and sends nothing.
    ///
    /// # Errors
    /// If the server would take no mail from Takt.
    pub async fn probe(&self) -> Result<(), MailError> {
        // `takt doctor` and its page wait for the answer, so the limit of a mail is too long.
        let limit = self.timeout.min(PROBE_TIMEOUT);
        let Ok(connection) = timeout(limit, self.open()).await else {
            return Err(MailError::Timeout {
                server: self.server(),
                seconds: limit.as_secs(),
            });
        };

        let _ = timeout(QUIT_TIMEOUT, connection?.quit()).await;
        Ok(())
    }

    /// Runs one SMTP session up to the server's reply to the mail.
    async fn session(
        &self,
        envelope: &Envelope,
        bytes: &[u8],
    ) -> Result<AsyncSmtpConnection, MailError> {
        let mut connection = self.open().await?;
        let reply = connection
            .send(envelope, bytes)
            .await
            .map_err(|error| self.failure(HANDOVER, error))?;

        // lettre takes every positive reply for success, but only 250 follows a mail that is taken (RFC 5321, 4.3.2).
        if reply.has_code(250) {
            Ok(connection)
        } else {
            Err(MailError::Unexpected {
                server: self.server(),
                reply: reply.code().to_string(),
            })
        }
    }

    /// Connects and logs in.
    async fn open(&self) -> Result<AsyncSmtpConnection, MailError> {
        let mut connection = self.connect().await?;

        if let Some(login) = &self.login {
            log_in(&mut connection, login)
                .await
                .map_err(|error| self.failure("logging in", error))?;
        }
        Ok(connection)
    }

    /// Connects; the connection is encrypted unless the configuration says `tls = "none"`.
    async fn connect(&self) -> Result<AsyncSmtpConnection, MailError> {
        let stream = LimitedStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|source| MailError::Connect {
                server: self.server(),
                source,
            })?;

        let failed = |error| self.failure(CONNECTING, error);
        let stream: Box<dyn AsyncTokioStream> = match &self.tls {
            Tls::Wrapper(parameters) => {
                let begun = EncryptedStream::begin(stream, parameters.clone())
                    .await
                    .map_err(failed)?;
                Box::new(begun)
            }
            _ => Box::new(stream),
        };

        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &self.hello)
            .await
            .map_err(failed)?;

        // Without this check, an attacker who removes STARTTLS from the greeting would get login and mail in clear
        // text.
        if let Tls::Required(parameters) = &self.tls {
            if !connection.can_starttls() {
                let server = self.server();
                return Err(MailError::Unencrypted { server });
            }
            connection
                .starttls(parameters.clone(), &self.hello)
                .await
                .map_err(|error| self.failure("STARTTLS", error))?;
        }

        Ok(connection)
    }

    fn failure(&self, step: &'static str, source: lettre::transport::smtp::Error) -> MailError {
        let server = self.server();
        if is_untrusted(&source) {
            MailError::Untrusted { server, source }
        } else {
            MailError::Smtp {
                server,
                step,
                source,
            }
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Logs in. An authorization identity exists only in SASL PLAIN, and lettre never sends one.
async fn log_in(
    connection: &mut AsyncSmtpConnection,
    login: &SmtpLogin,
) -> Result<(), lettre::transport::smtp::Error> {
    let credentials = Credentials::new(login.user.clone(), login.password.clone());
    let Some(identity) = &login.identity else {
        return connection
            .auth(DEFAULT_MECHANISMS, &credentials)
            .await
            .map(drop);
    };

    // The capabilities are those after STARTTLS: before it, servers often hide AUTH.
    let plain = connection
        .server_info()
        .supports_auth_mechanism(Mechanism::Plain);
    if !plain {
        // lettre's error for a server without the mechanism.
        return connection
            .auth(&[Mechanism::Plain], &credentials)
            .await
            .map(drop);
    }

    // RFC 4616: authorization identity, authentication identity and password, separated by NUL.
    let message = format!("{identity}\0{}\0{}", login.user, login.password);
    let command = format!("AUTH PLAIN {}\r\n", BASE64_STANDARD.encode(message));
    connection.command(command).await.map(drop)
}

/// TLS settings: the system's authorities and those in `ca_file`.
fn tls_parameters(
    host: &str,
    config: &EmailConfig,
    options: &SmtpOptions,
) -> Result<TlsParameters, MailError> {
    let name = options.server_name.as_deref().unwrap_or(host).to_owned();
    let mut parameters = TlsParameters::builder(name);

    if options.min_tls_version == MinTlsVersion::Tls13 {
        parameters = parameters.set_min_tls_version(TlsVersion::Tlsv13);
    }

    if let Some(path) = &config.ca_file {
        let pem = read("ca_file", path)?;
        // lettre accepts a text without any certificate.
        let has_certificate = pem
            .windows(PEM_CERTIFICATE.len())
            .any(|part| part == PEM_CERTIFICATE);
        let certificates = Certificate::from_pem(&pem)
            .ok()
            .filter(|_| has_certificate)
            .ok_or_else(|| {
                ConfigError::new("ca_file", "certificates in PEM format", path.display())
            })?;
        parameters = parameters.add_root_certificate(certificates);
    }

    parameters.build().map_err(|source| MailError::Smtp {
        server: host.to_owned(),
        step: "TLS",
        source,
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, MailError> {
    fs::read(path).map_err(|source| MailError::File {
        key,
        path: path.to_owned(),
        source,
    })
}

/// Whether the server's certificate was refused; lettre reports a failed connection.
fn is_untrusted(error: &lettre::transport::smtp::Error) -> bool {
    // rustls' error is inside an `io::Error`, which lettre wraps once more.
    let mut source = error.source();
    while let Some(cause) = source {
        let io = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(tls) = io.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return matches!(tls, rustls::Error::InvalidCertificate(_));
        }
        source = cause.source();
    }
    false
}

/// This machine's name, `localhost` if it has none.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}
