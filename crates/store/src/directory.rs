//! The data directory and its lock.
//!
//! Only one process can open a DuckDB file. The holder keeps a lock (flock) on `takt.lock`. A
//! server also writes its address and the token for writes into the file, so that other commands
//! can send their requests to it.

use super::StoreError;
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

const LOCK_FILE: &str = "takt.lock";

/// Database file that every store has.
const RECORDS_FILE: &str = "records.duckdb";

/// Magic numbers of file systems that cannot hold a store, from Linux' `include/uapi/linux/magic.h` and the file
/// systems' sources: those of the network, and those that the kernel makes up.
const UNSUITABLE_FILESYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0x5346_414f, "AFS"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x1cd1, "devpts"),
];

/// The process that has a data directory open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Address (`127.0.0.1:9856`), if it is a server.
    pub address: Option<String>,
    /// Token that local commands send to be allowed to write.
    pub token: Option<String>,
}

/// A data directory that this process holds until the value is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Creates the directory if needed and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::Held`] if another process holds it, [`StoreError::Filesystem`] on a network file
    /// system or one of the kernel, [`StoreError::Foreign`] if root opens another user's directory,
    /// [`StoreError::Directory`] if it cannot be written.
    pub fn claim(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Directory {
            path: path.to_owned(),
            source,
        };

        keep_files_private();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);

        if path.is_file() {
            let source = io::Error::other("it is a file; a directory was expected");
            return Err(failed(source));
        }

        // Before a folder is made there, which the kernel's own refuse with an error that names no reason.
        refuse_filesystem(path)?;
        builder.create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
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

        // The owner could not write files that root creates here.
        let uid = lock.metadata().map_err(failed)?.uid();
        if rustix::process::geteuid().is_root() && uid != 0 {
            return Err(StoreError::Foreign { path, uid });
        }

        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = read_holder(&mut lock);
                let (pid, address) =
                    holder.map_or((0, None), |holder| (holder.pid, holder.address));
                return Err(StoreError::Held { path, pid, address });
            }
            Err(error) => return Err(failed(error.into())),
        }

        let mut claimed = Self { path, lock };
        claimed.publish(&Holder {
            pid: process::id(),
            address: None,
            token: None,
        })?;

        Ok(claimed)
    }

    /// Writes the address of this process into the lock file.
    ///
    /// # Errors
    /// [`StoreError::Directory`] if the file cannot be written.
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

    /// Absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the file system of `path`, or of the folder in which it would be made, if that cannot hold
    /// a store: one of the network or of the kernel.
    pub fn unsuitable_filesystem(path: &Path) -> Option<&'static str> {
        // An empty path is the working directory.
        let existing = path.ancestors().find(|folder| folder.exists());
        let status = rustix::fs::statfs(existing.unwrap_or(Path::new("."))).ok()?;
        let kind = status.f_type as i64 & 0xffff_ffff;
        UNSUITABLE_FILESYSTEMS
            .iter()
            .find(|(magic, _)| *magic == kind)
            .map(|(_, name)| *name)
    }

    /// Returns whether `path` contains a store. An unreadable directory counts as a store.
    pub fn has_store(path: &Path) -> bool {
        let found = fs::metadata(path.join(RECORDS_FILE));
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether users beside the owner and the group may enter or read the directory.
    pub fn is_open_to_others(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.mode() & OTHERS != 0)
    }

    /// Returns whether permissions hide the process that holds `path`.
    pub fn is_private(path: &Path) -> bool {
        File::open(path.join(LOCK_FILE))
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns the process that holds `path`, if any.
    pub fn holder(path: &Path) -> Option<Holder> {
        let mut lock = File::open(path.join(LOCK_FILE)).ok()?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => read_holder(&mut lock),
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

fn read_holder(lock: &mut File) -> Option<Holder> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn refuse_filesystem(path: &Path) -> Result<(), StoreError> {
    match DataDir::unsuitable_filesystem(path) {
        Some(filesystem) => Err(StoreError::Filesystem {
            path: path.to_owned(),
            filesystem,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn a_second_claim_names_the_holder() {
        let root = tempdir().unwrap();
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
        let root = tempdir().unwrap();
        DataDir::claim(root.path()).unwrap();
        std::os::unix::fs::chown(root.path().join(LOCK_FILE), Some(65534), None).unwrap();
        assert!(matches!(
            DataDir::claim(root.path()),
            Err(StoreError::Foreign { uid: 65534, .. })
        ));
    }

    #[test]
    fn a_file_system_of_the_kernel_is_named_in_the_error() {
        for path in ["/proc/takt", "/proc/self/takt/data"] {
            let error = DataDir::claim(Path::new(path)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the data directory {path} is on proc; choose a local disk (--data-dir)")
            );
        }
        // Relative, and not made yet.
        assert_eq!(DataDir::unsuitable_filesystem(Path::new("new/data")), None);
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_named_in_the_error() {
        let root = tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DataDir::claim(&file).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot use the data directory {}", file.display())
        );
    }
}
