//! The directories of cgroups, kept between readings.
//!
//! A cgroup that got or lost a directory has another number of links. To ask for that number costs
//! a tenth of a listing, so a list is read again when the number differs, or after [`KEPT`]: one
//! directory may replace another.

use rustix::fs::{FsWord, statfs};
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time that a list serves.
const KEPT: Duration = Duration::from_secs(4);

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC`. Some other file systems do not count links.
const CGROUP_FILE_SYSTEMS: [FsWord; 2] = [0x0027_e0eb, 0x6367_7270];

/// A directory has two links of its own and one of each directory in it. Most cgroups have no
/// directories.
const NO_DIRECTORIES: u64 = 2;

/// Directories of cgroups that were listed.
#[derive(Debug)]
pub(super) struct CgroupListings {
    /// Whether the file system of a directory counts links.
    counts_links: fn(&Path) -> bool,
    known: HashMap<PathBuf, Listing>,
    /// Start of this reading.
    now: Instant,
}

#[derive(Debug)]
struct Listing {
    inode: u64,
    links: u64,
    listed: Instant,
    /// Reading that used the list last.
    used: Instant,
    names: Arc<[String]>,
}

impl CgroupListings {
    pub fn new() -> Self {
        Self {
            counts_links: is_of_cgroups,
            known: HashMap::new(),
            now: Instant::now(),
        }
    }

    /// Begins a reading.
    pub fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// Forgets directories that this reading did not use.
    pub fn end(&mut self) {
        let now = self.now;
        self.known.retain(|_, listing| listing.used == now);
    }

    /// The names of the directories in one; none where it is gone.
    pub fn directories(&mut self, path: &Path) -> Arc<[String]> {
        let Some(found) = metadata_unless_empty(path) else {
            return Arc::default();
        };

        let now = self.now;
        if let Some(known) = self.known.get_mut(path)
            && (known.inode, known.links) == (found.ino(), found.nlink())
            && now.saturating_duration_since(known.listed) < KEPT
        {
            known.used = now;
            return Arc::clone(&known.names);
        }

        let names: Arc<[String]> = list(path).collect();
        if (self.counts_links)(path) {
            let listing = Listing {
                inode: found.ino(),
                links: found.nlink(),
                listed: now,
                used: now,
                names: Arc::clone(&names),
            };
            self.known.insert(path.to_owned(), listing);
        }
        names
    }
}

/// The names of the directories in one; none where it is gone.
pub(super) fn directories(path: &Path) -> impl Iterator<Item = String> {
    let found = metadata_unless_empty(path);
    found.map(|_| list(path)).into_iter().flatten()
}

/// `None` for a directory without directories.
fn metadata_unless_empty(path: &Path) -> Option<Metadata> {
    let found = std::fs::metadata(path).ok()?;
    (found.nlink() != NO_DIRECTORIES).then_some(found)
}

fn list(path: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.filter_map(|entry| entry.file_name().into_string().ok())
}

fn is_of_cgroups(path: &Path) -> bool {
    statfs(path).is_ok_and(|system| CGROUP_FILE_SYSTEMS.contains(&system.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_is_seen_at_once_and_a_replaced_one_after_seconds() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        let mut listings = CgroupListings {
            // In a file system that does not count links, every reading lists.
            counts_links: |path| std::fs::metadata(path).is_ok_and(|found| found.nlink() > 2),
            ..CgroupListings::new()
        };
        let begin = Instant::now();
        let mut read = |seconds| {
            listings.begin(begin + Duration::from_secs(seconds));
            let mut names = listings.directories(path).to_vec();
            listings.end();
            names.sort();
            (names, listings.known.len())
        };
        assert_eq!(read(0), (vec![], 0));
        std::fs::create_dir(path.join("job_1")).unwrap();
        std::fs::write(path.join("tasks"), "").unwrap();
        let (names, kept) = read(1);
        assert_eq!(names, ["job_1"]);
        std::fs::create_dir(path.join("job_2")).unwrap();
        assert_eq!(read(1).0, ["job_1", "job_2"]);
        std::fs::rename(path.join("job_2"), path.join("job_3")).unwrap();
        if kept == 1 {
            assert_eq!(read(2).0, ["job_1", "job_2"], "as many as before");
        }
        assert_eq!(read(1 + KEPT.as_secs()).0, ["job_1", "job_3"]);
        std::fs::remove_dir(path.join("job_1")).unwrap();
        std::fs::remove_dir(path.join("job_3")).unwrap();
        assert_eq!(read(6), (vec![], 0), "forgotten");
    }

    #[test]
    fn the_file_system_of_cgroups_is_known() {
        assert!(!is_of_cgroups(Path::new("/proc")));
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers");
        if unified.exists() {
            assert!(is_of_cgroups(Path::new("/sys/fs/cgroup")));
        }
    }
}
