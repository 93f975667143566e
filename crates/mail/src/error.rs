//! Reasons for which a mail was not sent.

use lettre::address::AddressError;
use std::io;
use std::path::PathBuf;
use takt_model::{ConfigError, TlsRemedies};

/// The step of a session in which the server gets sender, recipient and mail.
pub(crate) const HANDOVER: &str = "handing over the mail";

/// The step of a session before the first command.
pub(crate) const CONNECTING: &str = "connecting";

/// Reason for which a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// A configuration key has an invalid value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file named by the configuration cannot be read.
    #[error("{key}: cannot read {path}")]
    File {
        /// The key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The address is malformed.
    #[error("{address:?} is not an e-mail address")]
    Address {
        /// The address.
        address: String,
        /// Error of the parser.
        #[source]
        source: AddressError,
    },
    /// The message cannot be composed, for instance because of an invalid header name.
    #[error("the mail to {to} cannot be written")]
    Compose {
        /// The recipient.
        to: String,
        /// Error of the composer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server cannot be reached.
    #[error("{server}, {CONNECTING}")]
    Connect {
        /// Host and port of the server.
        server: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The server offers no encryption.
    #[error(
        "{server} does not offer STARTTLS. If mail to it may be unencrypted, set tls = \"none\" in \
         [email]"
    )]
    Unencrypted {
        /// Host and port of the server.
        server: String,
    },
    /// An SMTP command failed.
    #[error("{server}, {step}")]
    Smtp {
        /// Host and port of the server.
        server: String,
        /// The failed step of the session.
        step: &'static str,
        /// The server's reply, or the network error.
        #[source]
        source: lettre::transport::smtp::Error,
    },
    /// The server's certificate is invalid or names another host.
    #[error("{server} is not trusted")]
    Untrusted {
        /// Host and port of the server.
        server: String,
        /// Error of the certificate check.
        #[source]
        source: lettre::transport::smtp::Error,
    },
    /// The reply to the mail was positive, but not 250.
    #[error("{server} answered {reply} where 250 takes the mail")]
    Unexpected {
        /// Host and port of the server.
        server: String,
        /// The reply code.
        reply: String,
    },
    /// The session did not finish in time. The server may have taken the mail.
    #[error("{server} did not finish within {seconds} s")]
    Timeout {
        /// Host and port of the server.
        server: String,
        /// The time limit in seconds.
        seconds: u64,
    },
}

const REMEDIES: TlsRemedies = TlsRemedies {
    plain_server: "tls is starttls, or none for a relay without encryption",
    unknown_authority: "ca_file names one",
    other_name: "the server has to be named as in its certificate",
};

impl MailError {
    /// The error with its causes, and what the words of TLS in them mean.
    pub fn in_full(&self) -> String {
        REMEDIES.explained(self)
    }

    /// Whether the server refused this mail or its recipient for good, or the mail itself is
    /// invalid. Another mail may succeed.
    pub fn is_refused_mail(&self) -> bool {
        match self {
            Self::Address { .. } | Self::Compose { .. } => true,
            // A 5xx to the login or the greeting concerns every mail, so only the handover blames this one.
            Self::Smtp { step, source, .. } => *step == HANDOVER && source.is_permanent(),
            _ => false,
        }
    }

    /// Whether another attempt would fail again: the server refused for good, or the error is in
    /// our configuration.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::File { .. }
            | Self::Address { .. }
            | Self::Compose { .. }
            | Self::Unencrypted { .. }
            | Self::Untrusted { .. } => true,
            // lettre's "client" errors: the server lacks a known login method or SMTPUTF8.
            Self::Smtp { source, .. } => source.is_permanent() || source.is_client(),
            Self::Connect { .. } | Self::Unexpected { .. } | Self::Timeout { .. } => false,
        }
    }
}
