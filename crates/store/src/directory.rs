//! The data directory and who holds it.
//!
//! Only one process can open a DuckDB file. The holder keeps `takt.lock` locked (flock) and, if it is a server, writes
//! into it where it answers and the token for writes, so that every other command can ask it instead.

use super::StoreError;
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::umask;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

const LOCK_FILE: &str = "takt.lock";

/// The database that every store has.
const RECORDS_FILE: &str = "records.duckdb";

/// Magic numbers of network file systems, from Linux' `include/uapi/linux/magic.h` and the file systems' own sources.
const NETWORK_FILESYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0x5346_414f, "AFS"),
];

/// Who has a data directory open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Where it answers (`127.0.0.1:9856`), if it is a server.
    pub address: Option<String>,
    /// What a local command sends to be allowed to write.
    pub token: Option<String>,
}

/// A data directory that this process holds until the value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes the directory if need be and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::Held`] where another process has it, [`StoreError::Network`] on a network file system,
    /// [`StoreError::Foreign`] for root where it is another user's, [`StoreError::Directory`] where it cannot be written.
    pub fn claim(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Directory {
            path: path.to_owned(),
            source,
        };
        keep_files_private();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        warn_if_open(&path);
        refuse_network(&path)?;
        let failed = |source| StoreError::Directory {
            path: path.clone(),
            source,
        };
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK_FILE))
            .map_err(failed)?;
        // What root writes there its owner could not write any more.
        let uid = lock.metadata().map_err(failed)?.uid();
        if rustix::process::geteuid().is_root() && uid != 0 {
            return Err(StoreError::Foreign { path, uid });
        }
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = read_holder(&mut lock);
                let (pid, address) =
                    holder.map_or((0, None), |holder| (holder.pid, holder.address));
                return Err(StoreError::Held { path, pid, address });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let mut claimed = Self { path, lock };
        claimed.publish(&Holder {
            pid: std::process::id(),
            address: None,
            token: None,
        })?;
        Ok(claimed)
    }

    /// Writes into the lock file where this process answers.
    ///
    /// # Errors
    /// [`StoreError::Directory`] where the file cannot be written.
    pub fn publish(&mut self, holder: &Holder) -> Result<(), StoreError> {
        let text = serde_json::to_vec(holder).expect("three plain fields serialise");
        (|| {
            self.lock.set_len(0)?;
            self.lock.rewind()?;
            self.lock.write_all(&text)
        })()
        .map_err(|source| StoreError::Directory {
            path: self.path.clone(),
            source,
        })
    }

    /// The directory, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `path` has the files of a store. A directory that cannot be looked into counts as one.
    pub fn has_store(path: &Path) -> bool {
        let found = std::fs::metadata(path.join(RECORDS_FILE));
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether another user's permissions hide who holds `path`.
    pub fn is_private(path: &Path) -> bool {
        let opened = File::open(path.join(LOCK_FILE));
        opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The process that holds `path` now, if any.
    pub fn holder(path: &Path) -> Option<Holder> {
        let mut lock = File::open(path.join(LOCK_FILE)).ok()?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => read_holder(&mut lock),
            _ => None,
        }
    }
}

/// Permission bits of users who are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// Makes this process create files for their owner only, unless its umask already excludes other users: job records and samples are
/// not for every user of the machine.
fn keep_files_private() {
    let strict = Mode::from_raw_mode(0o077);
    // The umask can only be read by setting it.
    let before = umask(strict);
    if before.as_raw_mode() & OTHERS == OTHERS {
        umask(before);
    }
}

/// Warns, once, if other users may enter or read an existing data directory.
fn warn_if_open(path: &Path) {
    static WARN: Once = Once::new();
    let mode = std::fs::metadata(path).map_or(0, |found| found.mode());
    if mode & OTHERS != 0 {
        WARN.call_once(|| {
            let path = path.display();
            tracing::warn!("other users can read the data directory: chmod 700 {path}");
        });
    }
}

fn read_holder(lock: &mut File) -> Option<Holder> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn refuse_network(path: &Path) -> Result<(), StoreError> {
    let status = rustix::fs::statfs(path).map_err(|error| StoreError::Directory {
        path: path.to_owned(),
        source: io::Error::from(error),
    })?;
    let kind = status.f_type as i64 & 0xffff_ffff;
    match NETWORK_FILESYSTEMS.iter().find(|(magic, _)| *magic == kind) {
        Some(&(_, filesystem)) => Err(StoreError::Network {
            path: path.to_owned(),
            filesystem,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_names_the_holder() {
        let root = tempfile::tempdir().unwrap();
        let mut first = DataDir::claim(root.path()).unwrap();
        let holder = Holder {
            pid: 7,
            address: Some("127.0.0.1:1".into()),
            token: Some("t".into()),
        };
        first.publish(&holder).unwrap();
        assert!(matches!(
            DataDir::claim(root.path()),
            Err(StoreError::Held { pid: 7, .. })
        ));
        assert_eq!(DataDir::holder(root.path()), Some(holder));
        drop(first);
        assert_eq!(DataDir::holder(root.path()), None);
        DataDir::claim(root.path()).unwrap();
    }

    #[test]
    fn root_leaves_another_users_data_alone() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        DataDir::claim(root.path()).unwrap();
        std::os::unix::fs::chown(root.path().join(LOCK_FILE), Some(65534), None).unwrap();
        assert!(matches!(
            DataDir::claim(root.path()),
            Err(StoreError::Foreign { uid: 65534, .. })
        ));
    }

    #[test]
    fn a_file_in_the_way_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = DataDir::claim(&file).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot use the data directory {}", file.display())
        );
    }
}
