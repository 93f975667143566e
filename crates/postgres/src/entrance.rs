//! The current passwords and certificate. The files are read again after a change, so that a
//! renewed certificate or a new password needs no restart.

use super::auth::ClientAuth;
use super::config::{SqlConfig, SqlConfigError};
use pgwire::api::ConnectionManager;
use pgwire::tokio::TlsAcceptor;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Identifies a version of a file: device, inode, size and time; `None` if the file does not exist.
type FileVersion = Option<(u64, u64, u64, i64, i64)>;

/// The authentication and certificate according to the files.
pub(super) struct Entrance {
    config: SqlConfig,
    manager: Arc<ConnectionManager>,
    /// Versions of the files just before they were read.
    stamps: Vec<FileVersion>,
    auth: Arc<ClientAuth>,
    tls: Option<TlsAcceptor>,
}

impl Entrance {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If a password, certificate or key file is unusable.
    pub fn open(
        config: &SqlConfig,
        manager: Arc<ConnectionManager>,
    ) -> Result<Self, SqlConfigError> {
        // Before the files are read: a change during the reading is then found at the next client.
        let stamps = stamps(config);
        let certificate = config.certificate()?;
        let pem = certificate
            .as_ref()
            .map(|certificate| certificate.pem.as_slice());

        let auth = Arc::new(ClientAuth::new(
            config.passwords()?,
            pem,
            Arc::clone(&manager),
        ));
        let tls = certificate.map(|certificate| TlsAcceptor::from(certificate.tls));

        Ok(Self {
            config: config.clone(),
            manager,
            stamps,
            auth,
            tls,
        })
    }

    /// Returns the authentication for the next client. If a changed file is unusable, logs it once
    /// and keeps the previous content: certificate and key are rarely replaced at the same moment.
    pub fn current(&mut self) -> (Arc<ClientAuth>, Option<TlsAcceptor>) {
        let stamps = stamps(&self.config);
        if stamps != self.stamps {
            match Self::open(&self.config, Arc::clone(&self.manager)) {
                Ok(opened) => {
                    *self = opened;
                    tracing::info!("read the passwords and the certificate of SQL again");
                }
                Err(error) => {
                    // Noted although nothing was read, or each client would log the same error.
                    self.stamps = stamps;
                    let error = takt_model::error_chain(&error);
                    tracing::error!(%error, "cannot use the changed passwords or certificate of SQL; keeping the previous ones");
                }
            }
        }
        (Arc::clone(&self.auth), self.tls.clone())
    }
}

fn stamps(config: &SqlConfig) -> Vec<FileVersion> {
    [
        &config.password_file,
        &config.tls_cert_file,
        &config.tls_key_file,
    ]
    .into_iter()
    .flatten()
    .map(|path| stamp(path))
    .collect()
}

fn stamp(path: &Path) -> FileVersion {
    let file = fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}
