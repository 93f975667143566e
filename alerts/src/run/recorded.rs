//! A bound on the log of events: a broken device can report thousands of errors an hour.

use std::collections::HashMap;
use takt_model::{Event, EventKind};

/// Maximum number of events of a node that are logged in an hour. Rules see all events.
const MOST_PER_HOUR: u32 = 500;

/// Events of one kind, device and code that are logged in an hour in any case: a flood of one GPU hides no
/// fault of another.
const LEAST_PER_HOUR: u32 = 10;

/// Kinds, devices and codes of a node for which [`LEAST_PER_HOUR`] holds.
const STREAMS_MAX: usize = 200;

const HOUR_MS: i64 = 3_600_000;

/// Counts the logged events of each node in the current hour.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    by_node: HashMap<String, NodeCounts>,
}

/// Events of a node in an hour.
#[derive(Debug, Default)]
struct NodeCounts {
    /// Hours since 1970.
    hour: i64,
    all: u32,
    by_stream: HashMap<(EventKind, String), u32>,
}

impl Recorded {
    /// Counts an event. Returns whether it is logged.
    pub fn admits(&mut self, event: &Event) -> bool {
        let label = |name: &str| event.labels.get(name).unwrap_or_default();
        let hour = event.at.0.div_euclid(HOUR_MS);
        let counts = self.by_node.entry(label("node").to_owned()).or_default();
        if counts.hour != hour {
            *counts = NodeCounts {
                hour,
                ..NodeCounts::default()
            };
        }

        counts.all = counts.all.saturating_add(1);

        let place = ["uuid", "pci_bus_id", "device", "xid", "severity"].map(label);
        let stream = (event.kind, place.join("\n"));

        // A node names its devices itself: a broken one must not fill the memory with names.
        let is_known = counts.by_stream.contains_key(&stream);
        if !is_known && counts.by_stream.len() >= STREAMS_MAX {
            return counts.all <= MOST_PER_HOUR;
        }

        let of_stream = counts.by_stream.entry(stream).or_default();
        *of_stream = of_stream.saturating_add(1);
        counts.all <= MOST_PER_HOUR || *of_stream <= LEAST_PER_HOUR
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

        // The GPU that is lost among 600 errors of another one is the event that counts.
        let lost = Event {
            labels: Labels::from_iter([("node", "g1"), ("uuid", "GPU-7"), ("xid", "79")]),
            ..event("g1", 5)
        };
        assert!(recorded.admits(&lost), "another GPU");
        assert!(recorded.admits(&event("g2", 5)));
        assert!(recorded.admits(&event("g1", HOUR_MS)), "the next hour");
    }
}
