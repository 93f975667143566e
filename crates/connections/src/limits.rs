//! Limits of connections, and of the open files that they take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;

/// How often open connections are checked against their time limits.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time in which an answer in memory has to be read: 256 MiB at 4 Mbit/s.
pub const ANSWER_TIME: Duration = Duration::from_secs(600);

/// Time in which an import has to arrive: 4 GiB at 10 Mbit/s.
pub const UPLOAD_TIME: Duration = Duration::from_secs(3600);

/// Limits of the connections of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of open connections whose request has no [`TakenPlace`](crate::TakenPlace).
    pub total: usize,
    /// Of them, those of one client.
    pub per_client: usize,
    /// Time a client has to send the head of a request, TLS handshake included.
    pub head: Duration,
    /// Time a connection may wait for its next request.
    pub idle: Duration,
    /// Time without a byte of an upload, or that a client has to read what was sent.
    pub stall: Duration,
    /// Bytes per second that an upload, and the reading of an answer, must reach over its whole
    /// length. Only the time in which the server waits for the client counts.
    pub min_bytes_per_second: u64,
    /// Time that an upload has on top of what its bytes need at the least rate.
    pub upload_grace: Duration,
    /// Time in which the whole upload has to arrive, of a request that has no time of its own.
    pub upload: Duration,
    /// Time in which a client has to read an answer that is in memory. Only the time in which the
    /// server waits for the client counts.
    pub answer_in_memory: Duration,
    /// Time after which a client that does not read gives way to a new connection.
    pub stall_patience: Duration,
}

impl ConnectionLimits {
    /// Lowers the total, so that `reserved` of `files` open files are left for other work. Where
    /// the limit of open files is low, half of it is for connections.
    #[must_use]
    pub fn within_files(self, files: usize, reserved: usize) -> Self {
        let allowed = files.saturating_sub(reserved).max(files / 2);
        Self {
            total: self.total.min(allowed),
            ..self
        }
    }
}

/// Raises the soft limit of open files to `wanted`, as far as the hard limit allows it.
///
/// # Errors
/// If the kernel refuses.
pub fn raise_open_files(wanted: u64) -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    // Without privileges, the soft limit can be raised up to the hard one only.
    let wanted = now.maximum.map_or(wanted, |most| most.min(wanted));
    // A limit that an administrator set higher, or that is unlimited (`None`), is not lowered.
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }

    let raised = Rlimit {
        current: Some(wanted),
        maximum: now.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

/// Soft limit of open files.
pub fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}
