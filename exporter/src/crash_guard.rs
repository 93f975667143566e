//! Collectors that run code of others in this process, which may end it.
//!
//! A library that crashes while it is read for the first time would end each start before the page
//! is served once. So a file in the state directory counts starts that have not come to the end of
//! a first reading; a good reading or an orderly end removes it. After three such starts the
//! collector waits, and the exporter serves the others.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Starts in a row that may end during the first reading.
const MAX_CRASHES: u32 = 3;
/// How long the collector waits after those.
const WAIT: Duration = Duration::from_secs(600);

/// The count of one collector.
#[derive(Debug)]
pub(crate) struct CrashGuard {
    path: PathBuf,
    /// Starts before this one that ended during the first reading.
    crashes: u32,
}

impl CrashGuard {
    /// Counts this start as one that may end early. Fails where the directory cannot be written.
    pub fn begin(state_directory: &Path, collector: &str) -> io::Result<Self> {
        let path = state_directory.join(format!("{collector}.starts"));
        let crashes = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };

        let guard = Self { path, crashes };
        std::fs::write(&guard.path, crashes.saturating_add(1).to_string())?;
        Ok(guard)
    }

    /// How long the first reading has to wait.
    pub fn wait(&self) -> Option<Duration> {
        (self.crashes >= MAX_CRASHES).then_some(WAIT)
    }

    /// Starts before this one that ended during the first reading.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// A reading ended well, or the exporter ends in order: nothing is counted any more.
    pub fn clear(&self) {
        // A file that stays after an error causes a wait at most.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_crashes_bring_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let begin = || CrashGuard::begin(directory.path(), "nvml").unwrap();
        for _ in 0..MAX_CRASHES {
            assert_eq!(begin().wait(), None);
        }
        assert_eq!(begin().wait(), Some(WAIT));
        begin().clear();
        assert_eq!(begin().wait(), None);
        std::fs::write(directory.path().join("nvml.starts"), "damaged").unwrap();
        assert_eq!(begin().wait(), None);
        assert!(CrashGuard::begin(Path::new("/nonexistent"), "nvml").is_err());
    }
}
