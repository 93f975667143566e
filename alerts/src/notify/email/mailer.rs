//! One mail to one address over one connection.
//!
//! lettre speaks SMTP, under rules that its traps ask for. Its asynchronous side has no timeout but for the TCP
//! connect, so a deadline is put around the whole conversation. A connection whose conversation was cut off has replies
//! on their way that belong to earlier commands, so connections are never used again: lettre's pool would hand them
//! out, and a refused mail would count as sent. A mail counts as sent if the reply to its last line was 250, nothing
//! else. There is one recipient to an envelope, since one bad address would keep the mail from all others.

use super::{EmailConfig, TlsMode};
use lettre::address::Envelope;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as Part, Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How many connections are open at a time: mail servers count those of one client.
const CONNECTIONS_MAX: usize = 2;

/// How long a server may take to say goodbye; the mail has been taken by then.
const GOODBYE: Duration = Duration::from_secs(2);

/// How a certificate begins in a PEM file.
const MARK: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// A mail gets one more second for each of these.
const BYTES_PER_SECOND: u64 = 50_000;

/// A mail to one address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mail {
    /// `ann@lab.example` or `Ann <ann@lab.example>`.
    pub to: String,
    /// The subject.
    pub subject: String,
    /// The text, for who reads text and for who lists mail.
    pub text: String,
    /// The same as a page.
    pub html: Option<String>,
    /// Its name, without angle brackets. One that says again what was perhaps said before keeps the name, so that who
    /// has it already can drop it. A new one is made if there is none.
    pub message_id: Option<String>,
    /// The mail that it belongs below, by its name.
    pub thread: Option<String>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// Files.
    pub attachments: Vec<Attachment>,
}

/// A file in a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The file's name.
    pub name: String,
    /// Its type, such as `text/csv; charset=utf-8`.
    pub content_type: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// Why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The configuration cannot be right.
    #[error("{key}: expected {expected}, found {found}")]
    Config {
        /// The key.
        key: &'static str,
        /// What it should hold.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// A file that the configuration names.
    #[error("{key}: cannot read {path}")]
    File {
        /// The key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An address that cannot be one.
    #[error("{address:?} is no e-mail address")]
    Address {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: lettre::address::AddressError,
    },
    /// The mail cannot be put together.
    #[error("the mail to {to} cannot be written")]
    Compose {
        /// To whom.
        to: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The conversation ended without success.
    #[error("{server}, {step}")]
    Smtp {
        /// The server.
        server: String,
        /// What was being done.
        step: &'static str,
        /// Why it ended.
        #[source]
        source: lettre::transport::smtp::Error,
    },
    /// The server's certificate or its name is not to be trusted.
    #[error("{server} is not trusted; `ca_file` names further authorities")]
    Untrusted {
        /// The server.
        server: String,
        /// Why.
        #[source]
        source: lettre::transport::smtp::Error,
    },
    /// The last reply was not the one that takes the mail.
    #[error("{server} answered {reply} where 250 takes the mail")]
    Unexpected {
        /// The server.
        server: String,
        /// What it said.
        reply: String,
    },
    /// No answer.
    #[error("{server} did not finish within {seconds} s")]
    Timeout {
        /// The server.
        server: String,
        /// How long it had.
        seconds: u64,
    },
}

impl MailError {
    /// Whether the same mail would be refused again: the server said so, or what is wrong is on our side.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Config { .. }
            | Self::File { .. }
            | Self::Address { .. }
            | Self::Compose { .. } => true,
            Self::Untrusted { .. } => true,
            // lettre's "client" errors: the server offers no STARTTLS, no login that we know, no SMTPUTF8.
            Self::Smtp { source, .. } => source.is_permanent() || source.is_client(),
            Self::Unexpected { .. } | Self::Timeout { .. } => false,
        }
    }
}

/// Sends mail by one server.
#[derive(Debug)]
pub struct Mailer {
    host: String,
    port: u16,
    tls: Tls,
    credentials: Option<Credentials>,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    hello: ClientId,
    timeout: Duration,
    permits: Semaphore,
}

