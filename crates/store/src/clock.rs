//! What time it is, for the store: a test or a long run at an accelerated pace has a clock of its own.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use takt_model::Timestamp;

/// Tells the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that shows what `now` says.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time it shows.
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
