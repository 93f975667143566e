//! The clocks of the store. Tests and accelerated runs replace the system's.

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::SystemTime;
use takt_model::Timestamp;

/// Source of the current time, and of the time since boot, which nobody can set.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Milliseconds since boot.
    since_boot: Arc<dyn Fn() -> i64 + Send + Sync>,
    boot: Arc<str>,
}

impl Clock {
    /// Returns a clock that calls `now`. As much time passes as it shows.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let now = Arc::new(now);
        let shown = Arc::clone(&now);
        Self {
            now,
            since_boot: Arc::new(move || shown().0),
            boot: "given".into(),
        }
    }

    /// Returns the clock with a time since boot of its own: milliseconds that pass whatever the
    /// clock shows.
    #[must_use]
    pub fn with_boot_ms(self, boot_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self {
            since_boot: Arc::new(boot_ms),
            ..self
        }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Milliseconds since the machine was started, including those in which it was suspended.
    pub(crate) fn boot_ms(&self) -> i64 {
        (self.since_boot)()
    }

    /// Name of the machine's start: the times since two boots have nothing in common.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }
}

impl Default for Clock {
    /// The system's clocks.
    fn default() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let since_boot = || {
            let passed = clock_gettime(ClockId::Boottime);
            passed.tv_sec * 1000 + passed.tv_nsec / 1_000_000
        };
        Self {
            now: Arc::new(|| SystemTime::now().into()),
            since_boot: Arc::new(since_boot),
            boot: boot.trim().into(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