impl Mailer {
    /// A mailer; reads the files that the configuration names.
    ///
    /// # Errors
    /// What [`EmailConfig::validate`] refuses, and files that cannot be read.
    pub fn new(config: &EmailConfig) -> Result<Self, MailError> {
        config.validate()?;
        let login = match (&config.username, &config.password_file) {
            (Some(user), Some(path)) => {
                let password = String::from_utf8_lossy(&read("password_file", path)?)
                    .trim_end()
                    .to_owned();
                Some((user.clone(), password))
            }
            _ => None,
        };
        Self::with_login(config, login)
    }

    /// A mailer that logs in as this user with this password, whatever the configuration says of that.
    ///
    /// # Errors
    /// As [`Mailer::new`].
    pub fn with_login(
        config: &EmailConfig,
        login: Option<(String, String)>,
    ) -> Result<Self, MailError> {
        config.validate()?;
        let (host, port, mode) = config.endpoint()?;
        let tls = match mode {
            TlsMode::None => Tls::None,
            TlsMode::StartTls => Tls::Required(trust(&host, config)?),
            TlsMode::Tls => Tls::Wrapper(trust(&host, config)?),
        };
        Ok(Self {
            host,
            port,
            tls,
            credentials: login.map(|(user, password)| Credentials::new(user, password)),
            from: mailbox(&config.from)?,
            reply_to: config.reply_to.as_deref().map(mailbox).transpose()?,
            hello: ClientId::Domain(host_name()),
            timeout: config.timeout(),
            permits: Semaphore::new(CONNECTIONS_MAX),
        })
    }

    /// The domain of the sender: Message-IDs end with it.
    pub fn domain(&self) -> &str {
        self.from.email.domain()
    }

    /// Whether mail can be addressed like this.
    ///
    /// # Errors
    /// Where it cannot.
    pub fn check(&self, to: &str) -> Result<(), MailError> {
        mailbox(to).map(drop)
    }

    /// The bytes of a mail as they would be sent.
    ///
    /// # Errors
    /// An address or a header that cannot be.
    pub fn eml(&self, mail: &Mail) -> Result<Vec<u8>, MailError> {
        self.compose(mail, mailbox(&mail.to)?)
    }

    /// Sends a mail. When this returns, the server has taken it.
    ///
    /// # Errors
    /// Where it did not; [`MailError::is_permanent`] tells whether trying again helps. After a timeout nobody knows
    /// whether it was taken.
    pub async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        let to = mailbox(&mail.to)?;
        let bytes = self.compose(mail, to.clone())?;
        let compose = |source| MailError::Compose {
            to: mail.to.clone(),
            source: Box::new(source),
        };
        let envelope =
            Envelope::new(Some(self.from.email.clone()), vec![to.email]).map_err(compose)?;
        let _permit = self
            .permits
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let limit = self.timeout + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
        match timeout(limit, self.converse(&envelope, &bytes)).await {
            Ok(Ok(mut connection)) => {
                // The mail is with the server now, whatever becomes of the goodbye.
                let _ = timeout(GOODBYE, connection.quit()).await;
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(MailError::Timeout {
                server: self.server(),
                seconds: limit.as_secs(),
            }),
        }
    }

