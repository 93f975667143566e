//! `[sql]` of `takt.toml`.

use super::{Passwords, PasswordsError};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use takt_model::ConfigError;
use takt_store::sql::Limits;

/// SQL, over HTTP and over PostgreSQL's protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SqlConfig {
    /// Address and port of PostgreSQL's protocol; any address but loopback requires
    /// `password_file`. Default: `127.0.0.1:9857`; if that port is in use, Takt logs a warning and
    /// starts without it. Empty: disabled.
    pub listen_address: Option<String>,
    /// File with lines of `user:password`. If it is set, every client must log in. Not in the data
    /// directory.
    pub password_file: Option<PathBuf>,
    /// TLS certificate and its chain (PEM).
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    pub tls_key_file: Option<PathBuf>,
    /// Maximum number of clients that are logged in; one address, or one user of this machine, can
    /// have three quarters of them.
    pub max_connections: usize,
    /// Seconds after which a statement is cancelled.
    pub timeout_seconds: u64,
    /// Maximum number of rows of a result. HTTP cuts the result off and says so; PostgreSQL's
    /// protocol cannot say so, so there it is an error.
    pub max_rows: usize,
    /// Memory of the process of one statement, in MiB; beyond it, the statement fails. At most four
    /// statements run at once.
    pub memory_limit_mib: u64,
}

impl Default for SqlConfig {
    fn default() -> Self {
        let Limits {
            timeout,
            max_rows,
            memory_bytes,
        } = Limits::default();
        Self {
            listen_address: None,
            password_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            max_connections: 64,
            timeout_seconds: timeout.as_secs(),
            max_rows,
            memory_limit_mib: memory_bytes >> 20,
        }
    }
}

/// The reason why the settings of SQL are unusable.
#[derive(Debug, thiserror::Error)]
pub enum SqlConfigError {
    /// A file cannot be read.
    #[error("{key}: cannot read {path}")]
    Read {
        /// The key.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The password file is malformed.
    #[error("password_file: {path}")]
    Passwords {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: PasswordsError,
    },
    /// The file contains no certificate or no key.
    #[error("{key}: {path} has no {expected} in PEM")]
    Pem {
        /// The key.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The expected content of the file.
        expected: &'static str,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not match.
    #[error("tls_cert_file and tls_key_file cannot be used")]
    Tls(#[from] rustls::Error),
}

/// A TLS certificate with its key.
pub(super) struct Certificate {
    pub(super) pem: Vec<u8>,
    pub(super) tls: Arc<ServerConfig>,
}

impl SqlConfig {
    /// Returns the address for PostgreSQL's protocol; `None` if it is disabled.
    pub fn address(&self) -> Option<&str> {
        let address = self.listen_address.as_deref().unwrap_or("127.0.0.1:9857");
        Some(address).filter(|address| !address.is_empty())
    }

    /// Returns the limits of a statement.
    pub fn limits(&self) -> Limits {
        Limits {
            timeout: Duration::from_secs(self.timeout_seconds),
            max_rows: self.max_rows,
            memory_bytes: self.memory_limit_mib << 20,
        }
    }

    /// Returns the file paths, so that the caller can resolve relative paths.
    pub fn files(&mut self) -> [&mut Option<PathBuf>; 3] {
        [
            &mut self.password_file,
            &mut self.tls_cert_file,
            &mut self.tls_key_file,
        ]
    }

    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.address() {
            let parsed: SocketAddr = address.parse().map_err(|_| {
                ConfigError::new(
                    "listen_address",
                    "address:port such as 127.0.0.1:9857",
                    address,
                )
            })?;
            // SQL shows the jobs of all users, so the network needs a login.
            if !parsed.ip().is_loopback() && self.password_file.is_none() {
                let expected = "a password_file, or an address that only this machine can reach";
                return Err(ConfigError::new("listen_address", expected, address));
            }
        }

        if self.tls_cert_file.is_some() != self.tls_key_file.is_some() {
            return Err(ConfigError::of_table(
                "tls_cert_file and tls_key_file: expected both or neither, found one",
            ));
        }

        let least = [
            ("max_connections", self.max_connections == 0),
            ("timeout_seconds", self.timeout_seconds == 0),
            ("max_rows", self.max_rows == 0),
            ("memory_limit_mib", self.memory_limit_mib == 0),
        ];
        match least.iter().find(|(_, is_none)| *is_none) {
            Some((key, _)) => Err(ConfigError::new(*key, "at least 1", 0)),
            None => Ok(()),
        }
    }

    /// Reads the files with users and the certificate, as the server does.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn check_files(&self) -> Result<(), SqlConfigError> {
        self.passwords()?;
        self.certificate().map(drop)
    }

    pub(super) fn passwords(&self) -> Result<Option<Passwords>, SqlConfigError> {
        let Some(path) = &self.password_file else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&read("password_file", path)?).into_owned();
        Passwords::read(&text)
            .map(Some)
            .map_err(|source| SqlConfigError::Passwords {
                path: path.clone(),
                source,
            })
    }

    pub(super) fn certificate(&self) -> Result<Option<Certificate>, SqlConfigError> {
        let (Some(cert), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) else {
            return Ok(None);
        };
        let pem = read("tls_cert_file", cert)?;

        let no = |key, path: &Path, expected| {
            let path = path.to_owned();
            move |source| SqlConfigError::Pem {
                key,
                path,
                expected,
                source,
            }
        };

        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain
            .and_then(|chain| {
                // A file without a certificate is no error for the iterator.
                if chain.is_empty() {
                    Err(rustls::pki_types::pem::Error::NoItemsFound)
                } else {
                    Ok(chain)
                }
            })
            .map_err(no("tls_cert_file", cert, "certificate"))?;

        let private = PrivateKeyDer::from_pem_slice(&read("tls_key_file", key)?).map_err(no(
            "tls_key_file",
            key,
            "private key",
        ))?;

        let provider = Arc::new(ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        // Clients with `sslnegotiation=direct` require this protocol's name, as of PostgreSQL 17.
        tls.alpn_protocols = vec![b"postgresql".to_vec()];

        Ok(Some(Certificate {
            pem,
            tls: Arc::new(tls),
        }))
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, SqlConfigError> {
    fs::read(path).map_err(|source| SqlConfigError::Read {
        key,
        path: path.to_owned(),
        source,
    })
}
