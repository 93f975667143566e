//! Disk space that is reserved for alerts.
//!
//! On a full disk, alert state and the outbox must still be committed: they are small, and messages
//! depend on them. The file `reserve` in the data directory holds space for that. When a commit
//! finds the disk full, part of the file is given back, and the commit is repeated. When the disk
//! has space again, the file is made again.
//!
//! The space is given back in parts, since another program may be filling the disk.

use super::StoreError;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "reserve";

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The file takes at most one part in this many of the disk.
const DISK_SHARE: u64 = 64;

/// Number of parts in which the space is given back.
const PARTS: u64 = 16;

/// The file is made when the disk has at least this many times its size free.
const SPARE: u64 = 4;

/// The reserved space of a data directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    /// Size of the complete file, in bytes.
    size: u64,
}

impl Reserve {
    /// Reserves space, if the disk has enough of it.
    pub fn open(data: &Path) -> Self {
        let size = statvfs(data).map_or(0, |disk| disk.f_blocks * disk.f_frsize / DISK_SHARE);
        let reserve = Self {
            path: data.join(FILE),
            size: size.min(MAX_BYTES),
        };
        reserve.fill();
        reserve
    }

    /// Reserved bytes that are left.
    fn left(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Makes the file complete, if the disk has enough space. Costs one system call if it is.
    pub fn fill(&self) {
        if self.left() >= self.size || !self.has_spare().unwrap_or(false) {
            return;
        }
        if let Err(error) = self.allocate() {
            tracing::warn!(file = %self.path.display(), %error, "cannot reserve disk space for alerts");
            drop(fs::remove_file(&self.path));
        }
    }

    fn has_spare(&self) -> io::Result<bool> {
        let data = self.path.parent().unwrap_or(&self.path);
        let disk = statvfs(data)?;
        Ok(disk.f_bavail * disk.f_frsize >= self.size * SPARE)
    }

    fn allocate(&self) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        fallocate(&file, FallocateFlags::empty(), 0, self.size)?;
        file.sync_all()
    }

    /// Repeats a statement that finds the disk full, as long as reserved space is left.
    pub fn use_for(
        &self,
        mut statement: impl FnMut() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        loop {
            match statement() {
                Err(error) if is_disk_full(&error) && self.release() => {}
                done => return done,
            }
        }
    }

    /// Gives back a part of the space. Returns whether any was left.
    fn release(&self) -> bool {
        let left = self.left();
        if left == 0 {
            return false;
        }

        let rest = left.saturating_sub((self.size / PARTS).max(1));
        let shrunk = if rest == 0 {
            fs::remove_file(&self.path)
        } else {
            let file = OpenOptions::new().write(true).open(&self.path);
            file.and_then(|file| file.set_len(rest))
        };

        match shrunk {
            Ok(()) => tracing::error!(
                left = rest,
                "the disk is full: giving back space that is reserved for alerts"
            ),
            Err(ref error) => tracing::error!(%error, "cannot give back reserved disk space"),
        }

        shrunk.is_ok()
    }
}

/// Whether a statement failed because the disk is full. An invalid database needs more than space.
fn is_disk_full(error: &StoreError) -> bool {
    const CAUSES: [&str; 2] = ["No space left", "Disk quota exceeded"];
    let StoreError::Sql { source, .. } = error else {
        return false;
    };
    let text = source.to_string();
    CAUSES.iter().any(|cause| text.contains(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn space_is_given_back_in_parts_and_reserved_again() {
        let root = tempdir().unwrap();
        let reserve = Reserve::open(root.path());
        let whole = reserve.left();
        assert!(whole > 0 && whole <= MAX_BYTES);
        let mut parts = 0;
        while reserve.release() {
            parts += 1;
            assert!(reserve.left() < whole);
        }
        assert!((PARTS..=PARTS + 1).contains(&parts), "{parts}");
        assert!(!root.path().join(FILE).exists());
        reserve.fill();
        assert_eq!(reserve.left(), whole);
    }
}