    async fn converse(
        &self,
        envelope: &Envelope,
        bytes: &[u8],
    ) -> Result<AsyncSmtpConnection, MailError> {
        let failed = |step| {
            move |source| match is_untrusted(&source) {
                true => MailError::Untrusted {
                    server: self.server(),
                    source,
                },
                false => MailError::Smtp {
                    server: self.server(),
                    step,
                    source,
                },
            }
        };
        let (wrapper, start) = match &self.tls {
            Tls::Wrapper(parameters) => (Some(parameters.clone()), None),
            Tls::Required(parameters) => (None, Some(parameters.clone())),
            _ => (None, None),
        };
        let address = (self.host.as_str(), self.port);
        let connect = AsyncSmtpConnection::connect_tokio1(
            address,
            Some(self.timeout),
            &self.hello,
            wrapper,
            None,
        )
        .await;
        let mut connection = connect.map_err(failed("connecting"))?;
        if let Some(parameters) = start {
            connection
                .starttls(parameters, &self.hello)
                .await
                .map_err(failed("STARTTLS"))?;
        }
        if let Some(credentials) = &self.credentials {
            connection
                .auth(DEFAULT_MECHANISMS, credentials)
                .await
                .map_err(failed("logging in"))?;
        }
        let reply = connection
            .send(envelope, bytes)
            .await
            .map_err(failed("handing over the mail"))?;
        match reply.has_code(250) {
            true => Ok(connection),
            false => Err(MailError::Unexpected {
                server: self.server(),
                reply: reply.code().to_string(),
            }),
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The bytes of a mail. Bodies that are not ASCII are quoted-printable or base64: no server has to know 8BITMIME.
    fn compose(&self, mail: &Mail, to: Mailbox) -> Result<Vec<u8>, MailError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| MailError::Compose {
            to: mail.to.clone(),
            source,
        };
        let id = mail
            .message_id
            .clone()
            .unwrap_or_else(|| format!("takt.{:x}@{}", random(), self.domain()));
        let mut builder = lettre::Message::builder()
            .from(self.from.clone())
            .to(to)
            .subject(one_line(&mail.subject))
            .date_now()
            .message_id(Some(format!("<{id}>")));
        builder = match &self.reply_to {
            Some(address) => builder.reply_to(address.clone()),
            None => builder,
        };
        if let Some(thread) = &mail.thread {
            builder = builder
                .in_reply_to(format!("<{thread}>"))
                .references(format!("<{thread}>"));
        }
        for (name, value) in [("Auto-Submitted", "auto-generated")].into_iter().chain(
            mail.headers
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        ) {
            let name = HeaderName::new_from_ascii(name.to_owned())
                .map_err(|error| failed(error.into()))?;
            builder = builder.raw_header(HeaderValue::new(name, one_line(value)));
        }
        let words = match &mail.html {
            Some(html) => MultiPart::alternative_plain_html(mail.text.clone(), html.clone()),
            None => MultiPart::mixed().singlepart(SinglePart::plain(mail.text.clone())),
        };
        let message = match (mail.attachments.is_empty(), &mail.html) {
            (true, Some(_)) => builder.multipart(words),
            (true, None) => builder.singlepart(SinglePart::plain(mail.text.clone())),
            (false, _) => {
                let mut all = MultiPart::mixed().multipart(words);
                for file in &mail.attachments {
                    let kind = ContentType::parse(&file.content_type)
                        .map_err(|error| failed(error.into()))?;
                    all = all
                        .singlepart(Part::new(file.name.clone()).body(file.content.clone(), kind));
                }
                builder.multipart(all)
            }
        };
        message
            .map(|message| message.formatted())
            .map_err(|error| failed(error.into()))
    }
}

/// Whom to believe that it is the server: the system's authorities, and those that the configuration names.
fn trust(host: &str, config: &EmailConfig) -> Result<TlsParameters, MailError> {
    let mut parameters = TlsParameters::builder(host.to_owned());
    if let Some(path) = &config.ca_file {
        let pem = read("ca_file", path)?;
        // A text without any certificate is no error to the parser.
        let certificates = Certificate::from_pem(&pem)
            .ok()
            .filter(|_| pem.windows(MARK.len()).any(|part| part == MARK));
        let wrong = || MailError::Config {
            key: "ca_file",
            expected: "certificates in PEM format",
            found: path.display().to_string(),
        };
        parameters = parameters.add_root_certificate(certificates.ok_or_else(wrong)?);
    }
    parameters.build().map_err(|source| MailError::Smtp {
        server: host.to_owned(),
        step: "TLS",
        source,
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, MailError> {
    std::fs::read(path).map_err(|source| MailError::File {
        key,
        path: path.to_owned(),
        source,
    })
}

fn mailbox(address: &str) -> Result<Mailbox, MailError> {
    address.parse().map_err(|source| MailError::Address {
        address: address.to_owned(),
        source,
    })
}

/// A line break in a header would begin another header.
fn one_line(text: &str) -> String {
    text.split(['\r', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether the other side's certificate was refused: lettre counts that as a failed connection.
fn is_untrusted(error: &lettre::transport::smtp::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let io = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if let Some(tls) = io.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return matches!(tls, rustls::Error::InvalidCertificate(_));
        }
        source = cause.source();
    }
    false
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Enough to name a mail: no secret.
fn random() -> u128 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let word = || u128::from(RandomState::new().build_hasher().finish());
    (word() << 64) | word()
}
