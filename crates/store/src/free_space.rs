//! Free space of the disk that holds the data directory.

use super::StoreError;
use std::path::Path;

/// Fails if the disk of `directory` has fewer than `floor` bytes free.
///
/// # Errors
/// [`StoreError::DiskLow`]; [`StoreError::Directory`] if the file system cannot be queried.
pub(crate) fn check_free_space(directory: &Path, floor: u64) -> Result<(), StoreError> {
    let failed = |source| StoreError::Directory {
        path: directory.to_owned(),
        source,
    };
    let disk = rustix::fs::statvfs(directory).map_err(|error| failed(error.into()))?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < floor {
        return Err(StoreError::DiskLow {
            path: directory.to_owned(),
            free,
            floor,
        });
    }
    Ok(())
}
