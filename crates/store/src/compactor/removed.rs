//! Blocks that are past their retention. They lie in `removed/DAY/RESOLUTION/` of the data directory
//! for a day or two, so that a mistake (a wrong `retention_days`, a wrong clock) can be undone:
//! moving them back into `blocks/RESOLUTION/` restores them at the next start.

use crate::block::{Block, sync_directory};
use crate::layout::remove_if_there;
use jiff::civil::Date;
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

/// Deletes the removed blocks of days that are over for [`KEPT`] at `now`. Days later than `now`, of
/// a clock that was ahead, count as today: their blocks are kept for a day from now on.
pub(crate) fn delete_old(data: &Path, now: Timestamp) -> io::Result<()> {
    let today = day_of(now);
    let kept_from = day_of(now.minus(KEPT));

    for_each_day(data, |folder, name| {
        if name < &*kept_from {
            return delete(folder, "a day has passed");
        }

        let is_later = name.parse::<Date>().is_ok() && name > &*today;
        if is_later {
            let renamed = folder.with_file_name(format!("{today}-dated-{name}"));
            tracing::warn!(
                folder = %folder.display(),
                renamed = %renamed.display(),
                "removed blocks have a day to come, of a wrong clock: keeping them for a day"
            );
            return fs::rename(folder, renamed);
        }
        Ok(())
    })
}

/// Deletes all removed blocks, for a reason to log.
pub(crate) fn delete_all(data: &Path, reason: &str) -> io::Result<()> {
    for_each_day(data, |folder, _| delete(folder, reason))
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

/// Calls `act` with each folder of a day and its name. A failure does not stop the others; the first
/// one is returned.
fn for_each_day(data: &Path, mut act: impl FnMut(&Path, &str) -> io::Result<()>) -> io::Result<()> {
    let root = data.join(REMOVED);
    let days: Vec<PathBuf> = match fs::read_dir(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?,
    };

    let mut result = Ok(());
    for day in days {
        let name = day.file_name().unwrap_or_default().to_string_lossy();
        result = result.and(act(&day, &name));
    }
    // Fails if days are left, and then it stays.
    let _ = fs::remove_dir(&root);
    result
}

fn delete(folder: &Path, reason: &str) -> io::Result<()> {
    tracing::info!(folder = %folder.display(), reason, "deleting removed blocks for good");
    remove_if_there(folder)
}

fn day_of(at: Timestamp) -> String {
    jiff::Timestamp::try_from(at)
        .unwrap_or_default()
        .strftime("%Y-%m-%d")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn days(data: &Path) -> Vec<String> {
        let mut days = Vec::new();
        for_each_day(data, |_, name| {
            days.push(name.to_owned());
            Ok(())
        })
        .unwrap();
        days.sort();
        days
    }

    #[test]
    fn a_folder_that_cannot_be_deleted_stops_no_other_and_later_days_count_as_today() {
        let data = tempdir().unwrap();
        let root = data.path().join(REMOVED);
        for day in ["2026-11-19", "2026-11-20", "2026-11-21", "2027-11-22"] {
            fs::create_dir_all(root.join(day).join("raw/block")).unwrap();
        }
        fs::create_dir(root.join("lost+found")).unwrap();
        // A folder that cannot be deleted, because it is a file.
        fs::write(root.join("2026-11-18"), "").unwrap();

        let at = |text: &str| Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        assert!(delete_old(data.path(), at("2026-11-21T12:00:00Z")).is_err());
        assert_eq!(
            days(data.path()),
            [
                "2026-11-18",
                "2026-11-20",
                "2026-11-21",
                "2026-11-21-dated-2027-11-22",
                "lost+found"
            ]
        );
        let kept = root.join("2026-11-21-dated-2027-11-22/raw/block");
        assert!(kept.exists(), "can be moved back as others");

        fs::remove_file(root.join("2026-11-18")).unwrap();
        delete_old(data.path(), at("2026-11-22T23:59:59Z")).unwrap();
        assert!(kept.exists());
        delete_old(data.path(), at("2026-11-23T00:00:00Z")).unwrap();
        assert_eq!(days(data.path()), ["lost+found"]);

        delete_all(data.path(), "a test").unwrap();
        assert!(!root.exists());
    }
}
