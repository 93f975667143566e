//! A bound on the log of events: a broken device can report thousands of errors an hour.

use std::collections::HashMap;
use takt_model::Event;

/// Maximum number of events of a node that are logged in an hour. Rules see all events.
const MOST_PER_HOUR: u32 = 500;

const HOUR_MS: i64 = 3_600_000;

/// Counts the logged events of each node in the current hour.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Hour since 1970 and number of events, by node.
    counts: HashMap<String, (i64, u32)>,
}

impl Recorded {
    /// Counts an event. Returns whether it is logged.
    pub fn admits(&mut self, event: &Event) -> bool {
        let node = event.labels.get("node").unwrap_or_default();
        let hour = event.at.0.div_euclid(HOUR_MS);
        let count = self.counts.entry(node.to_owned()).or_default();
        if count.0 != hour {
            *count = (hour, 0);
        }
        count.1 = count.1.saturating_add(1);
        count.1 <= MOST_PER_HOUR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::{EventKind, Labels, Timestamp};

    #[test]
    fn a_storm_of_one_node_leaves_room_for_others() {
        let mut recorded = Recorded::default();
        let event = |node: &str, at: i64| Event {
            id: 1,
            at: Timestamp(at),
            kind: EventKind::Xid,
            labels: Labels::from_iter([("node", node)]),
            message: String::new(),
        };
        let logged = (0..600)
            .filter(|_| recorded.admits(&event("g1", 5)))
            .count();
        assert_eq!(logged, 500);
        assert!(recorded.admits(&event("g2", 5)));
        assert!(recorded.admits(&event("g1", HOUR_MS)), "the next hour");
    }
}
