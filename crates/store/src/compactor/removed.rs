//! Blocks that are past their retention. They lie in `removed/DAY/RESOLUTION/` of the data directory
//! for a day or two, so that a mistake (a wrong `retention_days`, a wrong clock) can be undone:
//! moving them back into `blocks/RESOLUTION/` restores them at the next start.

use crate::block::{Block, sync_directory};
use crate::layout::remove_if_there;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::Timestamp;

/// Folder of removed blocks in the data directory.
pub(crate) const REMOVED: &str = "removed";

/// Least time for which removed blocks are kept. Their folder has the day of the removal, so the
/// time is up to a day longer.
const KEPT: Duration = Duration::from_secs(86_400);

/// Moves a block to the removed ones of the UTC day of `now`.
pub(crate) fn set_removed(data: &Path, block: &Block, now: Timestamp) -> io::Result<()> {
    let folder = data
        .join(REMOVED)
        .join(day_of(now))
        .join(block.resolution.name());
    fs::create_dir_all(&folder)?;
    let target = folder.join(block.name.to_string());
    remove_if_there(&target)?;
    match fs::rename(&block.path, &target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        done => done?,
    }

    let before = block.path.parent().unwrap_or(data);
    sync_directory(&folder).and_then(|()| sync_directory(before))
}

/// Deletes the removed blocks of days that are over for [`KEPT`] at `now`.
pub(crate) fn delete_old(data: &Path, now: Timestamp) -> io::Result<()> {
    let kept_from = day_of(now.minus(KEPT));
    delete(data, |day| day < &*kept_from)
}

/// Deletes all removed blocks.
pub(crate) fn delete_all(data: &Path) -> io::Result<()> {
    delete(data, |_| true)
}

/// Size of the removed blocks, in bytes.
pub(crate) fn removed_bytes(data: &Path) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![data.join(REMOVED)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => bytes += found.len(),
                // It was deleted meanwhile.
                Err(_) => {}
            }
        }
    }
    bytes
}

fn delete(data: &Path, is_deleted: impl Fn(&str) -> bool) -> io::Result<()> {
    let root = data.join(REMOVED);
    let days: Vec<PathBuf> = match fs::read_dir(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?,
    };
    for day in days {
        let name = day.file_name().unwrap_or_default().to_string_lossy();
        if is_deleted(&name) {
            tracing::info!(folder = %day.display(), "deleting removed blocks for good");
            remove_if_there(&day)?;
        }
    }
    // Fails if days are left, and then it stays.
    let _ = fs::remove_dir(&root);
    Ok(())
}

fn day_of(at: Timestamp) -> String {
    jiff::Timestamp::try_from(at)
        .unwrap_or_default()
        .strftime("%Y-%m-%d")
        .to_string()
}
