//! The clock of the store. Tests and accelerated runs replace the system's clock.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use takt_model::Timestamp;

/// Source of the current time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Returns a clock that calls `now`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.0()
    }
}

impl Default for Clock {
    /// The system's clock.
    fn default() -> Self {
        Self::new(|| SystemTime::now().into())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
