//! Open files for connections to targets.
//!
//! Each target has a connection for its scrapes, and each exporter one for its stream of events.
//! Where there are fewer files than that, streams keep theirs, and the scrapes share the rest: each
//! closes its connection after the page.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Part of the files that no connection keeps between two requests.
const SPARE: usize = 10;

/// The files. Clones share them.
#[derive(Debug, Clone)]
pub struct TargetFiles {
    free: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    spare: usize,
}

/// A file for a stream; free again when this is dropped.
#[derive(Debug)]
pub struct StreamFile {
    _stream: OwnedSemaphorePermit,
    _file: OwnedSemaphorePermit,
}

impl Default for TargetFiles {
    /// More than there are targets.
    fn default() -> Self {
        Self::new(Semaphore::MAX_PERMITS)
    }
}

impl TargetFiles {
    /// So many files may be open for targets.
    pub fn new(files: usize) -> Self {
        let files = files.clamp(2, Semaphore::MAX_PERMITS);
        let spare = (files / SPARE).max(1);
        Self {
            free: Arc::new(Semaphore::new(files)),
            streams: Arc::new(Semaphore::new(files - spare)),
            spare,
        }
    }

    /// Number of files that `targets` need at least: one for each stream of events, and a share for
    /// their scrapes.
    pub fn needed(targets: usize) -> usize {
        targets + targets.div_ceil(SPARE - 1)
    }

    /// Waits for a file.
    pub(super) async fn for_scrape(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Whether a connection may stay open between two scrapes.
    pub(super) fn has_spare(&self) -> bool {
        self.free.available_permits() >= self.spare
    }

    /// Waits for a file for a stream. `None` if streams have as many as they may.
    pub async fn for_stream(&self) -> Option<StreamFile> {
        let stream = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let file = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(StreamFile {
            _stream: stream,
            _file: file,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time;

    #[tokio::test]
    async fn streams_leave_some_files_and_scrapes_share_them() {
        let files = TargetFiles::new(20);
        let mut kept = Vec::new();
        while files.has_spare() {
            kept.push(files.for_scrape().await.unwrap());
        }
        assert_eq!(kept.len(), 19);

        let mut streams = vec![files.for_stream().await.unwrap()];
        let waits = time::timeout(Duration::from_millis(20), files.for_stream()).await;
        assert!(waits.is_err(), "until a scrape closes its connection");
        kept.clear();
        while let Some(stream) = files.for_stream().await {
            streams.push(stream);
        }
        assert_eq!(streams.len(), 18);
        let scrape = files.for_scrape().await.unwrap();
        assert!(
            !files.has_spare(),
            "it closes its connection after the page"
        );
        drop(scrape);
        assert!(files.for_scrape().await.is_some());
        assert!(TargetFiles::needed(18) <= 20);
    }
}
