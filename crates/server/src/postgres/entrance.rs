//! Who is let in, and by which certificate: read again when a file has changed, so that a renewed certificate or a new
//! password needs no restart.

use super::auth::Door;
use super::config::{SqlConfig, SqlConfigError};
use pgwire::api::ConnectionManager;
use pgwire::tokio::TlsAcceptor;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// What changes when a file does: device, inode, size and time; `None` where there is none.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The door as the files say that it is.
pub(super) struct Entrance {
    config: SqlConfig,
    manager: Arc<ConnectionManager>,
    /// The files as they were just before they were read.
    stamps: Vec<Stamp>,
    door: Arc<Door>,
    tls: Option<TlsAcceptor>,
}

impl Entrance {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Password, certificate and key files that cannot be used.
    pub fn open(
        config: &SqlConfig,
        manager: Arc<ConnectionManager>,
    ) -> Result<Self, SqlConfigError> {
        let stamps = stamps(config);
        let certificate = config.certificate()?;
        let pem = certificate
            .as_ref()
            .map(|certificate| certificate.pem.as_slice());
        let door = Arc::new(Door::new(config.passwords()?, pem, Arc::clone(&manager)));
        let tls = certificate.map(|certificate| TlsAcceptor::from(certificate.tls));
        Ok(Self {
            config: config.clone(),
            manager,
            stamps,
            door,
            tls,
        })
    }

    /// The door for the next client. Where a changed file cannot be used, which is logged once, what was read before
    /// stays in force: certificate and key are seldom replaced in the same instant.
    pub fn current(&mut self) -> (Arc<Door>, Option<TlsAcceptor>) {
        let stamps = stamps(&self.config);
        if stamps != self.stamps {
            match Self::open(&self.config, Arc::clone(&self.manager)) {
                Ok(opened) => {
                    *self = opened;
                    tracing::info!("read the passwords and the certificate of SQL again");
                }
                Err(error) => {
                    self.stamps = stamps;
                    let error = takt_model::error_chain(&error);
                    tracing::error!(%error, "cannot use the changed passwords or certificate of SQL, the former stay");
                }
            }
        }
        (Arc::clone(&self.door), self.tls.clone())
    }
}

fn stamps(config: &SqlConfig) -> Vec<Stamp> {
    let files = [
        &config.password_file,
        &config.tls_cert_file,
        &config.tls_key_file,
    ];
    files
        .into_iter()
        .flatten()
        .map(|path| stamp(path))
        .collect()
}

fn stamp(path: &Path) -> Stamp {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.len(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}
