//! Election among replicated senders: the samples of one replica are stored.

use std::sync::Arc;
use std::time::Duration;
use takt_model::Timestamp;

/// Time without samples after which another replica takes over.
const PATIENCE: Duration = Duration::from_secs(30);

/// The elected replica.
#[derive(Debug, Default)]
pub(super) struct Election(Option<(Arc<str>, Timestamp)>);

impl Election {
    /// Returns whether samples of `replica` that arrive `now` are stored.
    pub fn accepts(&mut self, replica: &Arc<str>, now: Timestamp) -> bool {
        match &mut self.0 {
            Some((elected, seen)) if elected == replica => {
                *seen = now.max(*seen);
                true
            }
            Some((_, seen)) if now <= seen.plus(PATIENCE) => false,
            state => {
                *state = Some((Arc::clone(replica), now));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_replica_takes_over_after_thirty_seconds_of_silence() {
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let mut election = Election::default();
        let mut accepts = |replica, second: i64| {
            let at = Timestamp(second * 1000);
            election.accepts(replica, at)
        };
        assert!(accepts(&a, 0));
        assert!(!accepts(&b, 1));
        assert!(accepts(&a, 20));
        assert!(!accepts(&b, 50), "a was silent for 30 seconds");
        assert!(accepts(&b, 51));
        assert!(!accepts(&a, 52), "b stays elected");
    }
}
